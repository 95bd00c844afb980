#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "hessenberg.hpp"
#include "inclusion.hpp"
#include "symmetric.hpp"
#include "tensor/products.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/parallel.hpp"
#include "ulp.hpp"

namespace tsdiag {
namespace {

View view_of(double* a, Index rows, Index cols, Index stride) {
    return {a, {1, rows, cols}, rows * stride, stride, Type::f64};
}

double frobenius(std::span<const double> a) {
    double top = 0;
    for (double e : a) top = std::max(top, std::abs(e));
    if (top == 0) return 0;
    double sum = 0;
    for (double e : a) sum += (e / top) * (e / top);
    return top * std::sqrt(sum);
}

std::vector<double> finite_copy(std::span<const double> a, Index m, Index n, const char* what) {
    if (Index(a.size()) != m * n)
        throw ShapeError(std::string(what) + ": " + std::to_string(a.size()) +
                         " numbers, expected " + std::to_string(m * n));
    for (double e : a)
        if (!std::isfinite(e))
            throw NonFiniteError(std::string(what) + ": the matrix has a non-finite entry");
    return {a.begin(), a.end()};
}

/// Householder: x becomes v with v[0] = 1, (1 - tau v v^T) x = beta e_1.
double reflector(std::span<double> x, double& beta) {
    const double tail = frobenius(x.subspan(1));
    beta = x[0];
    x[0] = 1;
    if (tail == 0) return 0;
    constexpr int up = 900;
    if (std::max(std::abs(beta), tail) < std::ldexp(1.0, -up)) {  // digits are lost near underflow
        for (double& e : x.subspan(1)) e = std::ldexp(e, up);
        x[0] = std::ldexp(beta, up);
        const double tau = reflector(x, beta);
        beta = std::ldexp(beta, -up);
        return tau;
    }
    const double alpha = beta;
    beta = -std::copysign(std::hypot(alpha, tail), alpha);
    for (double& e : x.subspan(1)) e /= alpha - beta;
    return (beta - alpha) / beta;
}

/// Q^T A Q in upper Hessenberg form, row-major.  `kept`: gets the reflections, too.
std::vector<double> reduce(std::vector<double> a, Index n, inclusion::Reduced* kept = nullptr) {
    std::vector<double> v(std::size_t(n), 0.0), s(v), w(v), p(v);
    for (Index k = 0; k + 2 < n; ++k) {
        const Index m = n - k - 1;  // v acts on rows and columns k + 1 ...
        const auto active = [m](std::vector<double>& x) {
            return std::span(x).first(std::size_t(m));
        };
        double* corner = a.data() + (k + 1) * n + k + 1;
        for (Index i = 0; i < m; ++i) v[std::size_t(i)] = corner[i * n - 1];
        double beta = 0;
        const double tau = reflector(active(v), beta);
        corner[-1] = beta;
        for (Index i = 1; i < m; ++i) corner[i * n - 1] = 0;
        if (kept) {
            std::ranges::copy(active(v), kept->v.begin() + k * n + k + 1);
            kept->tau[std::size_t(k)] = tau;
        }
        if (tau == 0) continue;
        // A (1 - tau v v^T), then (1 - tau v v^T) from the left, as one rank-two update.
        double* columns = a.data() + k + 1;  // all rows
        multiply(view_of(columns, n, m, n), active(v), s);
        std::fill(w.begin(), w.end(), 0.0);
        add_transposed(view_of(corner, m, m, n), 1, active(v), active(w));
        const double overlap = products::dot(v.data(), s.data() + k + 1, m);
        for (Index i = 0; i < m; ++i) w[std::size_t(i)] -= tau * overlap * v[std::size_t(i)];
        for (double& e : s) e *= -tau;
        std::fill(p.begin(), p.end(), 0.0);
        for (Index i = 0; i < m; ++i) p[std::size_t(k + 1 + i)] = -tau * v[std::size_t(i)];
        products::rank_two_update(columns, n, m, n, s.data(), v.data(), p.data(), w.data());
    }
    return a;
}

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inclusion::Reduced reduced(std::vector<double> a, Index n) {
    const auto reflections = std::size_t(std::max<Index>(0, n - 2));
    inclusion::Reduced out{.n = n,
                           .h = {},
                           .v = std::vector<double>(reflections * std::size_t(n)),
                           .tau = std::vector<double>(reflections)};
    out.h = reduce(std::move(a), n, &out);
    return out;
}

/// D^-1 A D with powers of two, which rounds nothing, so that each row and its column have nearly
/// one norm (Parlett and Reinsch, "Balancing a matrix for calculation of eigenvalues and
/// eigenvectors", Numer. Math. 13, 1969).  Returns the condition number of D.
double balance(std::vector<double>& a, Index n) {
    std::vector<int> scale(std::size_t(n), 0);
    bool changed = true;
    for (int sweep = 0; changed && sweep < 20; ++sweep) {
        changed = false;
        for (Index i = 0; i < n; ++i) {
            double row = 0, column = 0;
            for (Index j = 0; j < n; ++j) {
                if (j == i) continue;
                row = std::max(row, std::abs(a[std::size_t(i * n + j)]));
                column = std::max(column, std::abs(a[std::size_t(j * n + i)]));
            }
            if (row == 0 || column == 0) continue;
            const int by = (std::ilogb(row) - std::ilogb(column)) / 2;
            if (by == 0) continue;
            changed = true;
            scale[std::size_t(i)] += by;
            for (Index j = 0; j < n; ++j) {
                double &in_row = a[std::size_t(i * n + j)], &in_column = a[std::size_t(j * n + i)];
                if (j == i) continue;
                in_row = std::ldexp(in_row, -by);
                in_column = std::ldexp(in_column, by);
            }
        }
    }
    const auto [least, most] = std::ranges::minmax(scale);
    return std::ldexp(1.0, most - least);
}

/// Of a matrix of this norm; found is exact for one at distance noise + residual.
Estimate dense_estimate(const hessenberg::Leading& found, Index n, double norm, double noise) {
    Estimate out{.value = found.modulus,
                 .method = "dense",
                 .residual = found.residual,
                 .converged = found.certain};
    if (!out.converged) {
        const double radius =
            2 * norm * std::pow((noise + found.residual) / (2 * norm), 1 / double(n));  // Elsner
        out.low = std::max(0.0, found.modulus - radius);
        out.high = std::min(norm, found.modulus + radius);
    }
    return out;
}

void require_matrix(const Tensor& a, bool square, const char* what) {
    if (a.batch() != 1 || a.rows() < 1 || a.cols() < 1 || a.type() != Type::f64 ||
        (square && a.rows() != a.cols()))
        throw ShapeError(std::string(what) + ": expected one matrix in float64");
}

}  // namespace

std::vector<std::complex<double>> eigenvalues(std::span<const double> a, Index n) {
    return hessenberg::eigenvalues(reduce(finite_copy(a, n, n, "eigenvalues"), n), n);
}

Sensitivity sensitivity(std::span<const double> a, Index n, std::complex<double> theta) {
    return hessenberg::certify(reduce(finite_copy(a, n, n, "sensitivity"), n), n, theta)
        .sensitivity;
}

namespace {

/// Ascending.
std::vector<double> eigenvalues_of(symmetric::Tridiagonal t) {
    const Index n = std::ssize(t.diagonal);
    // Eigen's test for a negligible element means numbers near 1.
    double top = 0;
    for (const std::vector<double>* part : {&t.diagonal, &t.off})
        for (const double e : *part) top = std::max(top, std::abs(e));
    const int exponent = top > 0 ? std::ilogb(top) : 0;
    for (std::vector<double>* part : {&t.diagonal, &t.off})
        for (double& e : *part) e = std::ldexp(e, -exponent);
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
    solver.computeFromTridiagonal(Eigen::Map<const Eigen::VectorXd>(t.diagonal.data(), n),
                                  Eigen::Map<const Eigen::VectorXd>(t.off.data(), n - 1),
                                  Eigen::EigenvaluesOnly);
    std::vector<double> values(solver.eigenvalues().begin(), solver.eigenvalues().end());
    for (double& e : values) e = std::ldexp(e, exponent);
    return values;
}

}  // namespace

std::vector<double> symmetric_eigenvalues(std::span<const double> a, Index n) {
    std::vector<double> finite = finite_copy(a, n, n, "symmetric_eigenvalues");
    if (finite.empty()) return {};
    return eigenvalues_of(symmetric::reduce(std::move(finite), n));
}

std::vector<double> tridiagonal_of(std::vector<double> a, Index n) {
    if (n == 0) return {};
    symmetric::Tridiagonal t = symmetric::reduce(std::move(a), n);
    t.diagonal.insert(t.diagonal.end(), t.off.begin(), t.off.end());
    return std::move(t.diagonal);
}

std::vector<std::vector<double>> symmetric_eigenvalues(const Tensor& stack) {
    const Index n = stack.rows(), count = stack.batch();
    const Backend& backend = stack.backend();
    auto out = std::vector<std::vector<double>>(std::size_t(count));
    if (n == 0) return out;
    if (!backend.host_memory() && n > Backend::most_tridiagonal) {
        for (Index b = 0; b < count; ++b)
            out[std::size_t(b)] = backend.symmetric_eigenvalues(stack.batch_range(b, 1).view())
                                      .value_or(std::vector<double>());
        return out;
    }
    const std::vector<double> all = backend.tridiagonals(stack.view()).get();
    in_parallel(count, [&](Index b) {
        const auto own = all.begin() + b * (2 * n - 1);
        if (!std::all_of(own, own + 2 * n - 1, [](double e) { return std::isfinite(e); })) return;
        out[std::size_t(b)] = eigenvalues_of({{own, own + n}, {own + n, own + 2 * n - 1}});
    });
    return out;
}

std::vector<double> singular_values(std::span<const double> a, Index m, Index n) {
    const std::vector<double> finite = finite_copy(a, m, n, "singular_values");
    if (finite.empty()) return {};
    const Eigen::VectorXd s =
        Eigen::BDCSVD<Eigen::MatrixXd>(Eigen::Map<const RowMajor>(finite.data(), m, n))
            .singularValues();
    return {s.begin(), s.end()};
}

Estimate dense_eigenvalue(std::span<const double> a, Index n, Index rank, double accuracy,
                          double error) {
    check(rank >= 1 && error >= 0, "dense_eigenvalue: ranks begin at 1, errors at 0");
    Estimate out{.method = "dense"};
    if (rank > n) return out;
    // Squares of its entries are to stay in range.
    std::vector<double> scaled = finite_copy(a, n, n, "dense_eigenvalue");
    double top = 0;
    for (const double e : scaled) top = std::max(top, std::abs(e));
    const int exponent = exponent_of(top);
    for (double& e : scaled) e = std::ldexp(e, -exponent);
    double distance = std::ldexp(error, -exponent);
    // Balanced where that leaves less of rounding and error; nothing may have been lost to
    // underflow.
    std::vector<double> balanced = scaled;
    const double spread = balance(balanced, n);
    if (spread > 1 && spread < 1e100 &&
        2 * (ulp * frobenius(balanced) + spread * distance) < ulp * frobenius(scaled) + distance) {
        scaled = std::move(balanced);
        distance *= spread;
    }
    const inclusion::Reduced h = reduced(scaled, n);
    const std::vector<std::complex<double>> values = hessenberg::eigenvalues(h.h, n);
    const auto [low, high] = inclusion::modulus(scaled, h, values, rank, distance, accuracy);
    std::vector<double> moduli;
    for (const std::complex<double> value : values) moduli.push_back(std::abs(value));
    std::ranges::nth_element(moduli, moduli.begin() + (rank - 1), std::greater());
    const double value = std::clamp(moduli[std::size_t(rank - 1)], low, high);
    out.value = std::ldexp(value, exponent);
    out.converged = std::max(high - value, value - low) <= accuracy * low;
    if (!out.converged) out.low = std::ldexp(low, exponent), out.high = std::ldexp(high, exponent);
    // Beyond the range of normal numbers digits are lost.
    if (out.value != 0 && !std::isnormal(out.value)) {
        out.converged = false;
        out.low = 0;
        out.high = std::max(std::ldexp(high, exponent), std::numeric_limits<double>::min());
    }
    return out;
}

std::optional<Estimate> dense_eigenvalue(const Tensor& a, Index rank, double accuracy,
                                         double error) {
    require_matrix(a, true, "dense_eigenvalue");
    const double norm = double(std::sqrt(squared_norm(a))), noise = ulp * norm + error;
    if (norm == 0 && error == 0) return Estimate{.method = "dense"};
    const auto values = a.backend().eigenvalues(a.view());
    if (!values) return std::nullopt;
    const hessenberg::Leading found = hessenberg::leading_of(
        *values, rank, noise, accuracy,
        [&](std::complex<double> theta) { return a.backend().sensitivity(a.view(), theta); });
    return dense_estimate(found, a.rows(), norm, noise);
}

std::optional<Estimate> dense_norm(const Tensor& a, double accuracy, double error) {
    require_matrix(a, false, "dense_norm");
    const Tensor gram = matmul(a, a, Transpose::first);
    const auto squares = a.backend().symmetric_eigenvalues(gram.view());
    if (!squares) return std::nullopt;
    return dense_norm(*squares, a.rows(), accuracy, error);
}

Estimate dense_norm(std::span<const double> squares, Index m, double accuracy, double error) {
    check(!squares.empty(), "dense_norm: the eigenvalues of A^T A");
    constexpr double smallest = std::numeric_limits<double>::min();
    const Index n = std::ssize(squares);
    const double largest = std::max(0.0, squares.back());
    double sum = 0;
    for (const double square : squares) sum += square;  // |A|_F^2
    // |fl(A^T A) - A^T A| <= m u |A|_F^2, u = ulp/2, and the solver's backward error is some n u.
    // Squares below the smallest normal number are lost.
    const double radius = ulp * double(m + 4 * n) * std::max(0.0, sum) +
                          (sum > 0 || error > 0 ? double(m * n) * smallest : 0);
    Estimate out{.value = std::sqrt(largest), .method = "dense"};
    out.converged = radius + error * (2 * out.value + error) <= 2 * accuracy * largest;
    if (!out.converged) {
        out.low = std::max(0.0, std::sqrt(std::max(0.0, largest - radius)) - error);
        out.high = std::sqrt(largest + radius) + error;
    }
    return out;
}

}  // namespace tsdiag
