#include "accumulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cells.hpp"
#include "head_classes.hpp"
#include "text.hpp"

/// Locally accumulated attention: the share of it within a window around each token.
namespace tsdiag::reports {
namespace {

constexpr Index most_curves = 16;  ///< all are drawn; of more layers, `shown_layers` of them
constexpr Index shown_layers = 9;

/// `shown` of `count` positions, evenly spaced, with the first and the last.
std::set<Index> spread(Index count, Index shown) {
    std::set<Index> found;
    for (Index k = 0; k < shown; ++k)
        found.insert(shown < 2 ? 0 : (k * (count - 1) + (shown - 1) / 2) / (shown - 1));
    return found;
}

/// Is a value outside [low, high]?  So it is where rows of P do not sum to 1.
bool leaves(const std::vector<Series>& all, double low, double high) {
    return std::ranges::any_of(all, [&](const Series& s) {
        return std::ranges::any_of(s.y,
                                   [&](const auto& y) { return y && (*y < low || *y > high); });
    });
}

Plot curve_panel(const std::map<Index, Curve>& curves) {
    Plot plot{.title = "local_acc: attention within the window",
              .x = {.title = "window, fraction of tokens", .low = 0, .high = 1},
              .y = {.title = "C(L)", .low = 0, .high = 1.02},
              .ordered = true};
    const Index count = Index(curves.size());
    const std::set<Index> shown = spread(count, count > most_curves ? shown_layers : count);
    Index position = 0;
    for (const auto& [layer, curve] : curves) {
        if (!shown.contains(position++)) continue;
        Series& s = plot.series.emplace_back(Series{.name = fmt::format("layer {}", layer)});
        for (const auto& [x, p] : curve) {
            s.x.push_back(x);
            s.y.push_back(p.value);
        }
    }
    if (leaves(plot.series, *plot.y.low, *plot.y.high)) plot.y.low = plot.y.high = {};
    plot.series.push_back({.name = "uniform", .x = {0, 1}, .y = {0.0, 1.0}, .dashed = true});
    return plot;
}

/// The window that holds half of the attention of a layer, in words.
std::string half_in_words(const Series& s) {
    for (std::size_t i = 0; i < s.y.size(); ++i)
        if (s.y[i] && *s.y[i] >= 0.5)
            return fmt::format(" In {}, half of the attention is within {} of the tokens.", s.name,
                               number(s.x[i]));
    return {};
}

std::vector<Figure> make_accumulation(const Table& table) {
    const TableView rows(table);
    const std::vector<CurveRow> points = table.curves();
    std::vector<Figure> found;
    for (const std::string& model : rows.models()) {
        Figure f{
            .name = "accumulation",
            .title = "Locally accumulated attention",
            .caption =
                "C(L): attention within L tokens around the row's own, mean over rows and heads "
                "[DEVIL 3.2]; local_auc: its area." +
                identity_and_sink_criteria(),
            .alt = "Curves and a heat map."};
        if (const auto curves = curves_of(points, model, metric::local_acc); !curves.empty()) {
            f.panels.push_back(curve_panel(curves));
            const std::vector<Series>& series =
                f.panels.back().series;  // the last one is `uniform`
            const std::size_t drawn = series.size() - 1;
            f.alt += half_in_words(series.front());
            if (drawn > 1) f.alt += half_in_words(series[drawn - 1]);
            if (drawn < curves.size())
                f.caption += fmt::format(" {} of {} layers shown; curves.csv has all.", drawn,
                                         curves.size());
        }
        Grid g = head_grid(rows.heads(model, metric::local_auc), metric::local_auc);
        g.model = model;
        if (const std::string words = grid_in_words(metric::local_auc, g); !words.empty()) {
            f.panels.push_back({.title = "local_auc: locality of each head", .grid = g});
            f.alt += " " + words;
        }
        if (f.panels.empty()) continue;
        f.name = own_figure(rows, model, f.name);
        if (rows.models().size() > 1) f.title += ": " + label(model);
        found.push_back(std::move(f));
    }
    if (std::optional<Figure> all = compared_accumulation(points, rows.models()))
        found.push_back(*std::move(all));
    return found;
}

}  // namespace

std::map<Index, Curve> curves_of(const std::vector<CurveRow>& rows, const std::string& model,
                                 std::string_view curve) {
    std::map<Index, Curve> means;
    std::map<std::pair<Index, double>, std::pair<double, Index>> sums;
    for (const CurveRow& row : rows) {
        if (row.model != model || row.curve != curve || row.at.layer < 0) continue;
        if (row.at.head < 0) {
            means[row.at.layer][row.x] = {row.y, row.standard_error};
        } else if (row.y) {
            auto& [sum, count] = sums[{row.at.layer, row.x}];
            sum += *row.y;
            ++count;
        }
    }
    std::set<Index> given;
    for (const auto& [layer, points] : means) given.insert(layer);
    for (const auto& [at, s] : sums)
        if (!given.contains(at.first))
            means[at.first][at.second] = {s.first / double(s.second), {}};
    return means;
}

extern const FigureEntry accumulation = {.name = "accumulation",
                                         .title = "Locally accumulated attention",
                                         .needs = {metric::local_acc, metric::local_auc},
                                         .make = make_accumulation};

}  // namespace tsdiag::reports
