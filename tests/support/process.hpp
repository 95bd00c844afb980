#pragma once
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace tsdiag::test {

/// Is the process alive, and not a zombie?
inline bool is_alive(pid_t process) {
    std::ifstream in("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(in, text)) return false;
    const char state = text[text.rfind(')') + 2];
    return state != 'Z' && state != 'X';
}

/// Waits until it is not; false where that takes a minute, as of a process that nobody ends.
inline bool dies(pid_t process) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (is_alive(process) && std::chrono::steady_clock::now() < patience)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !is_alive(process);
}

}  // namespace tsdiag::test
