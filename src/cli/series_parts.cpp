#include "series_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <list>
#include <span>
#include <unordered_map>

#include "result_files.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag::cli {

namespace fs = std::filesystem;

namespace {

/// What lines name a member by: its path, or the folder that holds it where each has its own.
std::vector<std::string> places(const CheckpointSeries& series) {
    std::vector<std::string> paths, folders;
    for (const SeriesMember& member : series.members) {
        std::string path = member.path;
        while (path.size() > 1 && path.ends_with('/')) path.pop_back();
        std::error_code failed;
        folders.push_back(fs::is_directory(path, failed) ? path
                                                         : fs::path(path).parent_path().string());
        paths.push_back(std::move(path));
    }
    std::vector<std::string> sorted = folders;
    std::ranges::sort(sorted);
    return sorted.front().empty() || std::ranges::adjacent_find(sorted) != sorted.end() ? paths
                                                                                        : folders;
}

/// `line` with `stand_in` for the place of its member: with CHECKPOINT those of all members are
/// equal.  A place without a slash may be an ordinary word, and counts as a folder only.
std::string without_place(std::string line, const std::string& place,
                          std::string_view stand_in = "CHECKPOINT") {
    constexpr std::string_view joins = "-_/.";
    const auto in_a_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    const bool bare = place.find('/') == std::string::npos;
    for (std::size_t at = line.find(place); at != std::string::npos; at = line.find(place, at)) {
        const std::size_t end = at + place.size();
        const char before = at == 0 ? ' ' : line[at - 1],
                   after = end < line.size() ? line[end] : ' ';
        const bool whole = !in_a_name(before) && joins.find(before) == joins.npos &&
                           !in_a_name(after) && after != '-' && after != '_' &&
                           (!bare || after == '/');
        if (whole) line.replace(at, place.size(), stand_in);
        at = whole ? at + stand_in.size() : end;
    }
    return line;
}

/// The lines of a description about its model.
constexpr std::vector<std::string> RunRecord::Model::*model_lines[] = {
    &RunRecord::Model::recognised, &RunRecord::Model::ignored, &RunRecord::Model::defaults,
    &RunRecord::Model::warnings};

/// A line, and the members that have it.
struct MergedLine {
    std::string text;     ///< without the place of a member
    std::string example;  ///< as its first member has it
    bool same = true;     ///< all have it so
    std::vector<std::size_t> members;
};

/// "step 100", "steps 100 and 300", "steps 100 to 900".
std::string steps_of(const MergedLine& line, const CheckpointSeries& series) {
    constexpr std::size_t most_steps = 4;
    std::vector<Index> steps;
    for (const std::size_t i : line.members) steps.push_back(series.members[i].step);
    if (steps.size() == 1) return fmt::format("{} {}", series.unit, steps.front());
    const std::size_t span = line.members.back() - line.members.front() + 1;
    if (steps.size() > 2 && span == steps.size())
        return fmt::format("{}s {} to {}", series.unit, steps.front(), steps.back());
    if (steps.size() > most_steps) {
        const std::size_t more = steps.size() - most_steps;
        steps.resize(most_steps);
        return fmt::format("{}s {} and {} more", series.unit, fmt::join(steps, ", "), more);
    }
    const Index last = steps.back();
    steps.pop_back();
    return fmt::format("{}s {} and {}", series.unit, fmt::join(steps, ", "), last);
}

/// The lines of all members, each once: those of some with their steps.  `lists` has one list a
/// member, whose order is kept.
std::vector<std::string> merged_lines(const CheckpointSeries& series,
                                      const std::vector<std::span<const std::string>>& lists) {
    const std::vector<std::string> named = places(series);
    std::list<MergedLine> all;
    std::unordered_map<std::string, std::list<MergedLine>::iterator> by_text;  // may be 10^5 lines
    for (std::size_t i = 0; i < lists.size(); ++i) {
        // From the last line on, each before the one that follows it in its own list.
        auto at = all.end();
        for (std::size_t k = lists[i].size(); k-- > 0;) {
            const std::string& line = lists[i][k];
            const std::string text = without_place(line, named[i]);
            const auto [known, is_new] = by_text.try_emplace(text, all.end());
            if (is_new) known->second = all.insert(at, {text, line, true, {}});
            const auto found = known->second;
            found->same &= found->example == line;
            if (found->members.empty() || found->members.back() != i) found->members.push_back(i);
            at = found;
        }
    }
    std::vector<std::string> out;
    for (const MergedLine& line : all) {
        const std::string& text = line.same ? line.example : line.text;
        out.emplace_back(line.members.size() == lists.size()
                             ? text
                             : fmt::format("{}: {}", steps_of(line, series), text));
    }
    return out;
}

/// Members whose samples are not as long as those of the first.
std::vector<std::string> unequal_lengths(const CheckpointSeries& series,
                                         const std::vector<SeriesPart>& parts) {
    std::vector<std::string> out;
    const Index first = parts.front().run.input.tokens.value_or(0);
    for (std::size_t i = 1; i < parts.size(); ++i)
        if (const Index own = parts[i].run.input.tokens.value_or(0); own != first)
            out.push_back(fmt::format("{} {}: the samples have {} tokens, those of {} {} have {}",
                                      series.unit, series.members[i].step, own, series.unit,
                                      series.members.front().step, first));
    return out;
}

/// Of the member that was measured first; an earlier version did not say when.
RunRecord::Measured first_measured(const std::vector<SeriesPart>& parts) {
    const auto first = std::ranges::min_element(
        parts, {}, [](const SeriesPart& part) -> const auto& { return part.run.measured.date; });
    return first->run.measured;
}

/// `model` of the last run, with what those of all members tell.
RunRecord::Model model_of(const CheckpointSeries& series, const std::vector<SeriesPart>& parts) {
    RunRecord::Model model = parts.back().run.model;
    for (const auto own : model_lines) {
        std::vector<std::span<const std::string>> lists;
        for (const SeriesPart& part : parts) lists.emplace_back(part.run.model.*own);
        model.*own = merged_lines(series, lists);
    }
    // That P is no attention is said of the last one; where not of all, with the steps as well.
    std::vector<std::span<const std::string>> reasons;
    bool same = true;
    for (const SeriesPart& part : parts) {
        const std::string& reason = part.run.model.no_attention;
        reasons.emplace_back(&reason, reason.empty() ? 0 : 1);
        same &= reason == parts.back().run.model.no_attention;
    }
    if (same) return model;
    const std::vector<std::string> warnings = merged_lines(series, reasons);
    model.warnings.insert(model.warnings.begin(), warnings.begin(), warnings.end());
    return model;
}

}  // namespace

