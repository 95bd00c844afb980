#include <fmt/format.h>

#include "expectation.hpp"
#include "similarity.hpp"

/// What a random value projection does to similar and to diverse parts.  [TSE] Lemma 2.4
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
Reading violate_gains(const Check& how) {
    const Step step = fixed_step(how);
    return examine_mean(gain(how, step, true, 1 / std::sqrt(double(how.d))), how);
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
    .chance = true,
    .check = check_gains,
    .tight = attain_gains,
    .violate = violate_gains};

}  // namespace tsdiag::claim
