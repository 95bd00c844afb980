#include "factors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "one_matrix.hpp"
#include "route.hpp"
#include "stored.hpp"
#include "visible.hpp"

namespace tsdiag::factors {
namespace {

constexpr Index chunk_rows = 1 << 12;    // rows widened to double at once
constexpr Index triangle_rows = 1 << 8;  // rows whose triangle is formed
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

/// Gram matrices in double, (h, m, m).
struct Grams {
    Tensor left;   ///< left^T left
    Tensor right;  ///< right^T right
    Tensor cross;  ///< right^T left
    Tensor whole;  ///< squared column norms of left as it was, (h, 1, m)
};

/// Of the factors, or of Pi2 left and right; centred row by row, so the sums do not cancel.
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

/// One head of the Gram matrices with columns scaled so that those of left and right have equal
/// norms: P and the spectra are unchanged, their conditioning improves.
struct Balanced {
    std::vector<double> left, right, cross;
    Index m = 0;
    double left_centred = 0;  ///< |Pi2 left|_F, or |left|_F where nothing was centred
    double left_whole = 0;    ///< |left|_F
    double right_whole = 0;   ///< |right|_F
    Index rows = 0;
    /// Rounding error of right^T left, of the sums and of centring: sums of n terms are off by more
    /// than sqrt(n) roundings only with a vanishing probability (Higham and Mary, "A new approach
    /// to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019).
    double noise() const { return ulp * std::sqrt(double(rows)) * left_whole * right_whole; }
};

Balanced balanced(const Grams& g, Index head, Index rows) {
    Balanced out;
    out.rows = rows;
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

/// The rank-th eigenvalue modulus of a matrix with error `noise`.
Estimate leading(const std::vector<double>& a, Index m, Index rank, double noise, double accuracy) {
    Estimate e;
    if (rank <= m) e = dense_eigenvalue(a, m, rank, accuracy, noise);
    e.method = "factors";
    return e;
}

std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, Index m) {
    const auto n = std::size_t(m);
    std::vector<double> out(n * n, 0.0);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k)
            for (std::size_t j = 0; j < n; ++j) out[i * n + j] += a[i * n + k] * b[k * n + j];
    return out;
}

}  // namespace

bool wanted(const Structure& known) {
    return known.factors && known.factors->left.cols() < known.factors->left.rows() / 4;
}

std::vector<Estimate> second_eigenvalue(const Factors& p, bool stochastic, double accuracy) {
    const Grams g = grams(p, stochastic);
    return stored::for_each_head<Estimate>(g.left, [&](Index k) {
        const Balanced b = balanced(g, k, p.left.rows());
        return leading(b.cross, b.m, stochastic ? 1 : 2, b.noise(), accuracy);
    });
}

std::vector<Estimate> centred_norm(const Factors& p, double accuracy) {
    const Grams g = grams(p, true);
    return stored::for_each_head<Estimate>(g.left, [&](Index k) {
        const Balanced b = balanced(g, k, p.left.rows());
        // Of the square: |Pi2 P|_2 times the noise of Pi2 P, and that of the product of the Grams.
        const double norm = b.left_centred * b.right_whole;
        const double noise = 2 * norm * b.noise() + ulp * norm * norm;
        Estimate e = leading(product(b.left, b.right, b.m), b.m, 1, noise, accuracy);
        e.value = std::sqrt(e.value);
        if (e.low) e.low = std::sqrt(*e.low);
        if (e.high) e.high = std::sqrt(*e.high);
        return e;
    });
}

namespace {

/// Row sums and row sums of squares of P or of its triangle, for one head at a time.
class RowSums {
  public:
    RowSums(const Factors& p, Index head, bool causal)
        : left_(p.left.batch_range(head, 1)),
          right_(p.right.batch_range(head, 1)),
          causal_(causal) {
        for (Index first = 0; !causal && first < left_.rows(); first += chunk_rows)
            add_right(cast(right_.row_range(first, count_from(first, chunk_rows)), Type::f64));
    }

    /// use(first, sums, squares), the rows in order.
    template <class Use>
    void each_chunk(const Use& use) {
        const Index step = causal_ ? triangle_rows : chunk_rows;
        for (Index first = 0; first < left_.rows(); first += step) {
            const Index count = count_from(first, step);
            const Tensor l = cast(left_.row_range(first, count), Type::f64);
            Tensor sum, squares;
            if (gram_.defined()) {
                sum = matmul(l, sum_, Transpose::second);
                squares = row_sum(multiply(matmul(l, gram_), l));
            }
            if (causal_) {
                const Tensor r = cast(right_.row_range(first, count), Type::f64);
                const Tensor t = hide(matmul(l, r, Transpose::second), visibility::lower(0, count));
                const Tensor own = row_sum(t), own_squares = row_sum(multiply(t, t));
                sum = sum.defined() ? add(sum, own) : own;
                squares = squares.defined() ? add(squares, own_squares) : own_squares;
                add_right(r);
            }
            use(first, sum.to_host<double>(), squares.to_host<double>());
        }
    }

  private:
    Index count_from(Index first, Index step) const { return std::min(step, left_.rows() - first); }
    void add_right(const Tensor& r) {
        const Tensor sum = column_sum(r), gram = matmul(r, r, Transpose::first);
        sum_ = sum_.defined() ? add(sum_, sum) : sum;
        gram_ = gram_.defined() ? add(gram_, gram) : gram;
    }

    Tensor left_, right_;
    bool causal_;
    Tensor sum_, gram_;  ///< of the preceding rows of right, (1, 1, m), (1, m, m)
};

}  // namespace

