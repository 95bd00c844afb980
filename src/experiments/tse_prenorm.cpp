#include <fmt/format.h>

#include <array>
#include <cmath>

#include "support.hpp"

/// [TSE] Figure 4: pre-norm encoders at initialisation.
namespace tsdiag::experiment_list {
namespace {

constexpr std::array keys{
    key_layers("50", "50"), key_tokens,           key_d, key_heads, key_ffn, key_var_v,
    key_out_proj,           key_trials("4", "20")};

std::string model_of(const ExperimentSetting& setting) {
    return encoder(setting, "pre-norm",
                   fmt::format(",var_v={}{}", setting.text("var_v"),
                               setting.text("out_proj") == "1" ? ",out_proj=1" : ""));
}

RunResult measure(const ExperimentSetting& setting) {
    const RunOptions run =
        options_of(setting, model_of(setting), {"t_sim", "t_div", "fro", "xi_ratio", "r"});
    return together(setting, std::span(&run, 1));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::string model = model_of(setting);
    const Index last = setting.count("layers") - 1;
    const double unit = std::sqrt(setting.number("tokens") * setting.number("d"));
    const Axis blocks{.title = "block", .whole = true};
    Findings found;
    Plot sim{.title = "t_sim of the block's output",
             .x = blocks,
             .y = {.title = "t_sim", .low = 0, .high = 1.02}};
    sim.series = {line("t_sim", numbers.depth(model, "t_sim", "out"))};
    Plot norms{
        .title = "the norms of (19)", .x = blocks, .y = {.title = "Frobenius norm", .low = 0}};
    norms.series = {line("|X|", numbers.depth(model, "fro", "in")),
                    line("|LN(X)|", numbers.depth(model, "fro", "norm1")),
                    line("|SA(LN(X))|", numbers.depth(model, "fro", "sa"))};
    norms.marks = {{unit, "sqrt(n d)"}};
    Figure f{.name = "tse_fig4",
             .title = "Pre-norm: similarity and three norms",
             .caption =
                 "X is the block's input, LN(X) what attention sees, SA(LN(X)) what it adds [TSE] "
                 "(19). Bands: two standard errors."};
    f.panels = {sim, norms};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));

    for (const Index block : {Index(4), Index(9), Index(19), Index(29), Index(49)})
        if (block <= last)
            found.comparisons.push_back(compare(fmt::format("t_sim after block {}", block),
                                                "grows slowly, below 1", std::nullopt,
                                                numbers.at(model, "t_sim", "out", block)));
    found.comparisons.push_back(compare("|X|_F, block 0", "sqrt(n d) of a Gaussian input", unit,
                                        numbers.at(model, "fro", "in", 0)));
    found.comparisons.push_back(compare(fmt::format("|X|_F, block {}", last), "grows with depth",
                                        std::nullopt, numbers.at(model, "fro", "in", last)));
    found.comparisons.push_back(
        compare(fmt::format("|LN(X)|_F, block {}", last),
                fmt::format("constant: sqrt(n d) = {:.4f}, less what eps takes", unit),
                std::nullopt, numbers.at(model, "fro", "norm1", last)));
    found.comparisons.push_back(compare("|SA(LN(X))|_F, block 0", "small at first", std::nullopt,
                                        numbers.at(model, "fro", "sa", 0)));
    found.comparisons.push_back(compare(fmt::format("|SA(LN(X))|_F, block {}", last),
                                        "bounded by |LN(X)| while |X| grows", std::nullopt,
                                        numbers.at(model, "fro", "sa", last)));
    found.notes.push_back(
        fmt::format("Reading: var_v={}, out_proj={}. With var_v=1/d the branch has the size of its "
                    "input; other "
                    "readings scale it.",
                    setting.text("var_v"), setting.text("out_proj")));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig4 = {
    .name = "tse.fig4",
    .title = "Similarity and norms in a pre-norm encoder",
    .source = "[TSE] Figure 4, (19), (20)",
    .claim =
        "In a pre-norm encoder the state grows with depth while attention's input keeps its norm: "
        "the "
        "branch loses weight against the residual, and similarity grows only slowly.",
    .method =
        "[TSE] (19) without output projection, ReLU, other weights PyTorch's Linear default, "
        "Gaussian "
        "input, everything drawn anew in each trial.",
    .table = "t_sim, t_div, fro, xi_ratio, r by layer and stage, as in metrics.md",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list
