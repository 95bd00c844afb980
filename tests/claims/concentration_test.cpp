#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/claim.hpp"

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
        if (m < 0.01) continue;  // the modified Bessel function leaves the range
        const double off = eps * (m + std::sqrt(m)), s = std::sqrt(m / 2);
        EXPECT_NEAR(*r->measured, 1 - below(1 + m + off, s) + below(1 + m - off, s), 1e-9)
            << m << ' ' << eps;
        ++seen;
    }
    EXPECT_GE(seen, 6);
}

}  // namespace
}  // namespace tsdiag
