#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "rows.hpp"

/// Figures of the hidden states: lines over depth.
namespace tsdiag::reports {
namespace {

const Axis layer_axis{.title = "layer", .whole = true};

std::string series_name(const TableView& rows, const std::string& model, const std::string& name) {
    return rows.models().size() > 1 ? label(model) + ": " + name : name;
}

/// Do both hold the same numbers at the same layers, to a relative tolerance of `within`?
bool same(const Depth& a, const Depth& b, double within) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](auto& p, auto& q) {
               if (p.first != q.first || !p.second.value || !q.second.value)
                   return p.first == q.first && p.second.value == q.second.value;
               const double u = *p.second.value, v = *q.second.value;
               return std::abs(u - v) <= within * std::max(std::abs(u), std::abs(v));
           });
}

/// Does `in` only repeat `out`, one layer later?
bool repeats_shifted(const Depth& in, const Depth& out) {
    Depth later, rest = in;
    for (const auto& [layer, p] : out)
        if (in.contains(layer + 1)) later[layer + 1] = p;
    if (!rest.empty()) rest.erase(rest.begin());
    return !later.empty() && same(rest, later, 1e-6);
}

/// Is the stage `in`, and does it only repeat a stage of the layer before?
bool is_input_again(const TableView& rows, const std::string& model, std::string_view metric,
                    const std::string& stage) {
    if (stage != "in") return false;
    const Depth in = rows.depth(model, metric, stage);
    return std::ranges::any_of(rows.stages(model, metric), [&](const std::string& last) {
        return last != "in" && repeats_shifted(in, rows.depth(model, metric, last));
    });
}

/// The stages of the layers that have the metric, of a model in the order of computation.
std::vector<std::string> layer_stages(const TableView& rows, std::string_view metric) {
    std::vector<std::string> all;
    for (const std::string& model : rows.models())
        for (std::string& stage : rows.stages(model, metric))
            if (stage != "embed" && stage != "class" && stage != "final_norm" &&
                std::ranges::find(all, stage) == all.end())
                all.push_back(std::move(stage));
    return all;
}

/// One line per stage; for several models one of each, a stage that all have where there is one.  A
/// stage that repeats an earlier one (`out` repeats the last stage before it) is left out.
std::vector<Series> by_stage(const TableView& rows, std::string_view metric,
                             std::vector<std::string> stages, bool positive = false) {
    std::ranges::stable_partition(stages, [&](const std::string& stage) {
        return std::ranges::all_of(rows.models(), [&](const std::string& model) {
            return !rows.depth(model, metric, stage).empty();
        });
    });
    std::vector<Series> found;
    for (const std::string& model : rows.models()) {
        std::vector<Depth> drawn;
        for (const std::string& stage : stages) {
            const Depth depth = rows.depth(model, metric, stage);
            const auto repeats = [&](const Depth& d) { return same(depth, d, 0); };
            if (depth.empty() || std::any_of(drawn.begin(), drawn.end(), repeats) ||
                is_input_again(rows, model, metric, stage))
                continue;
            Series s = over_layers(series_name(rows, model, stage), depth, positive);
            if (!any_value(s)) continue;
            drawn.push_back(depth);
            found.push_back(std::move(s));
            if (rows.models().size() > 1) break;
        }
    }
    return found;
}

void add_panel(Figure& figure, std::string title, Axis y, std::vector<Series> series,
               std::vector<std::pair<double, std::string>> marks = {}) {
    if (series.empty()) return;
    figure.panels.push_back({.title = std::move(title),
                             .x = layer_axis,
                             .y = std::move(y),
                             .series = std::move(series),
                             .marks = std::move(marks)});
}

std::vector<Figure> finished(Figure figure, std::string_view subject) {
    if (figure.panels.empty()) return {};
    figure.alt = fmt::format("{} {}", subject, in_words(figure.panels));
    note_bands(figure);
    return {std::move(figure)};
}

