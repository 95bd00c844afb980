#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "commands.hpp"
#include "ranks.hpp"
#include "split.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"

/// `merge`: the result of a command whose units other processes have computed.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

bool may_merge(const Command& command) {
    return std::holds_alternative<FigureCommand>(command) ||
           std::holds_alternative<CheckCommand>(command) ||
           std::holds_alternative<ProbeCommand>(command);
}

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

/// The units say where the result belongs: their folder may have got another name since.
void set_out(Command& command, const std::string& result) {
    if (auto* figure = std::get_if<FigureCommand>(&command)) figure->out = result;
    if (auto* check = std::get_if<CheckCommand>(&command)) check->out = result;
    if (auto* probe = std::get_if<ProbeCommand>(&command)) probe->out = result;
}

}  // namespace

int run_command(const MergeCommand& command) {
    const std::vector<Found> found = commands_in(command.directory);
    if (found.empty())
        throw MissingUnits(
            fmt::format("{}: has no finished units, expected those of a command with --part, whose "
                        "--out it is.",
                        command.directory));
    int code = 0;
    std::vector<std::string> failed;  // of several jobs, some may have been given up
    const std::string program = command_line().front();
    for (const auto& [words, result] : found) {
        std::vector<const char*> argv = {program.c_str()};
        for (const std::string& word : words) argv.push_back(word.c_str());
        Command one = parse(int(argv.size()), argv.data());
        if (!may_merge(one))
            throw FormatError(fmt::format("{}: units of '{}', expected figure, check or probe.",
                                          command.directory, words.front()));
        set_out(one, result);
        command_line().assign(argv.begin(), argv.end());  // of run.json
        participation().merges = true;
        try {
            code = std::max(code, run_command_of(one));
        } catch (const MissingUnits& error) {
            failed.emplace_back(error.what());
        }
    }
    if (failed.size() == found.size()) throw MissingUnits(failed.front());
    for (const std::string& reason : failed) say("tsdiag: " + printable(reason));
    return code;
}

}  // namespace tsdiag::cli
