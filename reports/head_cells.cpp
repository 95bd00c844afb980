#include <fmt/format.h>

#include <algorithm>

#include "cells.hpp"
#include "head_classes.hpp"
#include "text.hpp"

/// Figures of the attention: one cell per head, layers downwards.
namespace tsdiag::reports {

Grid head_grid(const Heads& heads, std::string_view metric) {
    Grid g{.row_title = "layer", .col_title = "head", .value_title = std::string(metric)};
    for (const auto& [at, p] : heads) {
        g.rows = std::max(g.rows, at.first + 1);
        g.cols = std::max(g.cols, at.second + 1);
    }
    constexpr Index most_cells = Index{1} << 20;  // more than fits on a screen
    if (g.rows * g.cols > most_cells) g.rows = g.cols = 0;
    g.values.resize(std::size_t(g.rows * g.cols));
    if (g.values.empty()) return g;
    for (const auto& [at, p] : heads)
        g.values[std::size_t(at.first * g.cols + at.second)] = p.value;
    return g;
}

Grid block_means(const Grid& grid, Index k) {
    Grid out = grid;
    out.rows = (grid.rows + k - 1) / k;
    out.cols = (grid.cols + k - 1) / k;
    out.step = grid.step * k;
    std::vector<double> sum(std::size_t(out.rows * out.cols));
    std::vector<Index> count(sum.size());
    for (Index i = 0; i < grid.rows; ++i)
        for (Index j = 0; j < grid.cols; ++j)
            if (const auto& v = grid.values[std::size_t(i * grid.cols + j)]) {
                const auto cell = std::size_t(i / k * out.cols + j / k);
                sum[cell] += *v;
                ++count[cell];
            }
    out.values.assign(sum.size(), std::nullopt);
    for (std::size_t c = 0; c < sum.size(); ++c)
        if (count[c] > 0) out.values[c] = sum[c] / double(count[c]);
    return out;
}

double colours_begin(double least, double greatest) {
    return least > greatest / 2 ? least : std::min(least, 0.0);
}

std::string grid_in_words(std::string_view metric, const Grid& g) {
    std::optional<Index> least, most;
    for (Index i = 0; i < Index(g.values.size()); ++i) {
        const auto& v = g.values[std::size_t(i)];
        if (!v) continue;
        if (!least || *v < *g.values[std::size_t(*least)]) least = i;
        if (!most || *v > *g.values[std::size_t(*most)]) most = i;
    }
    if (!least) return {};
    const auto at = [&](Index i) {
        return fmt::format("{} in layer {} head {}", number(*g.values[std::size_t(i)]), i / g.cols,
                           i % g.cols);
    };
    return fmt::format("{}: minimum {}, maximum {}.", metric, at(*least), at(*most));
}

namespace {

/// Colours from 0, unless the values lie far from it.
void begin_at_zero(Grid& g) {
    std::optional<double> least, most;
    for (const auto& v : g.values)
        if (v) {
            least = std::min(least.value_or(*v), *v);
            most = std::max(most.value_or(*v), *v);
        }
    if (least) g.low = colours_begin(*least, *most);
}

/// One figure per model, one panel per metric that has numbers.  Colours begin at 0 or, where
/// values lie far from it or not `from_zero`, with the minimum.
std::vector<Figure> cells(const Table& table, const Figure& pattern,
                          const std::vector<std::string_view>& metrics, bool from_zero) {
    const TableView rows(table);
    std::vector<Figure> found;
    for (const std::string& model : rows.models()) {
        Figure f = pattern;
        std::string words;
        for (const std::string_view metric : metrics) {
            Grid g = head_grid(rows.heads(model, metric), metric);
            if (from_zero) begin_at_zero(g);
            g.model = model;
            const std::string part = grid_in_words(metric, g);
            if (part.empty()) continue;
            words += " " + part;
            f.panels.push_back({.title = title_of(metric), .grid = g});
        }
        if (f.panels.empty()) continue;
        f.name = own_figure(rows, model, f.name);
        if (rows.models().size() > 1) f.title += ": " + label(model);
        f.caption += " Hatched (blank on paper): undefined.";
        f.alt = "Heat maps, one cell per head, layers from top to bottom." + words;
        found.push_back(std::move(f));
    }
    return found;
}

std::vector<Figure> make_heads_mixing(const Table& table) {
    return cells(
        table,
        {.name = "heads_mixing",
         .title = "Mixing, head by head",
         .caption = "lambda2_abs = |\u03bb\u2082(P)|, delta = |\u03a0\u2082P|\u2082 and omega = "
                    "|e\u1d40P\u03a0\u2082X|/|e\u1d40X| of every head." +
                    rank_one_criterion()},
        {metric::lambda2_abs, metric::delta, metric::omega}, true);
}

std::vector<Figure> make_heads_norms(const Table& table) {
    return cells(table,
                 {.name = "heads_norms",
                  .title = "Norms, head by head",
                  .caption = "attn_fro = |P|_F and jac_fro = |dP/dS|_F of every head."},
                 {metric::attn_fro, metric::jac_fro}, false);
}

std::vector<Figure> make_heads_shape(const Table& table) {
    return cells(
        table,
        {.name = "heads_shape",
         .title = "Concentration, head by head",
         .caption =
             "entropy, mean over rows in nats, and row_max, mean largest entry of a row, of every "
             "head. Dark on the left and bright on the right: each token attends to few others."},
        {metric::entropy, metric::row_max}, true);
}

}  // namespace

extern const FigureEntry heads_mixing = {
    .name = "heads_mixing",
    .title = "Mixing, head by head",
    .needs = {metric::lambda2_abs, metric::delta, metric::omega},
    .make = make_heads_mixing};
extern const FigureEntry heads_norms = {.name = "heads_norms",
                                        .title = "Norms, head by head",
                                        .needs = {metric::attn_fro, metric::jac_fro},
                                        .make = make_heads_norms};
extern const FigureEntry heads_shape = {.name = "heads_shape",
                                        .title = "Concentration, head by head",
                                        .needs = {metric::entropy, metric::row_max},
                                        .make = make_heads_shape};

}  // namespace tsdiag::reports
