#include "attention/spectra/squaring.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/heads.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;

TEST(Squaring, FindsWhatTheDenseMethodFindsForHeadsLikeTrainedOnes) {
    for (const Family& family : families()) {
        const Matrix p = naive::softmax(family.logits(96, 5));
        const Estimate found = squaring::second_eigenvalue(one_head(p)).front();
        ASSERT_TRUE(found.converged) << family.name;
        // Both are right to rounding times the condition number; the bracket is 1e-9 wide.
        EXPECT_NEAR(found.value, dense_eigenvalue(p.a, 96, 2).value, 1e-7 * found.value)
            << family.name;
        const Estimate delta = squaring::centred_norm(one_head(p)).front();
        ASSERT_TRUE(delta.converged) << family.name;
        EXPECT_NEAR(delta.value, centred_norm(*given(p)).front().value, 1e-7 * delta.value)
            << family.name;
    }
}

TEST(Squaring, IsSureOfATriangularHeadOnlyWhereItIsRight) {
    int refused = 0;
    for (const Family& family : families()) {
        const Matrix p = naive::softmax(family.logits(160, 5), true);
        const Estimate found = squaring::second_eigenvalue(one_head(p)).front();
        double expected = 0;
        for (Index i = 1; i < 160; ++i) expected = std::max(expected, p(i, i));
        if (found.converged) {
            EXPECT_NEAR(found.value, expected, 1e-6 * expected) << family.name;
        } else {
            ++refused;
            EXPECT_TRUE(found.low && found.high) << family.name;
        }
    }
    EXPECT_GT(refused, 0);
}

TEST(Squaring, KnowsClosedForms) {
    // Two states that stay with 0.9 and 0.7: 0.6.  All rows equal: 0.  A cycle of three: 1.
    Matrix chain(2, 2);
    chain.a = {0.9, 0.1, 0.3, 0.7};
    Matrix equal(3, 3), cycle(3, 3);
    for (Index i = 0; i < 3; ++i) {
        for (Index j = 0; j < 3; ++j) equal(i, j) = (1 + double(j)) / 6;
        cycle(i, (i + 1) % 3) = 1;
    }
    // The bracket is 1e-9 wide.
    EXPECT_NEAR(squaring::second_eigenvalue(one_head(chain)).front().value, 0.6, 1e-9);
    const Estimate none = squaring::second_eigenvalue(one_head(equal)).front();
    EXPECT_EQ(none.value, 0);
    EXPECT_TRUE(none.converged);
    EXPECT_NEAR(squaring::second_eigenvalue(one_head(cycle)).front().value, 1, 1e-9);
    EXPECT_NEAR(squaring::centred_norm(one_head(cycle)).front().value, 1, 1e-9);
}

TEST(Squaring, BracketsWhatItIsNotToCertify) {
    const Tensor p = one_head(naive::softmax(noise(33, 1, 5)));
    const auto expect = [](const Estimate& open, const Estimate& found) {
        ASSERT_TRUE(found.converged && !open.converged && open.low && open.high);
        EXPECT_LE(*open.low, open.value);
        EXPECT_GE(*open.high, open.value);
        EXPECT_NEAR(*open.low, found.value, 1e-9 * found.value);
        EXPECT_NEAR(*open.high, found.value, 1e-9 * found.value);
    };
    expect(squaring::second_eigenvalue(p, -1).front(), squaring::second_eigenvalue(p).front());
    expect(squaring::centred_norm(p, -1).front(), squaring::centred_norm(p).front());
}

TEST(Squaring, StopsWhereTheBracketIsAsNarrowAsAsked) {
    const Tensor p = one_head(naive::softmax(noise(48, 1, 6)));
    Index before = 0;
    for (const double accuracy : {1e-2, 1e-4, 1e-6}) {
        const Estimate found = squaring::second_eigenvalue(p, accuracy).front();
        EXPECT_TRUE(found.converged);
        EXPECT_LE(found.residual, accuracy * found.value);
        EXPECT_GT(found.iterations, before);  // each one halves log n / 2^s
        before = found.iterations;
    }
}

