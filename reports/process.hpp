#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tsdiag::reports {

struct Outcome {
    bool found = true;       ///< was there such a program?
    bool in_time = true;     ///< did it end before the limit?
    int status = 0;          ///< exit status; 128 + signal where a signal ended it
    std::string first_line;  ///< of its output, for the message
};

/// Runs `arguments[0]`, found on PATH, in `directory`, and waits at most `limit`.  Then, or when
/// this process or the calling thread ends first, it is killed with its process group.  No shell
/// is involved.
Outcome run_program(const std::vector<std::string>& arguments,
                    const std::filesystem::path& directory,
                    std::chrono::seconds limit = std::chrono::minutes(5));

}  // namespace tsdiag::reports
