#pragma once
#include <sys/types.h>

#include <fstream>
#include <string>

namespace tsdiag::test {

/// Does the process exist, and not only as one that its parent has not waited for?
inline bool is_alive(pid_t process) {
    std::ifstream in("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(in, text)) return false;
    const char state = text[text.rfind(')') + 2];
    return state != 'Z' && state != 'X';
}

}  // namespace tsdiag::test
