#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support.hpp"
#include "tsdiag/ops.hpp"

/// [TSE] Figure 8: the error of the ratio of expectations.
namespace tsdiag::experiment_list::tse_fig8 {
namespace {

constexpr std::array keys{
    whole_key("tokens", "8", "100", "100", "tokens n", 2),
    listed(whole_key("d", "4,8", "10,20,40", "10,20,40", "widths", 2, 4096)),
    listed(real_key("t", "0.1,1", "0.01,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1",
                    "0.01,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1",
                    "in X = e v^T + t Q; t = 0: rank one", 1e-3, 1)),
    word_key("qk", "uniform", "uniform", "uniform", "W_Q, W_K: U(-1, 1)/sqrt d, or N(0, 1)",
             "uniform normal"),
    key_trials("400", "50")};

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

/// X = e v^T + t Q, e = 1/sqrt n: v and Q are the same for each t.
Tensor tokens_at(double t, const Rng& rng, Index n, Index d) {
    const Tensor q = gaussian(rng.fork("Q"), {1, n, d}, 1);
    const Tensor v = gaussian(rng.fork("v"), {1, 1, d}, 1 / std::sqrt(double(n)));
    return add(scale(q, t), v);
}

/// Quantities independent of W: X, P X, and E[xi1]/E[xi2] for W ~ N(0, 1/d).
struct Step {
    double t = 0;
    Tensor x, mixed;
    StateMoments before;
    double expected = 0;

