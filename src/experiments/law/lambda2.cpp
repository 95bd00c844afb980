#include <fmt/format.h>

#include <array>
#include <cmath>

#include "support.hpp"

/// |lambda_2| of random softmax attention against the numbers of tokens and of features.
namespace tsdiag::experiment_list::law_lambda2 {
namespace {

constexpr std::array keys{
    listed(whole_key("tokens", "4,8", "8,16,32,64,128,256", "8,16,32,64,128,256,512,1024",
                     "numbers of tokens n", 2, 16384)),
    listed(whole_key("d", "16", "32,128,512", "32,128,512,1024", "widths D")),
    ExperimentKey{"heads", "2", "4", "8", "heads, a divisor of each width"}, key_trials("8", "20")};

std::string model_of(const ExperimentSetting& setting, Index d) {
    return fmt::format("random:post-norm,d={},heads={},layers=1,ffn=1", d, setting.count("heads"));
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs;
    for (const Index d : setting.counts("d"))
        for (const Index n : setting.counts("tokens")) {
            RunOptions run;
            run.subject.model = model_of(setting, d);
            run.tokens = n;
            run.trials = setting.count("trials");
            run.seed = setting.seed();
            run.probes = {"lambda2_abs", "delta"};
            run.device = setting.device();
            run.derive = [n](const Table& trial, Sink& out) {
                for (const char* metric : {"lambda2_abs", "delta"}) {
                    const auto row = trial.find({.layer = 0, .stage = "attn"}, metric);
                    if (row)
                        out.point({}, metric, double(n),
                                  row->value ? Value(*row->value) : undefined(row->note));
                }
            };
            runs.push_back(std::move(run));
        }
    return together(setting, runs, true);
}

double predicted(double n, double d) { return std::sqrt(1 / n + 1 / d) / 3; }

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<double> sizes = setting.numbers("tokens");
    Findings found;
    Plot plot{.title = "|lambda_2| against n",
              .x = {.title = "tokens n", .scale = Scale::log},
              .y = {.title = "|lambda_2|", .scale = Scale::log}};
    Plot ratio{.title = "measured / law",
               .x = {.title = "tokens n", .scale = Scale::log},
               .y = {.title = "|lambda_2| / law"}};
    ratio.marks = {{1.0, ""}};
    std::vector<Series> laws;
    for (const Index d : setting.counts("d")) {
        const std::map<double, Number> measured =
            numbers.curve(model_of(setting, d), "lambda2_abs");
        if (measured.empty()) continue;
        const std::string name = fmt::format("D = {}", d);
        std::map<double, Number> relative;
        for (const auto& [n, number] : measured)
            relative[n] = scaled(number, 1 / predicted(n, double(d)));
        plot.series.push_back(line(name, measured, true));
        ratio.series.push_back(line(name, relative));
        laws.push_back(
            law("law, " + name, sizes, [&](double n) { return predicted(n, double(d)); }));
        constexpr double asymptotic = 0.1;  // neglected terms of the law at finite n and D
        for (const auto& [n, number] : std::array{*relative.begin(), *relative.rbegin()})
            found.comparisons.push_back(
                resolved(compare(fmt::format("|lambda_2| over the law, n = {}, {}", n, name),
                                 "(1/3) sqrt(1/n + 1/D), asymptotic: within 10 %", 1.0, number),
                         asymptotic));
        found.comparisons.push_back(resolved(
            compare(fmt::format("exponent of |lambda_2| in n, {:.0f} to {:.0f}, {}", sizes.front(),
                                sizes.back(), name),
                    "[TSE] 2.5: -1/2 for i.i.d. matrices; no order is given for attention", -0.5,
                    exponent(measured.begin()->first, measured.begin()->second,
                             measured.rbegin()->first, measured.rbegin()->second),
                    Comparison::Kind::at_most),
            0.02));
    }
    plot.series.insert(plot.series.end(), laws.begin(), laws.end());
    Figure f{.name = "law_lambda2",
             .title = "The second eigenvalue of random attention",
             .caption =
                 "Mean of |lambda_2(P)| over heads and trials, P = softmax(Q K^T / sqrt(d_k)) of "
                 "Gaussian tokens, W_Q and W_K ~ U(-1/sqrt D, 1/sqrt D). Dashed: (1/3) sqrt(1/n + "
                 "1/D), which tends to 1/(3 sqrt D) for long sequences."};
    f.panels = {plot, ratio};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    return found;
}

}  // namespace

extern const ExperimentEntry law_lambda2 = {
    .name = "law.lambda2",
    .title = "|lambda_2| against tokens and width",
    .source = "beyond the papers: [TSE] section 2.5 with the width kept",
    .claim =
        "[TSE] 2.5 cites gaps \"of the order 1 - O(1/sqrt(n))\" for i.i.d. matrices and says that "
        "attention \"also\" has large ones, without an order. With PyTorch's default W_Q, W_K and "
        "D features |lambda_2| is about (1/3) sqrt(1/n + 1/D): a floor at 1/(3 sqrt D) for n much "
        "larger than D.",
    .method =
        "One attention step on Gaussian tokens, PyTorch's default W_Q and W_K, for many n and D.",
    .table = "curves over n: lambda2_abs, delta as in metrics.md, means over the heads of a trial",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::law_lambda2
