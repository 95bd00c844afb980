#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"

/// The commands of the program: a list, one file each in src/cli/commands.
namespace tsdiag::cli {

/// How several processes compute the units of a command, and the folder of its result.
struct Splitting {
    SplitOptions& options;
    std::string& out;
};

/// A command with its options, which are its members.
class Command {
  public:
    virtual ~Command() = default;
    /// Returns the exit code.  Errors are thrown.
    virtual int run() const = 0;
    /// None where one process runs it.
    virtual std::optional<Splitting> splitting() { return std::nullopt; }
    /// It prints a text of the program itself and needs no rank but the first.
    virtual bool only_prints() const { return false; }
};

struct CommandEntry {
    std::string_view name;
    const char* about;     ///< a line of `tsdiag --help`
    const char* examples;  ///< below its own help; may be empty
    /// Adds its options to `app`, which lives as long as they do.  `inner`: see `takes_command`.
    std::unique_ptr<Command> (*make)(CLI::App& app, const std::vector<std::string>& inner);
    /// What its argument accepts beside files, for completion; null: nothing.
    std::vector<std::string> (*names)() = nullptr;
    bool has_settings = false;     ///< takes --settings and --print-settings
    bool rewrites_folder = false;  ///< its argument is the folder that it writes
    bool runs_models = false;      ///< its options are those of `RunOptions`
    bool takes_command = false;    ///< the words behind its options are a command, `inner`
};

/// In the order of `tsdiag --help`.
std::span<const CommandEntry* const> commands();

/// `make` of a command whose options are the members of `Of`.
template <class Of>
std::unique_ptr<Command> made(CLI::App& app, const std::vector<std::string>& inner) {
    if constexpr (std::is_constructible_v<Of, CLI::App&, const std::vector<std::string>&>)
        return std::make_unique<Of>(app, inner);
    else
        return std::make_unique<Of>(app);
}

/// argv, for run.json; set by main.
std::vector<std::string>& command_line();
/// Names of random models, "random:NAME".
std::vector<std::string> random_models();

}  // namespace tsdiag::cli
