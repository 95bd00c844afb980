#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"
#include "tsdiag/comparison.hpp"
#include "tsdiag/intervals.hpp"

/// The page of a comparison of results.
namespace tsdiag::reports {
namespace {

constexpr std::size_t most_compared_rows = 40, most_compared_panels = 9;

/// "A: runs/a".
std::string lettered(std::span<const MeasuredResult> results, std::size_t i) {
    return fmt::format("{}: {}", letter(i), label(results[i].name));
}

/// The rows of all results, each as a model of its own.
Table side_by_side(std::span<const MeasuredResult> results) {
    Table out;
    for (std::size_t i = 0; i < results.size(); ++i) {
        std::vector<MetricRow> rows = results[i].rows;
        for (MetricRow& row : rows) row.model = letter(i);
        out.append(rows, {});
    }
    return out;
}

/// A metric over the layers, of every result that has it.
std::vector<Series> of_results(const TableView& rows, std::span<const MeasuredResult> results,
                               const Metric& metric) {
    std::vector<Series> out;
    for (std::size_t i = 0; i < results.size(); ++i) {
        Series line =
            over_layers(lettered(results, i),
                        rows.depth(letter(i), metric.name, rows.stage_of(letter(i), metric)));
        if (any_value(line)) out.push_back(std::move(line));
    }
    return out;
}

/// Its changes over the layers, one line a result, with their intervals.
std::vector<Series> of_changes(const TableView& rows, std::span<const MeasuredResult> results,
                               const Changes& changes, const Metric& metric) {
    std::map<std::size_t, std::map<Index, const Difference*>> lines;
    for (const Difference& d : changes.differences)
        if (d.metric == metric.name && d.at.layer >= 0 && d.at.head < 0 && d.at.tensor.empty() &&
            d.at.stage == rows.stage_of(letter(0), metric) && d.difference)
            lines[d.result][d.at.layer] = &d;
    std::vector<Series> out;
    for (const auto& [result, layers] : lines) {
        Series line{.name = fmt::format("{} - A: {}", letter(result), label(results[result].name))};
        for (const auto& [layer, d] : layers) {
            line.x.push_back(double(layer));
            line.y.push_back(d->difference);
            line.low.push_back(d->low);
            line.high.push_back(d->high);
        }
        if (std::ranges::none_of(line.low, [](const auto& v) { return v.has_value(); }))
            line.low.clear(), line.high.clear();
        out.push_back(std::move(line));
    }
    return out;
}

Plot layer_panel(const Metric& metric, std::vector<Series> lines) {
    return {.title = std::string(metric.name),
            .x = {.title = "layer", .whole = true},
            .y = {.title = title_of(metric.name)},
            .series = std::move(lines)};
}

/// Metrics with the surest changes first.
std::vector<const Metric*> drawn_metrics(const Changes& changes) {
    std::vector<const Metric*> out;
    for (const Difference& d : changes.differences) {
        const Metric* metric = find_metric(d.metric);
        if (metric && d.at.layer >= 0 && std::ranges::find(out, metric) == out.end())
            out.push_back(metric);
    }
    return out;
}

std::vector<Figure> comparison_figures(std::span<const MeasuredResult> results,
                                       const Changes& changes) {
    const Table table = side_by_side(results);
    const TableView rows(table);
    Figure course{.name = "courses",
                  .title = "The results over depth",
                  .caption =
                      "Metrics with the surest changes first, at the stage at which summaries "
                      "read them; means over heads."};
    Figure change{.name = "changes",
                  .title = "The changes over depth",
                  .caption = "Each later result minus A."};
    for (const Metric* metric : drawn_metrics(changes)) {
        if (course.panels.size() == most_compared_panels) break;
        std::vector<Series> lines = of_results(rows, results, *metric);
        std::vector<Series> differences = of_changes(rows, results, changes, *metric);
        if (lines.size() < 2 || differences.empty()) continue;
        course.panels.push_back(layer_panel(*metric, std::move(lines)));
        change.panels.push_back(layer_panel(*metric, std::move(differences)));
        change.panels.back().marks = {{0.0, "no change"}};
        change.panels.back().y.title = "change of " + std::string(metric->name);
    }
    if (course.panels.empty()) return {};
    if (shows_bands(course))
        course.caption +=
            " Bands are 95 % intervals of each mean alone, for at least three samples.";
    if (shows_bands(change))
        change.caption += fmt::format(
            " A band is the interval of the change, of {:.5g} % confidence: it excludes 0 where "
            "the change is significant with a false-discovery rate of {:.4g} % over all changes of "
            "the page.",
            100 * changes.interval_confidence, 100 * changes.rate);
    course.alt = "Line charts over the layers. " + in_words(course.panels);
    change.alt = "Line charts of changes over the layers. " + in_words(change.panels);
    return {std::move(course), std::move(change)};
}

std::string optional_cell(const std::optional<double>& value) {
    return fmt::format("<td>{}</td>", value ? number(*value) : "");
}

/// `several`: the results that are compared with A have a column; `tested`: so have intervals.
std::vector<HtmlTable::Column> columns_of_changes(std::string_view first, bool several,
                                                  bool tested) {
    std::vector<HtmlTable::Column> columns = {{std::string(first)}};
    if (several) columns.push_back({"result"});
    for (const char* title : {"A", several ? "result's" : "B", "change"})
        columns.push_back({title});
    if (tested) columns.insert(columns.end(), {{"interval"}, {"p"}});
    return columns;
}

/// The cells of a change, from its result on.
std::string change_cells(const Difference& d, bool several, bool tested) {
    const std::string span =
        d.low && d.high ? fmt::format("{} to {}", number(*d.low), number(*d.high)) : "";
    return (several ? fmt::format("<td>{}</td>", letter(d.result)) : "") + optional_cell(d.a) +
           optional_cell(d.b) +
           (d.pairs > 0 ? fmt::format("<td>{}</td>", with_error(*d.difference, d.error))
                        : optional_cell(d.difference)) +
           (tested ? fmt::format("<td>{}</td><td>{}</td>", span,
                                 d.probability ? fmt::format("{:.2g}", *d.probability) : "")
                   : "");
}

std::string about_intervals(const Changes& changes) {
    if (changes.tested == 0) return "";
    return fmt::format(
        " Intervals have {:.5g} % confidence and exclude 0 where a change is significant.{}",
        100 * changes.interval_confidence,
        changes.paired > 0 ? " \u00b1: standard error of the paired differences." : "");
}

/// All changes of one metric in one result.
struct MetricChanges {
    const Difference* largest = nullptr;  ///< of the significant ones, where there are some
    std::size_t significant = 0, tested = 0;
};

/// " 40 of 90 are shown; compare.csv has all."; empty where all are.
std::string how_many_shown(std::size_t all) {
    return all > most_compared_rows
               ? fmt::format(" {} of {} are shown; compare.csv has all.", most_compared_rows, all)
               : "";
}

/// One row a metric and result: its largest change, and how many of those tested are significant.
std::string changes_by_metric(const Changes& changes, bool several) {
    const bool tested = changes.tested > 0;
    std::vector<MetricChanges> rows;  // in the order of the surest changes
    std::map<std::pair<std::string, std::size_t>, std::size_t> row_of;
    for (const Difference& d : changes.differences) {
        const auto [at, added] = row_of.try_emplace({d.metric, d.result}, rows.size());
        if (added) rows.emplace_back();
        MetricChanges& row = rows[at->second];
        const bool significant = d.outcome == Difference::Outcome::significant;
        // those that are significant come first
        if (!row.largest ||
            (significant == (row.significant > 0) && d.relative() > row.largest->relative()))
            row.largest = &d;
        row.significant += significant;
        row.tested += d.probability.has_value();
    }
    std::string body;
    const std::string shown = how_many_shown(rows.size());
    if (rows.size() > most_compared_rows) rows.resize(most_compared_rows);
    for (const MetricChanges& row : rows)
        body += fmt::format("<tr><th scope=\"row\">{}</th>{}{}</tr>\n", html(row.largest->where()),
                            change_cells(*row.largest, several, tested),
                            !tested ? ""
                            : row.tested > 0
                                ? fmt::format("<td>{} of {}</td>", row.significant, row.tested)
                                : fmt::format("<td>{}</td>", name(row.largest->outcome)));
    std::vector<HtmlTable::Column> columns =
        columns_of_changes("metric, largest change", several, tested);
    if (tested) columns.push_back({"significant"});
    return table_html({.label = "Changes by metric",
                       .caption = "Each metric where it changes most, relative to its size, as "
                                  "metric@stage:layer.head." +
                                  about_intervals(changes) + shown,
                       .columns = std::move(columns),
                       .rows = std::move(body)});
}

std::string changes_html(const Changes& changes, bool several) {
    std::string body;
    std::size_t shown = 0;
    for (const Difference& d : changes.differences) {
        if (shown++ == most_compared_rows) break;
        const std::string outcome = d.note.empty() ? std::string(name(d.outcome)) : d.note;
        body += fmt::format("<tr><th scope=\"row\">{}</th>{}<td class=\"words\">{}</td></tr>\n",
                            html(d.where()), change_cells(d, several, changes.tested > 0),
                            html(outcome));
    }
    std::vector<HtmlTable::Column> columns =
        columns_of_changes("number", several, changes.tested > 0);
    columns.push_back({"outcome"});
    return table_html(
        {.label = "Changes",
         .caption = "Metric@stage:layer.head, the surest changes first; p is that of no change." +
                    about_intervals(changes) + how_many_shown(changes.differences.size()),
         .columns = std::move(columns),
         .rows = std::move(body)});
}

std::vector<Finding> comparison_findings(const Changes& changes,
                                         const std::vector<Finding>& judged) {
    std::vector<Finding> out = judged;
    if (changes.differences.empty()) return out;
    out.push_back({.text = headline(changes), .figure = "courses", .headline = true});
    for (const std::string& note : changes.notes) out.push_back({Finding::Level::warning, note});
    for (const std::string& line : remarks(changes)) out.push_back({Finding::Level::note, line});
    return by_severity(std::move(out));
}

}  // namespace
}  // namespace tsdiag::reports

