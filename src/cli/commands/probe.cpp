#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "other_names.hpp"
#include "probing.hpp"
#include "ranks.hpp"
#include "result_files.hpp"
#include "split.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/comparison.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::cli {

namespace {

namespace fs = std::filesystem;

struct ProbeCommand final : Command {
    explicit ProbeCommand(CLI::App& app);
    int run() const override;
    std::optional<Splitting> splitting() override { return Splitting{probe.split, probe.out}; }

    ProbeOptions probe;
};

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

}  // namespace

std::string default_directory(const std::string& model) {
    std::string name = model;
    if (name.starts_with("random:")) {
        name = "random-" + name.substr(7, name.find(',') - 7);
    } else {
        fs::path path = fs::path(model).lexically_normal();
        if (!path.has_filename()) path = path.parent_path();
        name = (fs::is_directory(local_model(model)) ? fs::absolute(path).filename() : path.stem())
                   .string();
    }
    return (name.empty() || name == "." || name == ".." ? "model" : name) + ".tsdiag";
}

ProbeOptions with_held_out(ProbeOptions probe) {
    const std::string& model = probe.models.front();
    if (!probe.run.has_input() && !model.starts_with("random:"))
        probe.run.own_input = held_out_input(model);
    return probe;
}

ProbeCommand::ProbeCommand(CLI::App& app) {
    app.add_option("MODEL", probe.models,
                   "Hugging Face directory, its name in the Hub's cache,\ncheckpoint, trace, "
                   "random:NAME[,key=value...];\nseveral checkpoints of one training, or a "
                   "directory of\nthem; several random models, to compare")
        ->required()
        ->type_name("");
    add_subject_options(app, probe.run.subject);
    value(app, "--steps", "LIST", "steps of several checkpoints, if the files do not say",
          [&](const std::string& t) { probe.steps = parse_steps(t, "--steps"); })
        ->group("Model");
    add_input(app, probe.run);
    add_measurement(app, probe.run);
    add_trace(app, probe.run.trace);
    add_machine(app, probe);
    add_split(app, probe.split, "Machine");
    add_output(app, probe);
}

