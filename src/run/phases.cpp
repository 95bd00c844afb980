#include <sys/resource.h>

#include <fstream>
#include <string>

#include "tsdiag/run.hpp"

namespace tsdiag {
namespace {

/// The largest resident size since the last `forget_peak`, in bytes.
Index peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return Index(std::stoll(line.substr(6))) * 1024;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return Index(usage.ru_maxrss) * 1024;
}

/// Resets the peak where the kernel allows it; else the peak is that of the whole process.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Phases::begin(std::string name) {
    end();
    forget_peak();
    name_ = std::move(name);
    start_ = std::chrono::steady_clock::now();
}

void Phases::end() {
    if (name_.empty()) return;
    done_.push_back({std::move(name_), seconds_since(start_), peak_memory()});
    name_.clear();
}

}  // namespace tsdiag
