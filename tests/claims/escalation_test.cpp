#include "claims/tse/escalation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tsdiag::claim {
namespace {

/// sum_i |x_i - c|^2, c the mean row, by loops.
double about_the_mean(const Matrix& X) {
    double sum = 0;
    for (Index c = 0; c < X.cols(); ++c) {
        double mean = 0;
        for (Index i = 0; i < X.rows(); ++i) mean += X(i, c) / double(X.rows());
        for (Index i = 0; i < X.rows(); ++i) sum += (X(i, c) - mean) * (X(i, c) - mean);
    }
    return sum;
}

/// All d x d matrices of entries -1/sqrt(d) and 1/sqrt(d): their second moments are those of
/// Assumption 2.1, so that a mean over them of squares is exact.
std::vector<Matrix> signs(Index d) {
    std::vector<Matrix> all;
    for (Index k = 0; k < Index(1) << (d * d); ++k) {
        Matrix W(d, d);
        for (Index i = 0; i < d * d; ++i) W(i) = (k >> i & 1 ? 1 : -1) / std::sqrt(double(d));
        all.push_back(W);
    }
    return all;
}

Step some_step(Index n, Index d, double alpha) {
    const Rng rng = Rng(17).fork(std::uint64_t(n)).fork(std::uint64_t(d));
    return {(draw(rng, "X", n, d, Distribution::gaussian).array() + 0.4).matrix(),
            softmax(draw(rng, "logits", n, n, Distribution::gaussian)), alpha};
}

TEST(Escalation, TendsToTheRatioOfTheMeansOverAllSigns) {
    for (const double alpha : {1.0, 0.6})
        for (const auto& [n, d] : {std::pair{2, 1}, {3, 1}, {4, 2}}) {
            const Step step = some_step(n, d, alpha);
            double similar = 0, diverse = 0;
            const std::vector<Matrix> all = signs(d);
            for (const Matrix& W : all) {
                const Matrix Y = step.X + alpha * step.P * step.X * W;
                diverse += about_the_mean(Y) / double(all.size());
                similar += (Y.squaredNorm() - about_the_mean(Y)) / double(all.size());
            }
            const double apart = about_the_mean(step.X), whole = step.X.squaredNorm();
            const double ratio = similar / (whole - apart) / (diverse / apart);
            // some hundred roundings
            EXPECT_NEAR(limit_rate(step), 1 + (ratio - 1) * (whole - apart) / whole, 1e-13);
        }
}

TEST(Escalation, OfOneNumberIsTheMeanOfBothSigns) {
    for (const double alpha : {1.0, 0.6})
        for (const Index n : {2, 3, 5}) {
            const Step step = some_step(n, 1, alpha);
            const auto diversity = [](const Matrix& Y) {
                return about_the_mean(Y) / Y.squaredNorm();
            };
            const Matrix moved = alpha * step.P * step.X;
            const double above = diversity(step.X + moved), below = diversity(step.X - moved);
            const double expected = (diversity(step.X) / above + diversity(step.X) / below) / 2;
            ASSERT_TRUE(exact_rate(step));
            EXPECT_NEAR(*exact_rate(step), expected, 1e-12 * expected);
        }
    // P = I: Y = 2 X or 0, which has no diversity.
    EXPECT_FALSE(exact_rate({Matrix{{1.0}, {3.0}}, Matrix::Identity(2, 2), 1}));
}

TEST(Escalation, OfAMixtureOfTheIdentityAndTheMeanIsKnown) {
    // P = (1 - c) e e^T / n + c I: mu1 = 1, omega = 0 and mu2 = delta = c.
    for (const double c : {0.0, 0.25, 0.5})
        for (const double alpha : {1.0, 2.0}) {
            Step step;
            step.X = Matrix{{3.0, 1}, {1, 1}, {-1, 1}};  // t_sim = (3 + 3)/(3 + 11)
            step.P = Matrix::Constant(3, 3, (1 - c) / 3) + c * Matrix::Identity(3, 3);
            step.alpha = alpha;
            const double a2 = alpha * alpha, t = 6.0 / 14;
            const double gain = (1 + a2) / (1 + a2 * c * c);
            EXPECT_NEAR(theorem_bound(step), 1 + (gain - 1) * t, 1e-13) << c << ' ' << alpha;
            EXPECT_NEAR(limit_rate(step), 1 + (gain - 1) * t, 1e-13) << c << ' ' << alpha;
            EXPECT_NEAR(estimate(step, c), 1 + (1 - c * c) / (1 + c * c) * t, 1e-13) << c;
            EXPECT_NEAR(second_eigenvalue(step.P), c, 1e-13);
            EXPECT_NEAR(delta_of(step.P), c, 1e-13);
        }
}

TEST(Escalation, BoundFallsWithOmega) {
    const Step step{Matrix{{1.0}, {3.0}}, Matrix::Identity(2, 2), 0.5};
    // t_sim = 8/10, alpha^2 = 1/4: 1 + (1/4)/(1 + 1/4 1/25) (49/100 - 1/25) 8/10
    EXPECT_NEAR(theorem_bound(step, {.omega = 0.3, .delta = 0.2}), 1 + 0.25 / 1.01 * 0.45 * 0.8,
                1e-15);
}

TEST(Escalation, ConditionsAreThoseOfTheTheorem) {
    const Mixing m{.mu1 = 0.9, .mu2 = 0.3, .omega = 0.2, .delta = 0.5};
    // (15): max(mu1^2 - (1 - omega)^2, delta^2 - mu2^2)
    EXPECT_NEAR(condition_of(m), 0.17, 1e-15);
    EXPECT_NEAR(condition_of({.mu1 = 0.8, .mu2 = 0.3, .omega = 0.2, .delta = 0.5}), 0.16, 1e-15);
    EXPECT_EQ(theorem_miss(m), 0);
    EXPECT_NEAR(theorem_miss({.mu1 = 0.9, .mu2 = 0.3, .omega = 0.6, .delta = 0.5}), 0.1, 1e-15);
    EXPECT_NEAR(theorem_miss({.mu1 = 0.8, .mu2 = 0.5, .omega = 0.2, .delta = 0.5}), 0.01, 1e-15);
}

TEST(Escalation, DrawsHaveTheMeanOfAllSigns) {
    // The control variate has mean 0: the mean of drawn rates is that of the rates.
    const Step step = some_step(3, 1, 0.6);
    const double up = drawn_rate(step, Rng(0), Distribution::rademacher, 1);
    double down = up;
    for (std::uint64_t seed = 1; seed < 64 && down == up; ++seed)
        down = drawn_rate(step, Rng(seed), Distribution::rademacher, 1);
    ASSERT_NE(up, down) << "one of 64 draws has the other sign";
    EXPECT_NEAR((up + down) / 2, *exact_rate(step), 1e-13);
}

TEST(Escalation, DrawsVaryInTheSecondOrderAlone) {
    // r = t_div(X)/t_div(Y) varies in first order of alpha; with the control variate, in second.
    const Step whole = some_step(4, 3, 1);
    for (const std::uint64_t seed : {1, 2, 3}) {
        const auto away = [&](double alpha) {
            Step step = whole;
            step.alpha = alpha;
            return std::abs(drawn_rate(step, Rng(seed), Distribution::gaussian, 1.0 / 3) - 1);
        };
        // A tenth of alpha gives a hundredth; third-order terms change that by some alpha.
        EXPECT_NEAR(away(1e-4) / away(1e-3), 0.01, 0.001) << seed;
    }
}

TEST(EscalationRates, AreThoseOfTheStepThatFailsOrComesClosest) {
    // One step at three alpha, and a bound that depends on alpha: E r is between 1 and 2.
    const auto bound_of = [](std::vector<double> alphas) {
        Steps steps;
        for (const double alpha : alphas) steps.all.push_back(some_step(4, 3, alpha));
        Mean like;
        like.reading = "some bound";
        const Reading r =
            examine_rates({.trials = 60, .n = 4, .d = 3}, steps, like, 1.0 / 3,
                          [](const Step& step) { return step.alpha > 0.9 ? 50 : step.alpha; });
        EXPECT_EQ(r.verdict, *r.bound > 1 ? Verdict::false_as_stated : Verdict::holds);
        return *r.bound;
    };
    EXPECT_EQ(bound_of({0.1, 0.3, 0.2}), 0.3);
    EXPECT_EQ(bound_of({0.3, 0.2, 0.1}), 0.3);
    EXPECT_EQ(bound_of({0.1, 0.2, 0.3}), 0.3);
    EXPECT_EQ(bound_of({0.1, 1.0, 0.3}), 50);
    EXPECT_EQ(bound_of({1.0, 0.1, 0.3}), 50);
}

/// d Var w of entries whose sub-gaussian norm is 1/sqrt(d): E exp(v u^2) = 2 for u of variance 1,
/// by Simpson's rule on its density and bisection.
double variance_of_norm_one(Distribution distribution) {
    if (distribution == Distribution::rademacher) return std::log(2.0);
    const bool flat = distribution == Distribution::uniform;
    const double end = flat ? std::sqrt(3.0) : 40;
    const auto mean = [&](double v) {
        constexpr int steps = 20000;
        double sum = 0;
        for (int i = 0; i <= steps; ++i) {
            const double u = end * i / steps, weight = i == 0 || i == steps ? 1
                                                       : i % 2 == 1         ? 4
                                                                            : 2;
            sum += weight * (flat ? std::exp(v * u * u) / end
                                  : std::exp((v - 0.5) * u * u) * std::sqrt(2 / std::acos(-1.0)));
        }
        return sum * end / (3 * steps);
    };
    double low = 0, high = flat ? 3 : 0.49;
    for (int i = 0; i < 60; ++i) (mean((low + high) / 2) < 2 ? low : high) = (low + high) / 2;
    return low;
}

TEST(EscalationTheorem, DrawsEntriesOfTheVarianceThatEachReadingNames) {
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.thm2.6"}).front();
    for (const Distribution distribution :
         {Distribution::gaussian, Distribution::uniform, Distribution::rademacher}) {
        const CheckSettings settings{
            .n = 5, .d = 4, .distribution = distribution, .only = Index(7)};
        const Check how = plan(claim, settings);
        const Steps steps = steps_of(how, [&](const Rng& rng) -> std::optional<Step> {
            Step step = draw_step(rng, how, 0.3);  // mild logits
            step.alpha = draw_alpha(rng)(0);
            return step;
        });
        ASSERT_FALSE(steps.all.empty());
        const Step& step = steps.all.front();
        const Examined examined = examine(claim, settings);
        for (const auto& [name, scale] :
             {std::pair{"this d", 1.0},
              {"sub-gaussian norm 1/sqrt(d)", variance_of_norm_one(distribution)}}) {
            const auto r = std::ranges::find(examined.readings, name, &Reading::name);
            ASSERT_TRUE(r != examined.readings.end() && r->measured && r->bound) << name;
            const Rng rng = trial_rng(how, name, 7).fork(std::uint64_t(0));
            EXPECT_NEAR(*r->measured, drawn_rate(step, rng, distribution, scale / 4), 1e-9) << name;
            EXPECT_NEAR(*r->bound, theorem_bound(step), 1e-13) << name;
        }
    }
}

}  // namespace
}  // namespace tsdiag::claim
