#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "claims/tse/similarity.hpp"

namespace tsdiag::claim {
namespace {

/// Rows of mean 0 and mean square 1, by loops.
Matrix layer_norm(const Matrix& X) {
    Matrix Y = X;
    for (Index i = 0; i < X.rows(); ++i) {
        double mean = 0, square = 0;
        for (Index c = 0; c < X.cols(); ++c) mean += X(i, c) / double(X.cols());
        for (Index c = 0; c < X.cols(); ++c)
            square += std::pow(X(i, c) - mean, 2) / double(X.cols());
        for (Index c = 0; c < X.cols(); ++c) Y(i, c) = (X(i, c) - mean) / std::sqrt(square);
    }
    return Y;
}

TEST(PrenormGrowth, ClaimsTheSquaresOfTheBranches) {
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.eq20"}).front();
    for (const std::uint64_t seed : {0, 1}) {
        const CheckSettings settings{.n = 5, .d = 4, .seed = seed, .only = Index(2)};
        const Check how = plan(claim, settings);
        const Rng rng = how.rng.fork("block");
        const Matrix X = draw(rng, "X", 5, 4, Distribution::gaussian), normed = layer_norm(X);
        const Matrix branch = attention_of(normed, rng) * normed;
        const Matrix Y = X + branch * draw(rng, "W", 4, 4, Distribution::gaussian, 0.25);
        const Examined examined = examine(claim, settings);
        const auto bound = [&](std::string_view name) {
            const auto r = std::ranges::find(examined.readings, name, &Reading::name);
            return r == examined.readings.end() ? NAN : r->bound.value_or(NAN);
        };
        // some hundred roundings
        EXPECT_NEAR(bound("attention step"), X.squaredNorm() + branch.squaredNorm(), 1e-11);
        EXPECT_NEAR(bound("feed-forward step"), Y.squaredNorm(), 1e-11);
        // d q s1^2 s2^2 = 1, and |LN(Y)|_F^2 = n d.
        EXPECT_NEAR(bound("feed-forward step, exactly"), Y.squaredNorm() + 5 * 4 / 2.0, 1e-11);
        // The mean over W and -W of one draw.
        const auto r = std::ranges::find(examined.readings, "attention step", &Reading::name);
        ASSERT_TRUE(r != examined.readings.end() && r->measured);
        const Matrix more = branch * draw(how.rng.fork("attention step").fork(2), "W", 4, 4,
                                          Distribution::gaussian, 0.25);
        EXPECT_NEAR(*r->measured, X.squaredNorm() + more.squaredNorm(), 1e-11);
    }
}

}  // namespace
}  // namespace tsdiag::claim
