#include <fmt/format.h>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "split.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::cli {

std::vector<std::string>& command_line() {
    static std::vector<std::string> words;
    return words;
}

namespace {

namespace fs = std::filesystem;

/// What the output directory is named after: for several checkpoints, the directory of the first.
std::string named_by(const std::vector<std::string>& models) {
    if (models.size() == 1) return models.front();
    const fs::path holder = fs::path(models.front()).lexically_normal().parent_path();
    return holder.filename().empty() ? "checkpoints" : holder.string();
}

/// The directory of a training with a single checkpoint stands for that checkpoint.
std::string the_model(const std::string& model) {
    std::error_code failed;
    if (!fs::is_directory(model, failed)) return model;
    const std::vector<fs::path> found = checkpoints_in(model);
    return found.size() == 1 ? found.front().string() : model;
}

/// What determines the records of a run.
std::string settings_of_run(const RunOptions& options) {
    return fmt::format("probe {} {}", model_digest(options.subject.model),
                       settings_digest(options));
}

void append(Json& run, std::string_view key, const Json::Array& more) {
    Json::Array all = run[key].array();
    all.insert(all.end(), more.begin(), more.end());
    run.set(std::string(key), std::move(all));
}

}  // namespace

std::string default_directory(const std::string& model) {
    std::string name = model;
    if (name.starts_with("random:")) {
        name = "random-" + name.substr(7, name.find(',') - 7);
    } else {
        fs::path path = fs::path(model).lexically_normal();
        if (!path.has_filename()) path = path.parent_path();
        name = (fs::is_directory(path) ? fs::absolute(path).filename() : path.stem()).string();
    }
    return (name.empty() || name == "." || name == ".." ? "model" : name) + ".tsdiag";
}

ProbeCommand with_held_out(ProbeCommand command) {
    const std::string& model = command.models.front();
    if (!command.run.has_input() && !model.starts_with("random:"))
        command.run.own_input = held_out_input(model);
    return command;
}

int run_command(const ProbeCommand& command) {
    if (command.threads > 0) use_threads(command.threads);
    const std::string out =
        command.out.empty() ? default_directory(named_by(command.models)) : command.out;
    if (is_series(command.models)) {
        if (command.profile)
            throw UsageError("--profile: expects a single model; profile one checkpoint.");
        return run_series(with_held_out(command), out);
    }
    if (!command.steps.empty())
        throw UsageError(fmt::format("--steps: {} is a single model, expected several checkpoints.",
                                     command.models.front()));
    RunOptions options = with_held_out(command).run;
    options.subject.model = the_model(command.models.front());
    SplitJob job(command.split, out, settings_of_run(options), options.device);
    std::optional<OutputFolder> directory;
    if (makes_result(command.split)) directory.emplace(out, result_plan(command.force));
    // One process makes a single pass over its samples, parts of which would read the weights anew:
    // it keeps the layers of one sample, and the units that others have begun.
    if (job.computes_units_only() || job.begun() || options.trials > 1 || !command.profile)
        options.units = &job.units();
    if (options.trials == 1) job.share_units();
    ProgressBar bar(command.quiet, command.verbose);
    options.progress = [&bar](const Progress& progress) { bar.update(progress); };
    std::optional<Profile> profile;
    if (command.profile) options.profile = &profile.emplace();
    RunResult result = run(options);
    bar.clear();
    if (job.computes_units_only()) {
        job.finish(out, command.quiet);
        return 0;
    }

    result.run = described(result.run);
    write_tables(result, directory->temporary());
    if (profile) profile->mark(Cost::phase, "tables");
    if (!command.no_report) {
        Phases phases;
        phases.begin("report");
        Json::Array undrawn;
        for (const std::string& line :
             write_report(result.table, result.run, directory->temporary(), command.look)) {
            if (!command.quiet) say("tsdiag: " + printable(line));
            undrawn.emplace_back(line);
        }
        phases.end();
        append(result.run, "phases", phases.json().array());
        append(result.run, "warnings", undrawn);
        if (profile) profile->mark(Cost::phase, "report");
    }
    if (profile)
        write_atomically(directory->temporary() / "profile.json", profile->trace().dump() + "\n");
    write_description(result.run, directory->temporary());
    require_unchanged_files();
    directory->commit();
    job.finish_result(command.quiet);
    print_json("probe", Json()
                            .set("out", out)
                            .set("checkpoints", Json())
                            .set("findings", findings_json(verdict(result.table, result.run)))
                            .set("warnings", result.run["warnings"]));
    if (command.quiet) return 0;
    print(summary(result, command.verbose));
    if (profile) print("\n" + costs(*profile));
    const fs::path made = fs::path(out) / (command.no_report ? "metrics.csv" : "report.html");
    print(fmt::format("\n{}\n", styled(printable(made.string()), Style::bold)));
    return 0;
}

}  // namespace tsdiag::cli