/// The stages whose t_div differs by more than `close` from that of earlier ones in the list.
std::vector<std::string> distinct_stages(const TableView& rows) {
    constexpr double close = 0.02;
    std::vector<std::string> found;
    std::vector<Depth> drawn;
    for (const char* stage : {"out", "in", "attn", "norm1", "ffn"}) {
        bool distinct = false;
        for (const std::string& model : rows.models()) {
            const Depth depth = rows.depth(model, metric::t_div, stage);
            const auto repeats = [&](const Depth& d) { return same(depth, d, close); };
            if (depth.empty() || std::any_of(drawn.begin(), drawn.end(), repeats) ||
                is_input_again(rows, model, metric::t_div, stage))
                continue;
            drawn.push_back(depth);
            distinct = true;
        }
        if (distinct) found.push_back(stage);
    }
    if (found.empty()) found.push_back("out");
    return found;
}

/// What each step adds to log(t_sim/t_div) up to a layer, the sum of ln xi_ratio over the layers,
/// and what was measured, ln of the odds of `out` over those of the input: steps of one sample add
/// up to it.  None of tables with several models, or none.
std::vector<Series> growth_by_step(const TableView& rows) {
    if (rows.models().size() != 1) return {};
    const std::string& model = rows.models().front();
    std::vector<Series> found;
    for (const std::string& stage : layer_stages(rows, metric::xi_ratio)) {
        Series line{.name = stage};
        double sum = 0;
        for (const auto& [layer, p] : rows.depth(model, metric::xi_ratio, stage)) {
            if (!p.value || *p.value <= 0) break;
            line.x.push_back(double(layer));
            line.y.emplace_back(sum += std::log(*p.value));
        }
        if (any_value(line)) found.push_back(std::move(line));
    }
    const auto odds = [&](const std::string& stage) {
        std::map<Index, double> of_layer;
        const Depth divided = rows.depth(model, metric::t_div, stage);
        for (const auto& [layer, p] : rows.depth(model, metric::t_sim, stage)) {
            const std::optional<double> rest = value_at(divided, layer);
            if (p.value && rest && *p.value > 0 && *rest > 0) of_layer[layer] = *p.value / *rest;
        }
        return of_layer;
    };
    const std::map<Index, double> in = odds("in"), out = odds("out");
    // from the same layer on as the sums
    if (found.empty() || in.empty() || double(in.begin()->first) != found.front().x.front())
        return found;
    Series whole{.name = "measured", .dashed = true};
    for (const auto& [layer, value] : out) {
        whole.x.push_back(double(layer));
        whole.y.emplace_back(std::log(value / in.begin()->second));
    }
    if (any_value(whole)) found.push_back(std::move(whole));
    return found;
}

std::vector<Figure> make_similarity(const Table& table) {
    const TableView rows(table);
    const std::vector<std::string> stages = distinct_stages(rows);
    const std::vector<std::string> all = layer_stages(rows, metric::t_div);
    const bool omitted =
        std::ranges::any_of(std::array{"attn", "norm1", "ffn"}, [&](std::string_view stage) {
            return std::ranges::find(all, stage) != all.end() &&
                   std::ranges::find(stages, stage) == stages.end();
        });
    std::vector<Series> growth = growth_by_step(rows);
    const std::string_view by_step =
        growth.empty() ? ""
                       : " By step: what each adds to log(t_sim/t_div), ln xi_ratio summed over "
                         "the layers (of means over samples, nearly).";
    Figure f{.name = "similarity",
             .title = "Token similarity over depth",
             .caption = fmt::format(
                 "t_sim = |\u03a0\u2081X|\u00b2/|X|\u00b2, what all tokens have in common [TSE "
                 "Def. 1.1]; t_div = 1 - t_sim.{}{}",
                 by_step, omitted ? " Stages within 2 % of another are omitted." : "")};
    add_panel(f, "t_sim: token similarity",
              {.title = std::string(metric::t_sim), .low = 0, .high = 1.02},
              by_stage(rows, metric::t_sim, stages), {{0.99, "0.99"}});
    add_panel(f, "growth of log(t_sim/t_div) by step", {.title = "log odds gained"},
              std::move(growth));
    add_panel(f, "t_div: token diversity",
              {.title = std::string(metric::t_div), .scale = Scale::log},
              by_stage(rows, metric::t_div, stages, true));
    return finished(std::move(f), "Line charts over the layers.");
}

