#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "support.hpp"

/// [TSE] Figure 1: similarity over the depth of BERT and ALBERT at initialisation.
namespace tsdiag::experiment_list::tse_fig1 {
namespace {

constexpr std::array keys{
    key_layers("4", "100", "100"), whole_key("tokens", "8", "32", "128", "random ids", 2, 512),
    key_trials("3", "8"),
    whole_key("xxlarge", "0", "1", "3",
              "draws of ALBERT xxlarge, with 200 million parameters per layer; 0: none", 0)};

struct Reading {
    std::string model, label;
    bool gradient = false;  ///< of models whose blocks have their own weights
    bool large = false;     ///< drawn `xxlarge` times
};

std::vector<Reading> readings(const ExperimentSetting& setting) {
    const std::string layers = ",layers=" + setting.text("layers");
    std::vector<Reading> all = {{"random:bert-base" + layers, "BERT base", true},
                                {"random:albert-base-v2" + layers, "ALBERT base"}};
    if (setting.count("xxlarge") > 0)
        all.push_back({"random:albert-xxlarge-v2" + layers, "ALBERT xxlarge", false, true});
    return all;
}

/// For each trial: the spread of the gradients with respect to the weights of the blocks.
void derive_gradients(const Table& trial, Index layers, Sink& out) {
    std::vector<double> norms;
    for (Index layer = 0; layer < layers; ++layer)
        if (const auto row = trial.find({.layer = layer}, "grad_norm"); row && row->value)
            norms.push_back(*row->value);
    const bool all = std::ssize(norms) == layers && std::ranges::min(norms) > 0;
    const Value none = undefined("a block has a gradient of 0 or none");
    out.scalar({}, "grad_first_last", all ? Value(norms.front() / norms.back()) : none);
    out.scalar({}, "grad_spread",
               all ? Value(std::ranges::max(norms) / std::ranges::min(norms)) : none);
}

RunResult measure(const ExperimentSetting& setting) {
    const Index layers = setting.count("layers");
    std::vector<RunOptions> runs;
    for (const Reading& reading : readings(setting)) {
        runs.push_back(options_of(setting, reading.model, {"t_sim", "t_div", "t_cos"}));
        RunOptions& run = runs.back();
        if (reading.gradient) {
            run.probes.emplace_back("grad_norm");
            run.loss = "vjp";
        }
        if (reading.large) run.trials = setting.count("xxlarge");
        run.derive = [layers, gradient = reading.gradient](const Table& trial, Sink& out) {
            out.scalar({}, "depth_99", saturation_depth(trial, layers));
            if (gradient) derive_gradients(trial, layers, out);
        };
    }
    return together(setting, runs);
}

void compare_gradients(const Numbers& numbers, const Reading& r, Index last,
                       std::vector<Comparison>& all) {
    constexpr const char* says = "[TSE] 1.1: \"remains roughly at a constant level\"";
    all.push_back(
        compare(fmt::format("gradient norm of the weights of block 0 over that of block {}, {}",
                            last, r.label),
                says, std::nullopt, numbers.at(r.model, "grad_first_last")));
    all.push_back(
        resolved(compare(fmt::format("greatest of these norms over the least, {}", r.label),
                         fmt::format("{}, read as within a factor of 2", says), 1.0,
                         numbers.at(r.model, "grad_spread"), Comparison::Kind::comparable),
                 1));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const Index last = setting.count("layers") - 1;
    Findings found;
    Plot sim{.title = "t_sim by block",
             .x = {.title = "block", .whole = true},
             .y = {.title = "t_sim(out)", .low = 0, .high = 1.02}};
    Plot cos = sim, div = sim, gradient = sim;
    cos.title = "t_cos by block";
    cos.y.title = "t_cos(out)";
    div.title = "1 - t_sim = t_div, logarithmic";
    div.y = {.title = "t_div(out)", .scale = Scale::log};
    gradient.title = "gradient norm of the weights of a block";
    gradient.y = {.title = "|dL/dW|", .scale = Scale::log};
    for (const Reading& r : readings(setting)) {
        sim.series.push_back(line(r.label, numbers.depth(r.model, "t_sim", "out")));
        cos.series.push_back(line(r.label, numbers.depth(r.model, "t_cos", "out")));
        div.series.push_back(line(r.label, numbers.depth(r.model, "t_div", "out"), true));
        for (const char* metric : {"t_sim", "t_cos"})
            found.comparisons.push_back(resolved(
                compare(fmt::format("{} after block {}, {}", metric, last, r.label),
                        "[TSE] 1.1: \"escalate to unity\", read as 0.99 at least", 1.0,
                        numbers.at(r.model, metric, "out", last), Comparison::Kind::comparable),
                0.01));
        found.comparisons.push_back(compare(fmt::format("blocks until t_sim = 0.99, {}", r.label),
                                            "no number", std::nullopt,
                                            numbers.at(r.model, "depth_99")));
        if (!r.gradient) continue;
        gradient.series.push_back(line(r.label, numbers.depth(r.model, "grad_norm", ""), true));
        compare_gradients(numbers, r, last, found.comparisons);
    }
    Figure f{.name = "tse_fig1",
             .title = "Token similarity by depth at initialisation",
             .caption =
                 "t_sim = |Pi1 X|_F^2 / |X|_F^2 and t_cos, the mean cosine of pairs "
                 "of tokens, of the output of each block, on random ids; the norm of "
                 "the gradient with respect to all parameters of a block."};
    f.panels = {sim, cos, gradient, div};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "The paper does not state the loss. Here it is <U, Y> with a random unit U and the last "
        "state Y, so that the gradient depends on the network alone; another loss gives another "
        "level. As in the paper ALBERT has no gradient: \"it uses the same set of weights "
        "throughout all blocks\".");
    found.notes.push_back(
        "States are float32: once tokens differ by rounding alone, t_div stays at a "
        "floor of the arithmetic, not of the model.");
    found.notes.push_back(
        "`AlbertConfig()` without arguments has the size xxlarge, not base: both readings are "
        "measured.");
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig1 = {
    .name = "tse.fig1",
    .title = "Similarity over 100 blocks of BERT and ALBERT",
    .source = "[TSE] Figure 1, section 1.1",
    .claim =
        "At the package's default initialisation, with 100 blocks, \"in either model both token "
        "similarity and cosine similarity escalate to unity\"; the gradient norm of BERT with "
        "respect to its weights \"remains roughly at a constant level, which indicates that in "
        "this case gradient vanishing or exploding is not occurring\".",
    .method =
        "BERT base and ALBERT with their default initialisation, N(0, 0.02^2), drawn anew in each "
        "trial. The paper does not state its text, number of tokens, loss or number of draws: here "
        "random ids (at initialisation only which ids are equal matters) and the readings below.",
    .table =
        "t_sim, t_div, t_cos by layer and stage; grad_norm by layer: of its parameters (BERT); "
        "grad_first_last: that of the first block over that of the last; grad_spread: the greatest "
        "over the least, both per trial; depth_99: blocks until t_sim/t_div = 99, log odds "
        "interpolated",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::tse_fig1
