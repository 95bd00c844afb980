#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "encoder.hpp"

/// [TSE] Figure 5: the de-escalation step (21), and the phase diagram of its strength.
namespace tsdiag::experiment_list::tse_deescalation {
namespace {

constexpr ExperimentKey key_tau(std::string_view tiny, std::string_view quick,
                                std::string_view paper) {
    return listed(real_key("tau", tiny, quick, paper,
                           "strengths: Y = (I - tau Pi1) X after each block; 0: no step", 0, 1));
}
constexpr auto keys5 =
    encoder_keys(full_sizes, key_layers("3", "40", "40"),
                 key_tau("0.5,1", "0.1,0.5,1", "0.1,0.5,1"), key_trials("4", "20"));
constexpr auto phase_keys =
    encoder_keys(half_sizes, key_layers("3", "30", "40"),
                 key_tau("0,0.5,1", "0,0.1,0.2,0.25,0.3,0.35,0.4,0.5,0.6,0.8,1",
                         "0,0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4,0.45,0.5,0.6,0.7,0.8,0.9,1"),
                 key_trials("4", "10"));

/// The steps of a block that change similarity; `deesc` is the one that reduces it.
constexpr std::array growing = {"attn", "norm1", "ffn", "norm2"};

std::string model_of(const ExperimentSetting& setting, const std::string& tau) {
    return drawn_encoder(setting, "post-norm", ",deesc=" + tau);
}

/// tau* of each block: where (1 - tau)^2 times the product of xi1/xi2 over its steps is 1.
void derive(const Table& trial, Index layers, Sink& out) {
    for (Index layer = 0; layer < layers; ++layer) {
        double product = 1;
        bool all = true;
        for (const char* stage : growing) {
            const auto ratio = trial.find({.layer = layer, .stage = stage}, "xi_ratio");
            all = all && ratio && ratio->value && *ratio->value > 0;
            if (all) product *= *ratio->value;
        }
        const Place at{.layer = layer, .stage = "out"};
        out.scalar(at, "xi_block", all ? Value(product) : undefined("a step has no xi1/xi2"));
        out.scalar(at, "tau_star",
                   all ? Value(1 - 1 / std::sqrt(product)) : undefined("a step has no xi1/xi2"));
    }
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs;
    for (const std::string& tau : setting.list("tau")) {
        runs.push_back(options_of(setting, model_of(setting, tau), {"t_sim", "t_div", "xi_ratio"}));
        runs.back().derive = [layers = setting.count("layers")](const Table& trial, Sink& out) {
            derive(trial, layers, out);
        };
    }
    return together(setting, runs);
}

const Axis blocks{.title = "block", .whole = true};

/// 1 - 1/sqrt(ratio), its error to first order.
Number threshold_of(Number ratio) {
    if (!ratio.value) return ratio;
    if (ratio.error) ratio.error = *ratio.error / 2 / std::pow(*ratio.value, 1.5);
    ratio.value = 1 - 1 / std::sqrt(*ratio.value);
    return ratio;
}

std::string name_of(const std::string& tau) { return "tau = " + tau; }

/// t_div after the step, against the law t_div' = (1 - t) / (1 - (2 tau - tau^2) t).
Plot law_panel(const ExperimentSetting& setting, const Numbers& numbers) {
    Plot plot{.title = "t_div after the step against t_sim before it",
              .x = {.title = "t_sim before the step", .low = 0, .high = 1},
              .y = {.title = "t_div after the step", .low = 0, .high = 1.02}};
    std::vector<double> x;
    for (int i = 0; i <= 100; ++i) x.push_back(i / 100.0);
    for (const std::string& tau : setting.list("tau")) {
        if (std::stod(tau) == 0) continue;
        std::map<double, Number> points;
        for (const auto& [layer, before] : numbers.depth(model_of(setting, tau), "t_sim", "norm2"))
            if (before.value)
                points[*before.value] =
                    numbers.at(model_of(setting, tau), "t_div", "deesc", Index(layer));
        plot.series.push_back(line(name_of(tau), points));
    }
    for (const std::string& tau : setting.list("tau")) {
        const double keep = (1 - std::stod(tau)) * (1 - std::stod(tau));
        if (keep == 1) continue;
        plot.series.push_back(law(fmt::format("law, {}", name_of(tau)), x, [&](double t) {
            return t == 1 && keep == 0 ? 1 : (1 - t) / (1 - (1 - keep) * t);
        }));
    }
    return plot;
}

Plot threshold_panel(const ExperimentSetting& setting, const Numbers& numbers) {
    Plot plot{.title = "tau*: where the step cancels its block",
              .x = blocks,
              .y = {.title = "tau* = 1 - 1/sqrt(xi1/xi2)"}};
    for (const std::string& tau : setting.list("tau")) {
        plot.series.push_back(
            line(name_of(tau), numbers.depth(model_of(setting, tau), "tau_star", "out")));
    }
    const double attention = 1 - 1 / std::sqrt(1 + branch_gain(setting));
    plot.series.push_back(law("tau* of attention alone, 1 - 1/sqrt(1 + a2)",
                              {0, setting.number("layers") - 1},
                              [&](double) { return attention; }));
    return plot;
}

/// "around 0, 0.5 and 1", [TSE] 3.2.
std::optional<double> level_of(double tau) {
    if (tau == 0.1) return 0;
    if (tau == 0.5) return 0.5;
    if (tau == 1) return 1;
    return std::nullopt;
}
constexpr double around = 0.05;

void compare5(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
              const std::string& tau, Index last) {
    const double strength = std::stod(tau);
    const std::optional<double> level = level_of(strength);
    all.push_back(resolved(
        compare(fmt::format("t_div of the input of block {}, {}", last, name_of(tau)),
                level ? fmt::format("[TSE] 3.2: around {:g}", *level) : "not in the paper's figure",
                level, numbers.at(model, "t_div", "in", last)),
        around));
    all.push_back(compare(fmt::format("t_div before the step, block {}, {}", last, name_of(tau)),
                          "the same before the step; the paper plots the output of a layer",
                          std::nullopt, numbers.at(model, "t_div", "norm2", last)));
    if (strength > 0 && strength < 1)
        all.push_back(resolved(
            compare(fmt::format("xi1/xi2 of the de-escalation step, block 0, {}", name_of(tau)),
                    "(1 - tau)^2, exact by [TSE] (21)", (1 - strength) * (1 - strength),
                    numbers.at(model, "xi_ratio", "deesc", 0)),
            1e-6));  // float32 states
}

Findings find5(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const Index last = setting.count("layers") - 1;
    const double threshold = 1 - 1 / std::sqrt(1 + branch_gain(setting));
    Findings found;
    Plot before{.title = "t_div of the block's input",
                .x = blocks,
                .y = {.title = "t_div", .low = 0, .high = 1.02}};
    Plot inside = before;
    inside.title = "t_div before the step";
    for (const std::string& tau : setting.list("tau")) {
        const std::string model = model_of(setting, tau);
        before.series.push_back(line(name_of(tau), numbers.depth(model, "t_div", "in")));
        inside.series.push_back(line(name_of(tau), numbers.depth(model, "t_div", "norm2")));
        compare5(found.comparisons, numbers, model, tau, last);
    }
    found.comparisons.push_back(compare(
        "tau* of the attention step alone, block 0", "1 - 1/sqrt(1 + a2), from Rem. 2.8", threshold,
        threshold_of(
            numbers.at(model_of(setting, setting.list("tau").front()), "xi_ratio", "attn", 0))));
    Figure f{
        .name = "tse_fig5",
        .title = "De-escalation by strength",
        .caption =
            "After each block similarity is reduced: Y = (I - tau Pi1) X [TSE] (21). t_sim/t_div "
            "is multiplied by exactly (1 - tau)^2, and by xi1/xi2 in the block's other steps, so "
            "diversity grows in a block where tau > tau* = 1 - 1/sqrt(xi1/xi2) and dies out where "
            "tau < tau*. Diversity settles where the block's own tau* equals tau."};
    f.panels = {before, inside, law_panel(setting, numbers), threshold_panel(setting, numbers)};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(fmt::format(
        "Reading: var_v={}, out_proj={}. A constant level of 1/2 needs (1 - tau)^2 xi1/xi2 = 1 "
        "there; the last panel shows the strength for which this holds in each block. The paper "
        "says of section 2.4's setting, W_V of variance h/d, that it \"will be again used in the "
        "next section\", with other depths: --reading var_v=h/d.",
        setting.text("var_v"), setting.text("out_proj")));
    return found;
}

Findings find_phase(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<std::string> taus = setting.list("tau");
    const Index layers = setting.count("layers"), last = layers - 1;
    const double threshold = 1 - 1 / std::sqrt(1 + branch_gain(setting));
    Findings found;
    Grid grid{.rows = Index(taus.size()),
              .cols = layers,
              .row_title = "tau",
              .col_title = "block",
              .value_title = "t_div of the block's input",
              .low = 0,
              .high = 1,
              .row_labels = taus};
    Plot ends{.title = "last block, against tau",
              .x = {.title = "tau", .low = 0, .high = 1},
              .y = {.title = "t_div of the input", .low = 0, .high = 1.02}};
    std::map<double, Number> final_div, final_star;
    for (const std::string& tau : taus) {
        const std::string model = model_of(setting, tau);
        for (Index layer = 0; layer < layers; ++layer)
            grid.values.push_back(numbers.at(model, "t_div", "in", layer).value);
        final_div[std::stod(tau)] = numbers.at(model, "t_div", "in", last);
    }
    ends.series = {line("t_div", final_div),
                   upright("tau* of attention alone: 1 - 1/sqrt(1 + a2)", threshold, 0, 1)};
    Figure f{.name = "law_phase",
             .title = "Diversity by strength of de-escalation and depth",
             .caption =
                 "t_div of each block's input, mean over the trials. The odds t_sim/t_div grow by "
                 "(1 - tau)^2 xi1/xi2 per block: diversity dies below tau* and survives above."};
    f.panels = {{.title = "t_div of the block's input", .grid = grid}, ends};
    f.alt = fmt::format("A heat map of {} strengths by {} blocks, and its last column as a line. ",
                        taus.size(), layers) +
            in_words({ends});
    found.figures.push_back(std::move(f));

    const auto weak = std::ranges::max_element(taus, {}, [&](const std::string& tau) {
        return std::stod(tau) < threshold ? std::stod(tau) : -1;
    });
    const auto strong = std::ranges::min_element(taus, {}, [&](const std::string& tau) {
        return std::stod(tau) > threshold ? std::stod(tau) : 2;
    });
    for (const auto& [tau, says] :
         {std::pair{*weak, "tends to 0 below"}, std::pair{*strong, "stays above 0 over"}})
        found.comparisons.push_back(
            compare(fmt::format("t_div of the input of block {}, {}", last, name_of(tau)),
                    fmt::format("{} tau* = {:.3f} of attention", says, threshold), std::nullopt,
                    final_div[std::stod(tau)]));
    for (const std::string& tau : {*weak, *strong})
        found.comparisons.push_back(compare(
            fmt::format("tau* of the whole block {}, {}", last, name_of(tau)),
            fmt::format("1 - 1/sqrt(1 + a2) = {:.3f}, where only attention escalates", threshold),
            std::nullopt, numbers.at(model_of(setting, tau), "tau_star", "out", last)));
    found.notes.push_back(
        "The threshold of attention alone omits the feed-forward step and the norms; tau* of the "
        "whole block includes them.");
    return found;
}

constexpr std::string_view columns =
    "t_sim, t_div, xi_ratio by layer and stage as in metrics.md; xi_block: the product of xi_ratio "
    "over attention, feed-forward and both norms; tau_star = 1 - 1/sqrt(xi_block), both per trial";

}  // namespace

extern const ExperimentEntry tse_fig5 = {
    .name = "tse.fig5",
    .title = "De-escalation with tau = 0.1, 0.5 and 1",
    .source = "[TSE] Figure 5, section 3.2, (21)",
    .claim =
        "With the de-escalation step applied to the output of each layer \"the levels of token "
        "diversity (one minus similarity)\" for tau = 0.1, 0.5 and 1 \"are around 0, 0.5 and 1, "
        "respectively\".",
    .method =
        "As tse.fig2, with the step Y = (I - tau Pi1) X after each block. Diversity is shown "
        "before and after the step, with the exact law of the step and the threshold tau* = 1 - "
        "1/sqrt(xi1/xi2). The text does not state the depth of this figure; it averages 20 runs.",
    .table = columns,
    .keys = keys5,
    .measure = measure,
    .find = find5};

extern const ExperimentEntry law_phase = {
    .name = "law.phase",
    .title = "Phase diagram of de-escalation: strength by depth",
    .source = "beyond the papers: the odds identity, from [TSE] (6), (7), (21)",
    .claim =
        "The odds t_sim/t_div are multiplied by xi1/xi2 in each step, hence by (1 - tau)^2 (1 + "
        "a2) in a block where attention alone escalates: diversity dies out below tau* = 1 - "
        "1/sqrt(1 + a2) and survives above.",
    .method = "As tse.fig5, for many strengths; quick scale has a smaller width.",
    .table = columns,
    .keys = phase_keys,
    .measure = measure,
    .find = find_phase};

}  // namespace tsdiag::experiment_list::tse_deescalation
