#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "commands.hpp"
#include "result_files.hpp"
#include "split.hpp"
#include "terminal.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

/// `probe` of several checkpoints of one training.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* parts_folder = "checkpoints";

/// The result of one checkpoint, and whether it is from an earlier run.
struct Part {
    std::vector<MetricRow> metrics;
    std::vector<CurveRow> curves;
    Json run;
    bool kept = false;
};

OutputPlan part_plan() {
    return {.writes = {"metrics.csv", "curves.csv", "run.json"}, .force = true};
}

/// The tables of an earlier run, if complete and of this digest.
std::optional<Part> finished_part(const fs::path& from, const std::string& digest) {
    std::error_code failed;
    if (!fs::exists(from / "run.json", failed)) return std::nullopt;
    try {
        Json run = read_description(from);
        if (run["digest"].dump() != Json(digest).dump()) return std::nullopt;
        return Part{read_metrics(from), read_curves(from), std::move(run), true};
    } catch (const Error&) {
        return std::nullopt;  // damaged: measure again
    }
}

void set_place(Part& part, const std::string& model, Index step) {
    for (MetricRow& row : part.metrics) {
        row.model = model;
        row.at.step = step;
    }
    for (CurveRow& row : part.curves) {
        row.model = model;
        row.at.step = step;
    }
}

/// Measures one checkpoint and keeps its tables, so that an interrupted run can continue.
Part measured_part(const RunOptions& options, const fs::path& to, const std::string& digest,
                   const std::string& model, Index step) {
    RunResult result = run(options);
    Part part{.metrics = result.table.metrics(), .curves = result.table.curves(), .run = {}};
    set_place(part, model, step);
    part.run = result.run;
    part.run.set("digest", digest);
    OutputFolder directory(to, part_plan());
    write_atomically(directory.temporary() / "metrics.csv", metrics_csv(part.metrics));
    write_atomically(directory.temporary() / "curves.csv", curves_csv(part.curves));
    write_description(described(part.run), directory.temporary());
    require_unchanged_files();
    directory.commit();
    return part;
}

Json member_json(const SeriesMember& member, const Part& part) {
    Json one;
    one.set("path", member.path).set("step", member.step).set("origin", member.origin);
    return one.set("digest", part.run["digest"]).set("kept", part.kept);
}

Json changes_json(const std::vector<MetricChange>& changes) {
    Json::Array all;
    for (const MetricChange& c : changes) {
        Json one;
        one.set("metric", c.metric).set("stage", c.stage).set("layer", c.layer);
        one.set("from", c.from).set("to", c.to).set("first", c.first).set("last", c.last);
        one.set("error", c.error > 0 ? Json(c.error) : Json()).set("certain", c.certain);
        one.set("steepest_from", c.steepest_from).set("steepest_to", c.steepest_to);
        all.push_back(one.set("steepest", c.steepest));
    }
    return all;
}

/// run.json: that of the last checkpoint, with the properties of the series.
Json whole_run(const CheckpointSeries& series, const std::vector<Part>& done, const Table& table) {
    Json run;
    Json::Array members, warnings;
    for (const auto& [key, value] : done.back().run.object())
        if (key != "tsdiag" && key != "command" && key != "digest" && key != "tables")
            run.set(key, value);
    for (std::size_t i = 0; i < done.size(); ++i) {
        members.push_back(member_json(series.members[i], done[i]));
        for (const Json& line : done[i].run["warnings"].array())
            warnings.emplace_back(
                fmt::format("{} {}: {}", series.unit, series.members[i].step, line.string()));
    }
    for (const std::string& note : series.notes) warnings.emplace_back(note);
    run.set("series", series.name).set("unit", series.unit);
    run.set("checkpoints", std::move(members));
    run.set("changes", changes_json(metric_changes(table)));
    return described(run.set("warnings", std::move(warnings)));
}

void refuse_options(const ProbeCommand& command) {
    if (!command.run.maps.empty())
        throw UsageError("--maps: needs a single checkpoint; probe that checkpoint alone.");
    if (command.run.trials > 1)
        throw UsageError(
            fmt::format("--trials {}: draws new weights, but checkpoints have fixed weights; use "
                        "--samples to draw new inputs.",
                        command.run.trials));
}

