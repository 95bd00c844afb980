#include <cmath>

#include "enumerated.hpp"

/// Effect of random value projections on the similar and diverse parts.  [TSE] (4), Lemma 2.4
namespace tsdiag::claim {
namespace {

// --- (4): every b + W^T a at once has both of its halves

/// A token b of at most two columns, a direction a, and sigma.
Variables draw_direction(const Rng& rng, const Sizes& at, Distribution distribution) {
    const Index d = std::min<Index>(at.d, 2);
    return {{"a", draw(rng, "a", 1, d, distribution)},
            {"b", draw(rng, "b", 1, d, distribution)},
            {"sigma", draw_alpha(rng)}};
}

/// `mean` of the entries, in units of sigma.
Bound second_moment(std::string reading, double mean) {
    return {.reading = std::move(reading),
            .formula =
                "E|b + a W|^2 = |b|^2 + d sigma^2 |a|^2 for every a and b: E[W] = 0 and E[W "
                "W^T] = d sigma^2 I, d x d",
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_direction,
            .sides = [mean](const Variables& v) -> std::optional<BoundSides> {
                const Matrix &a = v("a"), &b = v("b");
                const double sigma = v("sigma")(0), d = double(a.size());
                if (!(sigma > 0)) return {};
                double sum = 0;
                for_each_sign(a.size(), sigma, [&](const Matrix& W) {
                    sum += (b + a * (W.array() + mean * sigma).matrix()).squaredNorm();
                });
                const double claimed = b.squaredNorm() + d * sigma * sigma * a.squaredNorm();
                return BoundSides{sum * std::pow(0.5, d * d), claimed, 128 * ulp * claimed};
            }};
}

// --- (9)

/// Entries of W of `deviation` times sigma.
Bound exact_gain(bool similar, double deviation = 1) {
    return enumerated_gain(
        similar ? "similar part" : "diverse part",
        similar ? "E[xi1] = 1 + alpha^2 d sigma^2 mu1^2, entries of W -sigma or sigma"
                : "E[xi2] = 1 + alpha^2 d sigma^2 mu2^2, entries of W -sigma or sigma",
        similar, 1, deviation);
}

/// Entries of W have the means `offset`.
Mean drawn_gain(const Check& how, const FixedHeads& fixed, bool similar, const Matrix& offset) {
    const HeadMeans m = means_of(fixed.heads);
    return {.reading = similar ? "similar part, this d" : "diverse part, this d",
            .formula = similar ? "E[xi1] = 1 + alpha^2 d sigma^2 mu1^2, W of --dist"
                               : "E[xi2] = 1 + alpha^2 d sigma^2 mu2^2, W of --dist",
            .claimed = 1 + fixed.a2 * (similar ? m.mu1 : m.mu2),
            .sample =
                [&how, &fixed, similar, offset](const Rng& rng) {
                    const Matrix W = draw(rng, "W", how.d, how.d, how.distribution, fixed.variance);
                    const Gains g = paired_gains(fixed.heads, W + offset);
                    return similar ? g.xi1 : g.xi2;
                },
            .fixed = named(fixed.heads)};
}

std::vector<Reading> check_gains(const Check& how) {
    const FixedHeads fixed = fixed_heads(how, 1);
    const Matrix none = Matrix::Zero(how.d, how.d);
    return {examine_bound(second_moment("(4)", 0), how), examine_bound(exact_gain(true), how),
            examine_bound(exact_gain(false), how),
            examine_mean(drawn_gain(how, fixed, true, none), how),
            examine_mean(drawn_gain(how, fixed, false, none), how)};
}

/// d = 1 and W = -1, 1 equally likely: the mean is exact.
Attained attain_gains() {
    const Heads heads{Matrix{{2.0}, {0.5}}, {Matrix{{0.75, 0.25}, {0.25, 0.75}}}, 1};
    return {paired_gains(heads, Matrix{{1.0}}).xi1, 1 + means_of(heads).mu1, 1e-14};
}

/// Entries of W whose mean is not 0: of the sign of what the mean token is turned into, row by row,
/// so that it meets the similar part of any X.
std::vector<Reading> violate_gains(const Check& how) {
    const FixedHeads fixed = fixed_heads(how, 1);
    Reading moment = examine_bound(second_moment("entries of mean sigma", 1), how);
    moment.of = "(4)";
    const Matrix mean = (fixed.heads.P.front() * fixed.heads.X).colwise().mean();
    const Matrix offset =
        std::sqrt(fixed.variance) * mean.unaryExpr([](double v) { return std::copysign(1.0, v); })
                                        .transpose()
                                        .replicate(1, how.d);
    constexpr const char* twice = "entries of twice the deviation";
    constexpr const char* shifted = "entries of mean -sigma or sigma";
    return {moment, control(drawn_gain(how, fixed, true, offset), shifted, how),
            control(drawn_gain(how, fixed, false, offset), shifted, how),
            control(exact_gain(true, 2), twice, how), control(exact_gain(false, 2), twice, how)};
}

}  // namespace

extern const Claim tse_lemma24 = {
    .name = "tse.lemma2.4",
    .statement =
        "A value projection of d x d with independent entries of mean 0 and variance sigma^2 has "
        "E[W] = 0 and E[W W^T] = d sigma^2 I, and enlarges the similar and the diverse part by "
        "E[xi_i] = 1 + alpha^2 d sigma^2 mu_i^2 on average, mu_i = |Pi_i P X|_F / |Pi_i X|_F.",
    .words = "the expected values of xi_i, i = 1, 2, with respect to W are, respectively, (9)",
    .source = "[TSE] Assumption 2.1, (4), Lemma 2.4, (9), (10)",
    .assumes =
        "Y = X + alpha P X W, alpha > 0; X and P fixed, P row-stochastic, Pi1 X and Pi2 X not "
        "zero; W of --dist at the examined width, and every W of entries -sigma and sigma at "
        "widths 1 and 2",
    .proof =
        "E|Q (X + alpha P X W)|_F^2 = |Q X|_F^2 + alpha^2 d sigma^2 |Q P X|_F^2 by (4), with "
        "Q = Pi_i.",
    .sharp = "Uncorrelated entries suffice.  (4) prints I of n x n; W W^T is d x d.",
    .n = 16,
    .d = 8,
    .trials = 4000,
    .least_n = 2,
    .chance = true,
    .check = check_gains,
    .tight = attain_gains,
    .violate = violate_gains};

}  // namespace tsdiag::claim
