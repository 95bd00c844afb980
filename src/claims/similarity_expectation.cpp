#include <fmt/format.h>

#include <cmath>

#include "expectation.hpp"
#include "similarity.hpp"

/// What random value projections do to similar and to diverse parts.  [TSE] Lemma 2.4, Prop. 2.9
namespace tsdiag::claim {
namespace {

/// Deviation that one step is drawn from; all trials share X and P, only W is random.
Step fixed_step(const Check& how) { return draw_step(how.rng.fork("step"), how); }

Mean gain(const Check& how, const Step& step, bool similar, double offset) {
    const double variance = weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
    const Mixing m = mixing_of(step);
    const double mu = similar ? m.mu1 : m.mu2;
    return {.reading = similar ? "similar part" : "diverse part",
            .formula = fmt::format("E[xi{0}] = 1 + alpha^2 d sigma^2 mu{0}^2", similar ? 1 : 2),
            .claimed = 1 + step.alpha * step.alpha * double(how.d) * variance * mu * mu,
            .sample =
                [&how, &step, similar, offset, variance](const Rng& rng) {
                    const Matrix W = draw(rng, "W", how.d, how.d, how.distribution, variance);
                    const Gains g = gains_of(step.X, step.apply(W.array() + offset));
                    return similar ? g.xi1 : g.xi2;
                },
            .fixed = named(step)};
}

std::vector<Reading> check_gains(const Check& how) {
    const Step step = fixed_step(how);
    return {examine_mean(gain(how, step, true, 0), how),
            examine_mean(gain(how, step, false, 0), how)};
}

/// d = 1 and W = -1, 1 equally likely: the mean is exact.
Attained attain_gains() {
    const Step step{Matrix{{2.0}, {0.5}}, Matrix{{0.75, 0.25}, {0.25, 0.75}}, 1};
    const auto xi1 = [&](double w) { return gains_of(step.X, step.apply(Matrix{{w}})).xi1; };
    const double mu1 = mixing_of(step).mu1;
    return {(xi1(1) + xi1(-1)) / 2, 1 + mu1 * mu1, 1e-14};
}

/// Entries of W with a mean of one standard deviation.
std::vector<Reading> violate_gains(const Check& how) {
    const Step step = fixed_step(how);
    return {examine_mean(gain(how, step, true, 1 / std::sqrt(double(how.d))), how)};
}

// --- Prop. 2.9: several heads

struct Heads {
    Matrix X;
    std::vector<Matrix> P;
};

Heads draw_heads(const Rng& rng, const Check& how) {
    Heads all{draw(rng, "X", how.n, how.d, how.distribution), {}};
    for (Index k = 0; k < how.heads; ++k)
        all.P.push_back(softmax(
            draw(rng.fork(std::uint64_t(k)), "logits", how.n, how.n, Distribution::gaussian)));
    return all;
}

/// X + [P_1 X W_1, ..., P_h X W_h], each W_k of d x d/h.
Matrix apply_heads(const Heads& heads, const Check& how, const Rng& rng, double variance) {
    const Index width = how.d / how.heads;
    Matrix Y = heads.X;
    for (Index k = 0; k < how.heads; ++k) {
        const Rng head = rng.fork(std::uint64_t(k));
        const Matrix W = draw(head, "W", how.d, width, how.distribution, variance);
        Y.middleCols(k * width, width) += heads.P[std::size_t(k)] * heads.X * W;
    }
    return Y;
}

/// Means over the heads of mu_i^2, (1 - omega)^2 and delta^2.
struct HeadMeans {
    double mu1 = 0, mu2 = 0, least = 0, most = 0;
};
HeadMeans means_of(const Heads& heads) {
    HeadMeans sum;
    for (const Matrix& P : heads.P) {
        const Mixing m = mixing_of({heads.X, P, 1});
        const double part = 1 / double(heads.P.size());
        sum.mu1 += part * m.mu1 * m.mu1;
        sum.mu2 += part * m.mu2 * m.mu2;
        sum.least += part * (1 - m.omega) * (1 - m.omega);
        sum.most += part * m.delta * m.delta;
    }
    return sum;
}

Mean head_gain(const Check& how, const Heads& heads, bool similar) {
    const double variance = weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
    const HeadMeans m = means_of(heads);
    return {.reading = similar ? "similar part" : "diverse part",
            .formula =
                fmt::format("E[xi{0}] = 1 + alpha^2 d sigma^2 mean_k mu{0}(k)^2", similar ? 1 : 2),
            .claimed = 1 + double(how.d) * variance * (similar ? m.mu1 : m.mu2),
            .sample = [&how, &heads, similar, variance](const Rng& rng) {
                const Gains g = gains_of(heads.X, apply_heads(heads, how, rng, variance));
                return similar ? g.xi1 : g.xi2;
            }};
}

Bound head_bound(const Check& how, bool similar) {
    return {.reading = similar ? "bound of the similar part" : "bound of the diverse part",
            .formula = similar ? "mean mu1^2 >= mean (1-omega)^2" : "mean mu2^2 <= mean delta^2",
            .relation = similar ? Relation::at_least : Relation::at_most,
            .accuracy = 1e-9,
            .draw =
                [&how](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v;
                    v.set("X", draw(rng, "X", at.n, at.d, distribution));
                    for (Index k = 0; k < how.heads; ++k)
                        v.set(fmt::format("logits {}", k),
                              draw(rng.fork(std::uint64_t(k)), "logits", at.n, at.n,
                                   Distribution::gaussian));
                    return v;
                },
            .sides = [&how, similar](const Variables& v) -> std::optional<Sides> {
                Heads heads{v("X"), {}};
                for (Index k = 0; k < how.heads; ++k)
                    heads.P.push_back(softmax(v(fmt::format("logits {}", k))));
                if (heads.X.colwise().sum().norm() < 1e-6 || centred(heads.X).norm() < 1e-6)
                    return {};
                const HeadMeans m = means_of(heads);
                return similar ? Sides{m.mu1, m.least} : Sides{m.mu2, m.most};
            }};
}

std::vector<Reading> check_heads(const Check& how) {
    const Heads heads = draw_heads(how.rng.fork("heads"), how);
    const Heads two{Matrix{{2.0}, {0}}, {Matrix::Identity(2, 2), Matrix::Constant(2, 2, 0.5)}};
    std::vector<Reading> readings = {examine_mean(head_gain(how, heads, true), how),
                                     examine_mean(head_gain(how, heads, false), how),
                                     examine_bound(head_bound(how, true), how),
                                     examine_bound(head_bound(how, false), how)};
    readings.push_back(compare("square of the mean delta", "mean mu2^2 <= (mean delta)^2",
                               Role::sharper, Relation::at_most, {means_of(two).mu2, 0.25}, 1e-12,
                               {named("X", two.X), named("P1", two.P[0]), named("P2", two.P[1])}));
    return readings;
}

/// Two heads of one column each, W = -1, 1 in all four combinations.
Attained attain_heads() {
    const Heads heads{Matrix{{2.0, 1}, {0, 1}},
                      {Matrix{{0.75, 0.25}, {0.25, 0.75}}, Matrix{{0.5, 0.5}, {0.5, 0.5}}}};
    Matrix one = Matrix::Zero(2, 1);
    double sum = 0;
    for (int signs = 0; signs < 16; ++signs) {  // W_k = (+-1, +-1)/sqrt(2)
        Matrix Y = heads.X;
        for (int k = 0; k < 2; ++k) {
            one << ((signs >> 2 * k) & 1 ? 1 : -1), ((signs >> (2 * k + 1)) & 1 ? 1 : -1);
            Y.col(k) += heads.P[std::size_t(k)] * heads.X * one / std::sqrt(2.0);
        }
        sum += gains_of(heads.X, Y).xi1 / 16;
    }
    return {sum, 1 + means_of(heads).mu1, 1e-14};
}

/// A variance of 4/d in place of 1/d.
std::vector<Reading> violate_heads(const Check& how) {
    const Heads heads = draw_heads(how.rng.fork("heads"), how);
    Mean broken = head_gain(how, heads, true);
    broken.reading = "entries of twice the deviation";
    broken.sample = [&how, &heads](const Rng& rng) {
        return gains_of(heads.X, apply_heads(heads, how, rng, 4 / double(how.d))).xi1;
    };
    return {examine_mean(broken, how)};
}

}  // namespace

extern const Claim tse_lemma24 = {
    .name = "tse.lemma2.4",
    .statement =
        "A value projection with uncorrelated entries of mean 0 and variance sigma^2 "
        "enlarges the similar and the diverse part by E[xi_i] = 1 + alpha^2 d sigma^2 "
        "mu_i^2 on average, mu_i = |Pi_i P X|_F / |Pi_i X|_F.",
    .source = "[TSE] Lemma 2.4, (9), (10)",
    .assumes = "Y = X + alpha P X W; X and P fixed; entries of W uncorrelated, mean 0",
    .n = 16,
    .d = 8,
    .trials = 4000,
    .least_n = 2,
    .chance = true,
    .check = check_gains,
    .tight = attain_gains,
    .violate = violate_gains};

extern const Claim tse_prop29 = {
    .name = "tse.prop2.9",
    .statement =
        "With several heads side by side E[xi_i] = 1 + alpha^2 d sigma^2 mean_k "
        "mu_i(k)^2, so the bounds of one head hold with the means of (1-omega_k)^2 and of "
        "delta_k^2.",
    .source = "[TSE] Prop. 2.9, (18), Lemma A.6, (29)",
    .assumes = "head k has its own P_k and W_k of d x d/h; entries of W_k uncorrelated, mean 0",
    .sharp = "The square of the mean delta is no bound: P1 = I and P2 = Pi1 have mean mu2^2 = 1/2.",
    .n = 16,
    .d = 8,
    .heads = 4,
    .trials = 4000,
    .least_n = 2,
    .chance = true,
    .check = check_heads,
    .tight = attain_heads,
    .violate = violate_heads};

}  // namespace tsdiag::claim
