#include "tsdiag/change_test.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

/// A Brownian motion with drift at irregular steps.
struct Walk {
    explicit Walk(std::uint64_t seed) : rng(seed) {}
    void go(double drift, double deviation) {
        const Index gap = 1 + Index(rng.below(9));
        step += gap;
        value += drift * double(gap) + deviation * std::sqrt(double(gap)) * rng.normal();
    }
    Rng rng;
    Index step = 0;
    double value = 3;
};

TEST(ChangeTest, RaisesFewerFalseAlarmsThanItsRate) {
    constexpr Index series = 2000, length = 100;
    for (const double rate : {0.05, 0.01}) {
        double alarms = 0, squares = 0;
        for (Index s = 0; s < series; ++s) {
            Walk walk{std::uint64_t(s)};
            ChangeTest test(rate);
            Index here = 0;
            for (Index i = 0; i < length; ++i) {
                if (test.add(walk.step, walk.value)) ++here;
                walk.go(0.7, 2.5);
            }
            alarms += double(here);
            squares += double(here * here);
        }
        const double mean = alarms / double(series);
        const double error = std::sqrt((squares / double(series) - mean * mean) / double(series));
        EXPECT_LT(mean, rate * double(length) + 4 * error);
        EXPECT_GT(mean, 0.1 * rate * double(length)) << "the bound would say nothing";
    }
}

TEST(ChangeTest, StatisticGrowsByOneAValueUnderTheNullHypothesis) {
    // The martingale behind the bound: with 1/rate out of reach, the mean of `evidence` cannot be
    // seen; so the number of alarms times its threshold is compared with the number of values.
    constexpr Index series = 4000, length = 40;
    constexpr double rate = 0.2;
    double alarms = 0;
    for (Index s = 0; s < series; ++s) {
        Walk walk{std::uint64_t(s) + 100000};
        ChangeTest test(rate);
        for (Index i = 0; i < length; ++i) {
            if (test.add(walk.step, walk.value)) ++alarms;
            walk.go(-0.1, 1);
        }
    }
    const double each = alarms / double(series * length);
    EXPECT_LT(each, rate);
    EXPECT_GT(each, rate / 4);  // overshoot and the first four values cost the rest
}

TEST(ChangeTest, TellsAJumpAtOnceAndANewDriftSoon) {
    Index late = 0, missed = 0;
    constexpr Index series = 200, calm = 25;
    for (Index s = 0; s < series; ++s) {
        Walk walk{std::uint64_t(s) + 5000};
        ChangeTest jump(0.01), drift(0.01);
        for (Index i = 0; i < calm; ++i) {
            jump.add(walk.step, walk.value);
            drift.add(walk.step, walk.value);
            walk.go(0.5, 1);
        }
        const auto at_once = jump.add(walk.step, walk.value - 60);
        if (!at_once || at_once->up || at_once->step != walk.step) ++missed;
        Index waited = 0;
        for (bool detected = false; !detected && waited < 40; ++waited) {
            walk.go(2.5, 1);
            const auto found = drift.add(walk.step, walk.value);
            detected = found && found->up;
        }
        if (waited > 8) ++late;
    }
    EXPECT_LE(missed, series / 50);
    EXPECT_LE(late, series / 20);
}

/// The statistic from its definition: least squares anew for each value.
double naive_evidence(const std::vector<Index>& steps, const std::vector<double>& values) {
    std::vector<double> w, tails;
    for (std::size_t i = 2; i < values.size(); ++i) {
        double zr = 0, rr = 0;
        for (std::size_t j = 1; j < i; ++j) {
            zr += values[j] - values[j - 1];
            rr += double(steps[j] - steps[j - 1]);
        }
        const double gap = double(steps[i] - steps[i - 1]);
        w.push_back((values[i] - values[i - 1] - zr / rr * gap) / std::sqrt(gap) /
                    std::sqrt(1 + gap / rr));
    }
    double total = 0;
    for (const bool up : {true, false})
        for (const double e : {0.25, 0.5}) {
            double m = 0;
            for (std::size_t i = 1; i < w.size(); ++i) {
                double ww = 0;
                for (std::size_t j = 0; j < i; ++j) ww += w[j] * w[j];
                const double t = w[i] / std::sqrt(ww / double(i));
                // P(T > t) of Student's t by Simpson's rule, in the angle whose tangent is t.
                const double n = double(i), from = std::atan(up ? t : -t), to = M_PI / 2;
                const auto density = [&](double x) {
                    const double c = std::cos(x), s = std::sin(x);
                    return std::exp(std::lgamma((n + 1) / 2) - std::lgamma(n / 2)) /
                           std::sqrt(n * M_PI) * std::pow(c, n - 1) *
                           std::pow(c * c + s * s / n, -(n + 1) / 2);
                };
                constexpr int parts = 2000;
                double p = density(from) + density(to);
                for (int k = 1; k < parts; ++k)
                    p += (k % 2 == 1 ? 4 : 2) * density(from + (to - from) * k / parts);
                p *= (to - from) / parts / 3;
                m = (m + 1) * e * std::pow(p, e - 1);
            }
            total += m / 4;
        }
    return total;
}

TEST(ChangeTest, IsItsDefinition) {
    Walk walk{77};
    std::vector<Index> steps;
    std::vector<double> values;
    ChangeTest test(0.5);  // its first alarm shows the statistic
    for (int i = 0; i < 30; ++i) {
        steps.push_back(walk.step);
        values.push_back(walk.value);
        if (const auto found = test.add(walk.step, walk.value)) {
            EXPECT_GT(values.size(), 4U);
            EXPECT_NEAR(found->evidence / naive_evidence(steps, values), 1, 1e-4);
            return;
        }
        walk.go(i < 8 ? 0.2 : 1, 1);
    }
    FAIL() << "no alarm";
}

TEST(ChangeTest, RoundingIsNoChangeAndAConstantMayChange) {
    ChangeTest test(0.01);
    for (Index i = 0; i < 20; ++i) EXPECT_FALSE(test.add(i, 1 + (i % 3 == 0 ? 3e-8 : 0))) << i;
    const auto found = test.add(20, 1.5);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->up);
    EXPECT_EQ(found->since, 19);
}

TEST(ChangeTest, RefusesRatesAndStepsWithoutMeaning) {
    for (const double rate : {0.0, 1.0, -1.0, std::nan("")})
        EXPECT_THROW(ChangeTest{rate}, UsageError);
    ChangeTest test(0.1);
    test.add(5, 1);
    EXPECT_THROW(test.add(5, 2), UsageError);
}

}  // namespace
}  // namespace tsdiag
