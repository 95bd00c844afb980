#include <fmt/format.h>

#include <algorithm>

#include "rows.hpp"

/// Figures of the attention: the mean over the heads of a layer, over depth.
namespace tsdiag::reports {
namespace {

constexpr std::string_view band_note =
    " Lines are means over the heads of a layer, bands reach from the least head to the greatest.";

/// The mean over the heads by layer, with the range of the heads as its band.
Series over_heads(const Rows& rows, const std::string& model, std::string_view metric) {
    const std::string name = rows.models().size() > 1 ? label(model) : std::string(metric);
    Series s = over_layers(name, rows.depth(model, metric, "attn"));
    s.low.assign(s.x.size(), std::nullopt);
    s.high = s.low;
    const Heads heads = rows.heads(model, metric);
    for (const auto& [at, p] : heads) {
        if (!p.value) continue;
        const auto found = std::lower_bound(s.x.begin(), s.x.end(), double(at.first));
        if (found == s.x.end() || *found != double(at.first)) continue;
        const auto i = std::size_t(found - s.x.begin());
        s.low[i] = std::min(s.low[i].value_or(*p.value), *p.value);
        s.high[i] = std::max(s.high[i].value_or(*p.value), *p.value);
    }
    if (heads.empty()) s.low.clear(), s.high.clear();
    return s;
}

void add_panel(Figure& figure, const Rows& rows, std::string_view metric, std::string formula) {
    std::vector<Series> series;
    for (const std::string& model : rows.models()) {
        Series s = over_heads(rows, model, metric);
        if (any_value(s)) series.push_back(std::move(s));
    }
    if (series.empty()) return;
    // of one model the panel's title names its only line, so that panels share no legend
    if (series.size() == 1) series[0].name = "mean over heads";
    const Scale scale = spans_decades(series) ? Scale::log : Scale::linear;
    if (scale == Scale::log)
        for (Series& s : series)
            for (std::size_t i = 0; i < s.low.size(); ++i)
                if (s.low[i] && *s.low[i] <= 0 && s.y[i]) s.low[i] = *s.y[i] / 10;
    figure.panels.push_back({.title = fmt::format("{}: {}", metric, formula),
                             .x = {.title = "layer", .whole = true},
                             .y = {.title = std::string(metric), .scale = scale},
                             .series = std::move(series)});
}

std::vector<Figure> finished(Figure figure) {
    if (figure.panels.empty()) return {};
    figure.caption += band_note;
    figure.alt = "Line charts over the layers. " + in_words(figure.panels);
    return {std::move(figure)};
}

std::vector<Figure> make_mixing(const Table& table) {
    const Rows rows(table);
    Figure f{
        .name = "mixing",
        .title = "How fast attention mixes tokens",
        .caption =
            "lambda2_abs = |\u03bb\u2082(P)|, the second eigenvalue in modulus [TSE Cor. 2.7]; "
            "delta = "
            "|\u03a0\u2082P|\u2082, how much of the rows of P differs from their mean; omega = "
            "|e\u1d40P\u03a0\u2082X|/|e\u1d40X| [TSE (12)]. All three are 0 where every row of P "
            "is the "
            "same uniform one."};
    add_panel(f, rows, "lambda2_abs", "|\u03bb\u2082(P)|");
    add_panel(f, rows, "delta", "|\u03a0\u2082P|\u2082");
    add_panel(f, rows, "omega", "|e\u1d40P\u03a0\u2082X|/|e\u1d40X|");
    return finished(std::move(f));
}

std::vector<Figure> make_attention_norms(const Table& table) {
    const Rows rows(table);
    Figure f{
        .name = "attention_norms",
        .title = "Norms of attention and of its Jacobian",
        .caption =
            "attn_fro = |P|_F [POLY Thm 4.1]: between 1 (uniform) and \u221an (one token a row) "
            "for rows that sum to 1; jac_fro = |dP/dS|_F with respect to the logits S [POLY "
            "(7)], 0 where every row is one token."};
    add_panel(f, rows, "attn_fro", "|P|_F");
    add_panel(f, rows, "jac_fro", "|dP/dS|_F");
    return finished(std::move(f));
}

std::vector<Figure> make_attention_shape(const Table& table) {
    const Rows rows(table);
    Figure f{.name = "attention_shape",
             .title = "How concentrated attention is",
             .caption =
                 "entropy is the mean entropy of a row in nats (uniform over n tokens: ln n), "
                 "row_max the mean over the rows of the greatest entry, local_auc the area under "
                 "the curve of locally accumulated attention (1: each token attends to itself; "
                 "uniform: about 1/2)."};
    add_panel(f, rows, "entropy", "of a row, nats");
    add_panel(f, rows, "row_max", "greatest entry");
    add_panel(f, rows, "local_auc", "locality");
    add_panel(f, rows, "neg_mass", "share below zero");
    // softmax has none: a panel that is zero everywhere says nothing
    std::erase_if(f.panels, [](const Plot& p) {
        return p.y.title == "neg_mass" && std::all_of(p.series[0].y.begin(), p.series[0].y.end(),
                                                      [](const auto& y) { return !y || *y == 0; });
    });
    return finished(std::move(f));
}

}  // namespace

extern const FigureEntry mixing = {.name = "mixing",
                                   .title = "How fast attention mixes tokens",
                                   .needs = "lambda2_abs delta omega",
                                   .make = make_mixing};
extern const FigureEntry attention_norms = {.name = "attention_norms",
                                            .title = "Norms of attention and of its Jacobian",
                                            .needs = "attn_fro jac_fro",
                                            .make = make_attention_norms};
extern const FigureEntry attention_shape = {.name = "attention_shape",
                                            .title = "How concentrated attention is",
                                            .needs = "entropy row_max local_auc",
                                            .make = make_attention_shape};

}  // namespace tsdiag::reports
