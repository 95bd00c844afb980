#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "claims/variables.hpp"

namespace tsdiag::claim {
namespace {

/// |Pi1 A|_F^2, or |Pi2 A|_F^2.
double part_of(const Matrix& A, bool similar) {
    double sum = 0;
    for (Index c = 0; c < A.cols(); ++c) {
        double mean = 0;
        for (Index i = 0; i < A.rows(); ++i) mean += A(i, c) / double(A.rows());
        for (Index i = 0; i < A.rows(); ++i) sum += std::pow(similar ? mean : A(i, c) - mean, 2);
    }
    return sum;
}

TEST(SimilaritySteps, OfFeedForwardNetworksAreMeansOfBothSigns) {
    // The mean over F and -F of |Pi (X + F)|^2/|Pi X|^2 is 1 + |Pi F|^2/|Pi X|^2.
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.sec2.3-ffn"}).front();
    constexpr Index n = 5, d = 4, q = 16;
    const CheckSettings settings{.n = n, .d = d, .only = Index(3)};
    const Check how = plan(claim, settings);
    const Examined examined = examine(claim, settings);
    const Matrix X = draw(how.rng.fork("diverse"), "X", n, d, Distribution::gaussian);
    for (const std::string name : {"independent tokens", "arc-cosine kernel"}) {
        // torch.nn.Linear's variances.
        const Rng rng = how.rng.fork(name).fork(3);
        const Matrix W1 = draw(rng, "W1", d, q, Distribution::gaussian, 1.0 / (3 * d));
        const Matrix W2 = draw(rng, "W2", q, d, Distribution::gaussian, 1.0 / (3 * q));
        const Matrix F = (X * W1).cwiseMax(0) * W2;
        const double expected =
            (1 + part_of(F, true) / part_of(X, true)) / (1 + part_of(F, false) / part_of(X, false));
        const auto r = std::ranges::find(examined.readings, name, &Reading::name);
        ASSERT_TRUE(r != examined.readings.end() && r->measured) << name;
        EXPECT_NEAR(*r->measured, expected, 1e-12 * expected) << name;  // some hundred roundings
    }
}

}  // namespace
}  // namespace tsdiag::claim
