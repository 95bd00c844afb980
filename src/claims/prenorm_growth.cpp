#include <cmath>

#include "expectation.hpp"
#include "similarity.hpp"

/// How the states of a pre-norm transformer grow.  [TSE] (19), (20)
namespace tsdiag::claim {
namespace {

Matrix layer_normed(const Matrix& x) {
    Matrix y = x.colwise() - x.rowwise().mean();
    for (Index i = 0; i < y.rows(); ++i) y.row(i) *= std::sqrt(double(y.cols())) / y.row(i).norm();
    return y;
}

/// X, and P that acts on its normalised rows.
Step prenorm_step(const Check& how) { return draw_step(how.rng.fork("step"), how); }

Mean attention_growth(const Check& how, const Step& step, double offset) {
    const double variance = weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
    const Matrix normed = layer_normed(step.X);
    return {.reading = "attention step",
            .formula = "E|X + alpha P LN(X) W|_F^2 = |X|_F^2 + alpha^2 d sigma^2 |P LN(X)|_F^2",
            .claimed =
                step.X.squaredNorm() + double(how.d) * variance * (step.P * normed).squaredNorm(),
            .sample = [&how, &step, normed, variance, offset](const Rng& rng) {
                const Matrix W = draw(rng, "W", how.d, how.d, how.distribution, variance);
                return (step.X + step.P * normed * W + offset * step.X).squaredNorm();
            }};
}

Mean feed_forward_growth(const Check& how, const Step& step) {
    return {.reading = "feed-forward step",
            .formula = "E|X + relu(LN(X) W1) W2|_F^2 >= |X|_F^2",
            .relation = Relation::at_least,
            .claimed = step.X.squaredNorm(),
            .sample = [&how, &step](const Rng& rng) {
                const Index q = 2 * how.d;
                const Matrix W1 =
                    draw_weights(rng, "W1", how.d, q, how.distribution, 1 / double(how.d));
                const Matrix W2 =
                    draw_weights(rng, "W2", q, how.d, how.distribution, 1 / double(q));
                return (step.X + (layer_normed(step.X) * W1).cwiseMax(0) * W2).squaredNorm();
            }};
}

std::vector<Reading> check_prenorm(const Check& how) {
    const Step step = prenorm_step(how);
    return {examine_mean(attention_growth(how, step, 0), how),
            examine_mean(feed_forward_growth(how, step), how)};
}

/// d = 2 and P = I: LN(X) has rows (1, -1), and the four W of entries +-1/sqrt(2) average exactly.
Attained attain_prenorm() {
    const Matrix X{{3.0, 1}}, normed = layer_normed(X);
    double sum = 0;
    for (int signs = 0; signs < 16; ++signs) {
        Matrix W(2, 2);
        for (int k = 0; k < 4; ++k) W(k / 2, k % 2) = ((signs >> k) & 1 ? 1 : -1) / std::sqrt(2.0);
        sum += (X + normed * W).squaredNorm() / 16;
    }
    return {sum, X.squaredNorm() + normed.squaredNorm(), 1e-14};
}

/// A branch that is correlated with the state.
std::vector<Reading> violate_prenorm(const Check& how) {
    const Step step = prenorm_step(how);
    Mean broken = attention_growth(how, step, 0.25);
    broken.reading = "branch along the state";
    return {examine_mean(broken, how)};
}

}  // namespace

extern const Claim tse_eq20 = {
    .name = "tse.eq20",
    .statement =
        "States of a pre-norm transformer grow: E|X + alpha P LN(X) W|_F^2 = |X|_F^2 + "
        "alpha^2 |P LN(X)|_F^2, and the feed-forward step never shrinks them on average.",
    .source = "[TSE] (19), (20)",
    .assumes =
        "alpha = 1; entries of W uncorrelated, mean 0, d sigma^2 = 1 (in general the factor "
        "d sigma^2 appears); W2 independent with mean 0",
    .n = 16,
    .d = 32,
    .trials = 1000,
    .least_n = 2,
    .least_d = 2,
    .chance = true,
    .check = check_prenorm,
    .tight = attain_prenorm,
    .violate = violate_prenorm};

}  // namespace tsdiag::claim
