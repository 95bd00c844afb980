#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "command.hpp"
#include "program.hpp"
#include "ranks.hpp"
#include "split.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"

/// `merge`: the result of a command whose units other processes have computed.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct MergeCommand final : Command {
    explicit MergeCommand(CLI::App& app);
    int run() const override;

    std::string directory;
};

struct Found {
    std::vector<std::string> words;
    std::string result;  ///< its folder
    bool operator==(const Found&) const = default;
};

/// The commands whose units are there, each once.  Their words may name files from where they were
/// given.
std::vector<Found> commands_in(const std::string& directory) {
    std::vector<Found> found;
    const std::string here = fs::current_path().string();
    for (const JobStatus& job : job_status(directory)) {
        if (job.words.empty()) continue;
        if (job.directory != here)
            throw UsageError(fmt::format("{}: its parts ran in {}, expected merge to run there.",
                                         directory, job.directory));
        fs::path result = fs::path(job.result).lexically_normal();
        if (!result.has_filename()) result = result.parent_path();
        if (job.words.front() == "figure")  // all figures of a command are in one folder
            result = fs::absolute(result).lexically_normal().parent_path();
        Found one{job.words, result.string()};
        if (std::ranges::find(found, one) == found.end()) found.push_back(std::move(one));
    }
    return found;
}

}  // namespace

MergeCommand::MergeCommand(CLI::App& app) {
    app.add_option("DIR", directory, "--out of that command")->required()->type_name("");
}

int MergeCommand::run() const {
    const std::vector<Found> found = commands_in(directory);
    if (found.empty())
        throw MissingUnits(
            fmt::format("{}: has no finished units, expected those of a command with --part, whose "
                        "--out it is.",
                        directory));
    int code = 0;
    std::vector<std::string> failed;  // of several jobs, some may have been given up
    const std::string program = command_line().front();
    for (const auto& [words, result] : found) {
        Program one(words);
        const std::optional<Splitting> splitting = one.command().splitting();
        if (!splitting)
            throw FormatError(fmt::format("{}: units of '{}', expected figure, check or probe.",
                                          directory, words.front()));
        splitting->out = result;  // their folder may have got another name since
        command_line() = words;   // of run.json
        command_line().insert(command_line().begin(), program);
        participation().merges = true;
        try {
            code = std::max(code, one.command().run());
        } catch (const MissingUnits& error) {
            failed.emplace_back(error.what());
        }
    }
    if (failed.size() == found.size()) throw MissingUnits(failed.front());
    for (const std::string& reason : failed) say("tsdiag: " + printable(reason));
    return code;
}

extern const CommandEntry merge_command = {.name = "merge",
                                           .about = "make the result of a command run by --part",
                                           .examples = R"(Example:
  tsdiag figure tse.fig3 --scale paper --part 1/8    on eight machines, 1/8 to 8/8
  tsdiag merge figures)",
                                           .make = made<MergeCommand>,
                                           .rewrites_folder = true};

}  // namespace tsdiag::cli
