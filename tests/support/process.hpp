#pragma once
#include <sys/types.h>

#include <fstream>
#include <string>

namespace tsdiag::test {

/// Is the process alive, and not a zombie?
inline bool is_alive(pid_t process) {
    std::ifstream in("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(in, text)) return false;
    const char state = text[text.rfind(')') + 2];
    return state != 'Z' && state != 'X';
}

}  // namespace tsdiag::test
