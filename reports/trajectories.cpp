#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"

/// Metrics over the steps of a training.
namespace tsdiag {
namespace {

using namespace reports;

constexpr std::size_t most_lines = 6, most_findings = 8;

struct TrajectoryKind {
    std::string_view metric, stage;
};

/// The metrics drawn over steps; for metrics of steps, the stages that every layer has.
std::vector<TrajectoryKind> shown() {
    std::vector<TrajectoryKind> found;
    for (const Metric* metric : metrics()) {
        if (!has(metric->show, Show::trajectory)) continue;
        found.push_back({metric->name, metric->stage});
        if (metric->of == Of::step) found.push_back({metric->name, "ffn"});
    }
    return found;
}

/// At most `most_lines`, the first and the last among them.
std::vector<Index> chosen(const Course& layers) {
    std::vector<Index> all, out;
    for (const auto& [layer, steps] : layers) all.push_back(layer);
    if (all.size() <= most_lines) return all;
    for (std::size_t i = 0; i < most_lines; ++i)
        out.push_back(all[i * (all.size() - 1) / (most_lines - 1)]);
    return out;
}

Series over_steps(Index layer, const Depth& steps) {
    return line_of_means(fmt::format("layer {}", layer), means_of(steps));
}

Grid grid_of(const Course& layers, const std::set<Index>& steps, const std::string& unit,
             std::string_view metric) {
    Grid grid{.rows = Index(layers.size()), .cols = Index(steps.size())};
    grid.row_title = "layer";
    grid.col_title = unit;
    grid.value_title = metric;
    for (const auto& [layer, points] : layers) {
        grid.row_labels.push_back(fmt::format("{}", layer));
        for (const Index step : steps) {
            const auto found = points.find(step);
            grid.values.push_back(found == points.end() ? std::nullopt : found->second.value);
        }
    }
    for (const Index step : steps) grid.col_labels.push_back(fmt::format("{}", step));
    return grid;
}

std::string words(const Series& s) {
    std::string text;
    for (const std::size_t i : {std::size_t(0), s.x.size() - 1})
        if (s.y[i])
            text += fmt::format("{}{} at {}", text.empty() ? "" : ", ", number(*s.y[i]), s.x[i]);
    return text.empty() ? "" : fmt::format(" {}: {}.", s.name, text);
}

std::optional<Figure> trajectory(const TableView& rows, const TrajectoryKind& kind,
                                 const std::string& unit) {
    const Course layers = rows.course(kind.metric, kind.stage);
    std::set<Index> steps;
    bool any = false;  // a metric that is 0 everywhere (neg_mass of softmax) is not drawn
    for (const auto& [layer, points] : layers)
        for (const auto& [step, point] : points)
            if (point.value) {
                steps.insert(step);
                any = any || *point.value != 0;
            }
    if (steps.size() < 2 || !any) return std::nullopt;
    Figure figure{
        .name = trajectory_name(kind.metric, kind.stage),
        .title = fmt::format("{}{} over the {}s", kind.metric,
                             kind.stage.empty() ? "" : fmt::format(" ({})", kind.stage), unit)};
    Plot lines{.title = fmt::format("{} by layer", kind.metric),
               .x = {.title = unit},
               .y = {.title = std::string(kind.metric)},
               .ordered = true};
    figure.alt = fmt::format("{} over the {}s.", kind.metric, unit);
    for (const Index layer : chosen(layers)) {
        lines.series.push_back(over_steps(layer, layers.at(layer)));
        figure.alt += words(lines.series.back());
    }
    if (spans_decades(lines.series)) {
        lines.y.scale = Scale::log;
        // on a logarithmic axis a band that reaches zero ends at a tenth of the mean
        for (Series& s : lines.series)
            for (std::size_t i = 0; i < s.low.size(); ++i)
                if (s.low[i]) s.low[i] = std::max(*s.low[i], *s.y[i] / 10);
    }
    figure.panels.push_back(std::move(lines));
    if (layers.size() >= 3 && steps.size() >= 3) {
        Plot cells{.title = fmt::format("{}, layer by {}", kind.metric, unit)};
        cells.grid = grid_of(layers, steps, unit, kind.metric);
        figure.panels.push_back(std::move(cells));
    }
    figure.caption = fmt::format(
        "`{}`{} of each layer during training, the same inputs at every {}{}.{}", kind.metric,
        kind.stage.empty() ? "" : fmt::format(" at stage `{}`", kind.stage), unit,
        find_metric(kind.metric)->of == Of::head ? ", mean over the heads" : "",
        layers.size() > most_lines
            ? fmt::format(" {} of {} layers are drawn as lines.", most_lines, layers.size())
            : "");
    note_bands(figure);
    return figure;
}

std::string change_in_words(const RunRecord::Change& change, const std::string& unit) {
    std::string text = fmt::format(
        "{}{} of layer {} {} from {} at {} {} to {} at {} ({}{})", change.metric,
        change.stage.empty() ? "" : fmt::format(" ({})", change.stage), change.layer,
        change.last > change.first ? "rises" : "falls", number(change.first), unit, change.from,
        number(change.last), change.to, change.last > change.first ? "+" : "",
        with_error(change.last - change.first, change.error));
    if (change.steepest_from != change.from || change.steepest_to != change.to)
        text += fmt::format(", fastest from {} to {} ({:+.3g})", change.steepest_from,
                            change.steepest_to, change.steepest);
    return text + ".";
}

bool is_shown(const RunRecord::Change& change) {
    return std::ranges::any_of(shown(), [&](const TrajectoryKind& kind) {
        return kind.metric == change.metric && kind.stage == change.stage;
    });
}

double relative(const RunRecord::Change& change) {
    return std::abs(change.last - change.first) /
           std::max(std::abs(change.first), std::abs(change.last));
}

}  // namespace

namespace reports {

std::string trajectory_name(std::string_view metric, std::string_view stage) {
    return fmt::format("trajectory_{}{}{}", metric, stage.empty() ? "" : "_", stage);
}

std::vector<Finding> changes_verdict(const RunRecord& run) {
    std::map<std::string, const RunRecord::Change*>
        greatest;                               // per metric, the layer with the largest change
    const RunRecord::Change* hidden = nullptr;  // that of a metric which no figure shows
    std::size_t count = 0, certain = 0, known = 0;
    for (const RunRecord::Change& change : run.changes) {
        ++count;
        if (change.error) ++known;
        if (!change.certain) continue;
        ++certain;
        const RunRecord::Change*& best = is_shown(change) ? greatest[change.metric] : hidden;
        if (!best || relative(change) > relative(*best)) best = &change;
    }
    if (count == 0) return {};
    if (known == 0)
        return {{Finding::Level::note,
                 "One sample each: changes cannot be tested. Use --samples 8.", ""}};
    std::vector<const RunRecord::Change*> order;
    for (const auto& [metric, change] : greatest) order.push_back(change);
    if (order.empty() && hidden) order.push_back(hidden);
    std::ranges::sort(order, [](auto* a, auto* b) { return relative(*a) > relative(*b); });
    if (order.size() > most_findings) order.resize(most_findings);
    std::vector<Finding> findings = {
        {Finding::Level::note,
         fmt::format("{} of {} numbers changed significantly from the first to the last "
                     "checkpoint (95 %, jointly){}.",
                     certain, count,
                     order.empty()      ? ""
                     : greatest.empty() ? "; below, the largest"
                                        : "; below, the largest per metric"),
         ""}};
    for (const RunRecord::Change* change : order)
        findings.push_back(
            {Finding::Level::note, change_in_words(*change, run.unit),
             is_shown(*change) ? trajectory_name(change->metric, change->stage) : ""});
    return findings;
}

std::vector<Figure> trajectories(const Table& table, const RunRecord& run) {
    const TableView rows(table);
    std::vector<Figure> figures;
    for (const TrajectoryKind& kind : shown())
        if (std::optional<Figure> figure = trajectory(rows, kind, run.unit))
            figures.push_back(std::move(*figure));
    return figures;
}

Table last_step(const Table& table) {
    std::vector<MetricRow> metrics = table.metrics();
    std::vector<CurveRow> curves = table.curves();
    Index last = -1;
    for (const MetricRow& row : metrics) last = std::max(last, row.at.step);
    std::erase_if(metrics, [&](const MetricRow& row) { return row.at.step != last; });
    std::erase_if(curves, [&](const CurveRow& row) { return row.at.step != last; });
    for (MetricRow& row : metrics) row.at.step = -1;
    for (CurveRow& row : curves) row.at.step = -1;
    Table out(table.model());
    out.append(metrics, curves);
    return out;
}

}  // namespace reports
}  // namespace tsdiag
