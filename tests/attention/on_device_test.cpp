#include "attention/spectra/on_device.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "attention/heads.hpp"
#include "attention/spectra/route.hpp"
#include "tsdiag/error.hpp"

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
                EXPECT_EQ(*found.high, one_matrix::largest_row_sum(Type::f64, n)) << family.name;
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

/// Of heads of unlike size, by blocks of rows of which the last is shorter.
TEST(OnDevice, BoundsEigenvaluesThatAreNotCertifiedByTheNorm) {
    constexpr Index n = 130;
    constexpr double unreachable = -1;
    std::vector<double> all, norms;
    for (const double size : {1.0, 3.0}) {
        const Matrix p = noise(n, size, 4);
        all.insert(all.end(), p.a.begin(), p.a.end());
        norms.push_back(naive::frobenius(p));
    }
    const auto op = given_attention(
        Tensor::from_host(cpu(), {2, n, n}, std::span<const double>(all), Type::f64), false, "");
    for (const double memory : {enough, none}) {
        const auto found = on_device::second_eigenvalue(*op, memory, false, unreachable);
        for (std::size_t k = 0; k < 2; ++k) {
            EXPECT_FALSE(found[k].converged);
            // Upwards, by some n^2 roundings.
            EXPECT_NEAR(found[k].high.value(), norms[k], 1e-11 * norms[k]) << k;
            EXPECT_GE(found[k].high.value(), norms[k]) << k;
        }
    }
}

/// A stochastic P has rows that sum to 1 as nearly as `given_attention` asks for, or as a softmax
/// rounds.
TEST(OnDevice, BoundsEigenvaluesOfAStochasticHeadByItsRowSums) {
    constexpr Index n = 130;
    const Matrix p = naive::softmax(noise(n, 1, 4));
    for (const auto& [type, more] :
         {std::pair(Type::f64, 1e-12), std::pair(Type::f32, (n + 16) * 0x1p-23)}) {
        const auto op = given(p, type);
        const Estimate found = on_device::second_eigenvalue(*op, enough, true, -1).front();
        EXPECT_FALSE(found.converged);
        EXPECT_EQ(found.high, 1 + more);
    }
    EXPECT_EQ(one_matrix::largest_row_sum(Type::f64, 10000), 1 + 10016 * 0x1p-52);
}

/// Two states that stay with 0.9 and 0.7: |P|_F^2 = 1.4, and 0.6 is left of it.
TEST(OnDevice, BoundsWhatTheDenseMethodDoesNotCertify) {
    const Tensor p = one_head(Matrix(2, 2, {0.9, 0.1, 0.3, 0.7}));
    constexpr double beyond = 1e-18;  // less than rounding
    const Estimate whole = on_device::dense_second(p, {false, 2}, beyond).value(),
                   rest = on_device::dense_second(p, {true, 1}, beyond).value();
    EXPECT_FALSE(whole.converged || rest.converged);
    EXPECT_NEAR(whole.value, 0.6, 1e-15);
    EXPECT_NEAR(rest.value, 0.6, 1e-15);
    EXPECT_NEAR(whole.high.value(), std::sqrt(1.4), 1e-15);
    EXPECT_NEAR(rest.high.value(), 0.6, 1e-15);
    Matrix identity(3, 3);  // of which the norm is sqrt(2)
    for (Index i = 0; i < 3; ++i) identity(i, i) = 1;
    EXPECT_EQ(on_device::dense_second(one_head(identity), {true, 1}, beyond)->high, 1 + 1e-12);
}

/// A P of which there is no room for more than `most` rows, and for none when it is first asked
/// for.
class FullAtFirst final : public AttentionOperator {
  public:
    FullAtFirst(Tensor p, Index most) : p_(std::move(p)), most_(most) {}
    RowBlock rows(Index first, Index count) const override {
        if (!std::exchange(asked_, true) || count > most_) throw OutOfMemory("full");
        RowBlock block;
        block.first = first;
        block.p = p_.row_range(first, count);
        return block;
    }
    Index heads() const override { return p_.batch(); }
    Index tokens() const override { return p_.rows(); }
    Index columns() const override { return p_.cols(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return p_.backend(); }

  private:
    Tensor p_;
    Index most_;
    mutable bool asked_ = false;
};

/// What was summed before the device was full is not taken for the sums of columns: with those that
/// are 0 this would find |P|_2, which is several times |Pi2 P|_2.
TEST(OnDevice, BeginsAnewWithHalfAsManyVectorsWhereItIsFull) {
    constexpr Index n = 330;            // more than half of the steps
    constexpr double unreachable = -1;  // no residual is that small
    const Matrix p = naive::softmax(noise(n, 1, 4));
    restart_shortages();
    const Estimate found =
        on_device::centred_norm(FullAtFirst(one_head(p), n), enough, unreachable).front();
    EXPECT_FALSE(found.converged);
    EXPECT_EQ(found.iterations, one_matrix::lanczos_products / 2);
    // So many steps find it to rounding.
    const double expected = centred_norm(*given(p), 2e9, 1e-6, "dense").front().value;
    EXPECT_NEAR(found.value, expected, 1e-9 * expected);
    ASSERT_EQ(shortages().size(), 1U);
    EXPECT_NE(shortages().front().find("the vectors of an iteration were halved, 1 time;"),
              std::string::npos);
    restart_shortages();
}

TEST(OnDevice, HalvesItsBlocksOfRowsDownToOne) {
    constexpr Index n = 11;
    const Matrix p = naive::softmax(noise(n, 1, 4));
    const auto whole = on_device::diagonals(*given(p), enough).front();
    for (const Index most : {1, 2, 5}) {
        const auto found = on_device::diagonals(FullAtFirst(one_head(p), most), none).front();
        EXPECT_EQ(found, whole) << most;
        const Estimate norm = on_device::centred_norm(FullAtFirst(one_head(p), most), none).front();
        const double expected = centred_norm(*given(p)).front().value;
        EXPECT_NEAR(norm.value, expected, 1e-6 * expected) << most;  // the guarantee of both
    }
    restart_shortages();
    EXPECT_THROW(on_device::diagonals(FullAtFirst(one_head(p), 0), none), OutOfMemory);
    restart_shortages();
}

/// Keys of a memory come first: P has more columns than rows.
TEST(OnDevice, FindsTheNormOfAHeadWithAMemory) {
    Matrix p(5, 9);
    Rng(6).fill_normal(p.a, 0.5, 1);
    const double expected = singular_values(naive::centred(p).a, 5, 9)[0];
    for (const double memory : {enough, none})
        for (const Index most : {2, 5}) {
            if (memory == enough && most < 5) continue;  // P is kept
            const Estimate found =
                on_device::centred_norm(FullAtFirst(one_head(p), most), memory).front();
            EXPECT_TRUE(found.converged);
            EXPECT_NEAR(found.value, expected, 1e-6 * expected);  // the guarantee
        }
    restart_shortages();
}

TEST(OnDevice, ChoosesHeadsOutOfAStack) {
    const Tensor p = gaussian({4, 2, 3}, Type::f32, 5);
    const std::vector<Index> two = {0, 2}, all = {0, 1, 2, 3};
    const Tensor some = spectra::chosen(p, two);
    ASSERT_EQ(some.shape(), (Shape{2, 2, 3}));
    for (Index i = 0; i < 2; ++i)
        EXPECT_EQ(some.batch_range(i, 1).to_host<float>(),
                  p.batch_range(two[std::size_t(i)], 1).to_host<float>());
    EXPECT_EQ(spectra::chosen(p, all).view().data, p.view().data);  // no copy
}

}  // namespace
}  // namespace tsdiag