/// 1 + est * factor by layer; factor 1 where `factor` is null.
Depth prediction(const Depth& estimate, const Depth* factor) {
    Depth found;
    for (const auto& [layer, p] : estimate) {
        Point& q = found[layer];
        if (!p.value) continue;
        if (!factor) {
            q.value = 1 + *p.value;
        } else if (const auto f = factor->find(layer); f != factor->end() && f->second.value) {
            q.value = 1 + *p.value * *f->second.value;
        }
    }
    return found;
}

/// The measured rate of the attention step and the predictions of the estimates.
std::vector<Series> rate_lines(const TableView& rows, std::string_view metric,
                               bool times_similarity) {
    std::vector<Series> found;
    for (const std::string& model : rows.models()) {
        const Depth measured = rows.depth(model, metric, rows.attention_stage(model));
        Series s = over_layers(series_name(rows, model, "measured"), measured);
        if (!any_value(s)) continue;
        found.push_back(std::move(s));
        if (rows.models().size() > 1) continue;
        const Depth similarity = rows.depth(model, metric::t_sim, "in");
        for (const std::string_view name : {metric::est1, metric::est2, metric::est_mu}) {
            const Depth estimate = rows.depth(model, name, "attn");
            Series p = over_layers(fmt::format("from {}", name),
                                   prediction(estimate, times_similarity ? &similarity : nullptr));
            p.dashed = true;
            if (any_value(p)) found.push_back(std::move(p));
        }
    }
    return found;
}

std::vector<Figure> make_escalation(const Table& table) {
    const TableView rows(table);
    Figure f{.name = "escalation",
             .title = "Escalation rate of the attention step",
             .caption =
                 "xi_ratio = \u03be\u2081/\u03be\u2082 [TSE (7)] multiplies the odds t_sim/t_div; "
                 "r = t_div(X)/t_div(Y), "
                 "Y = X + \u03b1 SA(X) [TSE (5)]; above 1 tokens become more similar. Dashed: 1 + "
                 "est, for r 1 + est t_sim(X) "
                 "[TSE (16), (17)], est_mu = E[\u03be\u2081]/E[\u03be\u2082] - 1."};
    add_panel(f, "r: rate of the attention step", {.title = std::string(metric::r)},
              rate_lines(rows, metric::r, true), {{1, ""}});
    std::vector<Series> ratio = rate_lines(rows, metric::xi_ratio, false);
    const Axis axis{.title = std::string(metric::xi_ratio),
                    .scale = spans_decades(ratio) ? Scale::log : Scale::linear};
    add_panel(f, "xi_ratio: \u03be\u2081/\u03be\u2082 of the attention step", axis,
              std::move(ratio), {{1, ""}});
    return finished(std::move(f), "Line charts over the layers.");
}

std::vector<Figure> make_stage_ratios(const Table& table) {
    const TableView rows(table);
    std::vector<Series> ratio =
        by_stage(rows, metric::xi_ratio, layer_stages(rows, metric::xi_ratio));
    std::vector<Series> rate = by_stage(rows, metric::r, layer_stages(rows, metric::r));
    const bool steps = !ratio.empty() || !rate.empty();  // a trace may have layers alone
    Figure f{.name = "stage_ratios", .title = "Escalation by step of a layer"};
    if (steps)
        f.caption =
            "xi_ratio = \u03be\u2081/\u03be\u2082 and r = t_div(X)/t_div(Y) of each step, from the "
            "previous state. A step above 1 makes tokens more similar, a step below 1 less.";
    if (rows.models().size() == 1) {
        Series whole = over_layers(std::string(metric::r_layer),
                                   rows.depth(rows.models()[0], metric::r_layer, "out"));
        if (any_value(whole)) {
            rate.push_back(std::move(whole));
            f.caption += steps ? " `r_layer` is the rate of the whole layer, from `in` to `out`."
                               : "r_layer = t_div(X)/t_div(Y) of a whole layer, from its input X "
                                 "to its output Y: above 1 tokens become more similar, below 1 "
                                 "less.";
        }
    }
    const auto axis = [](std::string_view title, const std::vector<Series>& s) {
        return Axis{.title = std::string(title),
                    .scale = spans_decades(s) ? Scale::log : Scale::linear};
    };
    const Axis ratio_axis = axis(metric::xi_ratio, ratio),
               rate_axis = axis(steps ? metric::r : metric::r_layer, rate);
    add_panel(f, "xi_ratio by step", ratio_axis, std::move(ratio), {{1, ""}});
    add_panel(f, steps ? "r by step" : std::string(metric::r_layer), rate_axis, std::move(rate),
              {{1, ""}});
    return finished(std::move(f), "Line charts over the layers.");
}

