#include "summary.hpp"

#include <fmt/format.h>

#include <set>

#include "terminal.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

constexpr Index most_rows = 40;
constexpr std::size_t short_list = 3;
constexpr std::size_t margin = 11;  // width of the labels of the paragraphs around the table

std::string paragraph(std::string_view head, std::string_view text) {
    return styled(fmt::format("{:<{}}", head, margin), Style::dim) +
           wrapped(printable(text), terminal_width(), margin) + "\n";
}

/// All lines of `list`, or the first ones in one paragraph.
std::string paragraphs(std::string_view head, const std::vector<std::string>& list, bool all) {
    if (list.empty()) return "";
    std::string text, few;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (all) text += paragraph(i == 0 ? head : "", list[i]);
        if (i < short_list) few += (i > 0 ? "; " : "") + list[i];
    }
    if (all) return text;
    if (list.size() > short_list)
        few += fmt::format("; and {} more (-v)", list.size() - short_list);
    return paragraph(head, few);
}

std::string what_was_run(const RunRecord& run) {
    const RunRecord::Input& input = run.input;
    std::string text = fmt::format("{}, {}, {}", input.kind, input.tokens_in_words(),
                                   counted(std::size_t(input.samples.value_or(0)), "sample"));
    if (input.trials > 1) text += fmt::format(", {} trials", *input.trials);
    text += fmt::format(", {}, {}, {}", run.dtype, run.device,
                        counted(std::size_t(run.threads.value_or(0)), "thread"));
    if (run.model.kind != "trace") text += fmt::format(", seed {}", run.seed.value_or(0));
    return text;
}

std::string heading(const RunRecord& run, bool verbose) {
    const RunRecord::Model& model = run.model;
    std::string text = paragraph("model", model.name.empty() ? model.argument : model.name);
    text += paragraph("run", what_was_run(run));
    std::vector<std::string> assumed = model.defaults;
    assumed.insert(assumed.end(), run.input.defaults.begin(), run.input.defaults.end());
    text += paragraphs("recognised", model.recognised, verbose);
    text += paragraphs("ignored", model.ignored, verbose);
    text += paragraphs("assumed", assumed, verbose);
    for (const std::string& line : run.warnings) text += paragraph("warning", line);
    return text;
}

std::string cell(const Depth& depth, Index layer) {
    const auto found = depth.find(layer);
    if (found == depth.end()) return "-";
    return number_cell(found->second.value, found->second.error);
}

using Columns = std::vector<std::vector<std::string>>;  ///< each with its title in front

/// The first column and as many of the others from `first` on as a line has room for.
std::string lines_of(const Columns& columns, std::size_t& first) {
    const std::size_t width = terminal_width();
    std::string text;
    for (Columns shown = {columns.front()}; first < columns.size(); ++first) {
        shown.push_back(columns[first]);
        std::vector<std::vector<std::string>> rows(columns.front().size());
        for (const auto& column : shown)
            for (std::size_t r = 0; r < rows.size(); ++r) rows[r].push_back(column[r]);
        std::string longer = aligned(rows, 0);
        // The header is right-aligned, and so as long as any line.
        if (longer.find('\n') > width && !text.empty()) break;
        text = std::move(longer);
    }
    const std::size_t end = text.find('\n');
    return "\n" + styled(text.substr(0, end), Style::bold) + text.substr(end);
}

/// A row per layer; for many layers, every k-th and the last.  Layers that were not measured are
/// left out.
std::string layer_table(const Table& table, Index layers) {
    std::vector<Index> shown;
    const Index step = (layers + most_rows - 1) / most_rows;
    for (Index layer = 0; layer < layers; ++layer)
        if (layer % step == 0 || layer == layers - 1) shown.push_back(layer);
    const TableView view(table);
    const std::string model = view.models().empty() ? "" : view.models().front();
    std::vector<std::pair<const Metric*, Depth>> measured;
    std::set<Index> with_number;
    for (const Metric* metric : metrics()) {
        if (!has(metric->show, Show::terminal)) continue;
        Depth depth = view.depth(model, metric->name, view.stage_of(model, *metric));
        std::size_t numbers = 0;
        for (const Index layer : shown)
            if (const auto at = depth.find(layer); at != depth.end() && at->second.value) {
                with_number.insert(layer);
                ++numbers;
            }
        if (numbers > 0) measured.emplace_back(metric, std::move(depth));
    }
    if (measured.empty()) return "";
    Columns columns = {{"layer"}};
    for (const Index layer : with_number) columns.front().push_back(fmt::format("{}", layer));
    for (const auto& [metric, depth] : measured) {
        std::vector<std::string> cells;
        for (const Index layer : with_number) cells.push_back(cell(depth, layer));
        align_points(cells);
        cells.insert(cells.begin(), std::string(metric->name));
        columns.push_back(std::move(cells));
    }
    std::string text;
    for (std::size_t first = 1; first < columns.size();) text += lines_of(columns, first);
    return text;
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings, bool verbose) {
    constexpr std::size_t most_findings = 5;
    std::string text = findings.empty() ? "" : "\n";
    std::size_t shown = 0, more = 0, warnings = 0;
    for (const Finding& finding : findings) {
        const bool warns = finding.level == Finding::Level::warning;
        if (!finding.headline && !verbose && shown == most_findings) {
            ++more;
            warnings += warns;
            continue;
        }
        const std::string line =
            (finding.headline ? ""
             : warns          ? "! "
                              : "- ") +
            wrapped(printable(finding.text), terminal_width(), finding.headline ? 0 : 2);
        text += styled(line, finding.headline ? Style::bold
                             : warns          ? Style::warning
                                              : Style::plain);
        text += "\n";
        if (!finding.headline) ++shown;
    }
    const std::string warning =
        warnings > 0 ? fmt::format(" ({})", counted(warnings, "warning")) : "";
    if (more > 0) text += fmt::format("  and {} more{}, on the page or with -v\n", more, warning);
    return text;
}

Json with_findings(RunRecord run, const std::vector<Finding>& findings) {
    run.findings.clear();
    for (const Finding& finding : findings) {
        const bool warns = finding.level == Finding::Level::warning;
        run.findings.push_back({.level = warns                                   ? "warning"
                                         : finding.level == Finding::Level::good ? "good"
                                                                                 : "note",
                                .text = finding.text,
                                .figure = finding.figure,
                                .headline = finding.headline});
    }
    return run.json();
}

Json findings_json(const std::vector<Finding>& findings) {
    if (findings.empty()) return Json::Array();
    return with_findings({}, findings)["findings"];
}

Json layers_json(const RunResult& result) {
    const TableView view(result.table);
    const std::string model = view.models().empty() ? "" : view.models().front();
    const Index layers = RunRecord(result.run).model.layers.value_or(0);
    Json::Array all;
    for (Index layer = 0; layer < layers; ++layer) all.push_back(Json().set("layer", layer));
    for (const Metric* metric : metrics()) {
        if (!has(metric->show, Show::terminal)) continue;
        for (const auto& [layer, at] :
             view.depth(model, metric->name, view.stage_of(model, *metric)))
            if (layer >= 0 && layer < layers && at.value)
                all[std::size_t(layer)].set(std::string(metric->name), *at.value);
    }
    return all;
}

std::string summary(const RunResult& result, bool verbose) {
    const RunRecord run = result.run;
    std::string text = heading(run, verbose);
    text += layer_table(result.table, run.model.layers.value_or(0));
    return text + findings_text(verdict(result.table, run), verbose);
}

}  // namespace tsdiag::cli
