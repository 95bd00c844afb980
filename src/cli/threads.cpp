#include "threads.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "terminal.hpp"

namespace tsdiag::cli {
namespace {

constexpr const char* policy_variable = "OMP_WAIT_POLICY";

/// How many of `wanted` threads can exist at once, including this one.
Index startable(Index wanted) {
    std::vector<std::thread> others;
    std::latch all_started(1);
    try {
        while (std::ssize(others) < wanted - 1) others.emplace_back([&] { all_started.wait(); });
    } catch (const std::system_error&) {  // a limit on processes, threads or memory
    }
    all_started.count_down();
    for (std::thread& other : others) other.join();
    return std::ssize(others) + 1;
}

}  // namespace

void wait_passively(char** argv) {
    if (std::getenv(policy_variable) || std::getenv("GOMP_SPINCOUNT")) return;
    std::string program(4096, '\0');
    const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
    if (length <= 0 || length == std::ssize(program)) return;
    program.resize(std::size_t(length));
    setenv(policy_variable, "passive", 1);
    execv(program.c_str(), argv);
    unsetenv(policy_variable);  // execv failed: this process keeps the default policy
}

std::string wait_policy() {
    const char* policy = std::getenv(policy_variable);
    return policy ? policy : "default";
}

void use_threads(Index wanted) {
    constexpr Index most = 1024;  // the limit of --threads
    const Index asked = wanted > 0 ? wanted : omp_get_max_threads();
    const Index count = startable(std::min(asked, most));
    omp_set_num_threads(int(count));
    if (count < asked)
        say(fmt::format("tsdiag: using {} threads instead of {}: no more can be started here.",
                        count, asked));
}

}  // namespace tsdiag::cli
