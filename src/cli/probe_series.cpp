#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "output_directory.hpp"
#include "terminal.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

/// `probe` of several checkpoints of one training.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* parts = "checkpoints";

std::string read_text(const fs::path& file) { return file_text(file, "a file that tsdiag wrote"); }

/// The file that shows that an earlier run made `out`: its run.json, or that of a finished
/// checkpoint where the run was interrupted.
std::string marker(const fs::path& out) {
    std::error_code failed;
    if (fs::exists(out / "run.json", failed)) return "run.json";
    for (fs::directory_iterator at(out / parts, failed), end; !failed && at != end;
         at.increment(failed))
        if (fs::exists(at->path() / "run.json", failed))
            return (fs::path(parts) / at->path().filename() / "run.json").string();
    return "run.json";
}

OutputDirectory directory_of(const fs::path& out, bool force) {
    return OutputDirectory(
        out, {"metrics.csv", "curves.csv", "maps.npz", "run.json", "report.html", "figures"},
        marker(out), force);
}

/// What one checkpoint gave, and whether it had been done before.
struct Part {
    std::vector<MetricRow> metrics;
    std::vector<CurveRow> curves;
    Json run;
    bool kept = false;
};

/// The tables of an earlier run, where they are those of this digest and whole.
std::optional<Part> finished_part(const fs::path& from, const std::string& digest) {
    std::error_code failed;
    if (!fs::exists(from / "run.json", failed)) return std::nullopt;
    try {
        Part part;
        part.run = Json::parse(read_text(from / "run.json"), (from / "run.json").string());
        if (!part.run["digest"].is_string() || part.run["digest"].string() != digest)
            return std::nullopt;
        const fs::path metrics = from / "metrics.csv", curves = from / "curves.csv";
        part.metrics = read_metrics_csv(read_text(metrics), metrics.string());
        part.curves = read_curves_csv(read_text(curves), curves.string());
        part.kept = true;
        return part;
    } catch (const Error&) {
        return std::nullopt;  // damaged: done again
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

/// Measures one checkpoint and leaves its tables for a run that is begun again.
Part measured_part(const RunOptions& options, const fs::path& to, const std::string& digest,
                   const std::string& model, Index step) {
    RunResult result = run(options);
    Part part{.metrics = result.table.metrics(), .curves = result.table.curves(), .run = {}};
    set_place(part, model, step);
    part.run.set("tsdiag", TSDIAG_VERSION).set("digest", digest);
    for (const auto& [key, value] : result.run.object()) part.run.set(key, value);
    OutputDirectory directory(to, {"metrics.csv", "curves.csv", "run.json"}, "run.json", true);
    write_atomically(directory.temporary() / "metrics.csv", metrics_csv(part.metrics));
    write_atomically(directory.temporary() / "curves.csv", curves_csv(part.curves));
    write_atomically(directory.temporary() / "run.json", part.run.dump(2) + "\n");
    directory.commit();
    return part;
}

Json described(const SeriesMember& member, const Part& part) {
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

/// run.json: that of the last checkpoint, with what is known of the series.
Json whole_run(const CheckpointSeries& series, const std::vector<Part>& done, const Table& table) {
    Json run;
    run.set("tsdiag", TSDIAG_VERSION);
    Json::Array command, members, warnings;
    for (const std::string& word : command_line()) command.emplace_back(printable(word));
    run.set("command", std::move(command));
    for (const auto& [key, value] : done.back().run.object())
        if (key != "tsdiag" && key != "digest") run.set(key, value);
    for (std::size_t i = 0; i < done.size(); ++i) {
        members.push_back(described(series.members[i], done[i]));
        for (const Json& line : done[i].run["warnings"].array())
            warnings.emplace_back(
                fmt::format("{} {}: {}", series.unit, series.members[i].step, line.string()));
    }
    for (const std::string& note : series.notes) warnings.emplace_back(note);
    run.set("series", series.name).set("unit", series.unit);
    run.set("checkpoints", std::move(members));
    run.set("changes", changes_json(metric_changes(table)));
    return run.set("warnings", std::move(warnings));
}

void refuse_options(const ProbeCommand& command) {
    if (!command.run.maps.empty())
        throw UsageError("--maps: keeps maps of one checkpoint; probe it alone to see them.");
    if (command.run.trials > 1)
        throw UsageError(fmt::format(
            "--trials {}: draws new weights, and checkpoints have their own; --samples draws new "
            "inputs.",
            command.run.trials));
}

}  // namespace

int run_series(const ProbeCommand& command, const std::string& out) {
    refuse_options(command);
    const CheckpointSeries series = find_series(command.models, command.steps);
    require_one_architecture(series, command.run.subject);
    directory_of(out, command.force);  // refused before the first minute of work
    const std::string settings = settings_digest(command.run);

    ProgressBar bar(command.quiet, command.verbose);
    std::vector<Part> done;
    const double count = double(series.members.size());
    for (const SeriesMember& member : series.members) {
        const fs::path to = fs::path(out) / parts / std::to_string(member.step);
        const std::string digest = contents_digest(member.path) + "-" + settings;
        std::optional<Part> part = finished_part(to, digest);
        if (!part) {
            RunOptions options = command.run;
            options.subject.model = member.path;
            const double before = double(done.size());
            options.progress = [&](const Progress& at) {
                if (at.phase != "measure") return;
                bar.update({.phase = "measure",
                            .fraction = (before + at.fraction) / count,
                            .layer = at.layer});
            };
            part = measured_part(options, to, digest, series.name, member.step);
        }
        set_place(*part, series.name, member.step);
        done.push_back(std::move(*part));
    }
    bar.clear();

    Table table(series.name);
    for (const Part& part : done) table.append(part.metrics, part.curves);
    Json run = whole_run(series, done, table);
    OutputDirectory directory = directory_of(out, command.force);
    write_tables({table, run}, directory.temporary());
    if (!command.no_report)
        for (const std::string& line : write_report(table, run, directory.temporary()))
            if (!command.quiet) say("tsdiag: " + printable(line));
    write_atomically(directory.temporary() / "run.json", run.dump(2) + "\n");
    directory.commit();
    if (command.quiet) return 0;
    const auto kept = std::ranges::count_if(done, &Part::kept);
    print(fmt::format("{} checkpoints, {} {} to {}{}\n", done.size(), series.unit,
                      series.members.front().step, series.members.back().step,
                      kept > 0 ? fmt::format("; {} had been done before", kept) : ""));
    for (const Json& line : run["warnings"].array())
        print("! " + wrapped(printable(line.string()), terminal_width(), 2) + "\n");
    for (const Finding& finding : trajectory_verdict(run))
        print("- " + wrapped(printable(finding.text), terminal_width(), 2) + "\n");
    const char* made = command.no_report ? "metrics.csv" : "report.html";
    print(fmt::format("\n{}\n", styled(printable((fs::path(out) / made).string()), Style::bold)));
    return 0;
}

}  // namespace tsdiag::cli
