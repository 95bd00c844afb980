#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "hessenberg.hpp"
#include "tensor/products.hpp"
#include "tridiagonal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag {
namespace {

constexpr double ulp = std::numeric_limits<double>::epsilon();

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
    if (static_cast<Index>(a.size()) != m * n)
        throw ShapeError(std::string(what) + ": " + std::to_string(a.size()) +
                         " numbers, expected " + std::to_string(m * n));
    for (double e : a)
        if (!std::isfinite(e))
            throw NonFiniteError(std::string(what) + ": an entry of the matrix is not finite");
    return {a.begin(), a.end()};
}

/// Householder: x becomes v with v[0] = 1, (1 - tau v v^T) x = beta e_1.
double reflector(std::span<double> x, double& beta) {
    const double tail = frobenius(x.subspan(1));
    beta = x[0];
    x[0] = 1;
    if (tail == 0) return 0;
    const double alpha = beta;
    beta = -std::copysign(std::hypot(alpha, tail), alpha);
    for (double& e : x.subspan(1)) e /= alpha - beta;
    return (beta - alpha) / beta;
}

/// Q^T A Q in upper Hessenberg form, row-major.
std::vector<double> reduce(std::vector<double> a, Index n) {
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
        if (tau == 0) continue;
        // A (1 - tau v v^T), then (1 - tau v v^T) from the left, as one update of rank two.
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

/// The bidiagonal form of a row-major m x n matrix, m >= n: its diagonals interleaved,
/// b_11, b_12, b_22, b_23, ..., b_nn.
std::vector<double> bidiagonal(std::vector<double> a, Index m, Index n) {
    const std::vector<double> zero(std::size_t(m), 0.0);
    std::vector<double> out, v = zero, w = zero;
    const auto head = [](std::vector<double>& x, Index count) {
        return std::span(x).first(std::size_t(count));
    };
    for (Index k = 0; k < n; ++k) {
        double beta = 0;
        for (Index i = k; i < m; ++i) v[std::size_t(i - k)] = a[std::size_t(i * n + k)];
        double tau = reflector(head(v, m - k), beta);
        out.push_back(beta);
        const Index rest = n - k - 1;
        if (rest == 0) break;
        double* right = a.data() + k * n + k + 1;  // rows k .., columns k + 1 ..
        std::fill(w.begin(), w.end(), 0.0);
        add_transposed(view_of(right, m - k, rest, n), -tau, head(v, m - k), head(w, rest));
        products::rank_two_update(right, m - k, rest, n, v.data(), w.data(), zero.data(), w.data());
        std::copy_n(right, rest, v.begin());
        tau = reflector(head(v, rest), beta);
        out.push_back(beta);
        double* below = right + n;
        multiply(view_of(below, m - k - 1, rest, n), head(v, rest), head(w, m - k - 1));
        for (double& e : head(w, m - k - 1)) e *= -tau;
        products::rank_two_update(below, m - k - 1, rest, n, w.data(), v.data(), zero.data(),
                                  v.data());
    }
    return out;
}

}  // namespace

std::vector<std::complex<double>> eigenvalues(std::span<const double> a, Index n) {
    return hessenberg::eigenvalues(reduce(finite_copy(a, n, n, "eigenvalues"), n), n);
}

std::vector<double> singular_values(std::span<const double> a, Index m, Index n) {
    std::vector<double> tall = finite_copy(a, m, n, "singular_values");
    if (m < n) {
        for (Index i = 0; i < m; ++i)
            for (Index j = 0; j < n; ++j) tall[std::size_t(j * m + i)] = a[std::size_t(i * n + j)];
        std::swap(m, n);
    }
    if (n == 0) return {};
    // The eigenvalues of [0 B^T; B 0], permuted to tridiagonal form, are -/+ the singular values of
    // B.
    const std::vector<double> off = bidiagonal(std::move(tall), m, n);
    const std::vector<double> diagonal(std::size_t(2 * n), 0.0);
    std::vector<double> out;
    for (Index k = 0; k < n; ++k)
        out.push_back(std::max(0.0, tridiagonal::eigenvalue(diagonal, off, k)));
    return out;
}

Estimate dense_eigenvalue(std::span<const double> a, Index n, Index rank, double accuracy) {
    const std::vector<double> h = reduce(finite_copy(a, n, n, "dense_eigenvalue"), n);
    const double norm = frobenius(a), noise = ulp * norm;
    const hessenberg::Leading found =
        hessenberg::leading_eigenvalue(h, n, rank, 0, noise, accuracy);
    Estimate out{.value = found.modulus, .method = "dense", .converged = found.certain};
    if (!out.converged) {
        const double radius = 2 * norm * std::pow(noise / (2 * norm), 1 / double(n));  // Elsner
        out.low = std::max(0.0, found.modulus - radius);
        out.high = std::min(norm, found.modulus + radius);
    }
    return out;
}

}  // namespace tsdiag
