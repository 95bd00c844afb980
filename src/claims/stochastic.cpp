#include "stochastic.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <limits>

namespace tsdiag::claim {
namespace {

Matrix scaled(const Matrix& logits, const Vector& y) {
    const Index n = y.size();
    return (logits + y.replicate(1, n) + y.transpose().replicate(n, 1)).array().exp();
}

/// y for which the rows of exp(K_ij + y_i + y_j) sum to 1; entries of K may be -infinity.
std::optional<Vector> balanced(const Matrix& K) {
    const Index n = K.rows();
    const double enough = 4 * double(n) * ulp;
    Vector y = -K.rowwise().maxCoeff() / 2;
    for (int step = 0; step < 200; ++step) {
        const Matrix P = scaled(K, y);
        const Vector sums = P.rowwise().sum();
        if (!sums.allFinite()) return {};
        const Vector off = sums.array() - 1;
        if (off.cwiseAbs().maxCoeff() <= enough) return y;
        const Matrix hessian = Matrix(sums.asDiagonal()) + P;
        Vector move = -hessian.completeOrthogonalDecomposition().solve(off);
        if (!move.allFinite()) return {};
        move *= std::min(1.0, 1 / move.cwiseAbs().maxCoeff());  // damped Newton step
        y += move;
    }
    return {};
}

}  // namespace

std::optional<Matrix> symmetric_stochastic(const Matrix& L) {
    const Matrix K = L + L.transpose();
    const std::optional<Vector> y = balanced(K);
    if (!y) return {};
    const Matrix P = scaled(K, *y);
    return (P + P.transpose()) / 2;  // exactly symmetric despite rounding
}

std::optional<Matrix> doubly_stochastic(const Matrix& L) {
    const Index n = L.rows();
    Matrix K = Matrix::Constant(2 * n, 2 * n, -std::numeric_limits<double>::infinity());
    K.topRightCorner(n, n) = L;
    K.bottomLeftCorner(n, n) = L.transpose();
    const std::optional<Vector> y = balanced(K);
    if (!y) return {};
    return scaled(K, *y).topRightCorner(n, n);
}

double stochastic_miss(const Matrix& P) {
    return std::max((P.rowwise().sum().array() - 1).abs().maxCoeff(), -P.minCoeff());
}

double doubly_stochastic_miss(const Matrix& P) {
    return std::max(stochastic_miss(P), stochastic_miss(P.transpose()));
}

}  // namespace tsdiag::claim
