#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/heads.hpp"
#include "attention/stored.hpp"

/// Intervals for spectra at a tolerance that cannot be certified.
namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;

constexpr double unreachable = -1;  // no error is that small
constexpr double plenty = 2e9, little = 4e4;

/// Checks low <= exact <= high, with `exact` at its usual accuracy.
void expect_between(const Estimate& found, double exact) {
    ASSERT_FALSE(found.converged);
    ASSERT_TRUE(found.low && found.high);
    EXPECT_LE(*found.low, exact * (1 + 1e-6));
    EXPECT_GE(*found.high, exact * (1 - 1e-6));
}

TEST(Bounds, OfTheSecondEigenvalueAreOneAndTheFrobeniusNorm) {
    const Matrix p = naive::softmax(noise(40, 1, 2)), general = noise(40, 1, 3);
    for (const double memory : {plenty, little / 4}) {
        const Estimate of_p = second_eigenvalue(*given(p), memory, unreachable).front();
        expect_between(of_p, second_eigenvalue(*given(p)).front().value);
        EXPECT_LE(*of_p.high, 1 + 2e-12);
        const Estimate of_general = second_eigenvalue(*given(general), memory, unreachable).front();
        expect_between(of_general, second_eigenvalue(*given(general)).front().value);
        if (memory < plenty) continue;
        EXPECT_LE(*of_p.high, naive::frobenius(naive::centred(p)) * (1 + 1e-12));
        EXPECT_LE(*of_general.high, naive::frobenius(general) * (1 + 1e-12));
    }
}

/// A sum of as many squares is off by an ulp of its own each, its root by half of that; where
/// means cancelled, each entry by an ulp of its mean.
TEST(Bounds, OfANormAreAboveWhatRoundingTook) {
    constexpr double ulp = std::numeric_limits<double>::epsilon();
    EXPECT_GE(stored::norm_bound(4, 0, 10, 1000), 2 * (1 + 5000 * ulp));
    EXPECT_LE(stored::norm_bound(4, 0, 10, 1000), 2 * (1 + 20000 * ulp));
    EXPECT_GE(stored::norm_bound(0, 9, 10, 1000), 3 * 10 * ulp);
    EXPECT_LE(stored::norm_bound(0, 9, 10, 1000), 3 * 20 * ulp);
}

/// Rows that sum to 1 + 2^-20, as far as float32 is allowed to be off: lambda_2 exceeds 1, too.
TEST(Bounds, OfTheSecondEigenvalueFollowTheRowSums) {
    const double top = 1 + std::ldexp(1.0, -20), off = std::ldexp(1.0, -40);
    for (const Index n : {8, 40, 150}) {
        Matrix p(n, n);
        for (double& e : p.a) e = off;
        for (Index i = 0; i < n; ++i) p(i, i) = top;
        const auto op = given(p, Type::f32);
        ASSERT_TRUE(op->structure().row_stochastic);
        for (const char* route : {"auto", "dense", "arnoldi", "spectra"})
            for (const double memory : {plenty, little / 4}) {
                if (memory < plenty && (n < 40 || *route == 'd' || *route == 's')) continue;
                SCOPED_TRACE(std::string(route) + " " + std::to_string(n));
                const Estimate found = second_eigenvalue(*op, memory, unreachable, route).front();
                EXPECT_FALSE(found.converged);
                EXPECT_GE(found.high.value_or(0), top - off);
                EXPECT_LE(found.high.value_or(2), 1 + 2e-5);
            }
    }
}

TEST(Bounds, OfTheCentredNormAreTheFrobeniusNorm) {
    const Index n = 660;  // more than the Lanczos steps
    const Matrix p = naive::softmax(noise(n, 2, 4));
    const double exact = centred_norm(*given(p)).front().value;
    for (const double memory : {plenty, little}) {
        const Estimate found = centred_norm(*given(p), memory, unreachable).front();
        expect_between(found, exact);
        EXPECT_NEAR(*found.high, naive::frobenius(naive::centred(p)), 1e-9 * *found.high);
    }
    AttentionInput in = drawn_input(2, n, 6, Type::f64, 5);
    in.causal = true;
    const auto op = attention("linear").make(in);
    const auto found = centred_norm(*op, little, unreachable);
    for (std::size_t k = 0; k < 2; ++k) {  // not centred: |P|_F
        const Matrix head = naive::matrix_of(op->matrix().batch_range(Index(k), 1));
        expect_between(found[k], centred_norm(*given(head)).front().value);
        EXPECT_NEAR(*found[k].high, naive::frobenius(head), 1e-9 * *found[k].high);
    }
}

TEST(Bounds, OfFactorsHoldWhatIsCertifiedOtherwise) {
    const auto op = attention("linear").make(drawn_input(2, 96, 8, Type::f64, 11));
    const auto norms = centred_norm(*op), seconds = second_eigenvalue(*op),
               norm = centred_norm(*op, little, unreachable),
               second = second_eigenvalue(*op, little, unreachable);
    for (std::size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(norm[k].method, "factors");
        expect_between(norm[k], norms[k].value);
        EXPECT_EQ(second[k].method, "factors");
        expect_between(second[k], seconds[k].value);
    }
}

}  // namespace
}  // namespace tsdiag
