#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// Documents generated from the options themselves.
namespace tsdiag::cli {

/// The manual page of a command in roff, or that of the program: man ./tsdiag-probe.1
std::string manual_page(const CLI::App& app, const CLI::App& program);

/// Values that an argument of a command accepts, beside files: names of figures, of claims, ...
struct Candidates {
    std::string command;
    std::vector<std::string> words;
};

/// The script that completes command lines in a shell: bash, zsh or fish; empty for another.
std::string completion(const CLI::App& program, const std::vector<Candidates>& candidates,
                       const std::string& shell);

}  // namespace tsdiag::cli
