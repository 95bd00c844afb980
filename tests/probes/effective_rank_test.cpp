#include "by_hand.hpp"
#include "tsdiag/linalg.hpp"

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

/// By the roots of a Gram matrix's eigenvalues where they are far from 0, else by singular values.
TEST(EffectiveRank, IsThatOfTheSingularValues) {
    for (const auto& [n, d] : {std::pair<Index, Index>{40, 25}, {25, 40}})
        for (const double rest : {1.0, 1e-3, 1e-6, 1e-9, 0.0}) {
            Matrix x = gaussian(n, d, 3);
            for (Index i = 0; i < n; ++i)
                for (Index c = 5; c < d; ++c) x(i, c) *= rest;
            double sum = 0, entropy = 0;
            const std::vector<double> s = singular_values(x.a, n, d);
            for (const double v : s) sum += v;
            for (const double v : s)
                if (v > 0) entropy -= v / sum * std::log(v / sum);
            EXPECT_CLOSE(effective_rank(x), std::exp(entropy), stopped_at(1e-7)) << rest;
        }
}

TEST(EffectiveRank, OfZeroIsUndefined) {
    const Table t = measure("rank", {.states = {{"out", "", tensor(Matrix(3, 2))}}});
    EXPECT_EQ(t.find(state("out"), "effective_rank")->note, "X = 0");
}

}  // namespace
}  // namespace tsdiag::test
