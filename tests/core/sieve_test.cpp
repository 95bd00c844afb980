#include "core/data/sieve.hpp"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>

#include "support/near.hpp"

namespace tsdiag {
namespace {

using namespace test;
using Series = std::vector<double>;

/// Coefficients of the best predictor of order `reflections.size()`, by Levinson.
Series prediction(const Series& reflections) {
    Series a;
    for (const double k : reflections) {
        Series longer = a;
        for (std::size_t i = 0; i < a.size(); ++i) longer[i] = a[i] - k * a[a.size() - 1 - i];
        longer.push_back(k);
        a = longer;
    }
    return a;
}

/// Burg's reflections by their definition: the errors of both predictions of order p - 1 from the
/// series itself.
Series burg(Series y, std::size_t order) {
    double mean = 0;
    for (const double v : y) mean += v / double(y.size());
    for (double& v : y) v -= mean;
    Series reflections;
    for (std::size_t p = 1; p <= order; ++p) {
        const Series a = prediction(reflections);
        double both = 0, squares = 0;
        for (std::size_t t = p; t < y.size(); ++t) {
            double forward = y[t], backward = y[t - p];
            for (std::size_t i = 0; i < a.size(); ++i) {
                forward -= a[i] * y[t - 1 - i];
                backward -= a[i] * y[t - p + 1 + i];
            }
            both += forward * backward;
            squares += forward * forward + backward * backward;
        }
        reflections.push_back(2 * both / squares);
    }
    return reflections;
}

/// The order of minimal AICc.
std::size_t order_of(const Series& y) {
    const double count = double(y.size());
    const auto most = std::size_t(std::min(10 * std::log10(count), count / 10));
    const Series reflections = burg(y, most);
    std::size_t best = 0;
    double least = 0, rest = 1;
    for (std::size_t p = 0; p <= most; ++p) {
        if (p > 0) rest *= 1 - reflections[p - 1] * reflections[p - 1];
        const double parameters = double(p + 1);
        const double criterion =
            count * std::log(rest) + 2 * parameters * count / (count - parameters - 1);
        if (p == 0 || criterion < least) least = criterion, best = p;
    }
    return best;
}

Series drawn_series(const Series& reflections, std::size_t count, std::uint64_t seed) {
    Series y(count);
    Autoregression{reflections}.draw(y, Rng(seed));
    return y;
}

/// Correlations r_0 .. of an autoregression, by the Yule-Walker equations.
Series correlations(const Series& reflections, std::size_t count) {
    Series r{1};
    double rest = 1;
    for (std::size_t p = 0; p < reflections.size(); ++p) {  // the definition of a reflection
        const Series a = prediction(Series(reflections.begin(), reflections.begin() + p));
        double next = reflections[p] * rest;
        for (std::size_t i = 0; i < a.size(); ++i) next += a[i] * r[p - i];
        r.push_back(next);
        rest *= 1 - reflections[p] * reflections[p];
    }
    const Series a = prediction(reflections);
    while (r.size() < count) {
        double next = 0;
        for (std::size_t i = 0; i < a.size(); ++i) next += a[i] * r[r.size() - 1 - i];
        r.push_back(next);
    }
    return r;
}

/// A sample is L e, e independent and L L^T the correlation matrix.
TEST(Autoregression, DrawsWithItsCorrelations) {
    for (const Series& reflections :
         {Series{}, Series{0.8}, Series{0.6, -0.5}, Series{0.5, 0.4, -0.7}}) {
        const std::size_t count = 12;
        const Series r = correlations(reflections, count + 1);
        Eigen::MatrixXd covariance(count, count);
        for (int i = 0; i < int(count); ++i)
            for (int j = 0; j < int(count); ++j)
                covariance(i, j) = reflections.empty() ? i == j : r[std::size_t(std::abs(i - j))];
        Series e(count);
        Rng(4).fill_normal(e, 0, 1);
        const Eigen::MatrixXd root = covariance.llt().matrixL();
        const Eigen::VectorXd expected = root * Eigen::Map<Eigen::VectorXd>(e.data(), int(count));
        EXPECT_ALL_CLOSE(drawn_series(reflections, count, 4), std::span(expected.data(), count),
                         rounding(1000));
    }
}

TEST(Autoregression, FitIsBurgsOfTheOrderWithTheLeastCriterion) {
    std::size_t longest = 0;
    for (const Series& reflections :
         {Series{}, Series{0.5}, Series{0.6, -0.5}, Series{0.5, 0.4, -0.7}})
        for (const std::size_t count : {20, 45, 100, 1000}) {
            const Series y = drawn_series(reflections, count, count);
            const std::size_t order = order_of(y);
            EXPECT_ALL_CLOSE(fit_autoregression(y).reflections, burg(y, order), rounding(1000));
            longest = std::max(longest, order);
        }
    EXPECT_GE(longest, 3U);
}

TEST(Autoregression, FitIsOfTheLeastOfTheOrdersThatAreEquallyGood) {
    // The residual of 1, -1, 1, ... is 0 from order 1 on.
    Series y(60);
    for (std::size_t t = 0; t < y.size(); ++t) y[t] = t % 2 == 0 ? 1 : -1;
    EXPECT_EQ(fit_autoregression(y).reflections, Series{-1});
}

TEST(Autoregression, FitFindsTheLawOfALongSeries) {
    const Series law{0.5, 0.4, -0.7};
    const Series found = fit_autoregression(drawn_series(law, 10000, 1)).reflections;
    ASSERT_GE(found.size(), 3U);
    // The asymptotic variance is at most 1 / T; later coefficients are 0.
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], i < 3 ? law[i] : 0, 5 / std::sqrt(10000.0)) << i;
}

