#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "other_names.hpp"
#include "result_files.hpp"
#include "split.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct FigureCommand final : Command {
    explicit FigureCommand(CLI::App& app);
    int run() const override;
    std::optional<Splitting> splitting() override {
        if (list) return std::nullopt;
        return Splitting{split, out};
    }

    std::vector<std::string> names;  ///< empty: all
    bool list = false;
    ExperimentScale scale = ExperimentScale::quick;
    std::map<std::string, std::string> readings;
    SplitOptions split;
    std::string model, data, device = "auto", out = "figures";
    std::uint64_t seed = 0;
    Index threads = 0;
    bool force = false, quiet = false, verbose = false;
    FigureStyle look;
};

ExperimentScale parse_scale(const std::string& word) {
    if (word == "quick") return ExperimentScale::quick;
    if (word == "paper") return ExperimentScale::paper;
    throw UsageError(fmt::format("--scale: '{}' is not quick or paper.", word));
}

std::string list_text(const std::vector<const ExperimentEntry*>& all) {
    std::vector<std::vector<std::string>> rows;
    for (const ExperimentEntry* entry : all)
        rows.push_back(
            {std::string(entry->name), std::string(entry->title), std::string(entry->source)});
    return aligned(rows, 3);
}

bool has_key(const ExperimentEntry& entry, const std::string& name) {
    return std::ranges::any_of(entry.keys,
                               [&](const ExperimentKey& key) { return key.name == name; });
}

/// The options for one of several figures: keys that belong to other figures only are skipped.
ExperimentOptions options_for(const FigureCommand& command, const ExperimentEntry& entry,
                              const std::vector<const ExperimentEntry*>& all) {
    ExperimentOptions options;
    options.scale = command.scale;
    options.seed = command.seed;
    options.device = command.device;
    for (const auto& [name, value] : command.readings) {
        const bool elsewhere =
            std::ranges::any_of(all, [&](const auto* other) { return has_key(*other, name); });
        if (has_key(entry, name) || !elsewhere) options.readings[name] = value;
    }
    if (entry.takes_model || all.size() == 1) options.model = command.model;
    if (entry.takes_data || all.size() == 1) options.data = command.data;
    return options;
}

Json head_json(const ExperimentEntry& entry) {
    Json out;
    out.set("name", entry.name).set("title", entry.title);
    return out.set("source", entry.source);
}

Json comparisons_json(const Study& page) {
    const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
    Json::Array all;
    for (const Comparison& c : page.comparisons) {
        Json one;
        one.set("what", c.what).set("measured", or_null(c.measured));
        one.set("stderr", or_null(c.error)).set("expected", or_null(c.expected));
        one.set("seen", or_null(c.seen)).set("count", c.count).set("says", c.says);
        all.push_back(one.set("judgement", c.unknown.empty() ? c.judgement : c.unknown));
    }
    return all;
}

/// "what: measured, said: difference", a line a comparison.
std::string summary_of(const Study& page) {
    std::vector<std::vector<std::string>> rows;
    for (const Comparison& c : page.comparisons) {
        std::string measured = c.unknown.empty() ? "-" : c.unknown;
        if (c.measured) measured = number_cell(c.measured, c.error);
        rows.push_back({"  " + c.what, measured,
                        c.expected ? fmt::format("{:.4g}", *c.expected) : "", c.judgement});
    }
    return page.outcome + "\n" + aligned(rows, 4);
}

/// What determines the records of an experiment.
std::string settings_of(const ExperimentEntry& entry, const ExperimentOptions& options) {
    Json all;
    all.set("figure", entry.name)
        .set("setting", ExperimentSetting(entry, options).described().json());
    all.set("seed", Json(options.seed)).set("device", options.device);
    all.set("model", model_digest(options.model)).set("data", data_digest(options.data));
    return all.dump();
}

/// A process that computes units for the result of another.
Json compute_units(const FigureCommand& command, const ExperimentEntry& entry,
                   ExperimentOptions options, SplitJob& job) {
    ProgressBar bar(command.quiet, command.verbose);
    options.progress = [&bar](const Progress& progress) { bar.update(progress); };
    perform(entry, options);
    bar.clear();
    job.finish((fs::path(command.out) / entry.name).string(), command.quiet);
    return head_json(entry);
}

