#include "claims/poly/polynomial.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

namespace tsdiag::claim {
namespace {

/// Five points of Gauss-Hermite for the standard normal distribution: exact to the ninth power.
struct Node {
    double at, weight;
};
std::array<Node, 5> nodes() {
    const double root = std::sqrt(10.0);
    const double inner = std::sqrt(5 - root), outer = std::sqrt(5 + root);
    const double heavy = (7 + 2 * root) / 60, light = (7 - 2 * root) / 60;
    return {{{0, 8.0 / 15}, {inner, heavy}, {-inner, heavy}, {outer, light}, {-outer, light}}};
}

/// E f of `count` independent standard normal numbers, f a polynomial of degree 9 in each at most.
double expectation(Index count, const std::function<double(const Vector&)>& f) {
    const auto list = nodes();
    std::vector<std::size_t> at(std::size_t(count), 0);
    Vector x(count);
    double mean = 0;
    for (;;) {
        double weight = 1;
        for (Index i = 0; i < count; ++i) {
            const Node& node = list[at[std::size_t(i)]];
            x(i) = node.at;
            weight *= node.weight;
        }
        mean += weight * f(x);
        std::size_t next = 0;
        while (next < at.size() && ++at[next] == list.size()) at[next++] = 0;
        if (next == at.size()) return mean;
    }
}

/// The logits, not divided by sqrt(w), for X, Q, K taken from `numbers` in that order.
Logits logits_of(const Vector& numbers, const LogitSizes& s) {
    const Index x = s.N * s.D, q = s.D * s.w;
    const Matrix X = numbers.head(x).reshaped(s.N, s.D);
    const Matrix Q = numbers.segment(x, q).reshaped(s.D, s.w);
    const Matrix K = numbers.tail(q).reshaped(s.D, s.w);
    return {X, X * Q, X * K};
}

/// Sizes whose expectations are sums of at most 5^8 terms.
constexpr std::array<LogitSizes, 6> small{
    {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 1, 2}, {3, 1, 1}}};

TEST(Moments, OfLogitsEqualTheirQuadrature) {
    for (const LogitSizes& s : small)
        for (const int p : {1, 2}) {
            const double mean = expectation(s.N * s.D + 2 * s.D * s.w, [&](const Vector& v) {
                const double norm = elementwise_norm(logits_of(v, s), p);
                return norm * norm;
            });
            // a sum of some thousand terms
            EXPECT_NEAR(mean, logit_square(s, p), 1e-11 * mean) << s.N << s.D << s.w << " p=" << p;
        }
}

TEST(Moments, OfGradientsEqualTheirQuadrature) {
    for (const LogitSizes& s : small)
        for (const int p : {1, 2}) {
            const double mean = expectation(s.N * s.D + 2 * s.D * s.w, [&](const Vector& v) {
                const double norm = elementwise_gradient_norm(logits_of(v, s), p);
                return double(s.w) * norm * norm;  // which divides one factor by sqrt(w)
            });
            EXPECT_NEAR(mean, gradient_square(s, p), 1e-11 * mean)
                << s.N << s.D << s.w << " p=" << p;
        }
}

TEST(Moments, ScaleWithTheVariances) {
    const LogitSizes unit{2, 3, 2}, scaled{2, 3, 2, 4, 9};
    // S^p is of degree 2p in X and p in each of Q and K, a gradient by Q of p - 1 in Q
    EXPECT_DOUBLE_EQ(logit_square(scaled, 2), logit_square(unit, 2) * std::pow(36, 4));
    EXPECT_DOUBLE_EQ(gradient_square(scaled, 2),
                     gradient_square(unit, 2) * std::pow(4, 4) * std::pow(9, 3));
}

TEST(Moments, OfSmallCasesAreKnown) {
    EXPECT_EQ(double_factorial(-1), 1);
    EXPECT_EQ(double_factorial(7), 105);
    EXPECT_EQ(norm_moment(1, 3), 15);
    EXPECT_EQ(norm_moment(4, 2), 24);
    EXPECT_EQ(gradient_square({2, 1, 1}, 1), 8);  // [POLY] (55) has 6
}

Logits drawn_logits() {
    const Check how{.d = 4, .heads = 2, .seed = 0, .rng = Rng(3)};
    return draw_logits(how, 5, how.rng);
}

Matrix matrix_power(const Matrix& S, int p) {
    Matrix power = S;
    for (int i = 1; i < p; ++i) power = power * S;
    return power;
}
Matrix entry_power(const Matrix& S, int p) { return S.array().pow(p); }

TEST(Norms, EqualThoseOfTheWholeMatrix) {
    const Logits s = drawn_logits();
    const Matrix S = s.A * s.B.transpose();
    for (const int p : {1, 2, 3}) {
        EXPECT_NEAR(elementwise_norm(s, p), entry_power(S, p).norm(), 1e-13 * S.norm());
        const double norm = matrix_power(S, p).norm();
        EXPECT_NEAR(matrix_norm(s, p), norm, 1e-12 * norm);
    }
}

/// |d power(S)/dQ|_F by central differences; S = X Q B^T / sqrt(w) is linear in Q.
double differences(const Logits& s, const Matrix& Q, Matrix (*power)(const Matrix&, int), int p) {
    const double h = 1e-5, root = std::sqrt(double(s.B.cols()));
    double square = 0;
    for (Index k = 0; k < Q.size(); ++k) {
        Matrix up = Q, down = Q;
        up(k) += h;
        down(k) -= h;
        const Matrix above = power(s.X * up * s.B.transpose() / root, p);
        const Matrix below = power(s.X * down * s.B.transpose() / root, p);
        square += ((above - below) / (2 * h)).squaredNorm();
    }
    return std::sqrt(square);
}

TEST(Norms, OfGradientsEqualDifferences) {
    Logits s = drawn_logits();
    const Matrix Q = draw(Rng(4), "Q", 4, 2, Distribution::gaussian);
    s.A = s.X * Q / std::sqrt(2.0);
    for (const int p : {1, 2, 3}) {
        // truncation h^2 and rounding eps / h of the differences
        const double entries = differences(s, Q, entry_power, p);
        EXPECT_NEAR(elementwise_gradient_norm(s, p), entries, 1e-8 * entries) << p;
        const double whole = differences(s, Q, matrix_power, p);
        EXPECT_NEAR(matrix_gradient_norm(s, p), whole, 1e-8 * whole) << p;
    }
}

/// d(S_ij^p)/dQ_ab as an N^2 x D w matrix, from its definition.
Matrix jacobian(const Logits& s, int p) {
    const Matrix S = s.A * s.B.transpose();
    const Index N = S.rows(), D = s.X.cols(), w = s.B.cols();
    Matrix J(N * N, D * w);
    for (Index i = 0; i < N; ++i)
        for (Index j = 0; j < N; ++j)
            for (Index a = 0; a < D; ++a)
                for (Index b = 0; b < w; ++b)
                    J(i * N + j, a * w + b) =
                        p * std::pow(S(i, j), p - 1) * s.X(i, a) * s.B(j, b) / std::sqrt(double(w));
    return J;
}

TEST(Norms, OfGradientsEqualThoseOfTheWholeJacobian) {
    const Logits s = drawn_logits();
    for (const int p : {1, 2, 3}) {
        const Matrix J = jacobian(s, p);
        const double entries = elementwise_gradient_norm(s, p);
        EXPECT_NEAR(entries, J.norm(), 1e-13 * entries) << p;
        const double spectral = spectral_norm(J);
        // the power method stops after 200 steps, before it has converged fully
        EXPECT_NEAR(elementwise_gradient_spectral_norm(s, p), spectral, 1e-6 * spectral) << p;
    }
}

TEST(Norms, OfGradientsByKeysAreThoseOfTheTransposedLogits) {
    Logits s = drawn_logits();
    const Matrix Q = draw(Rng(4), "Q", 4, 2, Distribution::gaussian);
    const Matrix K = draw(Rng(4), "K", 4, 2, Distribution::gaussian);
    s.A = s.X * Q / std::sqrt(2.0);
    s.B = s.X * K;
    const Logits keys = by_keys(s);
    EXPECT_LT((keys.A * keys.B.transpose() - (s.A * s.B.transpose()).transpose()).norm(), 1e-13);
    for (const int p : {1, 2, 3}) {
        const double entries = differences(keys, K, entry_power, p);
        EXPECT_NEAR(elementwise_gradient_norm(keys, p), entries, 1e-8 * entries) << p;
        const double whole = differences(keys, K, matrix_power, p);
        EXPECT_NEAR(matrix_gradient_norm(keys, p), whole, 1e-8 * whole) << p;
    }
}

}  // namespace
}  // namespace tsdiag::claim