    double similarity() const { return before.mean_part / (before.mean_part + before.centred); }
    /// E[xi1]/E[xi2] - xi1/xi2
    double eta(const Tensor& w) const {
        const StateMoments y = state_moments(add(x, matmul(mixed, w)));
        return expected - (y.mean_part / before.mean_part) / (y.centred / before.centred);
    }
};

Step step_of(double t, const Rng& rng, Index n, Index d, bool uniform) {
    Step s;
    s.t = t;
    s.x = tokens_at(t, rng, n, d);
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
    std::vector<double> all = setting.numbers("t");
    std::ranges::sort(all);  // eta_square_growth is relative to the smallest t
    const std::vector<Index> widths = setting.counts("d");
    RunResult result;
    double finished = 0;
    for (const Index d : widths) {
        const Rng rng = Rng(setting.seed()).fork("eta").fork(std::uint64_t(d));
        std::vector<Step> steps;
        for (const double t : all) steps.push_back(step_of(t, rng, n, d, uniform));
        Table table(model_of(d));
        each_trial(
            setting.count("trials"), table,
            [&](Index trial, Sink& out) {
                const Tensor w = gaussian(rng.fork("w").fork(std::uint64_t(trial)), {1, d, d},
                                          1 / std::sqrt(double(d)));
                const double first = steps.front().eta(w);
                for (const Step& s : steps) {
                    const double eta = s.eta(w);
                    out.point({}, "eta", s.t, eta);
                    out.point({}, "eta_square", s.t, eta * eta);
                    out.point({}, "eta_square_growth", s.t, eta * eta - first * first);
                    out.point({}, "xi_expected", s.t, s.expected);
                    out.point({}, "t_sim", s.t, s.similarity());
                }
            },
            [&](double part) {
                if (setting.progress())
                    setting.progress()({.phase = "measure",
                                        .fraction = (finished + part) / double(widths.size())});
            },
            setting.units());
        finished += 1;
        result.table.append(table);
    }
    return result;
}

/// Square root of a mean square, its error to first order.
Number root(const Number& square) {
    Number n = square;
    if (!n.value) return n;
    n.value = std::sqrt(*square.value);
    if (n.error && *n.value > 0) n.error = *square.error / (2 * *n.value);
    return n;
}

/// "close to 0": the paper claims no more digits.
constexpr double near_zero = 0.05;

const Axis distance{.title = "t, X = e v^T + t Q", .low = 0, .high = 1};

Figure figure_of(const Numbers& numbers, const std::vector<Index>& widths) {
    Plot mean{.title = "mean of eta", .x = distance, .y = {.title = "mean of eta"}};
    mean.marks = {{0.0, ""}};
    Plot size{
        .title = "size of eta", .x = distance, .y = {.title = "sqrt(mean of eta^2)", .low = 0}};
    Plot sim{.title = "similarity of X",
             .x = distance,
             .y = {.title = "t_sim(X)", .low = 0, .high = 1.02}};
    std::vector<Series> laws;
    for (const Index d : widths) {
        const std::string name = model_of(d);
        std::map<double, Number> sizes;
        for (const auto& [t, square] : numbers.curve(name, "eta_square")) sizes[t] = root(square);
        mean.series.push_back(line(name, numbers.curve(name, "eta")));
        size.series.push_back(line(name, sizes));
        sim.series.push_back(line(name, numbers.curve(name, "t_sim")));
        const double limit = std::sqrt(6 / double(d));
        laws.push_back(law("sqrt(6/d), " + name, {0, 1}, [limit](double) { return limit; }));
    }
    size.series.insert(size.series.end(), laws.begin(), laws.end());
    Figure f{.name = "tse_fig8",
             .title = "eta against the distance from rank one, for several widths",
             .caption =
                 "eta = E[xi1]/E[xi2] - xi1/xi2 of one attention step with W ~ N(0, 1/d), X and P "
                 "fixed; the expectations are exact: (1 + mu1^2)/(1 + mu2^2)."};
    f.panels = {mean, size, sim};
    f.alt = in_words(f.panels);
    return f;
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<Index> widths = setting.counts("d");
    Findings found{.figures = {figure_of(numbers, widths)}};
    std::vector<Comparison>& all = found.comparisons;
    for (const Index d : widths) {
        const std::string name = model_of(d);
        const auto means = numbers.curve(name, "eta"), squares = numbers.curve(name, "eta_square"),
                   growth = numbers.curve(name, "eta_square_growth");
        if (means.size() < 2) continue;
        const double least = means.begin()->first, most = means.rbegin()->first;
        all.push_back(
            resolved(compare(fmt::format("mean of eta, {}, t = {}", name, least),
                             "[TSE] A.3 (a): \"close to 0 even for d = 10\"", 0.0, means.at(least)),
                     near_zero));
        all.push_back(compare(fmt::format("mean of eta, {}, t = {}", name, most),
                              "[TSE] A.3 (b), (c): \"varies more significantly\", less as d grows",
                              std::nullopt, means.at(most)));
        all.push_back(
            compare(fmt::format("mean of eta^2, {}: t = {} over t = {}", name, most, least),
                    "[TSE] A.3 (b): \"when t is close to 1, E[eta] varies more significantly\"",
                    std::nullopt, growth.at(most), Comparison::Kind::order));
        all.push_back(compare(fmt::format("mean of eta^2, {}, t = {}", name, least),
                              "6/d as t tends to 0, to first order in 1/d", std::nullopt,
                              squares.at(least)));
    }
    const auto [low, high] = std::ranges::minmax(widths);
    const auto wide = numbers.curve(model_of(high), "eta_square"),
               narrow = numbers.curve(model_of(low), "eta_square");
    if (low != high && !wide.empty() && !narrow.empty())
        all.push_back(order_of(fmt::format("mean of eta^2, t = {}", wide.rbegin()->first),
                               model_of(low), model_of(high), narrow.rbegin()->second,
                               wide.rbegin()->second,
                               "[TSE] A.3 (c): \"as d increases, E[eta] becomes closer to 0\""));
    found.notes.push_back(fmt::format(
        "Reading: v and Q normal, W_Q and W_K {}, which the paper does not state; `--reading "
        "qk=uniform` or qk=normal. As t tends to 0 the distribution of eta does not depend on X: a "
        "mean of 50 draws, as in the paper, has a standard error near sqrt(6/(50 d)) = {:.2f} at d "
        "= {}, so single points of such a figure may be noise.",
        setting.text("qk"), std::sqrt(6 / (50 * double(low))), low));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig8 = {
    .name = "tse.fig8",
    .title = "eta: the rate against the ratio of expectations",
    .source = "[TSE] Figure 8, appendix A.3",
    .claim =
        "For X = e v^T + t Q, eta = E[xi1]/E[xi2] - xi1/xi2: when t is small (X close to rank one) "
        "its mean \"is close to 0 even for d = 10\"; \"when t is close to 1, E[eta] varies more "
        "significantly\"; and as d increases it \"becomes closer to 0 even for larger t values\".",
    .method =
        "One head, n = 100; v and Q drawn once for each width, attention from W_Q and W_K; W drawn "
        "anew in each trial, the same for all t. Quick scale has more draws than the paper's 50, "
        "so that errors are smaller than the claimed effect.",
    .table =
        "curves over t: eta = E[xi1]/E[xi2] - xi1/xi2; eta_square; eta_square_growth: eta_square "
        "less that at the least t, with the same W; xi_expected = E[xi1]/E[xi2], exact; t_sim of X",
    .keys = keys,
    .on_host = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::tse_fig8
