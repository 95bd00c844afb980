#include <fmt/format.h>

#include <array>
#include <cmath>

#include "support.hpp"
#include "tsdiag/ops.hpp"

/// [TSE] Figure 8: what the ratio of expectations leaves out.
namespace tsdiag::experiment_list {
namespace {

constexpr std::array keys{
    key_tokens,
    ExperimentKey{.name = "d",
                  .tiny = "4,8",
                  .quick = "10,20,40",
                  .paper = "10,20,40",
                  .description = "widths",
                  .list = true,
                  .least = 2,
                  .most = 4096},
    ExperimentKey{.name = "similarity",
                  .tiny = "0.1,0.9",
                  .quick = "0.02,0.05,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.98",
                  .paper = "0.02,0.05,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.98",
                  .description = "t_sim of the input",
                  .whole = false,
                  .list = true,
                  .least = 1e-6,
                  .most = 0.999999},
    ExperimentKey{.name = "qk",
                  .tiny = "uniform",
                  .quick = "uniform",
                  .paper = "uniform",
                  .description = "W_Q, W_K: U(-1, 1)/sqrt d, or N(0, 1)",
                  .words = "uniform normal",
                  .numbers = false},
    key_trials("400", "2000")};

Tensor gaussian(const Rng& rng, Shape shape, double deviation) {
    std::vector<double> values(std::size_t(shape.count()));
    rng.fill_normal(std::span<double>(values), 0, deviation);
    return Tensor::from_host(cpu(), shape, std::span<const double>(values), Type::f64);
}

Tensor projection(const Rng& rng, Index d, bool uniform) {
    if (!uniform) return gaussian(rng, {1, d, d}, 1);
    std::vector<double> values(std::size_t(d * d));
    const double bound = 1 / std::sqrt(double(d));
    rng.fill_uniform(std::span<double>(values), -bound, bound);
    return Tensor::from_host(cpu(), {1, d, d}, std::span<const double>(values), Type::f64);
}

/// n tokens with |X|_F^2 = n d of which Pi1 X has the share `similarity`.
Tensor tokens_with(double similarity, const Rng& rng, Index n, Index d) {
    const Tensor spread = subtract_column_mean(gaussian(rng.fork("spread"), {1, n, d}, 1));
    const Tensor mean = gaussian(rng.fork("mean"), {1, 1, d}, 1);
    const double size = double(n * d);
    const double a = std::sqrt(similarity * size / (double(n) * squared_norm(mean)));
    const double b = std::sqrt((1 - similarity) * size / squared_norm(spread));
    return add(scale(spread, b), scale(mean, a));
}

/// What does not depend on W: X, P X, and E[xi1]/E[xi2] for W ~ N(0, 1/d).
struct Step {
    Tensor x, mixed;
    StateMoments before;
    double expected = 0;
};

Step step_of(double similarity, const Rng& rng, Index n, Index d, bool uniform) {
    Step s;
    s.x = tokens_with(similarity, rng, n, d);
    const Tensor q = matmul(s.x, projection(rng.fork("q"), d, uniform));
    const Tensor k = matmul(s.x, projection(rng.fork("k"), d, uniform));
    const Tensor p =
        softmax_rows(matmul(q, k, Transpose::second, 1 / std::sqrt(double(d))), Visible{});
    s.mixed = matmul(p, s.x);
    s.before = state_moments(s.x);
    const StateMoments m = state_moments(s.mixed);
    s.expected = (1 + m.mean_part / s.before.mean_part) / (1 + m.centred / s.before.centred);
    return s;
}

std::string model_of(Index d) { return fmt::format("d = {}", d); }

RunResult measure(const ExperimentSetting& setting) {
    const Index n = setting.count("tokens");
    const bool uniform = setting.text("qk") == "uniform";
    const std::vector<double> similarities = setting.numbers("similarity");
    const std::vector<Index> widths = setting.counts("d");
    RunResult result;
    double finished = 0;
    for (const Index d : widths) {
        const Rng rng = Rng(setting.seed()).fork("eta").fork(std::uint64_t(d));
        std::vector<Step> steps;
        for (const double t : similarities) steps.push_back(step_of(t, rng, n, d, uniform));
        Table table(model_of(d));
        each_trial(
            setting.count("trials"), table,
            [&](Index trial, Sink& out) {
                const Tensor w = gaussian(rng.fork("w").fork(std::uint64_t(trial)), {1, d, d},
                                          1 / std::sqrt(double(d)));
                double first = 0;
                for (std::size_t i = 0; i < steps.size(); ++i) {
                    const Step& s = steps[i];
                    const StateMoments y = state_moments(add(s.x, matmul(s.mixed, w)));
                    const double ratio =
                        (y.mean_part / s.before.mean_part) / (y.centred / s.before.centred);
                    const double eta = s.expected - ratio;
                    out.point({}, "eta", similarities[i], eta);
                    out.point({}, "eta_square", similarities[i], eta * eta);
                    if (i == 0) first = eta * eta;
                    out.point({}, "eta_square_growth", similarities[i], eta * eta - first);
                    out.point({}, "xi_expected", similarities[i], s.expected);
                }
            },
            [&](double part) {
                if (setting.progress())
                    setting.progress()({.phase = "measure",
                                        .fraction = (finished + part) / double(widths.size())});
            });
        finished += 1;
        result.table.append(table);
    }
    return result;
}

/// Root of a mean square, its error to first order.
Number root(const Number& square) {
    Number n = square;
    if (!n.value) return n;
    n.value = std::sqrt(*square.value);
    if (n.error && *n.value > 0) n.error = *square.error / (2 * *n.value);
    return n;
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    Plot mean{.title = "mean of eta",
              .x = {.title = "t_sim(X)", .low = 0, .high = 1},
              .y = {.title = "mean of eta"}};
    mean.marks = {{0.0, ""}};
    Plot size = mean;
    size.title = "size of eta";
    size.y = {.title = "sqrt(mean of eta^2)", .low = 0};
    size.marks.clear();
    std::vector<Series> laws;
    for (const Index d : setting.counts("d")) {
        const std::string name = model_of(d);
        std::map<double, Number> sizes;
        for (const auto& [t, square] : numbers.curve(name, "eta_square")) sizes[t] = root(square);
        const std::map<double, Number> means = numbers.curve(name, "eta");
        mean.series.push_back(line(name, means));
        size.series.push_back(line(name, sizes));
        const double limit = std::sqrt(6 / double(d));
        laws.push_back(law("sqrt(6/d), " + name, {0, 1}, [limit](double) { return limit; }));
        if (sizes.empty()) continue;
        const auto &first = *sizes.begin(), &last = *sizes.rbegin();
        found.comparisons.push_back(
            compare(fmt::format("sqrt(mean eta^2), {}, t_sim = {}", name, first.first),
                    "sqrt(6/d) as t_sim -> 0, to first order in 1/d", limit, first.second));
        found.comparisons.push_back(compare(
            fmt::format("mean of eta^2(t_sim = {}) - eta^2({}), {}", last.first, first.first, name),
            "figure: eta is larger near t_sim = 1, so above 0", 0.0,
            numbers.curve(name, "eta_square_growth").at(last.first)));
        found.comparisons.push_back(
            compare(fmt::format("mean eta, {}, t_sim = {}", name, first.first),
                    "tends to 0 as d grows", 0.0, means.begin()->second));
    }
    size.series.insert(size.series.end(), laws.begin(), laws.end());
    Figure f{
        .name = "tse_fig8",
        .title = "eta against similarity, for three widths",
        .caption =
            "eta = E[xi1]/E[xi2] - xi1/xi2 of one attention step with W ~ N(0, 1/d), X and P "
            "fixed; "
            "the expectations are exact: (1 + mu1^2)/(1 + mu2^2). Bands: two standard errors."};
    f.panels = {mean, size};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    const Index first = setting.counts("d").front();
    found.notes.push_back(
        fmt::format("Reading: W_Q, W_K {}; `--reading qk=uniform` or qk=normal. A mean of 50 "
                    "draws, as in the paper, has "
                    "a standard error near sqrt(6/(50 d)) = {:.2f} at d = {}: single points of "
                    "such a figure may be "
                    "noise.",
                    setting.text("qk"), std::sqrt(6 / (50 * double(first))), first));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig8 = {
    .name = "tse.fig8",
    .title = "eta: the rate against the ratio of expectations",
    .source = "[TSE] Figure 8, Lemmas A.1 and A.5",
    .claim =
        "eta, by which xi1/xi2 falls short of E[xi1]/E[xi2], is small where t_sim is small, larger "
        "near "
        "t_sim = 1, and comes closer to 0 as d grows.",
    .method =
        "One head; tokens of prescribed t_sim and |X|_F^2 = n d; attention from W_Q, W_K; W drawn "
        "anew in each "
        "trial, X and P fixed for each width and similarity. More draws than the paper's 50, so "
        "that errors "
        "are smaller than what is claimed.",
    .table =
        "curves over t_sim: eta = E[xi1]/E[xi2] - xi1/xi2; eta_square; eta_square_growth: "
        "eta_square less that "
        "at the first similarity, of the same W; xi_expected = E[xi1]/E[xi2], exact",
    .keys = keys,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list
