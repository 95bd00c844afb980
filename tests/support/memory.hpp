#pragma once
#include <stdexcept>
#include <string>

#include "tsdiag/error.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag::test {

/// The least memory of `run` in bytes, from its message when it refuses one byte.
inline Index least_memory(RunOptions options) {
    options.memory = 1;
    try {
        run(options);
    } catch (const UsageError& e) {
        const std::string said = e.what(), before = "needs at least ";
        const std::size_t at = said.find(before);
        if (at != std::string::npos) return std::stoll(said.substr(at + before.size())) << 20;
    }
    throw std::runtime_error("one byte of memory was not refused with the least that suffices");
}

}  // namespace tsdiag::test
