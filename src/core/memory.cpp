#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "tsdiag/backend.hpp"

namespace tsdiag {

std::size_t machine_memory() {
    std::size_t bytes = std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGE_SIZE));
    for (const char* limit :
         {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream in(limit);
        std::string word;  // a number, or "max"
        std::size_t value = 0;
        if (!(in >> word)) continue;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (error == std::errc() && value > 0) bytes = std::min(bytes, value);
    }
    return bytes;
}

}  // namespace tsdiag