namespace {

template <class F>
void with_type(const View& v, const F& use) {
    v.type == Type::f32 ? use(float{}) : use(double{});
}

/// y = tril(L R^T) x, or its transpose times x, summed from the last row up.
void triangle_product(const View& l, const View& r, bool transposed, std::span<const double> x,
                      std::span<double> y) {
    const Index n = l.shape.rows, m = l.shape.cols;
    const View &from = transposed ? l : r, &to = transposed ? r : l;
    std::vector<double> sum(std::size_t(m), 0.0);
    with_type(l, [&]<class T>(T) {
        for (Index t = 0; t < n; ++t) {
            const Index i = transposed ? n - 1 - t : t;
            const T *a = from.row<T>(0, i), *b = to.row<T>(0, i);
            const double weight = x[std::size_t(i)];
            double* s = sum.data();
            double total = 0;
#pragma omp simd reduction(+ : total)
            for (Index c = 0; c < m; ++c) {
                s[c] += weight * double(a[c]);
                total += s[c] * double(b[c]);
            }
            y[std::size_t(i)] = total;
        }
    });
}

}  // namespace

std::vector<Estimate> causal_centred_norm(const Factors& p, double tolerance, Index products) {
    const stored::Heads left(p.left), right(p.right);
    return stored::for_each_head<Estimate>(left.count(), [&](Index k) {
        const View l = left[k], r = right[k];
        const Index n = l.shape.rows;
        auto u = std::vector<double>(std::size_t(n));
        LinearMap map;
        map.rows = map.cols = n;
        map.normal = [&](std::span<const double> x, std::span<double> y) {
            triangle_product(l, r, false, x, u);
            double mean = 0;
            for (const double e : u) mean += e / double(n);
            for (double& e : u) e -= mean;
            triangle_product(l, r, true, u, y);
        };
        Estimate found = largest_singular_value(map, tolerance, products);
        found.method = "prefix sums";
        return found;
    });
}

RowTotals row_totals(const Factors& p, bool causal, bool slope, const Tensor& inverse) {
    struct Head {
        Wide squares = 0, jacobian = 0;
        double deviation = 0;
    };
    const Index n = p.left.rows();
    const std::vector<int> of_left = exponents_of(p.left), of_right = exponents_of(p.right);
    const Factors near{without_exponents(p.left, of_left), without_exponents(p.right, of_right)};
    const auto heads = stored::for_each_head<Head>(near.left, [&](Index k) {
        const int exponent = of_left[std::size_t(k)] + of_right[std::size_t(k)];
        std::vector<double> g(std::size_t(n), 1.0);
        if (inverse.defined()) g = inverse.batch_range(k, 1).to_host<double>();
        Head head;
        RowSums(near, k, causal)
            .each_chunk([&](Index first, const std::vector<double>& sums,
                            const std::vector<double>& near_squares) {
                for (std::size_t i = 0; i < sums.size(); ++i) {
                    const std::size_t row = std::size_t(first) + i;
                    const double seen = causal ? double(row + 1) : double(n);
                    const double sum = std::ldexp(sums[i], exponent);
                    const Wide squares = std::ldexp(Wide(near_squares[i]), 2 * exponent);
                    // sum_jk of ((j == k) - P_ij)^2 / z^2, or of (j == k)
                    const Wide parts =
                        inverse.defined() ? seen - 2 * Wide(sum) + seen * squares : Wide(seen);
                    head.squares += squares;
                    head.jacobian += Wide(g[row]) * g[row] * std::max<Wide>(0, parts);
                    head.deviation = std::max(head.deviation, std::abs(sum - 1));
                }
            });
        return head;
    });
    RowTotals out;
    for (const Head& head : heads) {
        out.squares.push_back(head.squares);
        if (slope) out.jacobian.push_back(head.jacobian);
        out.deviation.push_back(head.deviation);
    }
    return out;
}

std::vector<std::vector<double>> diagonals(const Factors& p) {
    return stored::for_each_head<std::vector<double>>(p.left, [&](Index k) {
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

namespace tsdiag::spectra {
namespace {

constexpr double largest_basis = 5e8;  // bytes of the Lanczos vectors where n is huge

bool applies(const Problem& problem) {
    return problem.asked == "auto" && factors::wanted(problem.known) &&
           (!problem.known.causal || problem.for_norm());
}

std::vector<Estimate> causal_norm(const Problem& problem) {
    const AttentionOperator& p = problem.p;
    const auto products = Index(largest_basis / 8 / double(p.heads() * p.tokens()));
    std::vector<Estimate> found = factors::causal_centred_norm(
        *problem.known.factors, one_matrix::residual_for(problem.accuracy),
        std::clamp<Index>(products, 16, one_matrix::lanczos_products));
    const std::optional<RowTotals> totals = p.row_totals();
    for (std::size_t k = 0; k < found.size(); ++k)
        if (!found[k].converged) found[k].high = double(std::sqrt(totals->squares[k]));  // |P|_F
    return found;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    const Factors& p = *problem.known.factors;
    if (problem.known.causal) return select(causal_norm(problem), heads);
    return select(problem.for_norm() ? factors::centred_norm(p, problem.accuracy)
                                     : factors::second_eigenvalue(p, problem.known.row_stochastic,
                                                                  problem.accuracy),
                  heads);
}

}  // namespace

extern const Route factors = {
    .about = {.name = "factors",
              .applies = "P = left right^T of rank m < n/4; for a causal P only delta",
              .certifies = "as dense, for an m x m matrix whose entries are sums of n terms, of a "
                           "rounding that is probable; causal: as arnoldi for delta",
              .cost = "n m^2 + m^3"},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