namespace tsdiag {

std::vector<std::string> write_comparison(std::span<const MeasuredResult> results,
                                          const Changes& changes,
                                          const std::vector<Finding>& judged, const RunRecord& run,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look) {
    using namespace reports;
    std::vector<std::pair<std::string, std::string>> facts;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const RunRecord& result = results[i].run;
        std::string text = fmt::format("{} ({}", results[i].name, results[i].model());
        if (results[i].step >= 0) text += fmt::format(", {} {}", result.unit, results[i].step);
        const std::string measured = origin_text(result);
        facts.emplace_back(letter(i), text +
                                          (measured.empty()               ? ")"
                                           : result.measured.date.empty() ? "), computed with "
                                                                          : "), measured ") +
                                          measured);
    }
    facts.emplace_back("Command", shell_command(run.command));
    std::ranges::move(origin_facts(run), std::back_inserter(facts));
    Page page{.title = "Comparison of results",
              .findings = comparison_findings(changes, judged),
              .no_findings_text = "Nothing was compared.",
              .figures = comparison_figures(results, changes),
              .files = {{"compare.csv", "every change, one per row"},
                        {"run.json", "the results compared, and the outcome"}}};
    const bool several = results.size() > 2;
    if (!changes.differences.empty()) {
        page.list = changes_by_metric(changes, several);
        page.folds.push_back(
            {"numbers", "Changes, the surest first", changes_html(changes, several)});
    }
    page.folds.push_back({"facts", "Results", list_html(facts)});
    return write_page(std::move(page), directory, look);
}

}  // namespace tsdiag
