#include <fmt/format.h>

#include <algorithm>

#include "rows.hpp"

/// Figures of the attention: the mean over the heads of a layer, over depth.
namespace tsdiag::reports {
namespace {

/// The mean over the heads by layer, with the range of the heads as its band.
Series over_heads(const TableView& rows, const std::string& model, std::string_view metric) {
    const std::string name = rows.models().size() > 1 ? label(model) : std::string(metric);
    const Metric* declared = find_metric(metric);
    const std::string stage = declared ? rows.stage_of(model, *declared) : "attn";
    Series s = over_layers(name, rows.depth(model, metric, stage));
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

void add_panel(Figure& figure, const TableView& rows, std::string_view metric) {
    std::vector<Series> series;
    for (const std::string& model : rows.models()) {
        Series s = over_heads(rows, model, metric);
        if (any_value(s)) series.push_back(std::move(s));
    }
    if (series.empty()) return;
    // for one model the panel's title names its only line, so that panels share no legend
    if (series.size() == 1 && !series[0].low.empty()) series[0].name = "mean over heads";
    const Scale scale = spans_decades(series) ? Scale::log : Scale::linear;
    if (scale == Scale::log)
        for (Series& s : series)
            for (std::size_t i = 0; i < s.low.size(); ++i)
                if (s.low[i] && *s.low[i] <= 0 && s.y[i]) s.low[i] = *s.y[i] / 10;
    figure.panels.push_back({.title = title_of(metric),
                             .x = {.title = "layer", .whole = true},
                             .y = {.title = std::string(metric), .scale = scale},
                             .series = std::move(series)});
}

std::vector<Figure> finished(const TableView& rows, Figure figure) {
    if (figure.panels.empty()) return {};
    figure.caption += channels_in_caption(rows);
    const bool several = std::ranges::any_of(figure.panels, [](const Plot& plot) {
        return std::ranges::any_of(plot.series, [](const Series& s) { return !s.low.empty(); });
    });
    if (several)
        figure.caption +=
            fmt::format(" Lines: means over the heads of a layer{}.",
                        shows_bands(figure) ? "; bands: minimum and maximum over heads" : "");
    figure.alt = "Line charts over the layers. " + in_words(figure.panels);
    return {std::move(figure)};
}

std::vector<Figure> make_mixing(const Table& table) {
    const TableView rows(table);
    Figure f{.name = "mixing",
             .title = "How fast attention mixes",
             .caption =
                 "lambda2_abs = |\u03bb\u2082(P)|, the second eigenvalue [TSE Cor. 2.7]; delta = "
                 "|\u03a0\u2082P|\u2082, how much rows of P differ from their mean; omega = "
                 "|e\u1d40P\u03a0\u2082X|/|e\u1d40X| [TSE (12)]. Uniform P: all 0."};
    add_panel(f, rows, metric::lambda2_abs);
    add_panel(f, rows, metric::delta);
    add_panel(f, rows, metric::omega);
    return finished(rows, std::move(f));
}

std::vector<Figure> make_attention_norms(const Table& table) {
    const TableView rows(table);
    Figure f{.name = "attention_norms",
             .title = "Norms of attention and of its Jacobian",
             .caption =
                 "attn_fro = |P|_F [POLY Thm 4.1]: 1 (uniform) to \u221an (one token per row); "
                 "jac_fro = |dP/dS|_F, S the logits [POLY (7)]: 0 if every row attends to a single "
                 "token."};
    add_panel(f, rows, metric::attn_fro);
    add_panel(f, rows, metric::jac_fro);
    return finished(rows, std::move(f));
}

std::vector<Figure> make_attention_shape(const Table& table) {
    const TableView rows(table);
    Figure f{
        .name = "attention_shape",
        .title = "How concentrated attention is",
        .caption =
            "entropy: mean over rows, nats (uniform over n tokens: ln n); row_max: mean largest "
            "entry of a row; local_auc: area under locally accumulated attention (1: each to "
            "itself; uniform: about 1/2)."};
    add_panel(f, rows, metric::entropy);
    add_panel(f, rows, metric::row_max);
    add_panel(f, rows, metric::local_auc);
    add_panel(f, rows, metric::neg_mass);
    // 0 everywhere for softmax: such a panel is left out
    std::erase_if(f.panels, [](const Plot& p) {
        return p.y.title == metric::neg_mass &&
               std::all_of(p.series[0].y.begin(), p.series[0].y.end(),
                           [](const auto& y) { return !y || *y == 0; });
    });
    return finished(rows, std::move(f));
}

/// Metrics of heads and of the attention's step that no other figure draws.
std::vector<const Metric*> drawn_nowhere_else() {
    std::vector<const Metric*> found;
    for (const Metric* metric : metrics()) {
        const bool drawn = std::ranges::any_of(figures(), [&](const FigureEntry* figure) {
            return std::ranges::find(figure->needs, metric->name) != figure->needs.end();
        });
        const bool attention = metric->of == Of::head || metric->of == Of::step;
        if (attention && !drawn) found.push_back(metric);
    }
    return found;
}

std::vector<Figure> make_further(const Table& table) {
    const TableView rows(table);
    Figure f{.name = "further", .title = "Further metrics of attention"};
    for (const Metric* metric : drawn_nowhere_else()) {
        const std::size_t before = f.panels.size();
        add_panel(f, rows, metric->name);
        if (f.panels.size() > before)
            f.caption +=
                fmt::format("{}{} = {}", before > 0 ? "; " : "", metric->name, metric->definition);
    }
    f.caption += ".";
    return finished(rows, std::move(f));
}

}  // namespace

extern const FigureEntry further = {
    .name = "further", .title = "Further metrics of attention", .needs = {}, .make = make_further};
extern const FigureEntry mixing = {.name = "mixing",
                                   .title = "How fast attention mixes",
                                   .needs = {metric::lambda2_abs, metric::delta, metric::omega},
                                   .make = make_mixing};
extern const FigureEntry attention_norms = {.name = "attention_norms",
                                            .title = "Norms of attention and of its Jacobian",
                                            .needs = {metric::attn_fro, metric::jac_fro},
                                            .make = make_attention_norms};
extern const FigureEntry attention_shape = {
    .name = "attention_shape",
    .title = "How concentrated attention is",
    .needs = {metric::entropy, metric::row_max, metric::local_auc, metric::neg_mass},
    .make = make_attention_shape};

}  // namespace tsdiag::reports
