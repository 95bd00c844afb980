#include "claims/stochastic.hpp"

#include <gtest/gtest.h>

#include "claims/tse/escalation.hpp"

namespace tsdiag::claim {
namespace {

/// Sums of n numbers are rounded by about n eps.
constexpr double rounding = 1e-13;

TEST(Stochastic, SymmetricRowsSumToOneFromAnyLogits) {
    int found = 0;
    for (const Index n : {2, 3, 5, 8, 16, 40})
        for (std::uint64_t seed = 0; seed < 20; ++seed)
            for (const double spread : {0.3, 1.0, 3.0}) {
                const Matrix L =
                    draw(Rng(seed), "L", n, n, Distribution::gaussian, spread * spread);
                const std::optional<Matrix> P = symmetric_stochastic(L);
                if (!P) continue;
                ++found;
                EXPECT_LT(doubly_stochastic_miss(*P), rounding)
                    << n << " " << seed << " " << spread;
                EXPECT_EQ((*P - P->transpose()).cwiseAbs().maxCoeff(), 0);
                // diag(x) K diag(x): products over a cycle of two are those of K
                EXPECT_NEAR(std::log((*P)(0, 1) * (*P)(0, 1) / ((*P)(0, 0) * (*P)(1, 1))),
                            2 * (L(0, 1) + L(1, 0)) - 2 * L(0, 0) - 2 * L(1, 1), 1e-10 * (1 + 20));
            }
    EXPECT_EQ(found, 6 * 20 * 3);
}

TEST(Stochastic, RowsAndColumnsSumToOneFromAnyLogits) {
    int found = 0;
    for (const Index n : {2, 3, 8, 20})
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            const Matrix L = draw(Rng(seed), "L", n, n, Distribution::gaussian, 4);
            const std::optional<Matrix> P = doubly_stochastic(L);
            if (!P) continue;
            ++found;
            EXPECT_LT(doubly_stochastic_miss(*P), rounding) << n << " " << seed;
            EXPECT_NEAR(std::log((*P)(0, 0) * (*P)(1, 1) / ((*P)(0, 1) * (*P)(1, 0))),
                        L(0, 0) + L(1, 1) - L(0, 1) - L(1, 0), 1e-10 * (1 + 20));
        }
    EXPECT_EQ(found, 4 * 10);
}

TEST(Stochastic, KnownCases) {
    const std::optional<Matrix> flat = doubly_stochastic(Matrix::Constant(3, 3, 5));
    ASSERT_TRUE(flat);
    EXPECT_LT((*flat - Matrix::Constant(3, 3, 1.0 / 3)).norm(), rounding);
    // x exp(K) x of one number is 1
    EXPECT_NEAR(symmetric_stochastic(Matrix{{300.0}}).value()(0, 0), 1, rounding);
    EXPECT_FALSE(symmetric_stochastic(Matrix{{NAN}}));
}

TEST(Stochastic, MissesAreTold) {
    EXPECT_EQ(stochastic_miss(Matrix{{0.5, 0.5}, {1, 0}}), 0);
    EXPECT_EQ(doubly_stochastic_miss(Matrix{{0.5, 0.5}, {1, 0}}), 0.5);
    EXPECT_EQ(stochastic_miss(Matrix{{1.5, -0.5}}), 0.5);
}

}  // namespace
}  // namespace tsdiag::claim
