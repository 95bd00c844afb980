#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

extern char** environ;

/// `submit`: a command as a job of Slurm.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

/// The command's name, and the folder of its result; empty: none was named.
std::pair<std::string, std::string> name_and_result(const Command& command) {
    if (const auto* figure = std::get_if<FigureCommand>(&command)) return {"figure", figure->out};
    if (const auto* check = std::get_if<CheckCommand>(&command)) return {"check", check->out};
    if (const auto* probe = std::get_if<ProbeCommand>(&command)) return {"probe", probe->out};
    throw UsageError("submit: expected figure, check or probe, which several processes can share.");
}

bool is_on_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path ? path : "", ':'))
        if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
    return false;
}

/// Exit code of `sbatch FILE`.
int submitted(const std::string& file) {
    std::string program = "sbatch", argument = file;
    char* argv[] = {program.data(), argument.data(), nullptr};
    pid_t child = 0;
    if (const int error = posix_spawnp(&child, argv[0], nullptr, nullptr, argv, environ);
        error != 0)
        throw Error(fmt::format("sbatch: cannot be started ({}).", std::strerror(error)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int run_command(const SubmitCommand& command) {
    if (command.words.empty())
        throw UsageError("submit: expected a command: figure, check or probe with its options.");
    std::vector<const char*> argv = {command_line().front().c_str()};
    for (const std::string& word : command.words) argv.push_back(word.c_str());
    const auto [name, result] = name_and_result(parse(int(argv.size()), argv.data()));
    if (result.empty()) throw UsageError("submit: name the folder of the result by --out DIR.");
    place_of_folder(result);  // refuses now what the job would refuse
    SubmitOptions options = command.slurm;
    if (options.parts > 0 && (options.nodes > 1 || options.tasks_per_node > 1))
        throw UsageError(
            "submit: --array runs each part as a job of one process, expected neither --nodes nor "
            "--ranks.");
    options.words = command.words;
    options.result = result;
    options.name = "tsdiag-" + name;
    std::error_code failed;
    if (const fs::path program = fs::read_symlink("/proc/self/exe", failed); !failed)
        options.program = program.string();
    const std::string script = sbatch_script(options);
    const std::string file = options.name + ".sbatch";
    print_json("submit",
               Json().set("script", script).set("file", command.dry_run ? Json() : Json(file)));
    print(script);
    if (command.dry_run) return 0;
    if (fs::exists(fs::symlink_status(file, failed)))
        throw UsageError(fmt::format("{}: exists; remove it, or see it with --dry-run.", file));
    write_atomically(file, script);
    if (is_on_path("sbatch")) return submitted(file);
    say(fmt::format("tsdiag: there is no sbatch here; {} can be submitted where there is.", file));
    return 0;
}

}  // namespace tsdiag::cli
