#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tsdiag::reports {

struct Outcome {
    bool found = true;       ///< was there such a program?
    bool in_time = true;     ///< did it end by itself?
    int status = 0;          ///< exit status; 128 + signal where one ended it
    std::string first_line;  ///< of what it said, for the message
};

/// Runs `arguments[0]`, found on PATH, in `directory`, and waits: at most `limit`, then it is
/// killed with all that it started, as it is where this process or the calling thread ends first.
/// No shell reads the arguments.
Outcome run_program(const std::vector<std::string>& arguments,
                    const std::filesystem::path& directory,
                    std::chrono::seconds limit = std::chrono::minutes(5));

}  // namespace tsdiag::reports
