#include "polynomial.hpp"

#include <cmath>

namespace tsdiag::claim {
namespace {

Matrix elementwise_power(const Matrix& S, int p) {
    Matrix power = Matrix::Ones(S.rows(), S.cols());
    for (int i = 0; i < p; ++i) power = power.cwiseProduct(S);
    return power;
}

/// (left right^T)^l applied to x, for l = 0 .. p - 1.
std::vector<Matrix> powers_of(const Matrix& left, const Matrix& right, const Matrix& x, int p) {
    std::vector<Matrix> powers{x};
    for (int l = 1; l < p; ++l) powers.push_back(left * (right.transpose() * powers.back()));
    return powers;
}

/// sum_ij E |x_i|^(2p) |x_j|^(2p) of N vectors of D normal numbers of variance 1.
double token_moments(const LogitSizes& s, int p) {
    const double one = norm_moment(s.D, p), N = double(s.N);
    return N * (N - 1) * one * one + N * norm_moment(s.D, 2 * p);
}

}  // namespace

Logits draw_logits(const Check& how, Index N, const Rng& rng, const Scales& scales) {
    const Index D = how.d, w = how.d / how.heads;
    Matrix X = draw(rng, "X", N, D, how.distribution, scales.tokens);
    const Matrix Q = draw_weights(rng, "Q", D, w, how.distribution, scales.weights);
    const Matrix K = draw_weights(rng, "K", D, w, how.distribution, scales.weights);
    Matrix A = X * Q / std::sqrt(double(w)), B = X * K;
    return {std::move(X), std::move(A), std::move(B)};
}

double elementwise_norm(const Logits& s, int p) {
    return elementwise_power(s.A * s.B.transpose(), p).norm();
}

double matrix_norm(const Logits& s, int p) {
    const Index w = s.A.cols();
    Matrix C = Matrix::Identity(w, w);
    for (int i = 1; i < p; ++i) C = C * (s.B.transpose() * s.A);
    const Matrix left = s.A.transpose() * s.A, right = s.B.transpose() * s.B;
    return std::sqrt((C.transpose() * left * C * right).trace());
}

/// d(S_ij^p)/dQ_ab = p S_ij^(p-1) x_ia B_jb / sqrt(w)
double elementwise_gradient_norm(const Logits& s, int p) {
    const Matrix powers = elementwise_power(s.A * s.B.transpose(), p - 1).cwiseAbs2();
    const Vector x = s.X.rowwise().squaredNorm(), b = s.B.rowwise().squaredNorm();
    return p * std::sqrt(x.dot(powers * b) / double(s.A.cols()));
}

/// d(S^p)/dQ_ab = sum_l U_l e_a (W_l e_b)^T / sqrt(w), U_l = S^l X, W_l = (S^T)^(p-1-l) B
double matrix_gradient_norm(const Logits& s, int p) {
    const std::vector<Matrix> U = powers_of(s.A, s.B, s.X, p), W = powers_of(s.B, s.A, s.B, p);
    double square = 0;
    for (int l = 0; l < p; ++l)
        for (int m = 0; m < p; ++m) {
            const auto at = [](const std::vector<Matrix>& list, int i) -> const Matrix& {
                return list[std::size_t(i)];
            };
            square += at(U, l).cwiseProduct(at(U, m)).sum() *
                      at(W, p - 1 - l).cwiseProduct(at(W, p - 1 - m)).sum();
        }
    return std::sqrt(square / double(s.A.cols()));
}

/// J^T J = p^2/w sum_i (x_i x_i^T) x (B^T diag(S_ij^(2p-2)) B), D w x D w.
double elementwise_gradient_spectral_norm(const Logits& s, int p) {
    const Matrix powers = elementwise_power(s.A * s.B.transpose(), p - 1).cwiseAbs2();
    const Index D = s.X.cols(), w = s.B.cols();
    Matrix square = Matrix::Zero(D * w, D * w);
    for (Index i = 0; i < s.X.rows(); ++i) {
        const Matrix part = s.B.transpose() * powers.row(i).asDiagonal() * s.B;
        for (Index a = 0; a < D; ++a)
            for (Index b = 0; b < D; ++b)
                square.block(a * w, b * w, w, w) += s.X(i, a) * s.X(i, b) * part;
    }
    Vector x = Vector::Ones(D * w).normalized();
    double value = 0;
    for (int step = 0; step < 200; ++step) {
        const Vector next = square * x;
        value = next.norm();
        x = next / value;
    }
    return p * std::sqrt(value / double(w));
}

Logits by_keys(const Logits& s) {
    const double root = std::sqrt(double(s.A.cols()));
    return {s.X, s.B / root, s.A * root};
}

double double_factorial(int m) {
    double product = 1;
    for (int k = m; k > 1; k -= 2) product *= k;
    return product;
}

double norm_moment(Index k, int p) {
    double product = 1;
    for (int i = 0; i < p; ++i) product *= double(k + 2 * i);
    return product;
}

LogitSizes logit_sizes(const Check& how) {
    const Index w = how.d / how.heads;
    const Scales scales;
    return {how.n, how.d, w, scales.tokens,
            weight_variance(how.distribution, how.d, w, scales.weights)};
}

double logit_square(const LogitSizes& s, int p) {
    return double_factorial(2 * p - 1) * norm_moment(s.w, p) * std::pow(s.weights * s.x, 2 * p) *
           token_moments(s, p);
}

double gradient_square(const LogitSizes& s, int p) {
    return p * p * double_factorial(2 * p - 3) * norm_moment(s.w, p) *
           std::pow(s.weights, 2 * p - 1) * std::pow(s.x, 2 * p) * token_moments(s, p);
}

}  // namespace tsdiag::claim