/// `alone`: its comparisons are printed too.  Returns what --json tells.
Json make(const FigureCommand& command, const ExperimentEntry& entry, ExperimentOptions options,
          bool alone) {
    const std::string result_folder = (fs::path(command.out) / entry.name).string();
    SplitJob job(command.split, result_folder, settings_of(entry, options), options.device);
    if (entry.timed && job.computes_units_only()) {
        if (!command.quiet)
            say(fmt::format("tsdiag: {} measures this machine and is not split.", entry.name));
        job.finish(result_folder, true);
        return head_json(entry);
    }
    if (!entry.timed) options.units = &job.units();
    if (job.computes_units_only()) return compute_units(command, entry, options, job);
    ResultWriter writer(result_folder, command.force);
    ProgressBar bar(command.quiet, command.verbose);
    options.progress = [&bar](const Progress& progress) { bar.update(progress); };
    RunResult result = perform(entry, options);
    bar.clear();
    result.run = described(result.run, job.measured());
    const Study page = study(entry, result, options);
    result.run = with_findings(result.run, study_findings(page));
    writer.write(
        result,
        [&](const fs::path& folder) {
            return write_study(page, result.table, result.run, folder, command.look);
        },
        command.quiet);
    job.finish_result(command.quiet);
    const double seconds = RunRecord(result.run).phases.front().seconds;
    Json output = head_json(entry);
    output.set("out", result_folder).set("seconds", seconds);
    output.set("outcome", page.outcome).set("comparisons", comparisons_json(page));
    output.set("files", files_json(result_folder));
    if (command.quiet) return output;
    const fs::path made = fs::path(command.out) / entry.name / "report.html";
    print(fmt::format("{}  {} ({:.1f} s)\n", styled(std::string(entry.name), Style::bold),
                      printable(entry.title), seconds));
    if (command.verbose || alone) print(summary_of(page));
    print(fmt::format("  {}\n", printable(made.string())));
    return output;
}

}  // namespace

FigureCommand::FigureCommand(CLI::App& app) {
    app.add_option("NAME", names, "names from --list, or tse, devil, poly, law (default: all)")
        ->type_name("");
    app.add_flag("--list", list, "list the figures and their papers");
    value(app, "--scale", "SCALE", "quick (default) or paper: sizes and number of trials",
          [&](const std::string& t) { scale = parse_scale(t); });
    app.add_option_function<std::vector<std::string>>(
           "--reading",
           [&](const std::vector<std::string>& all) {
               for (const std::string& t : all) {
                   const auto [key, text] = parse_reading(t, "--reading");
                   if (!readings.emplace(key, text).second)
                       throw UsageError(fmt::format("--reading: '{}' was given twice.", key));
               }
           },
           "a size or an interpretation (docs/experiments.md)")
        ->type_name("KEY=VALUE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--trials", "T", "the same as --reading trials=T", [&](const std::string& t) {
        readings["trials"] = std::to_string(parse_count(t, "--trials", 1, most_draws));
    });
    text(app, "--model", model, "PATH", "a checkpoint, for figures that use one");
    text(app, "--data", data, "KIND",
         "data for figures that train, as in tsdiag train (images:DIR,\nor a folder)");
    value(app, "--seed", "K", "random seed (default 0)",
          [&](const std::string& t) { seed = parse_seed(t, "--seed"); });
    text(app, "--device", device, "NAME", "auto, cpu, cuda or cuda:N");
    value(app, "--threads", "N", "threads (default: one per core); results do not depend on it",
          [&](const std::string& t) { threads = parse_count(t, "--threads", 1, 1024); });
    add_split(app, split);
    place(app, out, "DIR", "output directory, one folder per figure (default: figures)");
    add_paper(app, look);
    app.add_flag("--force", force, "write into directories that contain other files");
    app.add_flag("-q,--quiet", quiet, "print errors only");
    app.add_flag("-v,--verbose", verbose, "print the comparisons of every figure");
}

int FigureCommand::run() const {
    Json::Array output;
    refuse_names_of_others("figure", names);
    const std::vector<const ExperimentEntry*> all = resolve_experiments(names);
    if (list) {
        for (const ExperimentEntry* entry : all) output.push_back(head_json(*entry));
        print_json("figure", Json().set("figures", std::move(output)));
        print(list_text(all));
        return 0;
    }
    if (threads > 0) use_threads(threads);
    if (!model.empty() &&
        std::ranges::none_of(all, [](const ExperimentEntry* e) { return e->takes_model; }))
        throw UsageError(fmt::format(
            "--model {}: none of these figures uses a model; devil.fig2a and devil.fig2b do.",
            model));
    // Invalid options are refused before any work.
    for (const ExperimentEntry* entry : all) {
        if (makes_result(split)) ResultWriter(fs::path(out) / entry->name, force);
        const ExperimentOptions options = options_for(*this, *entry, all);
        const ExperimentSetting setting(*entry, options);
    }
    if (const std::string line = passed_over_devices(device); !line.empty() && !quiet)
        say("tsdiag: " + printable(line));
    for (const ExperimentEntry* entry : all)
        output.push_back(make(*this, *entry, options_for(*this, *entry, all), all.size() == 1));
    print_json("figure", Json().set("figures", std::move(output)));
    return 0;
}

namespace {

std::vector<std::string> figure_names() {
    std::vector<std::string> out;
    for (const ExperimentEntry* entry : experiments()) out.emplace_back(entry->name);
    return out;
}

}  // namespace

extern const CommandEntry figure_command = {
    .name = "figure",
    .about = "figures of the papers, each claim next to the measurement",
    .examples = R"(Examples:
  tsdiag figure --list
  tsdiag figure                                every figure, in about 15 minutes
  tsdiag figure tse.fig3 --scale paper         1000 draws, as in the paper
  tsdiag figure tse.fig2 --reading var_v=h/d --trials 50
  tsdiag figure devil.fig2b --model examples/char-gpt)",
    .make = made<FigureCommand>,
    .names = figure_names,
    .has_settings = true};

}  // namespace tsdiag::cli
