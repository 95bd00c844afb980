#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "json_outputs.hpp"
#include "probing.hpp"
#include "result_files.hpp"
#include "series_parts.hpp"
#include "split.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/report.hpp"

/// `probe` of several checkpoints of one training.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

/// A process that computes units for the result of another: samples of the checkpoints that are not
/// finished.
int compute_units(const ProbeOptions& probe, const CheckpointSeries& series,
                  const std::vector<std::optional<SeriesPart>>& finished, SplitJob& job,
                  const std::string& out) {
    ProgressBar bar(probe.quiet, probe.verbose);
    const double count = double(series.members.size());
    for (std::size_t i = 0; i < series.members.size(); ++i) {
        if (finished[i]) continue;
        RunOptions options = probe.run;
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
    job.finish(out, probe.quiet);
    return 0;
}

/// Numbers of samples of other lengths are not those of one training.
void require_length(const SeriesMember& member, const SeriesPart& part, const SeriesMember& first,
                    const SeriesPart& of_first) {
    const Index own = part.run.input.tokens.value_or(0),
                expected = of_first.run.input.tokens.value_or(0);
    if (own != expected)
        throw UsageError(fmt::format(
            "{}: its samples have {} tokens, expected {} as those of {}; pass --tokens with a "
            "length that all checkpoints take.",
            member.path, own, expected, first.path));
}

/// What `probe` of one tells of its model before the numbers: all lines, or the first ones.
std::string notes_text(const RunRecord& run, bool verbose) {
    constexpr std::size_t most_lines = 3, margin = 11;
    std::vector<std::string> assumed = run.model.defaults;
    assumed.insert(assumed.end(), run.input.defaults.begin(), run.input.defaults.end());
    std::string text;
    const auto add = [&](std::string_view head, const std::vector<std::string>& lines) {
        std::vector<std::string> shown = lines;
        if (!verbose && shown.size() > most_lines) {
            shown.resize(most_lines);
            shown.push_back(fmt::format("and {} more (-v)", lines.size() - most_lines));
        }
        if (!verbose && !shown.empty()) shown = {fmt::format("{}", fmt::join(shown, "; "))};
        for (std::size_t i = 0; i < shown.size(); ++i)
            text += styled(fmt::format("{:<{}}", i == 0 ? head : "", margin), Style::dim) +
                    wrapped(printable(shown[i]), terminal_width(), margin) + "\n";
    };
    add("recognised", run.model.recognised);
    add("ignored", run.model.ignored);
    add("assumed", assumed);
    return text;
}

}  // namespace

int run_series(const ProbeOptions& probe, const std::string& out) {
    refuse_options_of_one(probe);
    const CheckpointSeries series = find_series(probe.models, probe.steps);
    require_one_architecture(series, probe.run.subject);
    const std::string settings = settings_digest(probe.run);
    std::vector<std::string> digests;
    for (const SeriesMember& member : series.members)
        digests.push_back(contents_digest(member.path) + "-" + settings);
    SplitJob job(probe.split, out, fmt::format("series {}", fmt::join(digests, " ")),
                 probe.run.device);
    const auto place_of = [&](const SeriesMember& member) { return part_folder(out, member.step); };
    std::vector<std::optional<SeriesPart>> finished;
    for (std::size_t i = 0; i < digests.size(); ++i)
        finished.push_back(finished_part(place_of(series.members[i]), digests[i]));
    if (job.computes_units_only() && !makes_result(probe.split))
        return compute_units(probe, series, finished, job, out);

    ResultWriter writer(out, probe.force);
    finish_output(writer.place() / parts_folder);
    for (std::size_t i = 0; i < digests.size(); ++i)
        if (!finished[i])
            OutputFolder(place_of(series.members[i]), part_plan());  // refuse it early
    if (job.computes_units_only()) return compute_units(probe, series, finished, job, out);

    ProgressBar bar(probe.quiet, probe.verbose);
    std::vector<SeriesPart> done;
    const double count = double(series.members.size());
    for (const SeriesMember& member : series.members) {
        std::optional<SeriesPart>& part = finished[done.size()];
        if (!part) {
            RunOptions options = probe.run;
            options.subject.model = member.path;
            job.units().go_to(std::ssize(done));
            options.units = &job.units();
            const double before = double(done.size());
            options.progress = [&](const Progress& at) {
                if (at.phase != "measure") return;
                bar.update({.phase = "measure",
                            .fraction = (before + at.fraction) / count,
                            .layer = at.layer});
            };
            part = measured_part(options, place_of(member), digests[done.size()], series.name,
                                 member.step, job.measured());
        }
        set_path(*part, member.path);
        set_place(*part, series.name, member.step);
        if (!done.empty()) require_length(member, *part, series.members.front(), done.front());
        done.push_back(std::move(*part));
    }
    bar.clear();

    RunResult result{Table(series.name), {}};
    const Table& table = result.table;
    for (const SeriesPart& part : done) result.table.append(part.metrics, part.curves);
    result.run = series_run(series, done, table);
    const std::vector<Finding> findings = series_verdict(table, result.run);
    result.run = with_findings(result.run, findings);
    ResultWriter::Draw draw;
    if (!probe.no_report)
        draw = [&](const fs::path& folder) {
            return write_report(table, result.run, folder, probe.look);
        };
    writer.write(result, draw, probe.quiet);
    const RunRecord run = result.run;
    job.finish_result(probe.quiet);
    Json::Array warnings(run.warnings.begin(), run.warnings.end());
    print_json("probe", Json()
                            .set("out", out)
                            .set("checkpoints", std::ssize(done))
                            .set("findings", findings_json(findings))
                            .set("warnings", std::move(warnings))
                            .set("files", files_json(out)));
    if (probe.quiet) return 0;
    const auto kept = std::ranges::count_if(done, &SeriesPart::kept);
    print(fmt::format("{} checkpoints, {} {} to {}{}\n", done.size(), series.unit,
                      series.members.front().step, series.members.back().step,
                      kept > 0 ? fmt::format("; {} reused from an earlier run", kept) : ""));
    print(notes_text(run, probe.verbose));
    for (const std::string& line : run.warnings)
        print("! " + wrapped(printable(line), terminal_width(), 2) + "\n");
    print(findings_text(findings, probe.verbose));
    print_place(out, !probe.no_report);
    return 0;
}

}  // namespace tsdiag::cli
