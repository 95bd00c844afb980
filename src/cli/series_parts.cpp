#include "series_parts.hpp"

#include <fmt/format.h>

#include "result_files.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag::cli {

namespace fs = std::filesystem;

namespace {

Json member_json(const SeriesMember& member, const SeriesPart& part) {
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

}  // namespace

fs::path part_folder(const fs::path& out, Index step) {
    return out / parts_folder / std::to_string(step);
}

void refuse_options_of_one(const ProbeCommand& command) {
    if (!command.run.maps.empty())
        throw UsageError("--maps: needs a single checkpoint; probe that checkpoint alone.");
    if (command.run.trials > 1)
        throw UsageError(
            fmt::format("--trials {}: draws new weights, but checkpoints have fixed weights; use "
                        "--samples to draw new inputs.",
                        command.run.trials));
}

OutputPlan part_plan() {
    return {.writes = {"metrics.csv", "curves.csv", "run.json"}, .force = true};
}

std::optional<SeriesPart> finished_part(const fs::path& from, const std::string& digest) {
    std::error_code failed;
    if (!fs::exists(from / "run.json", failed)) return std::nullopt;
    try {
        Json run = read_description(from);
        if (run["digest"].dump() != Json(digest).dump()) return std::nullopt;
        return SeriesPart{read_metrics(from), read_curves(from), std::move(run), true};
    } catch (const Error&) {
        return std::nullopt;  // damaged: measure again
    }
}

void set_place(SeriesPart& part, const std::string& model, Index step) {
    for (MetricRow& row : part.metrics) {
        row.model = model;
        row.at.step = step;
    }
    for (CurveRow& row : part.curves) {
        row.model = model;
        row.at.step = step;
    }
}

SeriesPart measured_part(const RunOptions& options, const fs::path& to, const std::string& digest,
                         const std::string& model, Index step) {
    RunResult result = run(options);
    SeriesPart part{.metrics = result.table.metrics(), .curves = result.table.curves(), .run = {}};
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

Json series_run(const CheckpointSeries& series, const std::vector<SeriesPart>& done,
                const Table& table) {
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

}  // namespace tsdiag::cli