fs::path part_folder(const fs::path& out, Index step) {
    return out / parts_folder / std::to_string(step);
}

void refuse_options_of_one(const ProbeOptions& probe) {
    if (!probe.run.maps.empty())
        throw UsageError("--maps: needs a single checkpoint; probe that checkpoint alone.");
    if (probe.run.trials > 1)
        throw UsageError(
            fmt::format("--trials {}: draws new weights, but checkpoints have fixed weights; use "
                        "--samples to draw new inputs.",
                        probe.run.trials));
}

OutputPlan part_plan() {
    return {.writes = {"metrics.csv", "curves.csv", "samples.csv", "run.json"}, .force = true};
}

std::optional<SeriesPart> finished_part(const fs::path& from, const std::string& digest) {
    std::error_code failed;
    if (!fs::exists(from / "run.json", failed)) return std::nullopt;
    try {
        RunRecord run = read_description(from);
        if (run.digest != digest) return std::nullopt;
        return SeriesPart{read_metrics(from), read_curves(from), std::move(run), true};
    } catch (const Error&) {
        return std::nullopt;  // damaged: measure again
    }
}

void set_path(SeriesPart& part, const std::string& path) {
    const std::string& measured = part.run.model.argument;
    if (measured == path) return;
    std::error_code failed;
    const bool folder = fs::is_directory(path, failed);
    const auto place = [&](fs::path one) {
        if (!folder || !one.has_filename()) one = one.parent_path();
        return one.string();
    };
    const std::string from = place(measured), to = place(path);
    if (from.empty()) return;
    const auto move = [&](std::vector<std::string>& lines) {
        for (std::string& line : lines) line = without_place(line, from, to);
    };
    for (const auto lines : model_lines) move(part.run.model.*lines);
    move(part.run.warnings);
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
                         const std::string& model, Index step, const RunRecord::Measured& began) {
    RunResult result = run(options);
    SeriesPart part{
        .metrics = result.table.metrics(), .curves = result.table.curves(), .run = result.run};
    const Index count = part.run.input.samples.value_or(0);
    const std::string samples = samples_csv(part.metrics, count);
    for (MetricRow& row : part.metrics) row.samples = {};  // all checkpoints are in memory
    part.run.measured = began;
    part.run.digest = digest;
    set_place(part, model, step);
    require_unchanged_files();
    try {
        OutputFolder directory(to, part_plan());
        write_atomically(directory.temporary() / "metrics.csv", metrics_csv(part.metrics));
        write_atomically(directory.temporary() / "curves.csv", curves_csv(part.curves));
        if (!samples.empty()) write_atomically(directory.temporary() / "samples.csv", samples);
        write_description(described(part.run), directory.temporary());
        directory.commit();
    } catch (const UsageError&) {
        throw;
    } catch (const Error& error) {
        throw CannotKeep(error.what());
    }
    return part;
}

Json series_run(const CheckpointSeries& series, const std::vector<SeriesPart>& done,
                const Table& table) {
    RunRecord run = done.back().run;
    run.digest.clear();
    run.tables.reset();
    run.measured = first_measured(done);
    run.model = model_of(series, done);
    run.series = series.name;
    run.unit = series.unit;
    run.checkpoints.emplace();
    std::vector<std::span<const std::string>> said;
    for (std::size_t i = 0; i < done.size(); ++i) {
        const SeriesMember& member = series.members[i];
        run.checkpoints->push_back({.path = member.path,
                                    .origin = member.origin,
                                    .digest = done[i].run.digest,
                                    .step = member.step,
                                    .kept = done[i].kept,
                                    .contradiction = member.contradiction});
        said.emplace_back(done[i].run.warnings);
    }
    run.changes = metric_changes(table);
    run.warnings = merged_lines(series, said);
    std::ranges::copy(series.notes, std::back_inserter(run.warnings));
    std::ranges::copy(unequal_lengths(series, done), std::back_inserter(run.warnings));
    return described(std::move(run));
}

}  // namespace tsdiag::cli