TEST(Autoregression, ConstantsAndShiftsDoNotMatter) {
    Series y = drawn_series({0.6, -0.5}, 100, 2);
    const Series before = fit_autoregression(y).reflections;
    for (double& v : y) v += 8;
    EXPECT_ALL_CLOSE(fit_autoregression(y).reflections, before, rounding(1e4));
    EXPECT_TRUE(fit_autoregression(Series(50, 0.0)).reflections.empty());
}

/// artanh of the redrawn reflections: that of the fit less its bias, plus the deviations of fits to
/// simulated series from their mean.
TEST(Autoregression, IsRedrawnWithoutItsBias) {
    const Index length = 60, count = 40;
    const Autoregression fit{{0.7, -0.4}};
    const Rng rng(9);
    const double most = 1 - 1 / double(length);
    const auto transformed = [&](double k) { return std::atanh(std::clamp(k, -most, most)); };
    std::vector<Series> fits;
    for (Index r = 0; r < count; ++r) {
        Series y(std::size_t(length), 0.0);
        fit.draw(y, rng.fork(std::uint64_t(r)));
        fits.push_back(burg(y, 2));
    }
    const auto found = redrawn(fit, length, count, rng);
    ASSERT_EQ(std::ssize(found), count);
    for (std::size_t i = 0; i < 2; ++i) {
        double mean = 0;
        for (const Series& one : fits) mean += transformed(one[i]) / double(count);
        for (std::size_t r = 0; r < fits.size(); ++r) {
            const double centre = 2 * transformed(fit.reflections[i]) - mean;
            const double expected = std::tanh(centre + transformed(fits[r][i]) - mean);
            EXPECT_NEAR(found[r].reflections[i], std::clamp(expected, -most, most), 1e-12);
        }
    }
}

TEST(Autoregression, IsRedrawnAwayFromTheUnitRoot) {
    const Index length = 25;
    const double most = 1 - 1 / double(length);
    for (const double sign : {-1.0, 1.0}) {
        int at_the_bound = 0;
        for (const Autoregression& one : redrawn({{sign * 0.9999}}, length, 50, Rng(3))) {
            EXPECT_LE(std::abs(one.reflections[0]), most);
            at_the_bound += one.reflections[0] == sign * most;
        }
        EXPECT_GT(at_the_bound, 0);
    }
    for (const Autoregression& one : redrawn({}, length, 3, Rng(3)))
        EXPECT_TRUE(one.reflections.empty());
}

}  // namespace
}  // namespace tsdiag
