#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

double effective_rank(const Matrix& x) {
    const Table t = measure("rank", {.states = {{"in", "", tensor(x)}, {"out", "", tensor(x)}}});
    EXPECT_FALSE(t.find(state("in"), "effective_rank"));
    return value(t, state("out"), "effective_rank");
}

TEST(EffectiveRank, IsTheRankWhereSingularValuesAreEqual) {
    EXPECT_CLOSE(effective_rank(identity(5)), 5, rounding(100));
    EXPECT_CLOSE(effective_rank(Matrix(6, 3, 2.0)), 1, rounding(100));
    Matrix three(7, 4);
    for (Index i = 0; i < 3; ++i) three(i, i) = -4;
    EXPECT_CLOSE(effective_rank(three), 3, rounding(100));
}

/// Singular values 3 and 1: shares 3/4 and 1/4.
TEST(EffectiveRank, IsTheExponentialOfTheEntropy) {
    Matrix two(2, 5);
    two(0, 4) = 3;
    two(1, 0) = 1;
    const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
    EXPECT_CLOSE(effective_rank(two), std::exp(entropy), rounding(100));
}

TEST(EffectiveRank, OfZeroIsUndefined) {
    const Table t = measure("rank", {.states = {{"out", "", tensor(Matrix(3, 2))}}});
    EXPECT_EQ(t.find(state("out"), "effective_rank")->note, "X = 0");
}

}  // namespace
}  // namespace tsdiag::test
