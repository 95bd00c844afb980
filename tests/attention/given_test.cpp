#include <gtest/gtest.h>

#include "attention/heads.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

/// P, its logits and its slope: three numbers an entry.
TEST(RowsAtOnce, FitMemoryAndAreNoMoreThanThereAre) {
    const Index n = 1000;
    const auto p = given(naive::softmax(noise(n, 1, 1)));
    const double row = 3 * 8 * double(n);
    EXPECT_EQ(given(naive::softmax(noise(50, 1, 1)))->rows_at_once(1e12), 50);
    for (const double rows : {96.0, 200.0, 500.0}) {
        EXPECT_LE(double(p->rows_at_once(rows * row)), rows);
        // At least half of the rows that fit memory and caches.
        EXPECT_GT(2 * double(p->rows_at_once(rows * row)),
                  std::min(rows, cpu().working_set() / row));
    }
}

TEST(RowsOfAProduct, AreAsManyAsSixteenMegabytesHold) {
    const double most = double(16 << 20) / 96;
    ASSERT_EQ(96 * most, double(16 << 20));
    for (const auto& [bytes, rows] : {std::pair{1.0, 96},
                                      {most, 96},
                                      {1.001 * most, 48},
                                      {2 * most, 48},
                                      {2.001 * most, 24},
                                      {4.001 * most, 12},
                                      {1e9, 12}})
        EXPECT_EQ(rows_of_a_product(bytes), rows) << bytes;
}

TEST(Given, SeesWhetherRowsSumToOne) {
    const naive::Matrix p = naive::softmax(noise(12, 1, 1));
    EXPECT_TRUE(given(p)->structure().row_stochastic);
    EXPECT_TRUE(given(p, Type::f32)->structure().row_stochastic);
    naive::Matrix half = p, negative = p;
    for (double& e : half.a) e /= 2;
    EXPECT_FALSE(given(half)->structure().row_stochastic);
    negative(3, 4) -= 1;
    negative(3, 5) += 1;
    EXPECT_FALSE(given(negative)->structure().row_stochastic);
    naive::Matrix coarse = p;
    coarse(0, 0) += 1e-9;
    EXPECT_FALSE(given(coarse)->structure().row_stochastic);
    EXPECT_TRUE(given(coarse, Type::f32)->structure().row_stochastic);
}

TEST(Given, RefusesAMapThatIsNotWhatItIsSaidToBe) {
    const naive::Matrix p = naive::softmax(noise(12, 1, 1)),
                        tril = naive::softmax(noise(12, 1, 1), true);
    EXPECT_THROW(given_attention(one_head(p), true, ""), UsageError);
    EXPECT_TRUE(given_attention(one_head(tril), true, "")->structure().causal);
    EXPECT_THROW(given_attention(one_head(p), false, "relu"), UsageError);
    EXPECT_THROW(given_attention(gaussian({1, 3, 4}, Type::f32, 1), false, ""), ShapeError);
}

TEST(Given, HasAJacobianOnlyWhereItIsKnownToBeASoftmax) {
    const Tensor p = one_head(naive::softmax(noise(9, 1, 1)));
    EXPECT_TRUE(row_statistics(given_attention(p, false, "")->rows(0, 9)).jacobian.empty());
    EXPECT_EQ(row_statistics(given_attention(p, false, "softmax")->rows(0, 9)).jacobian.size(), 9U);
}

}  // namespace
}  // namespace tsdiag
