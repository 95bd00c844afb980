#include "tsdiag/intervals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "tsdiag/error.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

TEST(Moments, AreThoseOfTheTwoPassFormulas) {
    Moments m;
    for (const double x : {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}) m.add(x);
    EXPECT_DOUBLE_EQ(m.mean(), 1e9 + 10);
    EXPECT_DOUBLE_EQ(m.variance(), 30);  // the naive formula loses every digit here
    EXPECT_DOUBLE_EQ(m.standard_error(), std::sqrt(30.0 / 4));
    EXPECT_EQ(moments_of({}).standard_error(), 0);
    EXPECT_EQ(moments_of(std::vector<double>{3}).variance(), 0);
}

TEST(Intervals, OfStudentMatchTheTable) {
    // count 5, mean 3, variance 2.5: t(0.975, 4) = 2.776445105
    const Interval i = student_interval(moments_of(std::vector<double>{1, 2, 3, 4, 5}), 0.95);
    EXPECT_NEAR(i.high - 3, 2.776445105 * std::sqrt(0.5), 1e-8);  // digits of the table
    EXPECT_DOUBLE_EQ(i.value, 3);
}

TEST(Intervals, QuantilesAndTailsOfOneAndTwoDegreesAreClosedForms) {
    for (const double confidence : {0.1, 0.5, 0.95, 0.999}) {
        const double one = std::tan(std::numbers::pi * confidence / 2);
        const double two = confidence * std::sqrt(2 / (1 - confidence * confidence));
        EXPECT_NEAR(student_quantile(confidence, 1), one, 1e-9 * one);  // of a library
        EXPECT_NEAR(student_quantile(confidence, 2), two, 1e-9 * two);
        EXPECT_NEAR(student_tail(one, 1), (1 - confidence) / 2, 1e-12);
        EXPECT_NEAR(student_tail(-two, 2), (1 + confidence) / 2, 1e-12);
    }
}

/// Of many degrees of freedom the normal quantiles add up.
TEST(Seen, IsTheSumOfBothQuantilesOfManyTrials) {
    EXPECT_NEAR(seen_distance(1.959964, 1e7, 0.8), 1.959964 + 0.841621,
                1e-5);  // 20 bits, and the digits of both
    EXPECT_NEAR(seen_distance(1.959964, 1e7, 0.975), 2 * 1.959964, 1e-5);
    EXPECT_THROW(seen_distance(2, 3, 1), UsageError);
}

/// The share of t tests of 3 and of 6 numbers that exceed the critical value at that distance.
TEST(Seen, IsExceededInSoManyTrials) {
    for (const Index count : {3, 6}) {
        const double critical = student_quantile(0.95, double(count - 1)),
                     far = seen_distance(critical, double(count - 1), 0.8);
        constexpr int experiments = 4000;
        int seen = 0;
        for (int e = 0; e < experiments; ++e) {
            auto x = std::vector<double>(std::size_t(count));
            Rng(13).fork(std::uint64_t(count)).fork(std::uint64_t(e)).fill_normal(x, 0, 1);
            const Moments m = moments_of(x);
            const double mean = m.mean() + far / std::sqrt(double(count));
            seen += mean / m.standard_error() > critical ? 1 : 0;
        }
        // four standard errors of a share of 0.8
        EXPECT_NEAR(double(seen) / experiments, 0.8, 4 * std::sqrt(0.16 / experiments)) << count;
    }
}

/// S of x with 0, 1, 2, ...
Index kendall(const std::vector<int>& x) {
    Index s = 0;
    for (std::size_t j = 0; j < x.size(); ++j)
        for (std::size_t i = 0; i < j; ++i) s += Index(x[i] < x[j]) - Index(x[i] > x[j]);
    return s;
}

TEST(Kendall, IsTheShareOfAllOrders) {
    for (const std::vector<Index>& groups :
         {std::vector<Index>{1, 1, 1, 1, 1, 1}, {2, 1, 3}, {1, 4, 1}, {3, 3}, {6}}) {
        std::vector<int> values;
        for (std::size_t g = 0; g < groups.size(); ++g)
            values.insert(values.end(), std::size_t(groups[g]), int(g));
        std::map<Index, double> shares;  // of each order of unlike values
        double orders = 0;
        do {
            ++shares[std::abs(kendall(values))];
            ++orders;
        } while (std::ranges::next_permutation(values).found);
        double beyond = 0;
        for (auto at = shares.rbegin(); at != shares.rend(); ++at) {
            beyond += at->second / orders;
            EXPECT_NEAR(kendall_probability(at->first, groups), beyond, 1e-12);  // small integers
            EXPECT_EQ(kendall_probability(-at->first, groups),
                      kendall_probability(at->first, groups));
        }
    }
    const std::vector<Index> eighteen(18, 1);
    EXPECT_NEAR(kendall_probability(153, eighteen) * std::tgamma(19.0), 2, 1e-6);
    EXPECT_THROW(kendall_probability(0, std::vector<Index>(19, 1)), BrokenInvariant);
}

TEST(Intervals, FreedomOfTwoErrorsIsWelchs) {
    EXPECT_NEAR(welch_freedom(3, 7, 3, 7), 14, 1e-12);
    EXPECT_NEAR(welch_freedom(0, 1, 2, 9), 9, 1e-12);
    EXPECT_NEAR(welch_freedom(2, 9, 0, 1), 9, 1e-12);
    const auto fourth = [](double x) { return x * x * x * x; };
    const double expected = 5.0 * 5.0 / (fourth(1) / 4 + fourth(2) / 11);
    for (const double scale : {1e-200, 1.0, 1e200})
        EXPECT_NEAR(welch_freedom(scale, 4, 2 * scale, 11), expected, 1e-12 * expected) << scale;
}

