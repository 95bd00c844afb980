#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tsdiag/backend.hpp"

namespace tsdiag {
namespace {

struct Shortages {
    std::mutex mutex;
    std::map<std::string, Index, std::less<>> counts;
};
Shortages& noted() {
    static Shortages all;
    return all;
}

}  // namespace

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

void note_shortage(std::string_view what) {
    const std::lock_guard lock(noted().mutex);
    ++noted().counts[std::string(what)];
}

std::vector<std::string> shortages() {
    const std::lock_guard lock(noted().mutex);
    std::vector<std::string> lines;
    for (const auto& [what, count] : noted().counts)
        lines.push_back(fmt::format(
            "the device ran out of memory: {}, {} time{}; the last bits depend on its other load",
            what, count, count == 1 ? "" : "s"));
    return lines;
}

void restart_shortages() {
    const std::lock_guard lock(noted().mutex);
    noted().counts.clear();
}

}  // namespace tsdiag
