#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "encoder.hpp"

/// [TSE] Figure 4: pre-norm encoders at initialisation.
namespace tsdiag::experiment_list::tse_fig4 {
namespace {

constexpr auto keys = encoder_keys(full_sizes, key_layers("3", "50", "50"), key_trials("4", "20"));

constexpr const char *pre = "pre-norm", *post = "post-norm";

/// For each trial: the least growth factor of |X|_F over a block, and the least increase of t_sim.
void derive(const Table& trial, Index layers, Sink& out) {
    const auto at = [&](const char* stage, Index layer, const char* metric) {
        const auto row = trial.find({.layer = layer, .stage = stage}, metric);
        return row ? row->value : std::nullopt;
    };
    std::optional<double> growth, rise;
    for (Index layer = 0; layer < layers; ++layer) {
        const auto from = at("in", layer, "fro"), to = at("out", layer, "fro");
        const auto before = at("in", layer, "t_sim"), after = at("out", layer, "t_sim");
        if (from && to) growth = std::min(growth.value_or(*to / *from), *to / *from);
        if (before && after) rise = std::min(rise.value_or(1), *after - *before);
    }
    const Value none = undefined("no block has a value");
    out.scalar({}, "fro_growth", growth ? Value(*growth) : none);
    out.scalar({}, "sim_rise", rise ? Value(*rise) : none);
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs = {options_of(setting, drawn_encoder(setting, pre),
                                               {"t_sim", "t_div", "fro", "xi_ratio", "r"}),
                                    options_of(setting, drawn_encoder(setting, post), {"t_sim"})};
    runs.front().derive = [layers = setting.count("layers")](const Table& trial, Sink& out) {
        derive(trial, layers, out);
    };
    return together(setting, runs);
}

Figure figure_of(const Numbers& numbers, const std::string& model, const std::string& other) {
    const Axis blocks{.title = "block", .whole = true};
    Plot sim{.title = "t_sim of the block's output",
             .x = blocks,
             .y = {.title = "t_sim", .low = 0, .high = 1.02}};
    sim.series = {line(pre, numbers.depth(model, "t_sim", "out")),
                  line(post, numbers.depth(other, "t_sim", "out"))};
    Plot norms{.title = "norms of (19)", .x = blocks, .y = {.title = "Frobenius norm", .low = 0}};
    norms.series = {line("|X|", numbers.depth(model, "fro", "in")),
                    line("|LN(X)|", numbers.depth(model, "fro", "norm1")),
                    line("|P LN(X) W|", numbers.depth(model, "fro", "sa"))};
    Figure f{.name = "tse_fig4",
             .title = "Pre-norm: similarity and three norms",
             .caption =
                 "X is the block's input, LN(X) the input of attention, P LN(X) "
                 "W its output [TSE] (19); post-norm for comparison."};
    f.panels = {sim, norms};
    f.alt = in_words(f.panels);
    return f;
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    using Kind = Comparison::Kind;
    const Numbers numbers(table);
    const std::string model = drawn_encoder(setting, pre), other = drawn_encoder(setting, post);
    const Index last = setting.count("layers") - 1;
    const double unit = std::sqrt(setting.number("tokens") * setting.number("d"));
    Findings found{.figures = {figure_of(numbers, model, other)}};
    std::vector<Comparison>& all = found.comparisons;
    const auto norm = [&](const char* stage, Index block) {
        return numbers.at(model, "fro", stage, block);
    };
    all.push_back(compare("least factor of |X|_F over a block",
                          "[TSE] (20): \"monotonically increasing in expectation\"", 1.0,
                          numbers.at(model, "fro_growth"), Kind::at_least));
    all.push_back(compare(fmt::format("|LN(X)|_F, block {}", last),
                          "[TSE] 3.1: \"always fixed\"; sqrt(n d) if eps is neglected",
                          std::nullopt, norm("norm1", last)));
    all.push_back(compare("|X|_F, block 0",
                          "sqrt(n d) for a Gaussian input, up to a relative 1/(4 n d)", unit,
                          norm("in", 0)));
    all.push_back(
        compare(fmt::format("|X|_F, block {}", last), "no number", std::nullopt, norm("in", last)));
    constexpr const char* role =
        "[TSE] 3.1: the role of attention \"is progressively diminishing\" with depth";
    const auto share = [&](Index block) { return ratio(norm("sa", block), norm("in", block)); };
    for (const Index block : {Index(0), last / 5, last})
        all.push_back(compare(fmt::format("|P LN(X) W|_F over |X|_F, block {}", block), role,
                              std::nullopt, share(block)));
    for (const Index block : {Index(0), last / 5})
        all.push_back(order_of("|P LN(X) W|_F over |X|_F", fmt::format("block {}", block),
                               fmt::format("block {}", last), share(block), share(last), role));
    all.push_back(compare("least rise of t_sim over a block",
                          "[TSE] 3.1: token similarity \"still keeps increasing\"", 0.0,
                          numbers.at(model, "sim_rise"), Kind::at_least));
    for (const Index block : {Index(4), Index(9), Index(19)})
        if (block <= last)
            all.push_back(order_of(fmt::format("t_sim after block {}", block), post, pre,
                                   numbers.at(other, "t_sim", "out", block),
                                   numbers.at(model, "t_sim", "out", block),
                                   "[TSE] 3.1: pre-norm \"at a much slower escalation rate\""));
    all.push_back(compare(fmt::format("t_sim after block {}", last), "no number", std::nullopt,
                          numbers.at(model, "t_sim", "out", last)));
    found.notes.push_back(
        fmt::format("Reading: var_v={}, out_proj={}. With var_v=1/d the branch has the norm of its "
                    "input; other readings scale it.",
                    setting.text("var_v"), setting.text("out_proj")));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig4 = {
    .name = "tse.fig4",
    .title = "Similarity and norms in a pre-norm encoder",
    .source = "[TSE] Figure 4, (19), (20)",
    .claim =
        "In a pre-norm encoder the norm of the state \"is monotonically increasing in "
        "expectation\" while that of attention's input \"is always fixed\", so that \"the role of "
        "the self-attention mechanism is progressively diminishing\"; token similarity \"still "
        "keeps increasing, albeit at a much slower escalation rate than in post-norm models\".",
    .method =
        "[TSE] (19) without output projection, ReLU, other weights PyTorch's Linear default, "
        "Gaussian input, everything drawn anew in each trial; n, d and h of section 2.4. The text "
        "states neither the depth of this figure nor its number of draws.",
    .table =
        "t_sim, t_div, fro, xi_ratio, r by layer and stage, as in metrics.md; fro_growth: the "
        "least factor by which |X|_F grows over a block; sim_rise: the least rise of t_sim, both "
        "per trial",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::tse_fig4