/// ": `in` its input, `out` its output": the stages that the lines are of.
std::string stages_in_words(const std::vector<Series>& lines) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> known{
        {{"in", "its input"},
         {"norm1", "behind the first norm"},
         {"sa", "what attention adds"},
         {"attn", "with attention added"},
         {"norm2", "behind the second norm"},
         {"ffn", "with the feed-forward branch added"},
         {"out", "its output"}}};
    std::string text;
    for (const auto& known_stage : known) {
        const std::string stage(known_stage.first);
        if (std::ranges::any_of(lines, [&](const Series& line) {
                return line.name == stage || line.name.ends_with(": " + stage);
            }))
            text += fmt::format("{} `{}` {}", text.empty() ? ":" : ",", stage, known_stage.second);
    }
    return text;
}

std::vector<Figure> make_state_norms(const Table& table) {
    const TableView rows(table);
    std::vector<Series> lines = by_stage(rows, metric::fro, layer_stages(rows, metric::fro));
    Figure f{.name = "state_norms",
             .title = "Norms and cosines of the states over depth",
             .caption = fmt::format("|X|_F of the states of a layer{}. Compare [TSE Fig. 4]. "
                                    "t_cos is the mean cosine over pairs of tokens [TSE (1)].",
                                    stages_in_words(lines))};
    const Axis axis{.title = "|X|_F", .scale = spans_decades(lines) ? Scale::log : Scale::linear};
    add_panel(f, "fro: |X|_F by stage", axis, std::move(lines));
    add_panel(f, "t_cos: mean cosine", {.title = std::string(metric::t_cos)},
              by_stage(rows, metric::t_cos, distinct_stages(rows)));
    return finished(std::move(f), "Line charts over the layers.");
}

std::vector<Series> gradients_by_parameter(const TableView& rows) {
    std::vector<Series> found;
    for (const std::string& model : rows.models())
        for (const char* tensor : {"", "attn.q.weight", "attn.k.weight", "attn.v.weight",
                                   "attn.o.weight", "ffn.up.weight", "ffn.down.weight"}) {
            const std::string name = *tensor ? tensor : "whole layer";
            Series s = over_layers(series_name(rows, model, name),
                                   rows.depth(model, metric::grad_norm, "", tensor), true);
            if (!any_value(s)) continue;
            found.push_back(std::move(s));
            if (rows.models().size() > 1) break;
        }
    return found;
}

std::vector<Figure> make_gradient_norms(const Table& table) {
    const TableView rows(table);
    Figure f{
        .name = "gradient_norms",
        .title = "Gradients over depth",
        .caption =
            "grad_norm = |dL/dX| of the states X and |dL/dw| of the parameters w of a layer, L the "
            "loss [TSE Fig. 1]. "
            "Lines that rise to the left: the gradient grows in the backward pass. `whole layer` "
            "is the root of the sum of squares over all its parameters."};
    add_panel(f, "grad_norm by state", {.title = "|dL/dX|", .scale = Scale::log},
              by_stage(rows, metric::grad_norm, layer_stages(rows, metric::grad_norm), true));
    add_panel(f, "grad_norm by parameter", {.title = "|dL/dw|", .scale = Scale::log},
              gradients_by_parameter(rows));
    return finished(std::move(f), "Line charts over the layers.");
}

