#include "tsdiag/memory.hpp"

#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "block_pool.hpp"
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

/// Blocks of malloc from this size on are mapped, and what is free at the end of its heap is
/// returned from that size on.  Fixed: by itself malloc raises both, and keeps ever larger blocks
/// and holes.
void set_malloc(int mapped, int returned) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, mapped);
    mallopt(M_TRIM_THRESHOLD, returned);
#else
    (void)mapped, (void)returned;
#endif
}

std::atomic<int> processes_here = 1;

}  // namespace

void keep_freed_memory() {
    BlockPool::of_tensors().set_slack(std::size_t{64} << 20);
    set_malloc(32 << 20, 64 << 20);  // 32 MB is the most; the packed factors of a product take some
}

void return_freed_memory() {
    BlockPool::of_tensors().set_slack(0);
    set_malloc(1 << 18, 1 << 20);
}

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

void share_machine_memory(int processes) { processes_here = processes; }

std::size_t process_memory() { return machine_memory() / std::size_t(processes_here); }

std::string of_each_process() {
    const int processes = processes_here;
    return processes == 1 ? "" : fmt::format(" for each of {} processes", processes);
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
