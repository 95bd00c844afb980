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

bool may_merge(const Command& command) {
    return std::holds_alternative<FigureCommand>(command) ||
           std::holds_alternative<CheckCommand>(command) ||
           std::holds_alternative<ProbeCommand>(command);
}

/// The commands whose units are there, each once.  Their words may name files from where they were
/// given.
std::vector<std::vector<std::string>> commands_in(const std::string& directory) {
    std::vector<std::vector<std::string>> found;
    const std::string here = std::filesystem::current_path().string();
    for (const JobStatus& job : job_status(directory)) {
        if (job.words.empty() || std::ranges::find(found, job.words) != found.end()) continue;
        if (job.directory != here)
            throw UsageError(fmt::format("{}: its parts ran in {}, expected merge to run there.",
                                         directory, job.directory));
        found.push_back(job.words);
    }
    return found;
}

}  // namespace

int run_command(const MergeCommand& command) {
    const std::vector<std::vector<std::string>> found = commands_in(command.directory);
    if (found.empty())
        throw UsageError(
            fmt::format("{}: has no finished units, expected those of a command with --part, whose "
                        "--out it is.",
                        command.directory));
    int code = 0;
    std::vector<std::string> failed;  // of several jobs, some may have been given up
    const std::string program = command_line().front();
    for (const std::vector<std::string>& words : found) {
        std::vector<const char*> argv = {program.c_str()};
        for (const std::string& word : words) argv.push_back(word.c_str());
        const Command one = parse(int(argv.size()), argv.data());
        if (!may_merge(one))
            throw FormatError(fmt::format("{}: units of '{}', expected figure, check or probe.",
                                          command.directory, words.front()));
        command_line().assign(argv.begin(), argv.end());  // of run.json
        share().merges = true;
        try {
            code = std::max(code, run_command_of(one));
        } catch (const UsageError& error) {
            failed.emplace_back(error.what());
        }
    }
    if (failed.size() == found.size()) throw UsageError(failed.front());
    for (const std::string& reason : failed) say("tsdiag: " + printable(reason));
    return code;
}

}  // namespace tsdiag::cli
