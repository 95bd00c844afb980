#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support.hpp"

/// The depth at which similarity saturates, predicted by the odds identity.
namespace tsdiag::experiment_list::law_saturation {
namespace {

constexpr std::array keys{
    ExperimentKey{"layers", "14", "40", "40", "blocks, more than saturation needs"},
    listed(whole_key("tokens", "4,8", "8,16,32,64,128", "8,16,32,64,128,256,512",
                     "numbers of tokens n", 2, 16384)),
    key_d("16", "256", "512"),
    key_heads("2", "4", "8"),
    key_ffn("32", "1024", "2048"),
    ExperimentKey{.name = "var_v",
                  .tiny = "1/d",
                  .quick = "1/d,xavier,h/d",
                  .paper = "torch,1/d,xavier,h/d",
                  .description = "variances of W_V",
                  .words = "1/d h/d xavier torch",
                  .whole = false,
                  .list = true,
                  .least = 1e-12,
                  .most = 1e6},
    key_trials("4", "20")};

std::string model_of(const ExperimentSetting& setting, const std::string& variance) {
    return encoder(setting, "post-norm", ",var_v=" + variance);
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs;
    const Index layers = setting.count("layers");
    for (const std::string& variance : setting.list("var_v"))
        for (const Index n : setting.counts("tokens")) {
            RunOptions run;
            run.subject.model = model_of(setting, variance);
            run.tokens = n;
            run.trials = setting.count("trials");
            run.seed = setting.seed();
            run.probes = {"t_sim", "t_div", "xi_ratio"};
            run.device = setting.device();
            run.derive = [n, layers](const Table& trial, Sink& out) {
                out.point({}, "depth_99", double(n), saturation_depth(trial, layers));
                for (const char* stage : {"attn", "ffn"})
                    if (const auto ratio = trial.find({.layer = 0, .stage = stage}, "xi_ratio"))
                        out.point({}, fmt::format("xi_ratio_{}", stage), double(n),
                                  ratio->value ? Value(*ratio->value) : undefined(ratio->note));
            };
            runs.push_back(std::move(run));
        }
    return together(setting, runs, true);
}

/// Blocks from the odds 1/(n - 1) of random tokens to 99 at a ratio of 1 + a2 per block.
double predicted(double n, double gain) {
    return (std::log(99.0) + std::log(n - 1)) / std::log1p(gain);
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    Plot depth{.title = "blocks until t_sim = 0.99",
               .x = {.title = "tokens n", .scale = Scale::log},
               .y = {.title = "blocks", .low = 0}};
    std::vector<double> sizes = setting.numbers("tokens");
    std::vector<Series> laws;
    for (const std::string& variance : setting.list("var_v")) {
        const double gain =
            branch_gain(variance, setting.number("d"), setting.number("heads"), false);
        const std::map<double, Number> measured =
            numbers.curve(model_of(setting, variance), "depth_99");
        Series own = line("var_v = " + variance, measured);
        if (std::ranges::none_of(own.y, [](const auto& y) { return y.has_value(); })) {
            found.notes.push_back(
                fmt::format("var_v = {}: t_sim stays below 0.99 in all {} blocks.", variance,
                            setting.count("layers")));
            continue;
        }
        depth.series.push_back(std::move(own));
        laws.push_back(law("predicted, var_v = " + variance, sizes,
                           [&](double n) { return predicted(n, gain); }));
        for (const auto& [n, number] : measured)
            if (n == sizes.front() || n == sizes.back())
                found.comparisons.push_back(compare(
                    fmt::format("blocks until t_sim = 0.99, n = {}, var_v = {}", n, variance),
                    fmt::format(
                        "odds identity, attention alone, ratio {:.3g} per block: at most {:.4g}",
                        1 + gain, predicted(n, gain)),
                    predicted(n, gain), number, Comparison::Kind::at_most));
        const std::map<double, Number> ffn =
            numbers.curve(model_of(setting, variance), "xi_ratio_ffn");
        if (const auto at = ffn.find(sizes.back()); at != ffn.end())
            found.comparisons.push_back(resolved(
                compare(
                    fmt::format("xi1/xi2 of the first feed-forward step, n = {:.0f}, var_v = {}",
                                sizes.back(), variance),
                    "[TSE] 2.4: about 1, \"a negligible impact\"", 1.0, at->second),
                0.05));
    }
    depth.series.insert(depth.series.end(), laws.begin(), laws.end());
    Figure f{.name = "law_saturation",
             .title = "Depth of saturation",
             .caption =
                 "Measured: the log odds t_sim/t_div interpolated between blocks. "
                 "Predicted: (ln 99 + ln(n - 1)) / ln(1 + a2), from the odds 1/(n - "
                 "1) of independent tokens and attention's ratio 1 + a2 alone. Sizes "
                 "that do not saturate within the measured blocks have no point."};
    f.panels = {depth};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "The identity holds for the product of xi1/xi2 over all steps; the prediction "
        "counts attention only. Where feed-forward steps escalate too (the first is compared "
        "above), saturation comes earlier than predicted.");
    return found;
}

}  // namespace

extern const ExperimentEntry law_saturation = {
    .name = "law.saturation",
    .title = "When similarity saturates",
    .source = "beyond the papers: the odds identity, from [TSE] (6), (7), Remark 2.8",
    .claim =
        "t_sim/t_div is multiplied by xi1/xi2 in each step, exactly; so from random tokens t_sim "
        "reaches 1 - e after at most about (ln((1 - e)/e) + ln(n - 1)) / ln(1 + a2) blocks, the "
        "number that attention alone needs.",
    .method =
        "Post-norm encoders as in tse.fig2 for several numbers of tokens and variances of W_V; in "
        "each trial the depth at which t_sim = 0.99.",
    .table =
        "curves over n: depth_99: blocks until t_sim/t_div = 99, log odds interpolated; "
        "xi_ratio_attn, xi_ratio_ffn: xi1/xi2 of these steps in the first block",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::law_saturation