std::vector<Figure> make_gradient_bounds(const Table& table) {
    const TableView rows(table);
    std::vector<Series> lines;
    for (const std::string& model : rows.models())
        for (const std::string_view metric : {metric::ds_max, metric::ds_sharp, metric::ds_bound}) {
            Series s = over_layers(series_name(rows, model, std::string(metric)),
                                   rows.depth(model, metric, "attn"), true);
            s.dashed = metric != metric::ds_max;
            if (any_value(s)) lines.push_back(std::move(s));
        }
    Figure f{.name = "gradient_bounds",
             .title = "Gradients of the logits and their bounds",
             .caption =
                 "ds_max = max |dL/dS| over the logits S of a head, mean over heads. Dashed: "
                 "ds_bound of [DEVIL (59)-(61)], "
                 "and ds_sharp, a bound that is attained."};
    add_panel(f, "ds_max and its bounds", {.title = "|dL/dS|", .scale = Scale::log},
              std::move(lines));
    return finished(std::move(f), "Line chart over the layers.");
}

std::vector<Figure> make_routing(const Table& table) {
    const TableView rows(table);
    Figure f{.name = "routing",
             .title = "How the experts share the tokens",
             .caption =
                 "expert_load = E max f, f the shares of the E experts [SWITCH (5)]; 1: even. "
                 "expert_unused: experts never chosen. "
                 "expert_entropy, routing_entropy: entropies of f and of the router's softmax of a "
                 "token, over ln E. routing_dropped: "
                 "softmax on experts that are not chosen."};
    const auto add = [&](std::string_view metric, Axis y,
                         std::vector<std::pair<double, std::string>> marks = {}) {
        y.title = std::string(metric);
        add_panel(f, std::string(metric), y, by_stage(rows, metric, {"out"}), std::move(marks));
    };
    const Axis share{.low = 0, .high = 1.02};
    add(metric::expert_load, {}, {{1, "even"}});
    for (const std::string_view metric : {metric::expert_unused, metric::expert_entropy,
                                          metric::routing_entropy, metric::routing_dropped})
        add(metric, share);
    return finished(std::move(f), "Line charts over the layers.");
}

}  // namespace

extern const FigureEntry similarity = {.name = "similarity",
                                       .title = "Token similarity over depth",
                                       .needs = {metric::t_sim, metric::t_div},
                                       .make = make_similarity};
extern const FigureEntry escalation = {.name = "escalation",
                                       .title = "Escalation rate of the attention step",
                                       .needs = {metric::r, metric::xi_ratio},
                                       .make = make_escalation};
extern const FigureEntry stage_ratios = {.name = "stage_ratios",
                                         .title = "Escalation by step of a layer",
                                         .needs = {metric::xi_ratio, metric::r, metric::r_layer},
                                         .make = make_stage_ratios};
extern const FigureEntry state_norms = {.name = "state_norms",
                                        .title = "Norms and cosines of the states over depth",
                                        .needs = {metric::fro, metric::t_cos},
                                        .make = make_state_norms};
extern const FigureEntry routing = {
    .name = "routing",
    .title = "How the experts share the tokens",
    .needs = {metric::expert_load, metric::expert_unused, metric::expert_entropy,
              metric::routing_entropy, metric::routing_dropped},
    .make = make_routing};
extern const FigureEntry gradient_norms = {.name = "gradient_norms",
                                           .title = "Gradients over depth",
                                           .needs = {metric::grad_norm},
                                           .make = make_gradient_norms};
extern const FigureEntry gradient_bounds = {
    .name = "gradient_bounds",
    .title = "Gradients of the logits and their bounds",
    .needs = {metric::ds_max, metric::ds_bound, metric::ds_sharp},
    .make = make_gradient_bounds};

}  // namespace tsdiag::reports
