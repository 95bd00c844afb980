#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// Options of a command as a TOML file: --settings FILE reads it, --print-settings writes it.
namespace tsdiag::cli {

/// Adds --settings and --print-settings to a command; `print` is set by the second.
void add_settings(CLI::App* app, bool& print);

/// `words` (argv without the program) with the options of the file of `--settings FILE` before
/// them: those at its top and those of the section of the command, e.g. [probe].  What is given in
/// `words` too is left out, so that the command line has the last word.  A name is that of a long
/// option or of an argument (model = "random:gpt2"); true stands for a flag, a list for repetition.
/// Throws `UsageError` naming the file for an unknown name or another kind of value.
std::vector<std::string> with_settings(const CLI::App& program, std::vector<std::string> words);

/// The options that were given to a command, as such a file.
std::string settings_text(const CLI::App& app);

}  // namespace tsdiag::cli
