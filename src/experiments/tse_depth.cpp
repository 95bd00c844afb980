#include <fmt/format.h>

#include <array>

#include "support.hpp"

/// [TSE] Figure 1: similarity over the depth of BERT and ALBERT at initialisation.
namespace tsdiag::experiment_list {
namespace {

constexpr std::array keys{
    ExperimentKey{"layers", "4", "100", "100", "blocks"},
    ExperimentKey{.name = "tokens",
                  .tiny = "8",
                  .quick = "32",
                  .paper = "128",
                  .description = "random ids",
                  .least = 2,
                  .most = 512},
    key_trials("2", "8"),
    ExperimentKey{
        .name = "xxlarge",
        .tiny = "0",
        .quick = "1",
        .paper = "3",
        .description = "draws of ALBERT xxlarge, of 200 million parameters a layer; 0: none",
        .least = 0}};

struct Reading {
    std::string model, label;
    bool large = false;  ///< too large for a reverse sweep within minutes
};

std::vector<Reading> readings(const ExperimentSetting& setting) {
    const std::string layers = ",layers=" + setting.text("layers");
    std::vector<Reading> all = {{"random:bert-base" + layers, "BERT base"},
                                {"random:albert-base-v2" + layers, "ALBERT base"}};
    if (setting.count("xxlarge") > 0)
        all.push_back({"random:albert-xxlarge-v2" + layers, "ALBERT xxlarge", true});
    return all;
}

RunResult measure(const ExperimentSetting& setting) {
    const Index layers = setting.count("layers");
    std::vector<RunOptions> runs;
    for (const Reading& reading : readings(setting)) {
        std::vector<std::string> metrics = {"t_sim", "t_div", "t_cos"};
        if (!reading.large) metrics.emplace_back("grad_norm");
        runs.push_back(options_of(setting, reading.model, std::move(metrics)));
        if (!reading.large) runs.back().loss = "vjp";
        if (reading.large) runs.back().trials = setting.count("xxlarge");
        runs.back().derive = [layers](const Table& trial, Sink& out) {
            out.scalar({}, "depth_99", saturation_depth(trial, layers));
        };
    }
    return together(setting, runs);
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const Index last = setting.count("layers") - 1;
    Findings found;
    Plot sim{.title = "t_sim by block",
             .x = {.title = "block", .whole = true},
             .y = {.title = "t_sim(out)", .low = 0, .high = 1.02}};
    Plot cos = sim, div = sim;
    cos.title = "t_cos by block";
    cos.y.title = "t_cos(out)";
    div.title = "1 - t_sim = t_div, logarithmic";
    div.y = {.title = "t_div(out)", .scale = Scale::log};
    for (const Reading& r : readings(setting)) {
        sim.series.push_back(line(r.label, numbers.depth(r.model, "t_sim", "out")));
        cos.series.push_back(line(r.label, numbers.depth(r.model, "t_cos", "out")));
        div.series.push_back(line(r.label, numbers.depth(r.model, "t_div", "out"), true));
        for (const char* metric : {"t_sim", "t_cos"})
            found.comparisons.push_back(compare(
                fmt::format("{} after block {}, {}", metric, last, r.label),
                "tends to 1 with depth", std::nullopt, numbers.at(r.model, metric, "out", last)));
        found.comparisons.push_back(compare(fmt::format("blocks until t_sim = 0.99, {}", r.label),
                                            "few, against the depth", std::nullopt,
                                            numbers.at(r.model, "depth_99", "", -1)));
    }
    Plot gradient{.title = "gradient norm by block",
                  .x = {.title = "block", .whole = true},
                  .y = {.title = "|dL/d in|", .scale = Scale::log}};
    for (const Reading& r : readings(setting)) {
        if (r.large) continue;
        gradient.series.push_back(line(r.label, numbers.depth(r.model, "grad_norm", "in"), true));
        found.comparisons.push_back(
            compare(fmt::format("gradient norm at the input of block 0 over that at block {}, {}",
                                last, r.label),
                    "vanishes with depth", std::nullopt,
                    ratio(numbers.at(r.model, "grad_norm", "in", 0),
                          numbers.at(r.model, "grad_norm", "in", last))));
    }
    Figure f{.name = "tse_fig1",
             .title = "Token similarity by depth at initialisation",
             .caption =
                 "t_sim = |Pi1 X|_F^2 / |X|_F^2 and t_cos, the mean cosine of pairs of tokens, of "
                 "the state that leaves each block, on random ids; the norm of the gradient by the "
                 "state "
                 "that enters it. Bands: two standard errors."};
    f.panels = {sim, cos, div, gradient};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "The paper does not say of which loss the gradient is. Here it is the pullback of a random "
        "unit cotangent of the last state, so that it tells of the network alone. The size xxlarge "
        "is left out of it.");
    found.notes.push_back(
        "States are float32: once tokens differ by rounding alone t_div stays near 1e-13 or below, "
        "which is a floor "
        "of the arithmetic and not of the model.");
    found.notes.push_back(
        "`AlbertConfig()` without arguments is the size xxlarge, not base: both readings are "
        "drawn.");
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig1 = {
    .name = "tse.fig1",
    .title = "Similarity over 100 blocks of BERT and ALBERT",
    .source = "[TSE] Figure 1",
    .claim =
        "At default initialisation the tokens of BERT and of ALBERT grow alike with depth: t_sim "
        "and t_cos approach 1, while gradients vanish.",
    .method =
        "BERT base and ALBERT with their families' own initialisation, N(0, 0.02^2), drawn anew in "
        "each trial, on random ids. The paper's input text is not known; at initialisation only "
        "which ids are equal matters.",
    .table =
        "t_sim, t_div, t_cos, grad_norm by layer and stage; depth_99: blocks until t_sim/t_div = "
        "99, log "
        "odds interpolated",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list
