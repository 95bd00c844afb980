#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "encoder.hpp"

/// [TSE] Figures 2 and 3: rates of escalation and their estimates, post-norm.
namespace tsdiag::experiment_list::tse_rates {
namespace {

constexpr auto keys2 =
    encoder_keys(full_sizes, key_layers("3", "20", "20"), key_trials("20", "50"));
constexpr auto keys3 =
    encoder_keys(full_sizes, key_layers("3", "20", "20"), key_trials("100", "1000"));

/// The value of a trial at a place, if defined.
std::optional<double> value_at(const Table& trial, const Place& at, const char* metric) {
    const auto row = trial.find(at, metric);
    return row ? row->value : std::nullopt;
}

/// For each trial: the prediction of the estimates for r, 1 + est t_sim(in), and the residuals of
/// it and of xi1/xi2 - 1.
void derive_rates(const Table& trial, Index layer, Sink& out) {
    const Place at{.layer = layer, .stage = "attn"};
    const auto sim = value_at(trial, {.layer = layer, .stage = "in"}, "t_sim");
    const auto r = value_at(trial, at, "r"), ratio = value_at(trial, at, "xi_ratio");
    for (const char* name : {"est1", "est2"}) {
        const auto estimate = value_at(trial, at, name);
        const Value none = undefined("an estimate, r or xi1/xi2 is undefined");
        const bool known = estimate && sim && r && ratio;
        const double predicted = known ? 1 + *estimate * *sim : 0;
        out.scalar(at, fmt::format("r_{}", name), known ? Value(predicted) : none);
        out.scalar(at, fmt::format("r_minus_{}", name), known ? Value(*r - predicted) : none);
        out.scalar(at, fmt::format("xi_minus_{}", name),
                   known ? Value(*ratio - 1 - *estimate) : none);
    }
}

/// The least increase of similarity over a block.
Value least_rise(const Table& trial, Index layers) {
    double least = 1;
    for (Index layer = 0; layer < layers; ++layer) {
        const auto before = value_at(trial, {.layer = layer, .stage = "in"}, "t_sim"),
                   after = value_at(trial, {.layer = layer, .stage = "out"}, "t_sim");
        if (!before || !after) return undefined("t_sim is undefined");
        least = std::min(least, *after - *before);
    }
    return least;
}

void derive(const Table& trial, Index layers, Sink& out) {
    for (Index layer = 0; layer < layers; ++layer) derive_rates(trial, layer, out);
    out.scalar({}, "sim_rise", least_rise(trial, layers));
    out.scalar({}, "depth_99", saturation_depth(trial, layers));
}

RunResult measure_with(const ExperimentSetting& setting, std::vector<std::string> probes,
                       std::string redraw) {
    RunOptions run = options_of(setting, drawn_encoder(setting, "post-norm"), std::move(probes));
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
        .title = "residuals of the estimates", .x = blocks, .y = {.title = "r - (1 + est t_sim)"}};
    plot.series = {line("r - (1 + est1 t_sim)", numbers.depth(model, "r_minus_est1", "attn")),
                   line("r - (1 + est2 t_sim)", numbers.depth(model, "r_minus_est2", "attn"))};
    plot.marks = {{0.0, ""}};
    return plot;
}

/// The steps of a block other than attention.
constexpr std::array other_steps = {std::pair{"norm1", "the first norm"},
                                    std::pair{"ffn", "the feed-forward step"},
                                    std::pair{"norm2", "the second norm"}};

Plot steps_panel(const Numbers& numbers, const std::string& model, double gain) {
    Plot plot{.title = "xi1/xi2 of the steps of a block", .x = blocks, .y = {.title = "xi1 / xi2"}};
    plot.series = {line("attention", numbers.depth(model, "xi_ratio", "attn"))};
    for (const auto& [stage, label] : other_steps)
        plot.series.push_back(line(label, numbers.depth(model, "xi_ratio", stage)));
    plot.marks = {{1 + gain, ""}, {1.0, ""}};
    return plot;
}

Plot panel(std::string title, std::string y, const Numbers& numbers, const std::string& model,
           std::initializer_list<std::string> metrics, const char* stage) {
    Plot plot{.title = std::move(title), .x = blocks, .y = {.title = std::move(y)}};
    for (const std::string& metric : metrics)
        plot.series.push_back(line(metric, numbers.depth(model, metric, stage)));
    return plot;
}

using Kind = Comparison::Kind;

/// "nearly identical", "about 1": the paper claims no more digits.
constexpr double near_zero = 0.01, near_one = 0.05;
/// "Nearly identical" curves, which fall from 2 to 1: a twentieth of that.
constexpr double near_curves = 0.05;

/// The statements on the first block and on the depth, in both figures.
void add_common(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
                const ExperimentSetting& setting) {
    const double gain = branch_gain(setting);
    all.push_back(resolved(
        compare(
            "xi1/xi2 of the attention step, block 0",
            fmt::format("[TSE] 2.4: \"around 2 from the very beginning\"; by (9) 1 + a2 = {:.4g} "
                        "where mu1 = 1 and mu2 = 0",
                        1 + gain),
            1 + gain, numbers.at(model, "xi_ratio", "attn", 0)),
        (1 + gain) * near_one));
    all.push_back(resolved(compare("r - (1 + est2 t_sim), block 0",
                                   "[TSE] 2.4: est2 and the sample mean \"nearly identical\"", 0.0,
                                   numbers.at(model, "r_minus_est2", "attn", 0)),
                           near_zero));
    all.push_back(compare("r - (1 + est1 t_sim), block 0",
                          "[TSE] (16): a lower bound of the mean, so at least 0", 0.0,
                          numbers.at(model, "r_minus_est1", "attn", 0), Kind::at_least));
    all.push_back(compare("blocks until t_sim = 0.99",
                          "[TSE] 2.4: the maximum is approached \"before block 15\"", 15.0,
                          numbers.at(model, "depth_99"), Kind::at_most));
    all.push_back(compare("least rise of t_sim over a block",
                          "[TSE] 2.4: \"monotonically increases throughout all blocks\"", 0.0,
                          numbers.at(model, "sim_rise"), Kind::at_least));
}

/// xi1/xi2 of the steps of a block, at its beginning and its end.
void add_steps(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
               Index last) {
    for (const Index block : {Index(0), last}) {
        if (block > 0)
            all.push_back(
                resolved(compare(fmt::format("xi1/xi2 of the attention step, block {}", block),
                                 "[TSE] 2.4: \"stays around 2 from the very beginning\"", 2.0,
                                 numbers.at(model, "xi_ratio", "attn", block)),
                         2 * near_one));
        for (const auto& [stage, label] : other_steps)
            all.push_back(resolved(compare(fmt::format("xi1/xi2 of {}, block {}", label, block),
                                           "[TSE] 2.3, 2.4: about 1, \"a negligible impact\"", 1.0,
                                           numbers.at(model, "xi_ratio", stage, block)),
                                   near_one));
    }
}

void add_reading(Findings& found, const ExperimentSetting& setting) {
    if (setting.text("var_v") == "1/d" && setting.text("out_proj") == "0")
        found.notes.push_back(
            "Reading: W_V ~ N(0, 1/d). The text says N(0, (h/d) I), with which xi1/xi2 of the "
            "first step is near 1 + h; a rate near 2 and saturation before block 15, as drawn in "
            "the paper, need variance 1/d. `--reading var_v=h/d` (or xavier, torch, a number) sets "
            "another.");
    else
        found.notes.push_back(
            fmt::format("Reading: var_v={}, out_proj={}; the default is var_v=1/d, out_proj=0.",
                        setting.text("var_v"), setting.text("out_proj")));
}

std::vector<Figure> figures2(const Numbers& numbers, const std::string& model, double gain) {
    Plot sim =
        panel("similarity of the block's input", "", numbers, model, {"t_sim", "t_cos"}, "in");
    sim.y = {.title = "t_sim, t_cos", .low = 0, .high = 1.02};
    std::vector<Figure> figures = {
        {.name = "tse_fig2",
         .title = "Similarity, ratios and mixing by block",
         .caption = "Similarity; xi1/xi2 of the four steps of a block (dotted: 1 + a2 "
                    "and 1); omega and delta of [TSE] (12) and "
                    "|lambda_2(P)|, means over the heads.",
         .panels = {sim, steps_panel(numbers, model, gain),
                    panel("omega, delta, |lambda_2|", "", numbers, model,
                          {"omega", "delta", "lambda2_abs"}, "attn")}},
        {.name = "tse_fig2_rate",
         .title = "Escalation and the residuals of the estimates",
         .caption =
             "r = t_div(X)/t_div(Y) over the attention step [TSE] (5), the predictions of the "
             "estimates (16) and (17), and their residuals in each trial; mu1 and mu2 of (10).",
         .panels = {rate_panel(numbers, model), rest_panel(numbers, model),
                    panel("mu1, mu2", "", numbers, model, {"mu1", "mu2"}, "attn")}}};
    for (Figure& f : figures) f.alt = in_words(f.panels);
    return figures;
}

Findings find2(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::string model = drawn_encoder(setting, "post-norm");
    const Index last = setting.count("layers") - 1;
    Findings found{.figures = figures2(numbers, model, branch_gain(setting))};
    std::vector<Comparison>& all = found.comparisons;
    add_common(all, numbers, model, setting);
    add_steps(all, numbers, model, last);
    for (const char* metric : {"omega", "delta"}) {
        all.push_back(compare(fmt::format("{}, block 0", metric),
                              "[TSE] 2.4: \"far less than 1 from the start\", read as at most 1/2",
                              0.5, numbers.at(model, metric, "attn", 0), Kind::at_most));
        all.push_back(compare(fmt::format("{}, block {}", metric, last),
                              "[TSE] 2.4: \"quickly approach 0 as the depth increases\"",
                              std::nullopt, numbers.at(model, metric, "attn", last)));
    }
    all.push_back(compare("|lambda_2|, block 0", "[TSE] 2.5: attention has \"large spectral gaps\"",
                          std::nullopt, numbers.at(model, "lambda2_abs", "attn", 0)));
    all.push_back(compare("mu1, block 0", "[TSE] Cor. 2.7: 1 for a doubly stochastic P",
                          std::nullopt, numbers.at(model, "mu1", "attn", 0)));
    const Number mu2 = numbers.at(model, "mu2", "attn", 0),
                 delta = numbers.at(model, "delta", "attn", 0);
    all.push_back(compare("mu2 - delta, block 0", "[TSE] (11): mu2 is at most delta", 0.0,
                          difference(mu2, delta), Kind::at_most));
    add_reading(found, setting);
    return found;
}

/// The block where the mean of `metric` is least certain to be within the margin of 0: where it is,
/// all blocks are.
void add_worst(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model,
               const std::string& metric, const std::string& what) {
    const auto by_block = numbers.depth(model, metric, "attn");
    const auto room = [](const Number& n) {  // in standard errors
        const double left = near_curves - std::abs(*n.value);
        return n.error && *n.error > 0 ? left / *n.error : std::copysign(INFINITY, left);
    };
    std::optional<std::pair<double, Number>> worst;
    for (const auto& [layer, n] : by_block)
        if (n.value && (!worst || room(n) < room(worst->second))) worst = {layer, n};
    if (!worst) return;
    all.push_back(resolved(
        compare(fmt::format("{}, in the least certain block, {}", what, worst->first),
                fmt::format("[TSE] 2.4: the three curves are \"nearly identical\", read as within "
                            "{} in every block",
                            near_curves),
                0.0, worst->second, Kind::comparable),
        near_curves));
    all.back().chosen_from = std::ssize(by_block);
}

/// Both estimates of xi1/xi2 - 1 in the first block.
void add_estimates(std::vector<Comparison>& all, const Numbers& numbers, const std::string& model) {
    const Number first = numbers.at(model, "xi_minus_est1", "attn", 0),
                 second = numbers.at(model, "xi_minus_est2", "attn", 0);
    all.push_back(compare("xi1/xi2 - 1 - est1, block 0",
                          "[TSE] 2.4: a \"guaranteed lower bound\", so at least 0", 0.0, first,
                          Kind::at_least));
    all.push_back(compare("xi1/xi2 - 1 - est2, block 0", "[TSE] 2.4: exact only for a symmetric P",
                          std::nullopt, second));
    const auto size = [](Number n) {
        if (n.value) n.value = std::abs(*n.value);
        return n;
    };
    all.push_back(order_of("distance from xi1/xi2 - 1, block 0", "est1", "est2", size(first),
                           size(second), "[TSE] 2.4: est2 is \"a closer approximation\""));
}

Findings find3(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::string model = drawn_encoder(setting, "post-norm");
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
                 "Only W_V is drawn anew in each trial: the input and all other weights are fixed. "
                 "r = t_div(X)/t_div(Y) over the attention step; est1 and est2 are computed from "
                 "the attention and input of each trial."};
    f.panels = {rate_panel(numbers, model), ratio, rest_panel(numbers, model)};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    add_common(found.comparisons, numbers, model, setting);
    add_estimates(found.comparisons, numbers, model);
    add_worst(found.comparisons, numbers, model, "r_minus_est2", "r - (1 + est2 t_sim)");
    add_worst(found.comparisons, numbers, model, "r_minus_est1", "r - (1 + est1 t_sim)");
    add_reading(found, setting);
    found.notes.push_back(
        "Each W_V gives one network: blocks of the same trial are correlated, so the bands of "
        "neighbouring blocks are not independent.");
    return found;
}

