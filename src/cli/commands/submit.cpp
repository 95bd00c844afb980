#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "command.hpp"
#include "json_outputs.hpp"
#include "program.hpp"
#include "terminal.hpp"
#include "tsdiag/cluster.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

extern char** environ;

/// `submit`: a command as a job of Slurm.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct SubmitCommand final : Command {
    SubmitCommand(CLI::App& app, const std::vector<std::string>& inner);
    int run() const override;

    const std::vector<std::string>& words;  ///< the command, with its options
    SubmitOptions slurm;
    bool dry_run = false;
};

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

SubmitCommand::SubmitCommand(CLI::App& app, const std::vector<std::string>& inner) : words(inner) {
    SubmitOptions& s = slurm;
    const auto count = [&](const char* name, const char* about, int& out) {
        value(app, name, "N", about, [&out, name](const std::string& t) {
            out = int(parse_count(t, name, 1, 1'000'000));
        });
    };
    count("--nodes", "nodes (default 1)", s.nodes);
    count("--ranks", "ranks per node (default 1, which uses all its cores)", s.tasks_per_node);
    count("--cpus", "cores per rank (default: as the partition says)", s.cpus_per_task);
    count("--array", "an array of N parts in place of MPI", s.parts);
    text(app, "--time", s.time, "T", "time limit, as Slurm's --time");
    text(app, "--partition", s.partition, "NAME", "partition");
    text(app, "--account", s.account, "NAME", "account");
    app.add_flag("--dry-run", dry_run, "show the script, submit nothing");
}

int SubmitCommand::run() const {
    if (words.empty())
        throw UsageError("submit: expected a command: figure, check or probe with its options.");
    Program program(words);
    const std::optional<Splitting> splitting = program.command().splitting();
    if (!splitting)
        throw UsageError(
            "submit: expected figure, check or probe, which several processes can share.");
    const std::string result = splitting->out;
    if (result.empty()) throw UsageError("submit: name the folder of the result by --out DIR.");
    place_of_folder(result);  // refuses now what the job would refuse
    SubmitOptions options = slurm;
    if (options.parts > 0 && (options.nodes > 1 || options.tasks_per_node > 1))
        throw UsageError(
            "submit: --array runs each part as a job of one process, expected neither --nodes nor "
            "--ranks.");
    options.words = words;
    options.result = result;
    options.name = "tsdiag-" + program.name();
    std::error_code failed;
    if (const fs::path own = fs::read_symlink("/proc/self/exe", failed); !failed)
        options.program = own.string();
    const std::string script = sbatch_script(options);
    const std::string file = options.name + ".sbatch";
    print_json("submit", Json().set("script", script).set("file", dry_run ? Json() : Json(file)));
    print(script);
    if (dry_run) return 0;
    if (fs::exists(fs::symlink_status(file, failed)))
        throw UsageError(fmt::format("{}: exists; remove it, or see it with --dry-run.", file));
    write_atomically(file, script);
    if (is_on_path("sbatch")) return submitted(file);
    say(fmt::format("tsdiag: there is no sbatch here; {} can be submitted where there is.", file));
    return 0;
}

extern const CommandEntry submit_command = {.name = "submit",
                                            .about = "run a command as a job of Slurm",
                                            .examples = R"(Examples:
  tsdiag submit --nodes 8 --time 2:00:00 figure tse.fig3 --scale paper
  tsdiag submit --array 16 probe runs/a --samples 64 --out result
  tsdiag submit --dry-run --nodes 2 check          shows the script only)",
                                            .make = made<SubmitCommand>,
                                            .takes_command = true};

}  // namespace tsdiag::cli
