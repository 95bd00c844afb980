#include <fmt/format.h>

#include <array>
#include <cmath>

#include "support.hpp"

/// [TSE] Figures 2 and 3: rates of escalation and their estimates, post-norm.
namespace tsdiag::experiment_list {
namespace {

constexpr std::array keys2{
    key_layers("20", "20"), key_tokens, key_d, key_heads, key_ffn, key_var_v, key_out_proj,
    key_trials("20", "50")};
constexpr std::array keys3{
    key_layers("20", "20"),   key_tokens, key_d, key_heads, key_ffn, key_var_v, key_out_proj,
    key_trials("100", "1000")};

std::string model_of(const ExperimentSetting& setting) {
    return encoder(setting, "post-norm",
                   fmt::format(",var_v={}{}", setting.text("var_v"),
                               setting.text("out_proj") == "1" ? ",out_proj=1" : ""));
}

/// Of each trial: what the estimates predict for r, 1 + est t_sim(in), and what they leave.
void derive(const Table& trial, Index layers, Sink& out) {
    for (Index layer = 0; layer < layers; ++layer) {
        const Place at{.layer = layer, .stage = "attn"};
        const auto sim = trial.find({.layer = layer, .stage = "in"}, "t_sim");
        const auto r = trial.find(at, "r");
        for (const char* name : {"est1", "est2"}) {
            const auto estimate = trial.find(at, name);
            Value predicted = undefined("an estimate or r is undefined"), rest = predicted;
            if (estimate && estimate->value && sim && sim->value && r && r->value) {
                predicted = 1 + *estimate->value * *sim->value;
                rest = *r->value - *predicted.value;
            }
            out.scalar(at, fmt::format("r_{}", name), predicted);
            out.scalar(at, fmt::format("r_minus_{}", name), rest);
        }
    }
    out.scalar({}, "depth_99", saturation_depth(trial, layers));
}

RunResult measure_with(const ExperimentSetting& setting, std::vector<std::string> probes,
                       std::string redraw) {
    RunOptions run = options_of(setting, model_of(setting), std::move(probes));
    run.redraw = std::move(redraw);
    run.derive = [layers = setting.count("layers")](const Table& trial, Sink& out) {
        derive(trial, layers, out);
    };
    return together(setting, std::span(&run, 1));
}

RunResult measure2(const ExperimentSetting& setting) {
    return measure_with(setting,
                        {"t_sim", "t_div", "t_cos", "xi_ratio", "r", "omega", "delta",
                         "lambda2_abs", "mu1", "mu2", "est1", "est2"},
                        "");
}

RunResult measure3(const ExperimentSetting& setting) {
    return measure_with(setting, {"t_sim", "t_div", "xi_ratio", "r", "est1", "est2"},
                        "attn.v.weight");
}

const Axis blocks{.title = "block", .whole = true};

Plot rate_panel(const Numbers& numbers, const std::string& model) {
    Plot plot{.title = "r of the attention step", .x = blocks, .y = {.title = "r"}};
    plot.series = {line("sample mean", numbers.depth(model, "r", "attn")),
                   line("1 + est1 t_sim", numbers.depth(model, "r_est1", "attn")),
                   line("1 + est2 t_sim", numbers.depth(model, "r_est2", "attn"))};
    plot.series[1].dashed = plot.series[2].dashed = true;
    return plot;
}

Plot rest_panel(const Numbers& numbers, const std::string& model) {
    Plot plot{
        .title = "what the estimates leave", .x = blocks, .y = {.title = "r - (1 + est t_sim)"}};
    plot.series = {line("r - (1 + est1 t_sim)", numbers.depth(model, "r_minus_est1", "attn")),
                   line("r - (1 + est2 t_sim)", numbers.depth(model, "r_minus_est2", "attn"))};
    plot.marks = {{0.0, ""}};
    return plot;
}

Plot panel(std::string title, std::string y, const Numbers& numbers, const std::string& model,
           std::initializer_list<std::string> metrics, const char* stage) {
    Plot plot{.title = std::move(title), .x = blocks, .y = {.title = std::move(y)}};
    for (const std::string& metric : metrics)
        plot.series.push_back(line(metric, numbers.depth(model, metric, stage)));
    return plot;
}

/// What is said of the first block and of the depth, in both figures.
void add_common(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
                const ExperimentSetting& setting) {
    const double gain = branch_gain(setting);
    all.push_back(
        compare("xi1/xi2 of the attention step, block 0",
                fmt::format("[TSE] Rem. 2.8: 1 + a2, a2 = {:.4g} by the law of W_V", gain),
                1 + gain, numbers.at(model, "xi_ratio", "attn", 0)));
    all.push_back(compare("r - (1 + est2 t_sim), block 0",
                          "[TSE] (17), Fig. 3: est2 meets the sample mean", 0.0,
                          numbers.at(model, "r_minus_est2", "attn", 0)));
    all.push_back(compare("r - (1 + est1 t_sim), block 0",
                          "[TSE] (16): est1 is a lower bound, so not negative", std::nullopt,
                          numbers.at(model, "r_minus_est1", "attn", 0)));
    all.push_back(compare("blocks until t_sim = 0.99",
                          "figure: similarity saturates before block 15", std::nullopt,
                          numbers.at(model, "depth_99", "", -1)));
}

void add_reading(Findings& found, const ExperimentSetting& setting) {
    if (setting.text("var_v") == "1/d" && setting.text("out_proj") == "0")
        found.notes.push_back(
            "Reading: W_V ~ N(0, 1/d). The text says N(0, (h/d) I), with which xi1/xi2 of the "
            "first step is "
            "near 1 + h; a rate near 2 and saturation before block 15, as drawn in the paper, need "
            "variance "
            "1/d. `--reading var_v=h/d` (or xavier, torch, a number) draws the others.");
    else
        found.notes.push_back(
            fmt::format("Reading: var_v={}, out_proj={}; the paper's figure is reproduced by "
                        "var_v=1/d, out_proj=0.",
                        setting.text("var_v"), setting.text("out_proj")));
}

Findings find2(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::string model = model_of(setting);
    Findings found;
    Plot ratio =
        panel("xi1/xi2 of the attention step", "xi1 / xi2", numbers, model, {"xi_ratio"}, "attn");
    ratio.marks = {{1 + branch_gain(setting), "1 + a2"}};
    Plot sim =
        panel("similarity of the block's input", "", numbers, model, {"t_sim", "t_cos"}, "in");
    sim.y = {.title = "t_sim, t_cos", .low = 0, .high = 1.02};
    found.figures = {
        {.name = "tse_fig2",
         .title = "Escalation by block",
         .caption =
             "Means over the trials, bands of two standard errors. r = t_div(X)/t_div(Y) over the "
             "attention step [TSE] (5), and what the estimates of (16) and (17) predict for it.",
         .panels = {sim, rate_panel(numbers, model)}},
        {.name = "tse_fig2_mixing",
         .title = "What attention does to the mean of the tokens and to the rest",
         .caption = "Means over heads and trials, bands of two standard errors: omega and delta of "
                    "[TSE] (12), "
                    "|lambda_2(P)|, mu1 and mu2 of (10).",
         .panels = {panel("omega, delta, |lambda_2|", "", numbers, model,
                          {"omega", "delta", "lambda2_abs"}, "attn"),
                    panel("mu1, mu2", "", numbers, model, {"mu1", "mu2"}, "attn")}},
        {.name = "tse_fig2_estimates",
         .title = "The ratio of escalation, and what the estimates leave",
         .caption = "xi1/xi2 of the attention step beside 1 + a2, and the measured r less its two "
                    "estimates, of "
                    "each trial. Bands: two standard errors.",
         .panels = {ratio, rest_panel(numbers, model)}}};
    for (Figure& f : found.figures) f.alt = in_words(f.panels);

    add_common(found.comparisons, numbers, model, setting);
    for (const char* metric : {"omega", "delta"})
        found.comparisons.push_back(compare(fmt::format("{}, block 0", metric),
                                            "small: omega + delta < 1 [TSE] Thm 2.6", std::nullopt,
                                            numbers.at(model, metric, "attn", 0)));
    found.comparisons.push_back(compare("|lambda_2|, block 0", "1 - |lambda_2| = 1 - O(1/sqrt n)",
                                        std::nullopt, numbers.at(model, "lambda2_abs", "attn", 0)));
    found.comparisons.push_back(compare("mu1, block 0",
                                        "1 for a doubly stochastic P [TSE] Cor. 2.7", std::nullopt,
                                        numbers.at(model, "mu1", "attn", 0)));
    found.comparisons.push_back(compare("mu2, block 0", "at most delta [TSE] (11)", std::nullopt,
                                        numbers.at(model, "mu2", "attn", 0)));
    add_reading(found, setting);
    return found;
}

/// The block where the mean of `metric` is farthest from 0.
void add_worst(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
               const std::string& metric, const std::string& what) {
    std::optional<std::pair<double, Number>> worst;
    for (const auto& [layer, n] : numbers.depth(model, metric, "attn"))
        if (n.value && (!worst || std::abs(*n.value) > std::abs(*worst->second.value)))
            worst = {layer, n};
    if (!worst) return;
    all.push_back(
        compare(fmt::format("{}, farthest from 0: block {}", what, worst->first),
                "the three curves coincide [TSE] Fig. 3; the greatest of all blocks may be "
                "two or three errors from 0 by chance",
                std::nullopt, worst->second));
}

Findings find3(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::string model = model_of(setting);
    Findings found;
    Plot ratio{
        .title = "xi1/xi2 - 1 and its estimates", .x = blocks, .y = {.title = "xi1/xi2 - 1"}};
    std::map<double, Number> rate;
    for (const auto& [layer, n] : numbers.depth(model, "xi_ratio", "attn"))
        rate[layer] = scaled(n, 1, -1);
    ratio.series = {line("sample mean", rate), line("est1", numbers.depth(model, "est1", "attn")),
                    line("est2", numbers.depth(model, "est2", "attn"))};
    ratio.series[1].dashed = ratio.series[2].dashed = true;
    Figure f{.name = "tse_fig3",
             .title = "The rate of escalation against its two estimates",
             .caption =
                 "Only W_V is drawn anew in each trial: input and all other weights stay. r = "
                 "t_div(X)/t_div(Y) over the attention step; est1 and est2 are evaluated at each "
                 "trial's own attention and input. Bands: two standard errors."};
    f.panels = {rate_panel(numbers, model), ratio, rest_panel(numbers, model)};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    add_common(found.comparisons, numbers, model, setting);
    add_worst(found.comparisons, numbers, model, "r_minus_est2", "r - (1 + est2 t_sim)");
    add_worst(found.comparisons, numbers, model, "r_minus_est1", "r - (1 + est1 t_sim)");
    add_reading(found, setting);
    found.notes.push_back(
        "One W_V gives one network: differences between blocks of the same trials are correlated, "
        "so bands of "
        "neighbouring blocks are not independent.");
    return found;
}

constexpr std::string_view table =
    "t_sim, t_div, xi_ratio, r, est1, est2 as in metrics.md; r_est1, r_est2: 1 + est t_sim(in), of "
    "each trial; r_minus_est1, r_minus_est2: r less that; depth_99: blocks until t_sim/t_div = 99, "
    "log "
    "odds interpolated";

}  // namespace

extern const ExperimentEntry tse_fig2 = {
    .name = "tse.fig2",
    .title = "Escalation in a post-norm encoder at initialisation",
    .source = "[TSE] Figure 2",
    .claim =
        "In a post-norm encoder at initialisation tokens grow alike within some 15 blocks; "
        "attention "
        "has a large spectral gap, omega and delta are small, and the escalation rate starts near "
        "2.",
    .method =
        "[TSE] Algorithm 1 without output projection (as in Proposition 2.9), ReLU, other weights "
        "PyTorch's Linear default, Gaussian input; all weights and the input drawn anew in each "
        "trial.",
    .table = table,
    .keys = keys2,
    .measure = measure2,
    .find = find2};

extern const ExperimentEntry tse_fig3 = {
    .name = "tse.fig3",
    .title = "The estimates of the escalation rate against its sample mean",
    .source = "[TSE] Figure 3",
    .claim =
        "The sample mean of r over 1000 draws of W_V nearly coincides with the two estimates that "
        "attention alone gives: est1 from (16), est2 from the spectral gap (17).",
    .method =
        "As tse.fig2, but only W_V is drawn anew: the whole network is run again in each trial, "
        "and "
        "both estimates are computed from the attention of that trial.",
    .table = table,
    .keys = keys3,
    .measure = measure3,
    .find = find3};

}  // namespace tsdiag::experiment_list
