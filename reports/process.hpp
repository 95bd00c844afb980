#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tsdiag::reports {

struct Outcome {
    bool found = true;       ///< was there such a program?
    int status = 0;          ///< exit status; 128 + signal where one ended it
    std::string first_line;  ///< of what it said, for the message
};

/// Runs `arguments[0]`, found on PATH, in `directory`, and waits.  No shell reads the arguments.
Outcome run_program(const std::vector<std::string>& arguments,
                    const std::filesystem::path& directory);

}  // namespace tsdiag::reports