/// A = e_1 (e_1 + c e_2)^T is its own square: every norm is sqrt(1 + c^2), every trace and the
/// radius are 1, and the guard of squaring.hpp is largest at j = 0.
TEST(Squaring, IsCertainAsFarAsItsGuardSays) {
    for (const double c : {300.0, 1000.0, 3000.0})
        for (const Index n : {2, 5}) {
            std::vector<double> a(std::size_t(n * n), 0.0);
            a[0] = 1;
            a[1] = c;
            const Tensor map =
                Tensor::from_host(cpu(), {1, n, n}, std::span<const double>(a), Type::f64);
            const double guard =
                std::sqrt(1 + c * c) * 0x1p-53 * std::sqrt(double(n)) * (1 + c * c) / 2;
            const Estimate sure = squaring::spectral_radii(map, 10 * guard * 1.05).front(),
                           unsure = squaring::spectral_radii(map, 10 * guard * 0.95).front();
            EXPECT_TRUE(sure.converged) << c << ' ' << n;
            EXPECT_FALSE(unsure.converged) << c << ' ' << n;
            EXPECT_NEAR(sure.value, 1, 10 * guard);
            ASSERT_TRUE(unsure.low && unsure.high);
            EXPECT_LE(*unsure.low, 1);
            EXPECT_GE(*unsure.high, 1);
        }
}

/// The same map times a power of two, known up to an error: times the condition number sqrt(1 +
/// c^2) and over the radius, a tenth of the accuracy is left to it; the guard of rounding is below
/// 1e-14.
TEST(Squaring, IsCertainAsFarAsTheErrorOfTheMapAllows) {
    constexpr double c = 3;
    for (const double scale : {0x1p-10, 1.0, 0x1p10}) {
        const std::vector<double> two = {scale, c * scale, 0, 0, scale, c * scale, 0, 0};
        const Tensor maps =
            Tensor::from_host(cpu(), {2, 2, 2}, std::span<const double>(two), Type::f64);
        const double most = 1e-7 / std::sqrt(1 + c * c) * scale;
        const std::vector<double> errors = {0.95 * most, 1.05 * most};
        const std::vector<Estimate> found = squaring::spectral_radii(maps, 1e-6, errors);
        EXPECT_TRUE(found[0].converged) << scale;
        EXPECT_FALSE(found[1].converged) << scale;
        for (const Estimate& e : found) EXPECT_NEAR(e.value, scale, 1e-9 * scale);  // the bracket
    }
    const std::vector<double> error = {0.5};
    const Estimate zero =
        squaring::spectral_radii(zeros(cpu(), {1, 2, 2}, Type::f64), 1e-6, error)[0];
    EXPECT_FALSE(zero.converged);
    EXPECT_EQ(zero.low, 0);
    EXPECT_EQ(zero.high, 0.5);
}

/// Of 4 times a cycle, 4: Weyl's theorem moves it by the error of P.
TEST(Squaring, OfANormIsCertainAsFarAsTheErrorOfPAllows) {
    Matrix p(3, 3);
    for (Index i = 0; i < 3; ++i) p(i, (i + 1) % 3) = 4;
    const auto found = [&](double error) {
        return squaring::centred_norm(one_head(p), 1e-6, std::vector<double>{error}).front();
    };
    EXPECT_TRUE(found(3.9e-7).converged);
    EXPECT_FALSE(found(3.9e-7).low || found(3.9e-7).high);
    for (const double error : {4.1e-7, 0.25, 5.0}) {
        const Estimate e = found(error);
        EXPECT_FALSE(e.converged) << error;
        EXPECT_NEAR(e.value, 4, 4e-9);  // the bracket
        EXPECT_NEAR(e.low.value(), std::max(0.0, 4 * (1 - 1e-6) - error), 8e-9) << error;
        EXPECT_NEAR(e.high.value(), 4 * (1 + 1e-6) + error, 8e-9) << error;
    }
}

TEST(Squaring, IsOfSquareMatricesInDoublePrecision) {
    for (const auto& [shape, type] :
         {std::pair(Shape{1, 2, 3}, Type::f64), std::pair(Shape{1, 1, 1}, Type::f64),
          std::pair(Shape{1, 2, 2}, Type::f32)})
        EXPECT_THROW(squaring::spectral_radii(zeros(cpu(), shape, type), 1e-6), BrokenInvariant);
}

TEST(Squaring, TakesEachHeadOfAStackForItself) {
    const AttentionInput in = drawn_input(3, 33, 6, Type::f64, 9);
    const auto p = attention("softmax").make(in);
    const std::vector<Estimate> together = squaring::second_eigenvalue(p->matrix());
    for (Index k = 0; k < 3; ++k) {
        const Estimate alone = squaring::second_eigenvalue(p->matrix().batch_range(k, 1)).front();
        EXPECT_NEAR(together[std::size_t(k)].value, alone.value, 1e-9);
        EXPECT_EQ(together[std::size_t(k)].iterations, alone.iterations);
    }
}

}  // namespace
}  // namespace tsdiag
