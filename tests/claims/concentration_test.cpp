#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "claims/tse/enumerated.hpp"

namespace tsdiag {
namespace {

/// P(|u + s g|^2 <= x) of a unit vector u and a normal vector g of two entries, by the density of
/// its length: r/s^2 exp(-(r^2 + 1)/(2 s^2)) I0(r/s^2).
double below(double x, double s) {
    if (x <= 0) return 0;
    constexpr int steps = 4000;
    const double h = std::sqrt(x) / steps;
    double sum = 0;
    for (int i = 0; i <= steps; ++i) {  // Simpson's rule
        const double r = h * i;
        const double density =
            r / (s * s) * std::exp(-(r * r + 1) / (2 * s * s)) * std::cyl_bessel_i(0, r / (s * s));
        sum += (i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2) * density;
    }
    return sum * h / 3;
}

TEST(Concentration, TailsOfNormalWeightsAreThoseOfTheDensity) {
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.lemmaA5"}).front();
    int seen = 0;
    for (Index trial = 0; trial < 12; ++trial) {
        const Examined examined = examine(claim, {.n = 4, .d = 2, .only = trial});
        const auto r =
            std::ranges::find(examined.readings, "eps in (0, 1), c = 1/8", &Reading::name);
        ASSERT_NE(r, examined.readings.end());
        ASSERT_TRUE(r->measured && r->bound);
        const auto number = [&](std::string_view name) {
            return std::ranges::find(r->witness, name, &NamedMatrix::name)->values.at(0);
        };
        const double m = number("alpha^2 mu1^2"), eps = number("eps");
        ASSERT_EQ(number("d"), 2);
        EXPECT_NEAR(*r->bound, 4 * std::exp(-eps * eps / 4), 1e-12);
        if (m < 0.01) continue;  // the modified Bessel function overflows
        const double off = eps * (m + std::sqrt(m)), s = std::sqrt(m / 2);
        EXPECT_NEAR(*r->measured, 1 - below(1 + m + off, s) + below(1 + m - off, s), 1e-9)
            << m << ' ' << eps;
        ++seen;
    }
    EXPECT_GE(seen, 6);
}

/// |Pi1 A|_F^2, or |Pi2 A|_F^2, and the part itself.
claim::Matrix part_of(const claim::Matrix& A, bool similar) {
    claim::Matrix part = A;
    for (Index c = 0; c < A.cols(); ++c) {
        double mean = 0;
        for (Index i = 0; i < A.rows(); ++i) mean += A(i, c) / double(A.rows());
        for (Index i = 0; i < A.rows(); ++i) part(i, c) = similar ? mean : A(i, c) - mean;
    }
    return part;
}

/// How often <a, w> reaches K |a|, where K is the largest modulus of uniform entries of variance 1,
/// the root of 3: <a, w>/|a| of 64 of them is normal up to the fourth cumulant, -1.2 times 3/64 or
/// so, whose effect, in proportion to x^3 - 3x, is none at that x.
TEST(Concentration, ABoundOfUniformEntriesIsTheirLargestModulus) {
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.lemmaA2"}).front();
    constexpr Index trials = 4000;
    const Examined examined =
        examine(claim, {.trials = trials, .n = 4, .d = 64, .distribution = Distribution::uniform});
    const auto drawn = std::ranges::find(examined.readings, "entries of --dist", &Reading::name);
    ASSERT_NE(drawn, examined.readings.end());
    const double expected = std::erfc(std::sqrt(3.0 / 2)) / 2;
    EXPECT_NEAR(drawn->measured.value_or(0), expected,
                4 * std::sqrt(expected * (1 - expected) / double(trials)));
    EXPECT_DOUBLE_EQ(drawn->bound.value_or(0), std::exp(-0.5));
}

TEST(Concentration, DeviationsAreInUnitsOfTheirConstants) {
    // One draw at width N: |xi - 1 - a^2 mu^2 s|/kappa, s = d Var w and kappa = a^2 mu^2 + a |(Pi P
    // X)^T Pi X|_F/|Pi X|_F^2.  Columns of X beyond d are 0.
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.lemmaA5"}).front();
    constexpr Index d = 4;
    for (const auto& [distribution, scale] :
         {std::pair{Distribution::gaussian, 1.0}, {Distribution::torch, 1.0 / 3}})
        for (const Index trial : {0, 1, 2, 9}) {
            const CheckSettings settings{
                .n = 5, .d = d, .distribution = distribution, .only = trial};
            const Check how = plan(claim, settings);
            const claim::Heads heads = claim::draw_heads(how.rng.fork("step"), how, 1);
            const claim::Matrix mixed = heads.P[0] * heads.X;
            const Examined examined = examine(claim, settings);
            const Index width = d << trial % 5;
            for (const bool similar : {true, false}) {
                const std::string name = similar ? "deviation of xi1" : "deviation of xi2";
                const Rng rng = how.rng.fork(name).fork(std::uint64_t(trial));
                const claim::Matrix W =
                    claim::draw(rng, "W", d, width, distribution, scale / double(width));
                claim::Matrix Y = heads.alpha * mixed * W;
                for (Index c = 0; c < d; ++c) Y.col(c) += heads.X.col(c);
                const claim::Matrix own = part_of(heads.X, similar),
                                    other = part_of(mixed, similar);
                const double whole = own.squaredNorm(), a = heads.alpha;
                const double m = a * a * other.squaredNorm() / whole;
                const double kappa = m + a * (own.transpose() * other).norm() / whole;
                const double xi = part_of(Y, similar).squaredNorm() / whole;
                const auto r = std::ranges::find(examined.readings, name, &Reading::name);
                ASSERT_TRUE(r != examined.readings.end() && r->measured);
                // some hundred roundings of numbers of size 10
                EXPECT_NEAR(*r->measured, std::abs(xi - 1 - m * scale) / kappa, 1e-12)
                    << name << ' ' << trial;
            }
        }
}

TEST(Concentration, VarianceOfNormalGainsIsThatOfItsFormula) {
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.lemmaA5"}).front();
    const CheckSettings settings{.n = 5, .d = 4, .only = Index(3)};
    const Check how = plan(claim, settings);
    const claim::Heads heads = claim::draw_heads(how.rng.fork("step"), how, 1);
    const double m = heads.alpha * heads.alpha * part_of(heads.P[0] * heads.X, true).squaredNorm() /
                     part_of(heads.X, true).squaredNorm();
    const Examined examined = examine(claim, settings);
    const auto r = std::ranges::find(examined.readings, "variance of normal gains", &Reading::name);
    ASSERT_TRUE(r != examined.readings.end() && r->measured && r->bound);
    EXPECT_NEAR(*r->bound, m + m * m / 2, 1e-13 * (m + m * m));  // (4 m + 2 m^2)/4
    const Rng rng = how.rng.fork("variance of normal gains").fork(3);
    const claim::Matrix W = claim::draw(rng, "W", 4, 4, Distribution::gaussian, 0.25);
    const claim::Matrix Y = heads.X + heads.alpha * heads.P[0] * heads.X * W;
    const double xi = part_of(Y, true).squaredNorm() / part_of(heads.X, true).squaredNorm();
    EXPECT_NEAR(*r->measured, (xi - 1 - m) * (xi - 1 - m), 1e-12 * (1 + m) * (1 + m));
}

}  // namespace
}  // namespace tsdiag