constexpr std::string_view table =
    "t_sim, t_div, xi_ratio, r, est1, est2 as in metrics.md; r_est1, r_est2: 1 + est t_sim(in); "
    "r_minus_est1, r_minus_est2: r minus that; xi_minus_est1, xi_minus_est2: xi1/xi2 - 1 minus the "
    "estimate; sim_rise: the least rise of t_sim over a block; depth_99: blocks until t_sim/t_div "
    "= 99, log odds interpolated; all per trial";

}  // namespace

extern const ExperimentEntry tse_fig2 = {
    .name = "tse.fig2",
    .title = "Escalation in a post-norm encoder at initialisation",
    .source = "[TSE] Figure 2, section 2.4",
    .claim =
        "\"Similarity monotonically increases throughout all blocks, approaching the maximum "
        "before block 15\", since in Step 1 the mean of xi1/xi2 \"stays around 2 from the very "
        "beginning, while the other three steps have a negligible impact\"; delta and omega \"are "
        "far less than 1 from the start and quickly approach 0\".",
    .method =
        "[TSE] Algorithm 1 without output projection (as in Proposition 2.9), ReLU, other weights "
        "PyTorch's Linear default, Gaussian input; all weights and the input drawn anew in each "
        "trial. n, d, h and the depth are the paper's at both scales; the inner width of the "
        "feed-forward step is not stated.",
    .table = table,
    .keys = keys2,
    .measure = measure2,
    .find = find2};

extern const ExperimentEntry tse_fig3 = {
    .name = "tse.fig3",
    .title = "The estimates of the escalation rate against its sample mean",
    .source = "[TSE] Figure 3, section 2.4",
    .claim =
        "Over 1000 draws of W_V est2 of (17) \"actually provides a closer approximation\" to the "
        "mean of xi1/xi2 - 1 \"than the guaranteed lower bound in Estimate 1\" of (16); of r and "
        "its two estimates \"the three curves are nearly identical\".",
    .method =
        "As tse.fig2, but only W_V is drawn anew: the whole network is run again in each trial, "
        "and both estimates are computed from the attention of that trial.",
    .table = table,
    .keys = keys3,
    .measure = measure3,
    .find = find3};

}  // namespace tsdiag::experiment_list::tse_rates
