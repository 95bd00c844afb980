#include "attention/spectra/on_device.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/heads.hpp"

/// The functions for devices, with any backend: here the CPU, in tests/gpu a device.
namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;

constexpr double enough = 1e9, none = 1;  // bytes: P is kept, P is recomputed row by row

TEST(OnDevice, FindsWhatTheDenseMethodFindsForHeadsLikeTrainedOnes) {
    constexpr Index n = 160;
    int sure = 0;
    for (const Family& family : families())
        for (const double memory : {enough, none}) {
            const Matrix p = naive::softmax(family.logits(n, 5));
            const auto op = given(p);
            const Estimate found = on_device::second_eigenvalue(*op, memory, true).front();
            const double expected = dense_eigenvalue(p.a, n, 2).value;
            // The guarantee of the residual test; without it there is an interval.
            if (found.converged) {
                EXPECT_NEAR(found.value, expected, 1e-6 * expected) << family.name;
                ++sure;
            } else {
                EXPECT_LE(*found.low, expected * (1 + 1e-9)) << family.name;
                EXPECT_EQ(*found.high, 1) << family.name;
            }
            const Estimate norm = on_device::centred_norm(*op, memory).front();
            const double delta = centred_norm(*op).front().value;
            ASSERT_TRUE(norm.converged) << family.name;
            EXPECT_NEAR(norm.value, delta, 1e-6 * delta) << family.name;
        }
    EXPECT_GE(sure, int(families().size()));
}

TEST(OnDevice, FindsTheSecondModulusOfASignedMatrix) {
    constexpr Index n = 140;
    const Matrix p = noise(n, 1 / std::sqrt(double(n)), 3);
    const Estimate found = on_device::second_eigenvalue(*given(p), enough, false).front();
    ASSERT_TRUE(found.converged);
    EXPECT_NEAR(found.value, dense_eigenvalue(p.a, n, 2).value, 1e-6);
}

TEST(OnDevice, SeparatesTheHeadsOfAStack) {
    AttentionInput in = drawn_input(3, 65, 6, Type::f32, 9);
    in.causal = true;
    const auto p = attention("softmax").make(in);
    const std::vector<Estimate> expected = centred_norm(*p),
                                found = on_device::centred_norm(*p, none);
    const auto whole = on_device::diagonals(*p, enough), streamed = on_device::diagonals(*p, none);
    for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(whole[k].size(), 65U);
        for (std::size_t i = 0; i < 65;
             ++i)  // products of one row and of many: roundings in float32
            EXPECT_NEAR(whole[k][i], streamed[k][i], 1e-5);
        EXPECT_NEAR(found[k].value, expected[k].value, 1e-6 * expected[k].value);
        EXPECT_EQ(second_eigenvalue(whole[k]).value, second_eigenvalue(*p)[k].value);
    }
}

TEST(OnDevice, FindsNothingWhereAllRowsAreEqual) {
    Matrix p(40, 40);
    for (Index i = 0; i < 40; ++i)
        for (Index j = 0; j < 40; ++j) p(i, j) = (1 + double(j)) / 820;
    EXPECT_EQ(on_device::second_eigenvalue(*given(p), enough, true).front().value, 0);
    // Lanczos works on squares: rounding leaves 1e-16 of them, the root of which is 1e-8.
    EXPECT_NEAR(on_device::centred_norm(*given(p), enough).front().value, 0, 1e-8);
}

TEST(OnDevice, BoundsANormThatIsNotCertifiedByTheFrobeniusNorm) {
    constexpr Index n = 660;            // more than the steps
    constexpr double unreachable = -1;  // no residual is that small
    const Matrix p = naive::softmax(noise(n, 2, 4));
    double squares = 0;
    for (Index j = 0; j < n; ++j) {
        double mean = 0;
        for (Index i = 0; i < n; ++i) mean += p(i, j) / double(n);
        for (Index i = 0; i < n; ++i) squares += (p(i, j) - mean) * (p(i, j) - mean);
    }
    const Estimate found = on_device::centred_norm(*given(p), enough, unreachable).front();
    ASSERT_FALSE(found.converged);
    EXPECT_NEAR(*found.high, std::sqrt(squares), 1e-9 * found.value);
    EXPECT_GT(*found.high, found.value);
}

}  // namespace
}  // namespace tsdiag
