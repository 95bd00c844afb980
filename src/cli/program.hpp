#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"

namespace tsdiag::cli {

/// The program with all its commands, and what a command line asks of it: the only parser of argv.
class Program {
  public:
    /// `words`: argv without the program.  Throws `UsageError` with the nearest command or option.
    /// What the options name to be read is never replaced afterwards (`set_inputs`).
    explicit Program(const std::vector<std::string>& words);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    /// That of the words; for --help, --version and --print-settings one that prints the text.
    Command& command() { return *chosen_; }
    /// Its name; empty without one.
    const std::string& name() const;
    bool json() const { return json_; }

  private:
    struct Added {
        const CommandEntry* entry;
        CLI::App* app;
        std::unique_ptr<Command> command;
    };

    void parse(const std::vector<std::string>& words);
    void choose();
    void show(std::string text);
    const CLI::App& given() const;
    const Added* added(std::string_view name) const;
    std::string title() const;
    std::string help() const;
    std::string json_help() const;
    std::vector<std::string> asked(const std::vector<std::string>& words) const;
    std::vector<std::string> command_names() const;
    void refuse_extras() const;
    [[noreturn]] void refuse(const std::string& word, std::string_view kind,
                             const std::vector<std::string>& known) const;

    CLI::App app_;
    std::vector<Added> commands_;
    std::vector<std::string> inner_;  ///< a command behind the options of `submit`
    std::unique_ptr<Command> text_;   ///< prints what no command prints
    Command* chosen_ = nullptr;
    bool print_settings_ = false, json_ = false;
};

}  // namespace tsdiag::cli
