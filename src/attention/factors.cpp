#include "factors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stored.hpp"

namespace tsdiag::factors {
namespace {

constexpr Index chunk_rows = 1 << 12;  // widened to double at once
constexpr double ulp = std::numeric_limits<double>::epsilon();

/// Column means, (h, 1, m).
Tensor column_means(const Tensor& x) {
    Tensor sum;
    for (Index first = 0; first < x.rows(); first += chunk_rows) {
        const Index count = std::min(chunk_rows, x.rows() - first);
        const Tensor part = column_sum(cast(x.row_range(first, count), Type::f64));
        sum = sum.defined() ? add(sum, part) : part;
    }
    return scale(sum, 1 / double(x.rows()));
}

/// What the spectra are made of, in double, (h, m, m).
struct Grams {
    Tensor left;   ///< left^T left
    Tensor right;  ///< right^T right
    Tensor cross;  ///< right^T left
    Tensor whole;  ///< squared column norms of left as it was, (h, 1, m)
};

/// Of the factors, or of Pi2 left and right; centred row by row, so nothing cancels in the sums.
Grams grams(const Factors& p, bool centred) {
    const Tensor mean = centred ? column_means(p.left) : Tensor();
    Grams g;
    const auto add_to = [](Tensor& sum, Tensor part) {
        sum = sum.defined() ? add(sum, part) : std::move(part);
    };
    for (Index first = 0; first < p.left.rows(); first += chunk_rows) {
        const Index count = std::min(chunk_rows, p.left.rows() - first);
        Tensor l = cast(p.left.row_range(first, count), Type::f64);
        const Tensor r = cast(p.right.row_range(first, count), Type::f64);
        add_to(g.whole, column_sum(multiply(l, l)));
        if (centred) l = subtract(l, mean);
        add_to(g.left, matmul(l, l, Transpose::first));
        add_to(g.right, matmul(r, r, Transpose::first));
        add_to(g.cross, matmul(r, l, Transpose::first));
    }
    return g;
}

/// One head of the Gram matrices with columns scaled so that those of left and right are equally
/// long: P and the spectra stay, their conditions improve.
struct Balanced {
    std::vector<double> left, right, cross;
    Index m = 0;
    double left_centred = 0;  ///< |Pi2 left|_F, or |left|_F where nothing was centred
    double left_whole = 0;    ///< |left|_F
    double right_whole = 0;   ///< |right|_F
    /// What rounding leaves of right^T left: that of the sums and of centring.
    double noise() const { return ulp * left_whole * right_whole; }
};

Balanced balanced(const Grams& g, Index head) {
    Balanced out;
    out.m = g.left.rows();
    out.left = g.left.batch_range(head, 1).to_host<double>();
    out.right = g.right.batch_range(head, 1).to_host<double>();
    out.cross = g.cross.batch_range(head, 1).to_host<double>();
    const std::vector<double> whole = g.whole.batch_range(head, 1).to_host<double>();
    std::vector<double> s;
    for (std::size_t c = 0; c < whole.size(); ++c) {
        const double r = out.right[c * (whole.size() + 1)];
        s.push_back(whole[c] > 0 && r > 0 ? std::pow(whole[c] / r, 0.25) : 1);
    }
    for (std::size_t i = 0; i < s.size(); ++i)
        for (std::size_t j = 0; j < s.size(); ++j) {
            const std::size_t at = i * s.size() + j;
            out.left[at] /= s[i] * s[j];
            out.right[at] *= s[i] * s[j];
            out.cross[at] *= s[i] / s[j];
        }
    for (std::size_t c = 0; c < s.size(); ++c) {
        out.left_whole += whole[c] / (s[c] * s[c]);
        out.left_centred += out.left[c * (s.size() + 1)];
        out.right_whole += out.right[c * (s.size() + 1)];
    }
    for (double* squares : {&out.left_whole, &out.left_centred, &out.right_whole})
        *squares = std::sqrt(*squares);
    return out;
}

/// The rank-th eigenvalue modulus of a matrix whose entries are wrong by `noise`.  An eigenvalue
/// moves by that times its condition number, for which there is room up to 1000; beyond, it is an
/// interval.
Estimate leading(const std::vector<double>& a, Index m, Index rank, double noise) {
    Estimate e;
    if (rank <= m) e = dense_eigenvalue(a, m, rank);
    e.method = "factors";
    if (rank > m || 1e3 * noise <= 1e-6 * e.value) return e;
    e.converged = false;
    e.low = std::min(e.low.value_or(e.value), std::max(0.0, e.value - 1e3 * noise));
    e.high = std::max(e.high.value_or(e.value), e.value + 1e3 * noise);
    return e;
}

std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, Index m) {
    const auto n = static_cast<std::size_t>(m);
    std::vector<double> out(n * n, 0.0);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k)
            for (std::size_t j = 0; j < n; ++j) out[i * n + j] += a[i * n + k] * b[k * n + j];
    return out;
}

}  // namespace

bool wanted(const AttentionOperator& p, const Structure& known, double memory) {
    if (!known.factors) return false;
    return known.factors->left.cols() < p.tokens() / 4 || !stored::fits(p, memory);
}

std::vector<Estimate> second_eigenvalue(const Factors& p, bool stochastic) {
    const Grams g = grams(p, stochastic);
    return stored::for_each_head<Estimate>(p.left.batch(), [&](Index k) {
        const Balanced b = balanced(g, k);
        return leading(b.cross, b.m, stochastic ? 1 : 2, b.noise());
    });
}

std::vector<Estimate> centred_norm(const Factors& p) {
    const Grams g = grams(p, true);
    return stored::for_each_head<Estimate>(p.left.batch(), [&](Index k) {
        const Balanced b = balanced(g, k);
        // Of the square: |Pi2 P|_2 times the noise of Pi2 P, and that of the product of the Grams.
        const double norm = b.left_centred * b.right_whole;
        const double noise = 2 * norm * b.noise() + ulp * norm * norm;
        Estimate e = leading(product(b.left, b.right, b.m), b.m, 1, noise);
        e.value = std::sqrt(e.value);
        if (e.low) e.low = std::sqrt(*e.low);
        if (e.high) e.high = std::sqrt(*e.high);
        return e;
    });
}

std::vector<std::vector<double>> diagonals(const Factors& p) {
    return stored::for_each_head<std::vector<double>>(p.left.batch(), [&](Index k) {
        const Tensor l = p.left.batch_range(k, 1), r = p.right.batch_range(k, 1);
        std::vector<double> out;
        for (Index first = 0; first < l.rows(); first += chunk_rows) {
            const Index count = std::min(chunk_rows, l.rows() - first);
            const Tensor part = row_sum(multiply(cast(l.row_range(first, count), Type::f64),
                                                 cast(r.row_range(first, count), Type::f64)));
            const std::vector<double> values = part.to_host<double>();
            out.insert(out.end(), values.begin(), values.end());
        }
        return out;
    });
}

}  // namespace tsdiag::factors