/// A process that computes units for the result of another: samples of the checkpoints that are not
/// finished.
int compute_units(const ProbeCommand& command, const CheckpointSeries& series,
                  const std::vector<std::optional<Part>>& finished, SplitJob& job,
                  const std::string& out) {
    ProgressBar bar(command.quiet, command.verbose);
    const double count = double(series.members.size());
    for (std::size_t i = 0; i < series.members.size(); ++i) {
        if (finished[i]) continue;
        RunOptions options = command.run;
        options.subject.model = series.members[i].path;
        job.units().go_to(Index(i));
        options.units = &job.units();
        options.progress = [&](const Progress& at) {
            if (at.phase == "measure")
                bar.update({.phase = "measure", .fraction = (double(i) + at.fraction) / count});
        };
        run(options);
    }
    bar.clear();
    job.finish(out, command.quiet);
    return 0;
}

}  // namespace

int run_series(const ProbeCommand& command, const std::string& out) {
    refuse_options(command);
    const CheckpointSeries series = find_series(command.models, command.steps);
    require_one_architecture(series, command.run.subject);
    const std::string settings = settings_digest(command.run);
    std::vector<std::string> digests;
    for (const SeriesMember& member : series.members)
        digests.push_back(contents_digest(member.path) + "-" + settings);
    SplitJob job(command.split, out, fmt::format("series {}", fmt::join(digests, " ")),
                 command.run.device);
    const auto place_of = [&](const SeriesMember& member) {
        return fs::path(out) / parts_folder / std::to_string(member.step);
    };
    std::vector<std::optional<Part>> finished;
    for (std::size_t i = 0; i < digests.size(); ++i)
        finished.push_back(finished_part(place_of(series.members[i]), digests[i]));
    if (job.hollow() && !makes_result(command.split))
        return compute_units(command, series, finished, job, out);

    OutputFolder directory(out, result_plan(command.force));
    finish_output(directory.folder() / parts_folder);
    for (std::size_t i = 0; i < digests.size(); ++i)
        if (!finished[i])
            OutputFolder(place_of(series.members[i]), part_plan());  // refuse it early
    if (job.hollow()) return compute_units(command, series, finished, job, out);

    ProgressBar bar(command.quiet, command.verbose);
    std::vector<Part> done;
    const double count = double(series.members.size());
    for (const SeriesMember& member : series.members) {
        std::optional<Part>& part = finished[done.size()];
        if (!part) {
            RunOptions options = command.run;
            options.subject.model = member.path;
            job.units().go_to(std::ssize(done));
            if (job.begun()) options.units = &job.units();
            const double before = double(done.size());
            options.progress = [&](const Progress& at) {
                if (at.phase != "measure") return;
                bar.update({.phase = "measure",
                            .fraction = (before + at.fraction) / count,
                            .layer = at.layer});
            };
            part = measured_part(options, place_of(member), digests[done.size()], series.name,
                                 member.step);
        }
        set_place(*part, series.name, member.step);
        done.push_back(std::move(*part));
    }
    bar.clear();

    Table table(series.name);
    for (const Part& part : done) table.append(part.metrics, part.curves);
    Json run = whole_run(series, done, table);
    write_tables({table, run}, directory.temporary());
    if (!command.no_report)
        for (const std::string& line : write_report(table, run, directory.temporary()))
            if (!command.quiet) say("tsdiag: " + printable(line));
    write_description(run, directory.temporary());
    require_unchanged_files();
    directory.commit();
    job.finish_result(command.quiet);
    if (command.quiet) return 0;
    const auto kept = std::ranges::count_if(done, &Part::kept);
    print(fmt::format("{} checkpoints, {} {} to {}{}\n", done.size(), series.unit,
                      series.members.front().step, series.members.back().step,
                      kept > 0 ? fmt::format("; {} reused from an earlier run", kept) : ""));
    for (const Json& line : run["warnings"].array())
        print("! " + wrapped(printable(line.string()), terminal_width(), 2) + "\n");
    print(findings_text(series_verdict(table, run), command.verbose));
    const char* made = command.no_report ? "metrics.csv" : "report.html";
    print(fmt::format("\n{}\n", styled(printable((fs::path(out) / made).string()), Style::bold)));
    return 0;
}

}  // namespace tsdiag::cli
