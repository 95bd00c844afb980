#include "core/linalg/krylov_solvers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

/// What the solvers conclude from coefficients, which here are those of no map.
namespace tsdiag {
namespace {

constexpr double sought = 1e-6;  // the accuracy

/// A search has found the eigenvalues s and s / 2 exactly, and that beside the leading vector, with
/// which A couples it, mu s.  Powers of two s change no digit.
Estimate searched_twice(double s, double mu, double coupling = 0) {
    krylov::Arnoldi solver(sought / 10, 384, 2, sought, 0);
    solver.add({0.75 * s}, 0.25 * s);
    EXPECT_FALSE(solver.done());
    solver.add({0.25 * s, 0.75 * s}, 0);
    EXPECT_TRUE(solver.done());
    EXPECT_EQ(solver.estimate().value, s / 2);
    EXPECT_EQ(solver.leader().size(), 2U);
    EXPECT_FALSE(solver.done());
    solver.add({coupling * s, mu * s}, 0);
    EXPECT_TRUE(solver.done());
    EXPECT_TRUE(solver.leader().empty());
    return solver.estimate();
}

TEST(Arnoldi, IsCertainWhereASecondSearchMeetsOneOfTheTwoToTwiceTheAccuracy) {
    for (const double s : {0x1p-20, 1.0, 0x1p20}) {
        for (const double off : {-2.5, -1.5, 0.0, 1.5, 2.5}) {
            const Estimate found = searched_twice(s, 0.5 * (1 + off * sought));
            EXPECT_EQ(found.converged, std::abs(off) < 2) << s << ", " << off;
            EXPECT_EQ(found.value, s / 2) << s << ", " << off;
            EXPECT_EQ(found.low.has_value(), !found.converged) << s << ", " << off;
            EXPECT_EQ(found.low.value_or(0), 0);
            EXPECT_EQ(found.iterations, 3);
        }
        for (const double off : {-2.5, -1.5, 0.0}) {  // the leading one again: it is double
            const double mu = 1 + off * sought;
            const Estimate found = searched_twice(s, mu);
            EXPECT_EQ(found.converged, std::abs(off) < 2) << s << ", " << off;
            EXPECT_EQ(found.value, mu * s) << s << ", " << off;
            EXPECT_EQ(found.low.has_value(), !found.converged) << s << ", " << off;
        }
        EXPECT_FALSE(searched_twice(s, 0.25).converged);
    }
}

/// An error e of 6e-16 in A moves mu by e |b| over the gap of 1/2 at most, b the coupling, and
/// where the gap is small, by sqrt(e |b|).
TEST(Arnoldi, IsCertainAsFarAsTheCouplingOfItsTwoVectorsAllows) {
    for (const double s : {0x1p-20, 1.0, 0x1p20}) {
        for (const double sign : {-1.0, 1.0}) {
            EXPECT_TRUE(searched_twice(s, 0.5, sign * 5e8).converged) << s;   // 6e-7 of 1e-6
            EXPECT_FALSE(searched_twice(s, 0.5, sign * 2e9).converged) << s;  // 2.4e-6
        }
        const double near = 1 - 0x1p-26;
        EXPECT_TRUE(searched_twice(s, near, 1e3).converged) << s;   // sqrt: 8e-7 of 2e-6
        EXPECT_FALSE(searched_twice(s, near, 1e5).converged) << s;  // 8e-6
    }
}

/// Two products with A^T A that leave `rest`: its largest eigenvalue is s, of a vector whose last
/// component is sqrt(1/2).
Estimate two_products(double s, double rest, double rounding) {
    krylov::Lanczos solver(1e-7, 2, rounding * std::sqrt(s));
    solver.add({0.75 * s}, 0.25 * s);
    EXPECT_FALSE(solver.done());
    solver.add({0.25 * s, 0.75 * s}, rest * s);
    EXPECT_TRUE(solver.done());
    EXPECT_TRUE(solver.leader().empty());
    return solver.estimate();
}

TEST(Lanczos, IsCertainAsFarAsItsResidualAndRoundingAllow) {
    for (const double s : {0x1p-40, 1.0, 0x1p40}) {
        const double value = std::sqrt(s);
        // Of the residual of the square, twice the tolerance; twice the rounding of a product.
        const Estimate sure = two_products(s, 2.5e-7, 4e-8),
                       restless = two_products(s, 3.2e-7, 4e-8),
                       rough = two_products(s, 2.5e-7, 6e-8);
        EXPECT_TRUE(sure.converged) << s;
        EXPECT_NEAR(sure.value, value, 1e-14 * value) << s;  // rounding
        EXPECT_NEAR(sure.residual, 2.5e-7 * std::sqrt(0.5) * value, 1e-14 * value) << s;
        EXPECT_FALSE(sure.low || sure.high);
        EXPECT_FALSE(restless.converged || rough.converged) << s;
        // 1e-12 is left to the sums that found it.
        EXPECT_NEAR(restless.low.value(), (1 - 8e-8) * value, 2e-12 * value) << s;
        EXPECT_NEAR(rough.low.value(), (1 - 1.2e-7) * value, 2e-12 * value) << s;
        EXPECT_LT(restless.low.value(), (1 - 8e-8 - 5e-13) * value) << s;
    }
    for (const double rounding : {0.0, 1.0}) {
        krylov::Lanczos zero(1e-7, 2, rounding);
        zero.add({0.0}, 0);
        EXPECT_TRUE(zero.done());
        EXPECT_EQ(zero.estimate().value, 0);
        EXPECT_EQ(zero.estimate().converged, rounding == 0);
        EXPECT_EQ(zero.estimate().low.value_or(0), 0);
    }
}

using Numbers = std::vector<std::complex<double>>;

TEST(LeadingEigenvalue, IsCertainWhereNeitherItsErrorNorThatOfTheNextDecides) {
    Index asked = 0;
    const auto leading = [&](const Numbers& values, Index rank, double noise, Sensitivity first,
                             Sensitivity next) {
        asked = 0;
        return hessenberg::leading_of(values, rank, noise, sought, [&](std::complex<double> theta) {
            ++asked;
            return theta == 1.0 ? first : next;
        });
    };
    // 0.9 and its error, the condition number 2 times the residual, against 1 + 1e-6.
    for (const bool sure : {true, false}) {
        const auto found = leading({0.9, 1}, 1, 0, {1, 0}, {2, sure ? 0.0500002 : 0.050001});
        EXPECT_EQ(found.certain, sure);
        EXPECT_EQ(found.value, 1.0);
        EXPECT_EQ(found.residual, 0);
        EXPECT_EQ(asked, 2);
    }
    // 3 (1e-7 + noise) against 1e-6.
    for (const double noise : {2e-7, 2.5e-7}) {
        const auto found = leading({1, 0.5}, 1, noise, {3, 1e-7}, {1, 0});
        EXPECT_EQ(found.certain, noise == 2e-7);
        EXPECT_EQ(found.residual, 1e-7);
        EXPECT_NEAR(found.radius, 3 * (1e-7 + noise), 1e-15);  // rounding
        EXPECT_EQ(found.first_radius, found.radius);
    }
    // Of 1 and -1 both decide.
    for (const double residual : {5e-7, 2e-6}) {
        const auto found = leading({1, -1, 0.5}, 2, 0, {1, 1e-7}, {1, residual});
        EXPECT_EQ(found.certain, residual == 5e-7);
        EXPECT_EQ(found.value, -1.0);
        EXPECT_EQ(found.first, 1.0);
        EXPECT_EQ(found.residual, residual);
        EXPECT_EQ(found.first_radius, 1e-7);
        EXPECT_EQ(asked, 3);
    }
    // A pair is asked for once.
    const std::complex<double> i(0, 1);
    for (const Index rank : {1, 2}) {
        EXPECT_EQ(leading({0.25, 0.5, i, -i}, rank, 0, {}, {1, 0}).modulus, 1);
        EXPECT_EQ(asked, rank + 1);
    }
    EXPECT_TRUE(leading({1}, 2, 0, {1, 0}, {1, 0}).certain);
    EXPECT_EQ(asked, 0);
}

/// (1, c; 0, 1/4): the vector of 1 is (1, 0), that of 1/4 is (c, -3/4).
TEST(LeadingEigenvalue, HasTheLastComponentOfItsVector) {
    for (const double c : {0.5, 1.0, 4.0}) {
        const std::vector<double> h = {1, c, 0, 0.25};
        // A step of inverse iteration leaves a rounding over the gap.
        EXPECT_NEAR(hessenberg::certify(h, 2, 1).last, 0, 1e-14);
        EXPECT_NEAR(hessenberg::certify(h, 2, 0.25).last, 0.75 / std::hypot(0.75, c), 1e-14);
    }
}

/// Of a vector that is exact, (1, 1), inverse iteration with a shift that is off by d grows by 1/d.
TEST(LeadingEigenvalue, IsFoundFromAShiftBesideIt) {
    const std::vector<double> h = {0.75, 0.25, 0.25, 0.75};
    for (const double off : {-0.01, 0.01}) {
        const hessenberg::Certificate found = hessenberg::certify(h, 2, 1 + off);
        EXPECT_NEAR(found.value.real(), 1, 1e-14);
        EXPECT_NEAR(found.sensitivity.residual, 0.01, 1e-14);
        EXPECT_NEAR(found.sensitivity.condition, 1, 1e-14);
        EXPECT_NEAR(found.last, std::sqrt(0.5), 1e-14);
    }
}

/// A Krylov space of one vector: A may be a multiple of 1, with the eigenvalue as often as it has
/// rows, and only a map that is 0 is known.
TEST(LeadingEigenvalue, OfRankTwoIsNotKnownByOneProduct) {
    EXPECT_FALSE(hessenberg::leading_eigenvalue({1}, 1, 2, 0, 0, sought).certain);
    EXPECT_TRUE(hessenberg::leading_eigenvalue({0}, 1, 2, 0, 0, sought).certain);
    EXPECT_TRUE(hessenberg::leading_eigenvalue({0}, 1, 2, 0.25, 0.25, sought).certain);
    EXPECT_FALSE(hessenberg::leading_eigenvalue({0}, 1, 2, 0.5, 0.25, sought).certain);
    const auto found = hessenberg::leading_eigenvalue({-3}, 1, 2, 0.5, 0.25, sought);
    EXPECT_EQ(found.first, -3.0);
    EXPECT_EQ(found.first_radius, 0.75);
}

}  // namespace
}  // namespace tsdiag
