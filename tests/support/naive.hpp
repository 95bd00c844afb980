#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tsdiag/tensor.hpp"

/// Naive reference implementations: loops in float64 that share no code with the library.
namespace tsdiag::naive {

/// Row-major.
struct Matrix {
    Index rows = 0, cols = 0;
    std::vector<double> a;

    Matrix() = default;
    Matrix(Index r, Index c, double value = 0) : rows(r), cols(c), a(std::size_t(r * c), value) {}
    Matrix(Index r, Index c, std::vector<double> values) : rows(r), cols(c), a(std::move(values)) {}
    double& operator()(Index i, Index j) { return a[std::size_t(i * cols + j)]; }
    double operator()(Index i, Index j) const { return a[std::size_t(i * cols + j)]; }
};

/// Head `b` of a tensor.
inline Matrix matrix_of(const Tensor& t, Index b = 0) {
    return {t.rows(), t.cols(), t.batch_range(b, 1).to_host<double>()};
}

inline Matrix product(const Matrix& a, const Matrix& b) {
    Matrix c(a.rows, b.cols);
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j < b.cols; ++j)
            for (Index k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(k, j);
    return c;
}

inline Matrix transposed(const Matrix& a) {
    Matrix t(a.cols, a.rows);
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
    return t;
}

inline Matrix subtract(const Matrix& a, const Matrix& b) {
    Matrix c = a;
    for (std::size_t i = 0; i < c.a.size(); ++i) c.a[i] -= b.a[i];
    return c;
}

inline double frobenius(const Matrix& a) {
    double s = 0;
    for (double x : a.a) s += x * x;
    return std::sqrt(s);
}

/// Pi1 X: every row replaced by the mean row.
inline Matrix mean_part(const Matrix& x) {
    Matrix y(x.rows, x.cols);
    for (Index j = 0; j < x.cols; ++j) {
        double s = 0;
        for (Index i = 0; i < x.rows; ++i) s += x(i, j);
        for (Index i = 0; i < x.rows; ++i) y(i, j) = s / double(x.rows);
    }
    return y;
}

/// Pi2 X = X - Pi1 X.
inline Matrix centred(const Matrix& x) { return subtract(x, mean_part(x)); }

/// May row i see column j?  Causal: not ahead; window > 0: only positions nearer than `window`.
inline bool sees(Index i, Index j, bool causal, Index window = 0) {
    if (causal && j > i) return false;
    return window <= 0 || std::abs(i - j) < window;
}

/// Row-wise softmax of the visible entries; 0 elsewhere.
inline Matrix softmax(const Matrix& s, bool causal = false, Index window = 0) {
    Matrix p(s.rows, s.cols);
    for (Index i = 0; i < s.rows; ++i) {
        double top = -INFINITY, z = 0;
        for (Index j = 0; j < s.cols; ++j)
            if (sees(i, j, causal, window)) top = std::max(top, s(i, j));
        for (Index j = 0; j < s.cols; ++j)
            if (sees(i, j, causal, window)) z += p(i, j) = std::exp(s(i, j) - top);
        for (Index j = 0; j < s.cols; ++j) p(i, j) /= z;
    }
    return p;
}

/// 1/2 max_ij sum_k |P_ik - P_jk|.
inline double dobrushin(const Matrix& p) {
    double worst = 0;
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < i; ++j) {
            double s = 0;
            for (Index k = 0; k < p.cols; ++k) s += std::abs(p(i, k) - p(j, k));
            worst = std::max(worst, s / 2);
        }
    return worst;
}

/// First token of the nested window of exactly L tokens around i out of n, growing alternately left
/// first, spilling over at the border.  [DEVIL] 3.2
inline Index window_start(Index i, Index n, Index length) {
    Index left = i, right = i;
    bool go_left = true;
    while (right - left + 1 < length) {
        if ((go_left && left > 0) || right == n - 1)
            --left;
        else
            ++right;
        go_left = !go_left;
    }
    return left;
}

/// C(L), L = 1 .. columns: mean over the rows of the attention inside the window of L tokens; row i
/// has its own token in column first + i.
inline std::vector<double> accumulated_from(const Matrix& p, Index first) {
    std::vector<double> curve;
    for (Index length = 1; length <= p.cols; ++length) {
        double s = 0;
        for (Index i = 0; i < p.rows; ++i) {
            const Index start = window_start(first + i, p.cols, length);
            for (Index j = start; j < start + length; ++j) s += p(i, j);
        }
        curve.push_back(s / double(p.rows));
    }
    return curve;
}
inline std::vector<double> accumulated(const Matrix& p) { return accumulated_from(p, 0); }

inline double mean_square(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return sum / double(values.size());
}

}  // namespace tsdiag::naive