namespace {

/// The page, whose time is one of the phases.
void draw_page(RunResult& result, const ResultWriter& writer, const ProbeOptions& probe) {
    const auto draw = [&](const fs::path& folder) {
        return write_report(result.table, result.run, folder, probe.look);
    };
    Phases phases(RunRecord(result.run).phases);
    phases.begin("report");
    writer.write_page(result.run, draw, probe.quiet);
    phases.end();
    RunRecord run = result.run;
    run.phases = phases.ended();
    result.run = run.json();
}

/// Measures one model into `out`.  `alone`: tells the whole of it, as JSON, too; else its headline.
void probe_one(const ProbeOptions& probe, const std::string& out, bool alone) {
    RunOptions options = with_held_out(probe).run;
    options.subject.model = the_model(probe.models.front());
    SplitJob job(probe.split, out, settings_of_run(options), options.device);
    std::optional<ResultWriter> writer;
    if (makes_result(probe.split)) writer.emplace(out, probe.force);
    // One process makes a single pass over its samples, parts of which would read the weights anew:
    // it keeps the layers of one sample, and the units that others have begun.
    if (job.computes_units_only() || job.begun() || options.trials > 1 || !probe.profile)
        options.units = &job.units();
    if (options.trials == 1) job.share_units();
    ProgressBar bar(probe.quiet, probe.verbose);
    options.progress = [&bar](const Progress& progress) { bar.update(progress); };
    std::optional<Profile> profile;
    if (probe.profile) options.profile = &profile.emplace();
    RunResult result = tsdiag::run(options);
    bar.clear();
    if (job.computes_units_only()) return job.finish(out, probe.quiet);

    result.run = described(result.run, job.measured());
    writer->write_tables(result);
    if (profile) profile->mark(Cost::phase, "tables");
    if (!probe.no_report) {
        draw_page(result, *writer, probe);
        if (profile) profile->mark(Cost::phase, "report");
    }
    if (profile)
        write_atomically(writer->folder() / "profile.json", profile->trace().dump() + "\n");
    std::vector<Finding> findings = verdict(result.table, result.run);
    result.run = with_findings(result.run, findings);
    writer->commit(result.run);
    job.finish_result(probe.quiet);
    if (!alone) {
        std::erase_if(findings, [](const Finding& one) { return !one.headline; });
        if (!probe.quiet)
            print(printable(probe.models.front()) + findings_text(findings, false) + "\n");
        return;
    }
    const RunRecord run = result.run;
    Json::Array warnings(run.warnings.begin(), run.warnings.end());
    print_json("probe", Json()
                            .set("out", out)
                            .set("checkpoints", Json())
                            .set("findings", findings_json(findings))
                            .set("layers", layers_json(result))
                            .set("warnings", std::move(warnings))
                            .set("files", files_json(out)));
    if (probe.quiet) return;
    print(summary(result, probe.verbose));
    if (profile) print("\n" + costs(*profile));
    print_place(out, !probe.no_report);
}

constexpr std::string_view drawn_prefix = "random:";

bool are_drawn(const std::vector<std::string>& models) {
    return models.size() > 1 && std::ranges::all_of(models, [](const std::string& model) {
               return model.starts_with(drawn_prefix);
           });
}

/// Several drawn models: each into a folder of its own in `out`, and what differs between them, as
/// `compare` tells it, into out/comparison.
int probe_drawn(const ProbeOptions& probe, const std::string& out) {
    if (probe.models.size() > most_results)
        throw UsageError(
            fmt::format("{} models are more than {}.", probe.models.size(), most_results));
    if (probe.split.parts > 0 || participation().ranks || participation().after_all)
        throw UsageError(
            "several drawn models are measured by one process, expected a single one to share "
            "among processes; compare their results with tsdiag compare.");
    const auto folder = [&](std::size_t i) {
        const std::string name = fs::path(default_directory(probe.models[i])).stem().string();
        return (fs::path(out) / fmt::format("{}-{}", letter(i), name)).string();
    };
    const std::string page =
        probe.no_report ? std::string() : (fs::path(out) / "comparison").string();
    // What is wrong is refused before any work.
    for (const std::string& model : probe.models)
        random_model(std::string_view(model).substr(drawn_prefix.size()));
    std::vector<std::string> folders;
    for (std::size_t i = 0; i < probe.models.size(); ++i) {
        folders.push_back(folder(i));
        ResultWriter(folders.back(), probe.force);
    }
    if (!page.empty()) ResultWriter(page, probe.force);
    for (std::size_t i = 0; i < probe.models.size(); ++i) {
        ProbeOptions one = probe;
        one.models = {probe.models[i]};
        probe_one(one, folders[i], false);
    }
    return compare_results(folders, page, probe.look, probe.force, probe.quiet);
}

}  // namespace

int ProbeCommand::run() const {
    if (probe.threads > 0) use_threads(probe.threads);
    refuse_names_of_others("probe", probe.models);
    require_well_formed(probe.run);
    const bool several_drawn = are_drawn(probe.models);
    const std::string name =
        several_drawn ? "drawn.tsdiag" : default_directory(named_by(probe.models));
    const std::string out = probe.out.empty() ? name : probe.out;
    if (!several_drawn && is_series(probe.models)) {
        if (probe.profile)
            throw UsageError("--profile: expects a single model; profile one checkpoint.");
        return run_series(with_held_out(probe), out);
    }
    if (!probe.steps.empty())
        throw UsageError(fmt::format("--steps: {} is a single model, expected several checkpoints.",
                                     probe.models.front()));
    if (several_drawn) return probe_drawn(probe, out);
    probe_one(probe, out, true);
    return 0;
}

extern const CommandEntry probe_command = {
    .name = "probe",
    .about = "measure every diagnostic of a model and write a report",
    .examples = R"(Examples:
  tsdiag probe examples/char-gpt
  tsdiag probe model.safetensors --input ids:ids.txt --tokens 256 --out result
  tsdiag probe random:bert-base --tokens 512 --probes core
  tsdiag probe examples/char-gpt --loss lm
  tsdiag probe runs/a --samples 8         checkpoint-500, checkpoint-1000, ... in runs/a
  tsdiag probe random:post-norm,d=512,heads=8,layers=20 --tokens 64 --trials 50
  tsdiag probe random:post-norm random:pre-norm --trials 10     each, and a page that compares them
  tsdiag probe trace.npz --attention softmax --maps 0:0,5:3)",
    .make = made<ProbeCommand>,
    .names = random_models,
    .has_settings = true,
    .runs_models = true};

}  // namespace tsdiag::cli