TEST(Intervals, StepsOfHolmStopAtTheFirstThatStands) {
    // 0.005 <= 0.05 / 4, 0.01 <= 0.05 / 3, but 0.03 > 0.05 / 2: that stands, and 0.04 behind it.
    const std::vector<double> p{0.01, 0.04, 0.03, 0.005};
    EXPECT_EQ(holm(p, 0.05), (std::vector<bool>{true, false, false, true}));
    EXPECT_EQ(holm(std::vector<double>{0.25, 0.5}, 0.5), (std::vector<bool>{true, true}));
    EXPECT_EQ(holm(std::vector<double>{NAN, 0.3}, 0.5), (std::vector<bool>{false, false}));
    EXPECT_TRUE(holm({}, 0.05).empty());
}

/// The coverage: the share of experiments whose interval contains the true value.
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

TEST(Intervals, WithoutSkewnessInvertTheCubicTransformation) {
    const std::vector<double> x{1, 2, 2, 3, 4, 9, 20};
    const Moments m = moments_of(x);
    double cubes = 0;
    for (const double v : x) cubes += std::pow(v - m.mean(), 3) / 7;
    const double skew = cubes / std::pow(m.variance(), 1.5) / std::sqrt(7.0);
    const auto g = [&](double t) {
        return t + skew * t * t / 3 + skew * skew * t * t * t / 27 + skew / 6;
    };
    const Interval i = skewed_interval(x, 0.9);
    const double error = m.standard_error(), quantile = student_quantile(0.9, 6);
    EXPECT_NEAR(g((m.mean() - i.low) / error), quantile, 1e-12);
    EXPECT_NEAR(g((m.mean() - i.high) / error), -quantile, 1e-12);
    EXPECT_DOUBLE_EQ(i.value, m.mean());
    const Interval constant = skewed_interval(std::vector<double>{3, 3, 3}, 0.9);
    EXPECT_EQ(constant.low, 3);
    EXPECT_EQ(constant.high, 3);
}

double binomial(Index n, Index k, double p) {
    return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) *
           std::pow(p, k) * std::pow(1 - p, n - k);
}

TEST(BinomialIntervals, AreThoseOfClopperAndPearson) {
    // none of n: (1 - p)^n = alpha/2; as many misses as hits mirror the interval
    const Interval none = binomial_interval(0, 20, 0.95);
    EXPECT_EQ(none.value, 0);
    EXPECT_EQ(none.low, 0);
    EXPECT_NEAR(none.high, 1 - std::pow(0.025, 1.0 / 20), 1e-12);
    const Interval all = binomial_interval(20, 20, 0.95), few = binomial_interval(3, 20, 0.95),
                   most = binomial_interval(17, 20, 0.95);
    EXPECT_EQ(all.high, 1);
    EXPECT_NEAR(all.low, 1 - none.high, 1e-12);
    EXPECT_NEAR(few.low, 1 - most.high, 1e-12);
    for (const double p : {0.002, 0.1, 0.5, 0.97}) {  // summed, not drawn
        double covered = 0;
        for (Index k = 0; k <= 20; ++k) {
            const Interval i = binomial_interval(k, 20, 0.95);
            EXPECT_DOUBLE_EQ(i.value, double(k) / 20);
            if (i.low <= p && p <= i.high) covered += binomial(20, k, p);
        }
        EXPECT_GE(covered, 0.95) << p;
    }
    EXPECT_THROW(binomial_interval(0, 0, 0.95), UsageError);
}

TEST(PowerLaws, HaveTheErrorOfTheRegression) {
    // log x = 0 1 2 3, log y = 0 1 2 4: slope 6.5 / 5, offset -0.2, residuals 0.2 -0.1 -0.4 0.3.
    const double e = std::numbers::e;
    const std::vector<double> x{1, e, e * e, e * e * e}, y{1, e, e * e, e * e * e * e};
    const PowerLaw fit = fit_power_law(x, y, 0.9);
    const double half = 0.9 * std::sqrt(2 / (1 - 0.81)) * std::sqrt(0.3 / 2 / 5);  // t of 2 degrees
    EXPECT_NEAR(fit.exponent.value, 1.3, 1e-13);
    EXPECT_NEAR(fit.offset, -0.2, 1e-13);
    EXPECT_NEAR(fit.exponent.low, 1.3 - half, 1e-9);  // of a library's quantile
    EXPECT_NEAR(fit.exponent.high, 1.3 + half, 1e-9);
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

TEST(Intervals, RefuseWhatHasNone) {
    const std::vector<double> one{1}, two{1, 2}, three{1, 2, 3}, zero{1, 0, 3};
    EXPECT_THROW(student_interval(moments_of(one), 0.95), UsageError);
    EXPECT_THROW(student_interval(moments_of(two), 1), UsageError);
    EXPECT_THROW(student_interval(moments_of(two), 0), UsageError);
    EXPECT_THROW(fit_power_law(two, two, 0.95), UsageError);
    EXPECT_THROW(fit_power_law(three, zero, 0.95), UsageError);
}

}  // namespace
}  // namespace tsdiag
