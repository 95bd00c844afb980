#include "tsdiag/intervals.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

TEST(Moments, AreThoseOfTheTwoPassFormulas) {
    Moments m;
    for (const double x : {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}) m.add(x);
    EXPECT_DOUBLE_EQ(m.mean(), 1e9 + 10);
    EXPECT_DOUBLE_EQ(m.variance(), 30);  // the naive formula loses every digit here
}

TEST(Intervals, OfStudentMatchTheTable) {
    // count 5, mean 3, variance 2.5: t(0.975, 4) = 2.776445105
    const Interval i = student_interval(moments_of(std::vector<double>{1, 2, 3, 4, 5}), 0.95);
    EXPECT_NEAR(i.high - 3, 2.776445105 * std::sqrt(0.5), 1e-8);  // digits of the table
    EXPECT_DOUBLE_EQ(i.value, 3);
    EXPECT_NEAR(normal_quantile(0.95), 1.959963985, 1e-9);
}

/// How often the interval of many experiments has the truth.
template <class Experiment>
double coverage(int experiments, double truth, const Experiment& interval) {
    int covered = 0;
    for (int e = 0; e < experiments; ++e) {
        const Interval i = interval(Rng(11).fork(std::uint64_t(e)));
        covered += i.low <= truth && truth <= i.high ? 1 : 0;
    }
    return double(covered) / experiments;
}

// 2000 experiments: the share of covered ones has a standard error of 0.5 %, so 2 % is four of
// them.

TEST(Intervals, OfStudentCoverTheMeanOfNormalNumbers) {
    const double share = coverage(2000, 2, [](const Rng& rng) {
        std::vector<double> x(10);
        rng.fill_normal(x, 2, 3);
        return student_interval(moments_of(x), 0.95);
    });
    EXPECT_GE(share, 0.93);
    EXPECT_LE(share, 0.97);
}

TEST(Intervals, OfTheBootstrapCoverTheMeanOfLopsidedNumbers) {
    const double share = coverage(2000, 1, [](const Rng& rng) {
        std::vector<double> x(200);  // exponential, mean 1
        rng.fill_uniform(x, 0, 1);
        for (double& v : x) v = -std::log(v);
        return bootstrap_mean(x, 0.95, rng.fork("bootstrap"), 400);
    });
    EXPECT_GE(share, 0.93);
    EXPECT_LE(share, 0.97);
}

TEST(Intervals, WithoutSkewnessMissLopsidedNumbersOnBothSidesAlike) {
    const auto missed = [](const auto& interval) {
        int below = 0, above = 0;
        for (int e = 0; e < 20000; ++e) {
            std::vector<double> x(100);  // squares of exponential numbers, mean 2, skewness 6.6
            Rng(12).fork(std::uint64_t(e)).fill_uniform(x, 0, 1);
            for (double& v : x) v = std::pow(std::log(v), 2);
            const Interval i = interval(x);
            below += i.high < 2 ? 1 : 0;
            above += i.low > 2 ? 1 : 0;
        }
        return std::pair{below, above};
    };
    const auto student =
        missed([](const std::vector<double>& x) { return student_interval(moments_of(x), 0.9); });
    const auto skewed =
        missed([](const std::vector<double>& x) { return skewed_interval(x, 0.9); });
    // Nominal is 1000 on each side, with a standard error of 31.
    EXPECT_GT(student.first, 2000);
    EXPECT_LT(student.second, 500);
    EXPECT_LT(skewed.first, 0.75 * student.first);
    EXPECT_NEAR(skewed.second, 1000, 300);
}

TEST(Intervals, WithoutSkewnessAreStudentsOfSymmetricNumbers) {
    const std::vector<double> x{1, 2, 3, 4, 5};
    const Interval student = student_interval(moments_of(x), 0.95), i = skewed_interval(x, 0.95);
    EXPECT_DOUBLE_EQ(i.low, student.low);
    EXPECT_DOUBLE_EQ(i.high, student.high);
}

TEST(Intervals, OfTheBootstrapCoverARatio) {
    const double share = coverage(2000, 2.0 / 3, [](const Rng& rng) {
        std::vector<double> a(150), b(150);
        rng.fork("a").fill_uniform(a, 1, 3);
        rng.fork("b").fill_uniform(b, 2, 4);
        for (std::size_t i = 0; i < a.size(); ++i) b[i] += 0.5 * (a[i] - 2);  // not independent
        return bootstrap_ratio(a, b, 0.95, rng.fork("bootstrap"), 400);
    });
    EXPECT_GE(share, 0.93);
    EXPECT_LE(share, 0.97);
}

TEST(PowerLaws, AreFoundExactly) {
    const std::vector<double> x{2, 4, 8, 16, 32};
    std::vector<double> y;
    for (const double v : x) y.push_back(3 * std::pow(v, -1.5));
    const PowerLaw fit = fit_power_law(x, y, 0.95);
    EXPECT_NEAR(fit.exponent.value, -1.5, 1e-14);  // five points, logarithms of order 1
    EXPECT_NEAR(std::exp(fit.offset), 3, 1e-13);
    EXPECT_LE(fit.exponent.high - fit.exponent.low, 1e-12);
}

TEST(PowerLaws, CoverTheExponentOfNoisyPoints) {
    const std::vector<double> x{2, 4, 8, 16, 32, 64};
    const double share = coverage(2000, 0.5, [&](const Rng& rng) {
        std::vector<double> y(x.size());
        rng.fill_normal(y, 0, 0.2);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::sqrt(x[i]) * std::exp(y[i]);
        return fit_power_law(x, y, 0.95).exponent;
    });
    EXPECT_GE(share, 0.93);
    EXPECT_LE(share, 0.97);
}

TEST(PowerLaws, OfSamplesCoverTheExponentOfTheMeans) {
    const std::vector<double> x{2, 4, 8, 16};
    const double share = coverage(1000, 1, [&](const Rng& rng) {  // standard error 0.7 %
        std::vector<std::vector<double>> samples;
        for (const double v : x) {
            std::vector<double>& s = samples.emplace_back(80);
            rng.fork(std::uint64_t(v)).fill_uniform(s, 0, 2 * v);
        }
        return fit_power_law(x, samples, 0.95, rng.fork("bootstrap"), 400).exponent;
    });
    EXPECT_GE(share, 0.92);
    EXPECT_LE(share, 0.97);
}

TEST(Intervals, RefuseWhatHasNone) {
    const std::vector<double> one{1}, two{1, 2}, three{1, 2, 3}, zero{1, 0, 3};
    EXPECT_THROW(student_interval(moments_of(one), 0.95), UsageError);
    EXPECT_THROW(student_interval(moments_of(two), 1), UsageError);
    EXPECT_THROW(student_interval(moments_of(two), 0), UsageError);
    EXPECT_THROW(bootstrap_mean(one, 0.95, Rng(0), 100), UsageError);
    EXPECT_THROW(bootstrap_mean(two, 0.95, Rng(0), 0), UsageError);
    EXPECT_THROW(fit_power_law(two, two, 0.95), UsageError);
    EXPECT_THROW(fit_power_law(three, zero, 0.95), UsageError);
    EXPECT_GT(resamples_for(0.999), resamples_for(0.9));
}

}  // namespace
}  // namespace tsdiag
