#include "experiments/poly/descent.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "support/near.hpp"
#include "tsdiag/error.hpp"

/// L-BFGS on functions whose minima are known.
namespace tsdiag::experiment_list {
namespace {

using test::Tolerance;
using testing::HasSubstr;
using testing::IsEmpty;

#ifdef TSDIAG_LBFGS

/// sum 100 (x_(i+1) - x_i^2)^2 + (1 - x_i)^2, least at 1.
double rosenbrock(std::span<const double> x, std::span<double> g) {
    double sum = 0;
    std::ranges::fill(g, 0.0);
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        const double bend = x[i + 1] - x[i] * x[i], left = 1 - x[i];
        sum += 100 * bend * bend + left * left;
        g[i] += -400 * bend * x[i] - 2 * left;
        g[i + 1] += 200 * bend;
    }
    return sum;
}

TEST(Descent, FindsTheMinimumOfRosenbrocksFunctionFromAnyNumberOfVariables) {
    for (const std::size_t n : {2, 3, 7, 16, 33}) {  // the library pads them to multiples of 8
        auto x = std::vector<double>(n, -1.2);
        for (std::size_t i = 1; i < n; i += 2) x[i] = 1;
        const Descent done = lbfgs(x, rosenbrock, {});
        EXPECT_TRUE(done.converged) << n;
        EXPECT_THAT(done.stuck, IsEmpty());
        // |g| <= 1e-9 |x|, and the least curvature at the minimum is above 0.1
        for (const double v : x) EXPECT_CLOSE(v, 1, Tolerance{.absolute = 1e-6}) << n;
        EXPECT_GE(done.evaluations, done.iterations);
    }
}

TEST(Descent, OfAQuadraticTakesStepsOfTheStrongWolfeConditions) {
    const std::vector<double> curvature = {1, 4, 25, 100};
    const Objective f = [&](std::span<const double> x, std::span<double> g) {
        double sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            g[i] = curvature[i] * (x[i] - double(i));
            sum += 0.5 * g[i] * (x[i] - double(i));
        }
        return sum;
    };
    std::vector<double> x(4, 5.0), before = x, g(4), g_before(4);
    double last = f(before, g_before);
    Index steps = 0;
    const LbfgsOptions how;
    const Descent done = lbfgs(x, f, how, [&](Index i, double value, std::span<const double> at) {
        EXPECT_EQ(i, ++steps);
        double slope = 0, slope_before = 0;
        EXPECT_EQ(f(at, g), value);
        for (std::size_t k = 0; k < at.size(); ++k) {
            slope += g[k] * (at[k] - before[k]);
            slope_before += g_before[k] * (at[k] - before[k]);
        }
        EXPECT_LT(slope_before, 0);
        EXPECT_LE(value, last + how.decrease * slope_before);
        EXPECT_LE(std::abs(slope), how.curvature * std::abs(slope_before));
        before.assign(at.begin(), at.end());
        g_before = g;
        last = value;
    });
    EXPECT_TRUE(done.converged);
    EXPECT_EQ(done.iterations, steps);
    for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_CLOSE(x[i], double(i), Tolerance{.absolute = 1e-8});  // |g| <= 4e-9
}

TEST(Descent, EndsAtItsIterations) {
    std::vector<double> x = {-1.2, 1};
    const Descent done = lbfgs(x, rosenbrock, {.iterations = 3});
    EXPECT_EQ(done.iterations, 3);
    EXPECT_FALSE(done.converged);
    EXPECT_THAT(done.stuck, IsEmpty());
    auto g = std::vector<double>(2);
    EXPECT_EQ(done.f, rosenbrock(x, g));
}

TEST(Descent, SaysWhereNoStepLeadsDown) {
    const Objective uphill = [](std::span<const double> x, std::span<double> g) {
        g[0] = -2 * x[0];  // of another sign than it is
        return x[0] * x[0];
    };
    std::vector<double> x = {1};
    const Descent done = lbfgs(x, uphill, {});
    EXPECT_FALSE(done.converged);
    EXPECT_EQ(done.iterations, 0);
    EXPECT_THAT(done.stuck, HasSubstr("no step down was found after 0 iterations"));
    EXPECT_EQ(x[0], 1);
    EXPECT_EQ(done.f, 1);
}

TEST(Descent, RefusesAStartThatIsNotFinite) {
    std::vector<double> x = {1};
    const auto start = [&](double value, double slope) {
        lbfgs(x,
              [&](std::span<const double>, std::span<double> g) {
                  g[0] = slope;
                  return value;
              },
              {});
    };
    EXPECT_THROW(start(std::nan(""), 1), NonFiniteError);
    EXPECT_THROW(start(1, HUGE_VAL), NonFiniteError);
}

TEST(Descent, PassesOnWhatIsThrown) {
    std::vector<double> x = {-1.2, 1};
    int calls = 0;
    const Objective fails = [&](std::span<const double> at, std::span<double> g) {
        if (++calls == 4) throw std::domain_error("f");
        return rosenbrock(at, g);
    };
    EXPECT_THROW(lbfgs(x, fails, {}), std::domain_error);
    EXPECT_EQ(calls, 4);
    EXPECT_THROW(
        lbfgs(x, rosenbrock, {},
              [](Index, double, std::span<const double>) { throw std::domain_error("visit"); }),
        std::domain_error);
}

#else

TEST(Descent, IsNotAvailableWithoutItsLibrary) {
    std::vector<double> x = {1};
    EXPECT_THROW(lbfgs(x, [](auto, auto) { return 0.0; }, {}), NotAvailable);
}

#endif

}  // namespace
}  // namespace tsdiag::experiment_list
