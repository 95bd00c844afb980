#include "core/linalg/tridiagonal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

namespace tsdiag {
namespace {

using tridiagonal::eigenvalue, tridiagonal::last_component;
using Vector = std::vector<double>;

constexpr double eps = std::numeric_limits<double>::epsilon();

/// a on the diagonal and b beside it: a + 2 b cos(k pi / (n + 1)), vectors sin(j k pi / (n + 1)).
TEST(Tridiagonal, OfEqualEntriesIsKnownInClosedForm) {
    for (const Index n : {1, 2, 3, 8, 41})
        for (const double a : {-3.0, 0.0, 1.5})
            for (const double b : {0.25, 2.0}) {
                const Vector diagonal(std::size_t(n), a), off(std::size_t(n - 1), b);
                const double step = std::numbers::pi / double(n + 1);
                const double scale = std::abs(a) + 2 * b;
                for (Index k = 0; k < n; ++k)
                    EXPECT_NEAR(eigenvalue(diagonal, off, k),
                                a + 2 * b * std::cos(double(k + 1) * step),
                                16 * double(n) * eps * scale);
                const double top = a + 2 * b * std::cos(step);
                const double last = std::sqrt(2 / double(n + 1)) * std::sin(double(n) * step);
                // A rounding of theta moves the vector by it over the gap, 2 b step^2 at least.
                EXPECT_NEAR(last_component(diagonal, off, top), last,
                            64 * eps * scale / (b * step * step));
            }
}

/// A vector that decreases by a factor r per row: 1/r on top of zeros, ones beside them.  Its last
/// component is r^(n-1) sqrt(1 - r^2), times 1 - r^2 for the end of the chain.
TEST(Tridiagonal, TheLastComponentOfAVectorThatFallsFastKeepsItsDigits) {
    const double r = 1e-3;
    for (const Index n : {5, 30, 60}) {  // squares underflow from 52 on
        Vector diagonal(std::size_t(n), 0.0), off(std::size_t(n - 1), 1.0);
        diagonal[0] = 1 / r;
        const double expected = std::pow(r, double(n - 1)) * std::pow(1 - r * r, 1.5);
        const double found = last_component(diagonal, off, r + 1 / r);
        EXPECT_NEAR(found / expected, 1, 1e-10) << n;
    }
}

/// (a + d)/2 -+ sqrt(((a - d)/2)^2 + b^2), and nothing else where zeros surround it.
TEST(Tridiagonal, OfTwoRowsIsTheQuadraticFormulaWhereverTheyStand) {
    for (const double a : {-3.0, 0.0, 5.0})
        for (const double b : {-1.0, 2.0}) {
            const double d = 1, root = std::hypot((a - d) / 2, b);
            const double top = (a + d) / 2 + root, bottom = (a + d) / 2 - root;
            for (const auto& [diagonal, off] :
                 {std::pair{Vector{a, d}, Vector{b}}, std::pair{Vector{d, a}, Vector{b}},
                  std::pair{Vector{0, a, d}, Vector{0, b}},
                  std::pair{Vector{a, d, 0}, Vector{b, 0}},
                  std::pair{Vector{0, d, a, 0}, Vector{0, b, 0}}}) {
                Vector expected(diagonal.size(), 0.0);
                expected[0] = top, expected[1] = bottom;
                std::ranges::sort(expected, std::greater());
                for (std::size_t k = 0; k < expected.size(); ++k)
                    EXPECT_NEAR(eigenvalue(diagonal, off, Index(k)), expected[k], 32 * eps);
            }
        }
}

TEST(Tridiagonal, ThatFallsApartHasTheVectorsOfItsParts) {
    const Vector diagonal{5, 3, 1}, off{1, 0};
    EXPECT_EQ(last_component(diagonal, off, 1), 1);
    EXPECT_NEAR(eigenvalue(diagonal, off, 0), 4 + std::sqrt(2.0), 16 * eps);
    EXPECT_NEAR(eigenvalue(diagonal, off, 1), 4 - std::sqrt(2.0), 16 * eps);
    EXPECT_NEAR(eigenvalue(diagonal, off, 2), 1, 16 * eps);
    EXPECT_EQ(eigenvalue(Vector{-7}, {}, 0), -7);
}

}  // namespace
}  // namespace tsdiag
