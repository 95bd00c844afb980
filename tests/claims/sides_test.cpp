#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "tsdiag/claim.hpp"

/// Both sides of each examined claim, from the matrices shown and the printed formulas, by loops.
/// A verdict only compares the sides; it does not check them.
namespace tsdiag {
namespace {

using Matrix = Eigen::MatrixXd;

struct Numbers {
    double measured, bound;
};

/// The named matrices of a draw.
class DrawnMatrices {
  public:
    explicit DrawnMatrices(const std::vector<NamedMatrix>& all) : all_(all) {}
    Matrix operator[](std::string_view name) const {
        const auto at = std::ranges::find(all_, name, &NamedMatrix::name);
        if (at == all_.end()) throw std::out_of_range(std::string(name));
        return Eigen::Map<
            const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
            at->values.data(), at->rows, at->cols);
    }
    double number(std::string_view name) const { return (*this)[name](0, 0); }
    /// `otherwise` where it is not shown, such as an alpha of 1.
    double number(std::string_view name, double otherwise) const {
        const bool shown = std::ranges::find(all_, name, &NamedMatrix::name) != all_.end();
        return shown ? number(name) : otherwise;
    }

  private:
    const std::vector<NamedMatrix>& all_;
};

// Norms and weights.

double row_norm(const Matrix& X, Index i) {
    double square = 0;
    for (Index c = 0; c < X.cols(); ++c) square += X(i, c) * X(i, c);
    return std::sqrt(square);
}
double h(const Matrix& X) {
    double most = 0;
    for (Index i = 0; i < X.rows(); ++i) most = std::max(most, row_norm(X, i));
    return most;
}
double frobenius(const Matrix& X) {
    double square = 0;
    for (Index i = 0; i < X.rows(); ++i) square += std::pow(row_norm(X, i), 2);
    return std::sqrt(square);
}
double top_singular_value(const Matrix& X) {
    return Eigen::JacobiSVD<Matrix>(X).singularValues()(0);
}
double largest(const Matrix& X) {
    double most = 0;
    for (const double x : X.reshaped()) most = std::max(most, std::abs(x));
    return most;
}
double smallest(const Matrix& X) {
    double least = std::numeric_limits<double>::infinity();
    for (const double x : X.reshaped()) least = std::min(least, std::abs(x));
    return least;
}

Matrix softmax_rows(const Matrix& A) {
    Matrix P(A.rows(), A.cols());
    for (Index i = 0; i < A.rows(); ++i) {
        double sum = 0;
        for (Index j = 0; j < A.cols(); ++j) sum += std::exp(A(i, j));
        for (Index j = 0; j < A.cols(); ++j) P(i, j) = std::exp(A(i, j)) / sum;
    }
    return P;
}
/// dp_j/ds_k of p = softmax(s).
Matrix softmax_slopes(const Matrix& p) {
    const Index n = p.cols();
    Matrix D(n, n);
    for (Index j = 0; j < n; ++j)
        for (Index k = 0; k < n; ++k) D(j, k) = p(0, j) * ((j == k ? 1 : 0) - p(0, k));
    return D;
}
/// dp_j/ds_k of p = s / sum s.
Matrix linear_slopes(const Matrix& s) {
    const Index n = s.cols();
    double sum = 0;
    for (Index j = 0; j < n; ++j) sum += s(0, j);
    Matrix D(n, n);
    for (Index j = 0; j < n; ++j)
        for (Index k = 0; k < n; ++k) D(j, k) = ((j == k ? 1 : 0) * sum - s(0, j)) / (sum * sum);
    return D;
}
/// do_j/dt_k of o = t / sqrt(|t|^2/d + eps).
Matrix norm_slopes(const Matrix& t, double eps) {
    const Index d = t.cols();
    const double square = std::pow(frobenius(t), 2) / double(d) + eps, root = std::sqrt(square);
    Matrix D(d, d);
    for (Index j = 0; j < d; ++j)
        for (Index k = 0; k < d; ++k)
            D(j, k) = (j == k ? 1 : 0) / root - t(0, j) * t(0, k) / (double(d) * square * root);
    return D;
}
/// dL/ds of p(s) V with dL/do = g: sum_j <g, v_j> dp_j/ds_k.
Matrix by_scores(const Matrix& slopes, const Matrix& V, const Matrix& g) {
    Matrix all(1, slopes.cols());
    for (Index k = 0; k < slopes.cols(); ++k) {
        all(k) = 0;
        for (Index j = 0; j < slopes.rows(); ++j)
            for (Index c = 0; c < V.cols(); ++c) all(k) += g(0, c) * V(j, c) * slopes(j, k);
    }
    return all;
}
/// The entry where measured/bound is largest.
Numbers tightest(const Matrix& measured, const Matrix& bound) {
    Numbers worst{0, 1};
    for (Index i = 0; i < measured.rows(); ++i)
        for (Index j = 0; j < measured.cols(); ++j)
            if (std::abs(measured(i, j)) * worst.bound > worst.measured * bound(i, j))
                worst = {std::abs(measured(i, j)), bound(i, j)};
    return worst;
}

// Tokens.

Matrix mean_row(const Matrix& X) {
    Matrix mean = Matrix::Zero(1, X.cols());
    for (Index i = 0; i < X.rows(); ++i)
        for (Index c = 0; c < X.cols(); ++c) mean(c) += X(i, c) / double(X.rows());
    return mean;
}
/// |Pi1 X|_F^2 and |Pi2 X|_F^2.
double similar(const Matrix& X) { return double(X.rows()) * std::pow(frobenius(mean_row(X)), 2); }
double diverse(const Matrix& X) {
    const Matrix mean = mean_row(X);
    double square = 0;
    for (Index i = 0; i < X.rows(); ++i)
        for (Index c = 0; c < X.cols(); ++c) square += std::pow(X(i, c) - mean(c), 2);
    return square;
}
double t_sim(const Matrix& X) { return similar(X) / (similar(X) + diverse(X)); }

/// mu1^2, mu2^2, omega and delta, as (10) and (12) have them.
struct Mixed {
    double one, two, omega, delta;
};
Mixed mixed(const Matrix& X, const Matrix& P) {
    const Index n = X.rows();
    const Matrix PX = P * X, mean = mean_row(X);
    Matrix rest = X, kept = P;
    for (Index i = 0; i < n; ++i) rest.row(i) -= mean;
    const Matrix column_means = mean_row(P);
    for (Index i = 0; i < n; ++i) kept.row(i) -= column_means;
    return {similar(PX) / similar(X), diverse(PX) / diverse(X),
            frobenius(mean_row(P * rest)) / frobenius(mean), top_singular_value(kept)};
}
/// E xi1/E xi2 where alpha^2 d sigma^2 = a2.
double gain(const Mixed& m, double a2) { return (1 + a2 * m.one) / (1 + a2 * m.two); }
double printed_16(const Matrix& X, const Mixed& m, double a2) {
    return 1 + a2 / (1 + a2 * m.delta * m.delta) * (std::pow(1 - m.omega, 2) - m.delta * m.delta) *
                   t_sim(X);
}
double condition_15(const Mixed& m) {
    return std::max(m.one - std::pow(1 - m.omega, 2), m.delta * m.delta - m.two);
}
/// E r over W = -1 and 1, d = 1.
double rate_of_signs(const Matrix& X, const Matrix& P, double alpha) {
    double mean = 0;
    for (const double w : {-1.0, 1.0}) {
        const Matrix Y = X + alpha * w * P * X;
        mean += (1 - t_sim(X)) / (1 - t_sim(Y)) / 2;
    }
    return mean;
}

/// Means over all W of entries -sigma and sigma, two columns at most; head k has column k.
struct Means {
    double one = 0, two = 0, rate = 0, ratio = 0;
};
Means over_signs(const Matrix& X, const std::vector<Matrix>& P, double alpha, double sigma) {
    const Index d = X.cols();
    const int count = 1 << (d * d);
    Means m;
    for (int k = 0; k < count; ++k) {
        Matrix W(d, d);
        for (Index i = 0; i < d * d; ++i) W(i) = (k >> i & 1) != 0 ? sigma : -sigma;
        Matrix Y = X;
        for (Index c = 0; c < d; ++c)
            Y.col(c) += alpha * (P.size() > 1 ? P[std::size_t(c)] : P[0]) * X * W.col(c);
        const double one = similar(Y) / similar(X), two = diverse(Y) / diverse(X);
        m.one += one / count;
        m.two += two / count;
        m.ratio += one / two / count;
        m.rate += (1 - t_sim(X)) / (1 - t_sim(Y)) / count;
    }
    return m;
}
/// E r as (13) and (18) have it, with means over the heads.
double printed_rate(const Matrix& X, const std::vector<Matrix>& P, double a2, const Means& m) {
    double one = 0, two = 0;
    for (const Matrix& head : P) {
        one += mixed(X, head).one / double(P.size());
        two += mixed(X, head).two / double(P.size());
    }
    const double eta = m.one / m.two - m.ratio;
    return 1 + (a2 / (1 + a2 * two) * (one - two) - eta) * t_sim(X);
}
double a2_of(const DrawnMatrices& v) {
    return std::pow(v.number("alpha") * v.number("sigma"), 2) * double(v["X"].cols());
}

/// The network after attention, and its gradient by the chain rule, row by row.
struct Tail {
    Matrix O, X3, X2, X1;
};
/// `heat`: factor of the logits; `slope`: of the activations.
Tail tail(const DrawnMatrices& v, double heat = 1, double slope = 1) {
    const Matrix X1 = v["X1"], W1 = v["W1"], W2 = v["W2"], W3 = heat * v["W3"];
    const Matrix first = X1 * W1, second = slope * first.cwiseMax(0) * W2;
    const Matrix O = slope * second.cwiseMax(0) * W3;
    Tail t{softmax_rows(O), {}, {}, {}};
    for (Index i = 0; i < O.rows(); ++i) t.O(i, i % O.cols()) -= 1;
    t.X3 = t.O * W3.transpose();
    Matrix on = t.X3;
    for (Index i = 0; i < on.size(); ++i)
        if (second(i) <= 0) on(i) = 0;
    t.X2 = slope * on * W2.transpose();
    on = t.X2;
    for (Index i = 0; i < on.size(); ++i)
        if (first(i) <= 0) on(i) = 0;
    t.X1 = slope * on * W1.transpose();
    return t;
}
double a1(const DrawnMatrices& v) { return std::sqrt(double(v["W3"].rows())) * 2 * h(v["W3"]); }
double a2(const DrawnMatrices& v) { return std::sqrt(double(v["W2"].rows())) * a1(v) * h(v["W2"]); }

/// dL/ds where the norm uses a part of eps.
Matrix normed_by_scores(const DrawnMatrices& v, double part = 1) {
    const Matrix V = v["V"], t = v["s"] * V;
    return v["g"] * norm_slopes(t, part * v.number("eps")) * V.transpose();
}
/// sqrt(sigma^2 - eps)
double negative_root(const DrawnMatrices& v) {
    return std::sqrt(std::pow(h(v["t"]), 2) / double(v["t"].cols()) - v.number("eps"));
}

struct Twin {
    const char *claim, *reading;
    std::function<Numbers(const DrawnMatrices&)> sides;
    double accuracy = 1e-11;  ///< some hundred roundings, and small sums
    Index n = 5, d = 4;
};

std::ostream& operator<<(std::ostream& out, const Twin& t) {
    return out << t.claim << ' ' << t.reading;
}

const std::vector<Twin>& twins() {
    static const std::vector<Twin> list = {
        {"devil.eq9", "entries",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(softmax_slopes(softmax_rows(v["s"]))), 0.25};
         }},
        {"devil.eq9", "as a matrix",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(softmax_slopes(softmax_rows(v["s"]))), 0.5};
         }},
        {"devil.eq11", "entries",
         [](const DrawnMatrices& v) {
             const Matrix s = v["s"];
             Matrix bound(s.cols(), s.cols());
             for (Index k = 0; k < s.cols(); ++k) bound.col(k).setConstant(1 / (4 * s(0, k)));
             return tightest(linear_slopes(s), bound);
         }},
        {"devil.eq11", "by the least score",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(linear_slopes(v["s"])), 1 / (4 * smallest(v["s"]))};
         }},
        {"devil.prop3.1", "for every M",
         [](const DrawnMatrices& v) -> Numbers {
             // q = k have the features phi(x) = x + 1 or e^x; all scores are |phi|^2.
             const Matrix q = v["q = k"];
             double score = 0;
             for (const double x : q.reshaped()) score += std::pow(x > 0 ? x + 1 : std::exp(x), 2);
             const double n = v.number("n");
             return {1 / (n * n * score), v.number("M")};
         }},
        {"devil.prop3.1", "only as the sum vanishes",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(linear_slopes(v["s"])), 1 / v["s"].sum()};
         }},
        {"devil.propD4", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(v["X"] * v["Y"].transpose()),
                     std::sqrt(double(v["Y"].rows())) * h(v["X"]) * h(v["Y"])};
         }},
        {"devil.propD4", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(v["X"] * v["Y"].transpose()), h(v["X"]) * top_singular_value(v["Y"])};
         }},
        {"devil.propD6", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(v["X"]), std::sqrt(double(v["X"].rows())) * h(v["X"])};
         }},
        {"devil.propD6", "from below",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(v["X"]), h(v["X"])};
         }},
        {"devil.propD5", "loss",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).O), 2};
         }},
        {"devil.propD5", "loss, with the = of (63)",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).O), 2};
         }},
        {"devil.propD5", "loss, sharp",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).O), std::sqrt(2.0)};
         }},
        {"devil.propD5", "classifier",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).X3), a1(v)};
         }},
        {"devil.propD5", "second layer",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).X2), a2(v)};
         }},
        {"devil.propD5", "first layer, as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).X1), std::sqrt(double(v["W1"].rows())) * a2(v) * h(v["W2"])};
         }},
        {"devil.propD5", "first layer, h(W1)",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v).X1), std::sqrt(double(v["W1"].rows())) * a2(v) * h(v["W1"])};
         }},
        {"devil.eq48-linear", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {
                 largest(by_scores(linear_slopes(v["s"]), v["V"], v["g"])),
                 std::sqrt(double(v["s"].cols())) * h(v["g"]) * h(v["V"]) / (4 * smallest(v["s"]))};
         }},
        {"devil.eq48-linear", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             const double n = double(v["s"].cols());
             return {largest(by_scores(linear_slopes(v["s"]), v["V"], v["g"])),
                     2 * (1 - 1 / n) / n * h(v["g"]) * h(v["V"]) / smallest(v["s"])};
         }},
        {"devil.eq48-linear", "row of U, a step of (48)",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(linear_slopes(v["s"]).transpose()), 1 / (4 * smallest(v["s"]))};
         }},
        {"devil.eq59", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     std::sqrt(double(v["s"].cols())) * h(v["g"]) * h(v["V"]) / 4};
         }},
        {"devil.eq59", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     h(v["g"]) * h(v["V"]) / 2};
         }},
        {"devil.eq59", "of a row",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     h(v["g"]) * h(v["V"]) / std::sqrt(2.0)};
         }},
        {"devil.eq59", "row of U, a step of (48)",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(softmax_slopes(softmax_rows(v["s"]))), 0.25};
         }},
        {"devil.eq53", "entries",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {largest(norm_slopes(t, eps)), 1.5 / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq53", "sharp, diagonal",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {largest(norm_slopes(t, eps).diagonal()),
                     1 / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq53", "sharp, off the diagonal",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             Matrix R = norm_slopes(t, eps);
             R.diagonal().setZero();
             return {largest(R), 0.5 / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq53-steps", "third line",
         [](const DrawnMatrices& v) {
             const Matrix t = v["t"];
             const Index d = t.cols();
             const double whole = std::pow(h(t), 2);
             Matrix left(d, d), right(d, d);
             for (Index j = 0; j < d; ++j)
                 for (Index k = 0; k < d; ++k) {
                     const double own = j == k ? 1 : 0, a = t(0, j), b = t(0, k);
                     left(j, k) = own + a * b / (whole + double(d) * v.number("eps"));
                     right(j, k) = own + (a * a + b * b) / (2 * whole);
                 }
             return tightest(left, right);
         }},
        {"devil.eq53-steps", "fourth line",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double whole = std::pow(h(t), 2);
             double most = 0;
             for (Index j = 0; j < t.cols(); ++j)
                 for (Index k = 0; k < t.cols(); ++k)
                     most =
                         std::max(most, (j == k ? 1 : 0) +
                                            (t(0, j) * t(0, j) + t(0, k) * t(0, k)) / (2 * whole));
             return {most, 1.5};
         }},
        {"devil.eq57", "norm",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {top_singular_value(norm_slopes(t, eps)),
                     1.5 * d / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq57", "Frobenius norm",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {frobenius(norm_slopes(t, eps)),
                     1.5 * d / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq57", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {top_singular_value(norm_slopes(t, eps)),
                     1 / std::sqrt(std::pow(h(t), 2) / d + eps)};
         }},
        {"devil.eq57", "sharp, Frobenius norm",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix t = v["t"];
             const double eps = v.number("eps"), d = double(t.cols());
             return {frobenius(norm_slopes(t, eps)), std::sqrt(d / (std::pow(h(t), 2) / d + eps))};
         }},
        {"devil.eq61", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(normed_by_scores(v)), 3 * h(v["g"]) * h(v["V"]) *
                                                       double(v["V"].cols()) /
                                                       (2 * std::sqrt(v.number("eps")))};
         }},
        {"devil.eq61", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(normed_by_scores(v)),
                     h(v["g"]) * h(v["V"]) / std::sqrt(v.number("eps"))};
         }},
        {"devil.eq61", "by row",
         [](const DrawnMatrices& v) {
             const Matrix V = v["V"], t = v["s"] * V;
             Matrix bound(1, V.rows());
             for (Index j = 0; j < V.rows(); ++j)
                 bound(j) = h(v["g"]) * row_norm(V, j) /
                            std::sqrt(std::pow(h(t), 2) / double(t.cols()) + v.number("eps"));
             return tightest(normed_by_scores(v), bound);
         }},
        {"poly.thm4.1a", "from above",
         [](const DrawnMatrices& v) -> Numbers {
             return {frobenius(softmax_rows(v["A"])), std::sqrt(double(v["A"].rows()))};
         }},
        {"poly.thm4.1a", "from below",
         [](const DrawnMatrices& v) -> Numbers {
             return {frobenius(softmax_rows(v["A"])), 1};
         }},
    };
    return list;
}

/// |dsoftmax(A)|_F^2 of each row.
Matrix squared_slopes(const Matrix& A) {
    const Matrix P = softmax_rows(A);
    Matrix squares(A.rows(), 1);
    for (Index i = 0; i < A.rows(); ++i)
        squares(i) = std::pow(frobenius(softmax_slopes(P.row(i))), 2);
    return squares;
}

const std::vector<Twin>& more_twins() {
    static const std::vector<Twin> list = {
        {"poly.thm4.1b", "as printed",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::sqrt(squared_slopes(v["A"]).sum()), 2 * std::sqrt(double(v["A"].rows()))};
         }},
        {"poly.thm4.1b", "sharp",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::sqrt(squared_slopes(v["A"]).sum()), std::sqrt(double(v["A"].rows())) / 2};
         }},
        {"poly.thm4.1b", "by the norm",
         [](const DrawnMatrices& v) -> Numbers {
             const double F = frobenius(softmax_rows(v["A"]));
             return {std::sqrt(squared_slopes(v["A"]).sum()),
                     F * std::sqrt(1 - F * F / double(v["A"].rows()))};
         }},
        {"poly.eq34", "(30)",
         [](const DrawnMatrices& v) {
             const Matrix F = softmax_rows(v["A"]);
             Matrix right = Matrix::Zero(F.rows(), 1);
             for (Index i = 0; i < F.rows(); ++i)
                 for (Index j = 0; j < F.cols(); ++j)
                     right(i) += std::pow(F(i, j) * 2 * (1 - F(i, j)), 2);
             return tightest(squared_slopes(v["A"]), right);
         }},
        {"poly.eq34", "(34)",
         [](const DrawnMatrices& v) {
             const Matrix F = softmax_rows(v["A"]);
             Matrix right = Matrix::Zero(F.rows(), 1);
             for (Index i = 0; i < F.rows(); ++i)
                 for (Index j = 0; j < F.cols(); ++j)
                     right(i) += 4 * F(i, j) * F(i, j) * (1 - F(i, j));
             return tightest(squared_slopes(v["A"]), right);
         }},
        {"tse.def1.1", "t_sim at most 1",
         [](const DrawnMatrices& v) -> Numbers {
             return {t_sim(v["X"]), 1};
         }},
        {"tse.def1.1", "t_div at most 1",
         [](const DrawnMatrices& v) -> Numbers {
             return {1 - t_sim(v["X"]), 1};
         }},
        {"tse.eq1", "average over pairs",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"];
             double sum = 0;
             for (Index i = 0; i < X.rows(); ++i)
                 for (Index j = 0; j < i; ++j)
                     sum += 2 * X.row(i).dot(X.row(j)) / (row_norm(X, i) * row_norm(X, j));
             sum /= double(X.rows() * (X.rows() - 1));
             return {sum, sum};
         }},
        {"tse.eq11", "similar part",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {m.one, std::pow(1 - m.omega, 2)};
         }},
        {"tse.eq11", "diverse part",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {m.two, m.delta * m.delta};
         }},
        {"tse.eq11", "ceiling of mu1",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {std::sqrt(m.one), 1 + m.omega};
         }},
        {"tse.prop2.5", "identity",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), v.number("sigma"));
             return {m.rate, printed_rate(v["X"], P, a2_of(v), m)};
         }},
        {"tse.prop2.5", "(15)",
         [](const DrawnMatrices& v) -> Numbers {
             return {1 + condition_15(mixed(v["X"], v["P"])), 1};
         }},
        {"tse.prop2.5", "gap is not negative",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             const double a2 = std::pow(v.number("alpha"), 2);
             return {gain(m, a2),
                     (1 + a2 * std::pow(1 - m.omega, 2)) / (1 + a2 * m.delta * m.delta)};
         }},
        {"tse.lemma2.4", "similar part",
         [](const DrawnMatrices& v) -> Numbers {
             const Means m = over_signs(v["X"], {v["P"]}, v.number("alpha"), v.number("sigma"));
             return {m.one, 1 + a2_of(v) * mixed(v["X"], v["P"]).one};
         }},
        {"tse.lemma2.4", "diverse part",
         [](const DrawnMatrices& v) -> Numbers {
             const Means m = over_signs(v["X"], {v["P"]}, v.number("alpha"), v.number("sigma"));
             return {m.two, 1 + a2_of(v) * mixed(v["X"], v["P"]).two};
         }},
        {"tse.prop2.9", "(18)",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P1"], v["P2"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), v.number("sigma"));
             return {m.rate, printed_rate(v["X"], P, a2_of(v), m)};
         }},
        {"tse.prop2.9", "bound of the similar part",
         [](const DrawnMatrices& v) -> Numbers {
             Numbers sum{0, 0};
             for (const char* name : {"P1", "P2", "P3", "P4"}) {
                 const Mixed m = mixed(v["X"], v[name]);
                 sum.measured += m.one / 4;
                 sum.bound += std::pow(1 - m.omega, 2) / 4;
             }
             return sum;
         }},
        {"tse.prop2.9", "bound of the diverse part",
         [](const DrawnMatrices& v) -> Numbers {
             Numbers sum{0, 0};
             for (const char* name : {"P1", "P2", "P3", "P4"}) {
                 const Mixed m = mixed(v["X"], v[name]);
                 sum.measured += m.two / 4;
                 sum.bound += std::pow(m.delta, 2) / 4;
             }
             return sum;
         }},
        {"tse.prop2.9", "square of the mean delta",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed a = mixed(v["X"], v["P1"]), b = mixed(v["X"], v["P2"]);
             return {(a.two + b.two) / 2, std::pow((a.delta + b.delta) / 2, 2)};
         }},
        {"tse.thm2.6", "every d",
         [](const DrawnMatrices& v) -> Numbers {
             const double alpha = v.number("alpha");
             return {rate_of_signs(v["X"], v["P"], alpha),
                     printed_16(v["X"], mixed(v["X"], v["P"]), alpha * alpha)};
         }},
        {"tse.thm2.6", "right side above 1",
         [](const DrawnMatrices& v) -> Numbers {
             return {printed_16(v["X"], mixed(v["X"], v["P"]), std::pow(v.number("alpha"), 2)), 1};
         }},
        {"tse.thm2.6", "sharp, d = 1",
         [](const DrawnMatrices& v) -> Numbers {
             const double alpha = v.number("alpha"), t = t_sim(v["X"]);
             return {(rate_of_signs(v["X"], v["P"], alpha) - 1) / t + 1,
                     gain(mixed(v["X"], v["P"]), alpha * alpha) / 3};
         }},
        {"tse.rem2.8", "as a ceiling",
         [](const DrawnMatrices& v) -> Numbers {
             const double a2 = std::pow(v.number("alpha"), 2);
             return {gain(mixed(v["X"], v["P"]), a2), 1 + a2};
         }},
        {"tse.cor2.7", "estimate, any P",
         [](const DrawnMatrices& v) -> Numbers {
             return {1 + (gain(mixed(v["X"], v["P"]), 1) - 1) * t_sim(v["X"]), 1};
         }},
        {"tse.lemmaA1", "ratio",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"], P = v["P"];
             const double alpha = v.number("alpha"), a2 = alpha * alpha * v.number("d sigma^2");
             const Mixed m = mixed(X, P);
             const Matrix Y = X + alpha * P * X * v["W"];
             const double one = similar(Y) / similar(X), two = diverse(Y) / diverse(X);
             const double mean1 = 1 + a2 * m.one, mean2 = 1 + a2 * m.two;
             const double gamma = std::pow(1 + a2 * m.two, 2) / (3 + a2 * (m.one + 2 * m.two));
             return {gamma * std::min(1.0, std::abs(mean1 / mean2 - one / two)),
                     std::max(std::abs(one - mean1), std::abs(two - mean2))};
         }},
        {"tse.lemmaA1", "(24)",
         [](const DrawnMatrices& v) -> Numbers {
             const double a2 = std::pow(v.number("alpha"), 2) * v.number("d sigma^2");
             const Mixed m = mixed(v["X"], softmax_rows(v["logits"]));
             const double gamma = std::pow(1 + a2 * m.two, 2) / (3 + a2 * (m.one + 2 * m.two));
             return {gamma, gamma};
         }},
        {"tse.lemmaA1", "least gamma",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {std::pow(1 + m.two, 2) / (3 + m.one + 2 * m.two), 0.25};
         }},
        {"tse.sec2.2.1", "with the residual",
         [](const DrawnMatrices& v) -> Numbers {
             // Four maps of five points.
             const double alpha = v.number("alpha");
             Matrix Q = Matrix::Identity(5, 5);
             for (const char* name : {"P1", "P2", "P3", "P4"})
                 Q = ((Q + alpha * v[name] * Q) / (1 + alpha)).eval();
             double most = 0;
             for (Index i = 0; i < 5; ++i)
                 for (Index j = 0; j < 5; ++j) {
                     double apart = 0;
                     for (Index k = 0; k < 5; ++k) apart += std::abs(Q(i, k) - Q(j, k)) / 2;
                     most = std::max(most, apart);
                 }
             return {most, 1 - std::pow((alpha < 1 ? alpha : 1) / (1 + alpha), 4)};
         }},
        {"tse.eq21", "less similarity",
         [](const DrawnMatrices& v) -> Numbers {
             const double tau = v.number("tau"), t = t_sim(v["X"]);
             const double left = (1 - tau) * (1 - tau) * t;
             return {left / (left + 1 - t), t};
         }},
        {"tse.eq21", "similarity",
         [](const DrawnMatrices& v) -> Numbers {
             const double tau = v.number("tau"), t = t_sim(v["X"]);
             const double left = (1 - tau) * (1 - tau) * t;
             return {left / (left + 1 - t), left / (left + 1 - t)};
         }},
        {"tse.eq21", "diversity",
         [](const DrawnMatrices& v) -> Numbers {
             const double tau = v.number("tau"), t = t_sim(v["X"]);
             const double left = (1 - t) / (1 - (2 * tau - tau * tau) * t);
             return {left, left};
         }},
        {"tse.prop2.3", "rate",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"], Y = v["Y"];
             const double ratio = similar(Y) / similar(X) / (diverse(Y) / diverse(X));
             return {(1 - t_sim(X)) / (1 - t_sim(Y)), 1 + (ratio - 1) * t_sim(X)};
         }},
        {"tse.prop2.3", "odds",
         [](const DrawnMatrices& v) -> Numbers {
             return {similar(v["Y"]) / diverse(v["Y"]), similar(v["Y"]) / diverse(v["Y"])};
         }},
    };
    return list;
}

/// P of which row i is i times, or i/n times, that of P.
Matrix stretched(const Matrix& P, double part = 1) {
    Matrix other = P;
    for (Index i = 0; i < P.rows(); ++i) other.row(i) *= double(i + 1) * part;
    return other;
}
/// The mean of the rows with weights of 1, 2, ..., n, in every row.
Matrix weighted(const Matrix& X) {
    const double whole = double(X.rows() * (X.rows() + 1)) / 2;
    Matrix sum = Matrix::Zero(1, X.cols());
    for (Index i = 0; i < X.rows(); ++i) sum += double(i + 1) / whole * X.row(i);
    return sum.replicate(X.rows(), 1);
}
Matrix first_taken_away(const DrawnMatrices& v) {
    const Matrix X = v["X"];
    Matrix Y = X;
    for (Index i = 0; i < X.rows(); ++i) Y.row(i) -= v.number("tau") * X.row(0);
    return Y;
}
/// The sum of the other weights of each row, without cancellation.
Matrix others(const Matrix& P) {
    Matrix rest = Matrix::Zero(P.rows(), P.cols());
    for (Index i = 0; i < P.rows(); ++i)
        for (Index j = 0; j < P.cols(); ++j)
            for (Index k = 0; k < P.cols(); ++k)
                if (k != j) rest(i, j) += P(i, k);
    return rest;
}
double shortest_row(const Matrix& V) {
    double least = std::numeric_limits<double>::infinity();
    for (Index i = 0; i < V.rows(); ++i) least = std::min(least, row_norm(V, i));
    return least;
}
/// P(level >= eps) and bound(eps) at the eps in (0, most) where they are closest; for every sign of
/// w, or one sign for all.
Numbers closest_tail(const DrawnMatrices& v, bool shared, double most,
                     double (*level)(const DrawnMatrices& v, const Matrix& w),
                     double (*bound)(double eps, double K)) {
    const Index q = v["B"].cols();
    const double K = v.number("K");
    std::vector<double> levels;
    for (int bits = 0; bits < 1 << (shared ? 1 : q); ++bits) {
        Matrix w(q, 1);
        for (Index k = 0; k < q; ++k) w(k) = (bits >> (shared ? 0 : k) & 1) != 0 ? K : -K;
        levels.push_back(level(v, w));
    }
    Numbers worst{0, 1};
    for (const double at : levels) {
        const double eps = std::min(at, most) * (1 - 1e-9);
        if (!(eps > 0)) continue;
        const auto count = std::ranges::count_if(levels, [&](double x) { return x >= at; });
        const Numbers next{double(count) / double(levels.size()), bound(eps, K)};
        if (next.measured * worst.bound > worst.measured * next.bound) worst = next;
    }
    return worst;
}
double linear_level(const DrawnMatrices& v, const Matrix& w) {
    const Matrix row = v["B"].row(0);
    return 2 * (row * w)(0) / h(row);
}
double square_level(const DrawnMatrices& v, const Matrix& w) {
    return std::pow(frobenius(v["B"] * w) / frobenius(v["B"]), 2) - 1;
}
double shifted_level(const DrawnMatrices& v, const Matrix& w) {
    const Matrix B = v["B"], a = v["a"];
    const double size = std::pow(frobenius(B), 2), mean = std::pow(v.number("K"), 2) * size;
    return (std::pow(frobenius(B * w + a), 2) - mean - std::pow(frobenius(a), 2)) /
           (size + frobenius(B.transpose() * a));
}
double linear_bound(double eps, double K) { return std::exp(-eps * eps / (8 * K * K)); }
double square_bound(double eps, double K) { return std::exp(-eps * eps / (2 * K * K)); }
double shifted_bound(double eps, double K) { return 2 * std::exp(-eps * eps / (8 * K * K)); }

const std::vector<Twin>& tails() {
    static const std::vector<Twin> list = {
        {"tse.lemmaA2", "entries -K and K",
         [](const DrawnMatrices& v) {
             return closest_tail(v, false, INFINITY, linear_level, linear_bound);
         }},
        {"tse.lemmaA3", "entries -K and K",
         [](const DrawnMatrices& v) {
             return closest_tail(v, false, 1, square_level, square_bound);
         }},
        {"tse.eq27", "eps in (0, 1)",
         [](const DrawnMatrices& v) {
             return closest_tail(v, false, 1, shifted_level, shifted_bound);
         }},
        {"tse.eq27", "every eps >= 0, any c",
         [](const DrawnMatrices& v) -> Numbers {
             // eps = 4 + 1/c; P(w^2 >= y) = erfc(sqrt(y/2))
             const double c = v.number("c"), eps = 4 + 1 / c;
             return {std::erfc(std::sqrt((5 + 1 / c) / 2)), 2 * std::exp(-c * eps * eps)};
         }},
    };
    return list;
}

/// Violations of hypotheses: the sides where the claim is found false.
const std::vector<Twin>& controls() {
    static const std::vector<Twin> list = {
        {"tse.lemmaA2", "one sign for all entries",
         [](const DrawnMatrices& v) {
             return closest_tail(v, true, INFINITY, linear_level, linear_bound);
         }},
        {"tse.lemmaA3", "K up to 2",
         [](const DrawnMatrices& v) {
             return closest_tail(v, false, 1, square_level, square_bound);
         }},
        {"tse.eq27", "one sign for all entries",
         [](const DrawnMatrices& v) {
             return closest_tail(v, true, 1, shifted_level, shifted_bound);
         }},
        {"devil.eq9", "entries, a temperature of 1/2",
         [](const DrawnMatrices& v) -> Numbers {
             return {2 * largest(softmax_slopes(softmax_rows(2 * v["s"]))), 0.25};
         }},
        {"devil.eq9", "as a matrix, a temperature of 1/2",
         [](const DrawnMatrices& v) -> Numbers {
             return {2 * top_singular_value(softmax_slopes(softmax_rows(2 * v["s"]))), 0.5};
         }},
        {"devil.eq11", "by the least score, scores of both signs",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(linear_slopes(v["s"])), 1 / (4 * smallest(v["s"]))};
         }},
        {"devil.prop3.1", "only as the sum vanishes, scores of both signs",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(linear_slopes(v["s"])), 1 / std::abs(v["s"].sum())};
         }},
        {"devil.prop3.1", "for every M, a single key",
         [](const DrawnMatrices& v) -> Numbers {
             return {0, v.number("M")};
         }},
        {"devil.propD4", "as printed, r taken as the inner dimension",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(v["X"] * v["Y"].transpose()),
                     std::sqrt(double(v["Y"].cols())) * h(v["X"]) * h(v["Y"])};
         }},
        {"devil.propD4", "sharp, h(Y) in place of |Y|_2",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(v["X"] * v["Y"].transpose()), h(v["X"]) * h(v["Y"])};
         }},
        {"devil.propD6", "as printed, n taken as the number of columns",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(v["X"]), std::sqrt(double(v["X"].cols())) * h(v["X"])};
         }},
        {"devil.propD6", "from below, |X|_F in place of h(X)",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(v["X"]), frobenius(v["X"])};
         }},
        {"devil.propD5", "loss, a temperature of 1/4",
         [](const DrawnMatrices& v) -> Numbers {
             return {4 * h(tail(v, 4).O), 2};
         }},
        {"devil.propD5", "loss, sharp, a temperature of 1/4",
         [](const DrawnMatrices& v) -> Numbers {
             return {4 * h(tail(v, 4).O), std::sqrt(2.0)};
         }},
        {"devil.propD5", "classifier, a temperature of 1/4",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v, 4).X3), a1(v)};
         }},
        {"devil.propD5", "second layer, a temperature of 1/4",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v, 4).X2), a2(v)};
         }},
        {"devil.propD5", "first layer, h(W1), activations of slope 10",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(tail(v, 1, 10).X1), std::sqrt(double(v["W1"].rows())) * a2(v) * h(v["W1"])};
         }},
        {"devil.eq48-linear", "as printed, scores of both signs",
         [](const DrawnMatrices& v) -> Numbers {
             return {
                 largest(by_scores(linear_slopes(v["s"]), v["V"], v["g"])),
                 std::sqrt(double(v["s"].cols())) * h(v["g"]) * h(v["V"]) / (4 * smallest(v["s"]))};
         }},
        {"devil.eq48-linear", "sharp, scores of both signs",
         [](const DrawnMatrices& v) -> Numbers {
             const double n = double(v["s"].cols());
             return {largest(by_scores(linear_slopes(v["s"]), v["V"], v["g"])),
                     2 * (1 - 1 / n) / n * h(v["g"]) * h(v["V"]) / smallest(v["s"])};
         }},
        {"devil.eq49", "gradient, (50), x0 longer than eps allows",
         [](const DrawnMatrices& v) -> Numbers {
             // (50) with x0^T x0 = eps at the score where it is largest; twice that gives a half.
             const Matrix V = v["V"], g = v["g"];
             const Index n = V.rows();
             double most = 0;
             for (Index j = 0; j < n; ++j) {
                 double sum = 0;
                 for (Index k = 0; k < n; ++k)
                     sum += g.row(0).dot(V.row(k)) * ((j == k ? 1 : 0) - 1 / double(n)) / double(n);
                 most = std::max(most, std::abs(sum));
             }
             return {most * v.number("M") / 2, most * v.number("M")};
         },
         1e-9},  // logarithms and exponentials of the features
        {"devil.eq59", "c2 of one value only",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     std::sqrt(double(v["s"].cols())) * h(v["g"]) * shortest_row(v["V"]) / 4};
         }},
        {"devil.eq59", "sharp, c2 of one value only",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     h(v["g"]) * shortest_row(v["V"]) / 2};
         }},
        {"devil.eq59", "of a row, c2 of one value only",
         [](const DrawnMatrices& v) -> Numbers {
             return {h(by_scores(softmax_slopes(softmax_rows(v["s"])), v["V"], v["g"])),
                     h(v["g"]) * shortest_row(v["V"]) / std::sqrt(2.0)};
         }},
        {"devil.eq53", "entries, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(norm_slopes(v["t"], -v.number("eps"))), 1.5 / negative_root(v)};
         }},
        {"devil.eq53", "sharp, diagonal, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(norm_slopes(v["t"], -v.number("eps")).diagonal()),
                     1 / negative_root(v)};
         }},
        {"devil.eq53", "sharp, off the diagonal, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             Matrix R = norm_slopes(v["t"], -v.number("eps"));
             R.diagonal().setZero();
             return {largest(R), 0.5 / negative_root(v)};
         }},
        {"devil.eq57", "norm, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(norm_slopes(v["t"], -v.number("eps"))),
                     6 / negative_root(v)};
         }},
        {"devil.eq57", "Frobenius norm, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {frobenius(norm_slopes(v["t"], -v.number("eps"))), 6 / negative_root(v)};
         }},
        {"devil.eq57", "sharp, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {top_singular_value(norm_slopes(v["t"], -v.number("eps"))),
                     1 / negative_root(v)};
         }},
        {"devil.eq57", "sharp, Frobenius norm, a negative eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {frobenius(norm_slopes(v["t"], -v.number("eps"))), 2 / negative_root(v)};
         }},
        {"devil.eq61", "as printed, another eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(normed_by_scores(v, 0.01)),
                     6 * h(v["g"]) * h(v["V"]) / std::sqrt(v.number("eps"))};
         }},
        {"devil.eq61", "sharp, another eps",
         [](const DrawnMatrices& v) -> Numbers {
             return {largest(normed_by_scores(v, 0.01)),
                     h(v["g"]) * h(v["V"]) / std::sqrt(v.number("eps"))};
         }},
        {"poly.thm4.1a", "from above, divided by the largest",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix A = v["A"];
             double square = 0;
             for (Index i = 0; i < A.rows(); ++i)
                 for (Index j = 0; j < A.cols(); ++j)
                     square += std::exp(2 * (A(i, j) - A.row(i).maxCoeff()));
             return {std::sqrt(square), std::sqrt(double(A.rows()))};
         }},
        {"poly.thm4.1a", "from below, rows that sum to 1/2",
         [](const DrawnMatrices& v) -> Numbers {
             return {frobenius(softmax_rows(v["A"])) / 2, 1};
         }},
        {"poly.thm4.1b", "as printed, a temperature of 1/10",
         [](const DrawnMatrices& v) -> Numbers {
             return {10 * std::sqrt(squared_slopes(10 * v["A"]).sum()),
                     2 * std::sqrt(double(v["A"].rows()))};
         }},
        {"poly.thm4.1b", "sharp, a temperature of 1/10",
         [](const DrawnMatrices& v) -> Numbers {
             return {10 * std::sqrt(squared_slopes(10 * v["A"]).sum()),
                     std::sqrt(double(v["A"].rows())) / 2};
         }},
        {"poly.thm4.1b", "by the norm, a temperature of 1/10",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix F = softmax_rows(10 * v["A"]);
             return {10 * std::sqrt(squared_slopes(10 * v["A"]).sum()),
                     frobenius(F) * std::sqrt(F.cwiseProduct(others(F)).sum() / double(F.rows()))};
         }},
        {"poly.eq34", "(30), a temperature of 1/10",
         [](const DrawnMatrices& v) {
             const Matrix F = softmax_rows(10 * v["A"]), rest = others(F);
             return tightest(100 * squared_slopes(10 * v["A"]),
                             4 * (F.cwiseProduct(rest)).cwiseAbs2().rowwise().sum());
         }},
        {"poly.eq34", "(34), a temperature of 1/10",
         [](const DrawnMatrices& v) {
             const Matrix F = softmax_rows(10 * v["A"]), rest = others(F);
             return tightest(100 * squared_slopes(10 * v["A"]),
                             4 * (F.cwiseAbs2().cwiseProduct(rest)).rowwise().sum());
         }},
        {"tse.def1.1", "weighted mean",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"], part = weighted(X);
             return {(std::pow(frobenius(part), 2) + std::pow(frobenius(X - part), 2)) /
                         std::pow(frobenius(X), 2),
                     1};
         }},
        {"tse.def1.1", "t_sim at most 1, weighted mean",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::pow(frobenius(weighted(v["X"])) / frobenius(v["X"]), 2), 1};
         }},
        {"tse.def1.1", "t_div at most 1, weighted mean",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::pow(frobenius(v["X"] - weighted(v["X"])) / frobenius(v["X"]), 2), 1};
         }},
        {"tse.def1.1", "rows that differ",
         [](const DrawnMatrices& v) -> Numbers {
             return {t_sim(v["X"]), 1};
         }},
        {"tse.def1.1", "1 only for equal rows, pairs with the first row",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"];
             double sum = 0;
             for (Index j = 0; j < X.rows(); ++j)
                 sum += std::pow(frobenius(X.row(0) - X.row(j)), 2) / (2 * double(X.rows()));
             return {diverse(X), sum};
         }},
        {"tse.prop2.3", "similarity after the step",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"], Y = v["Y"];
             const double ratio = similar(Y) / similar(X) / (diverse(Y) / diverse(X));
             return {(1 - t_sim(X)) / (1 - t_sim(Y)), 1 + (ratio - 1) * t_sim(Y)};
         }},
        {"tse.prop2.3", "odds, t_sim in place of odds",
         [](const DrawnMatrices& v) -> Numbers {
             const Matrix X = v["X"], Y = v["Y"];
             const double ratio = similar(Y) / similar(X) / (diverse(Y) / diverse(X));
             return {t_sim(Y), ratio * t_sim(X)};
         }},
        {"tse.lemma2.4", "similar part, entries of twice the deviation",
         [](const DrawnMatrices& v) -> Numbers {
             const Means m = over_signs(v["X"], {v["P"]}, v.number("alpha"), 2 * v.number("sigma"));
             return {m.one, 1 + a2_of(v) * mixed(v["X"], v["P"]).one};
         }},
        {"tse.lemma2.4", "diverse part, entries of twice the deviation",
         [](const DrawnMatrices& v) -> Numbers {
             const Means m = over_signs(v["X"], {v["P"]}, v.number("alpha"), 2 * v.number("sigma"));
             return {m.two, 1 + a2_of(v) * mixed(v["X"], v["P"]).two};
         }},
        {"tse.eq11", "rows that sum to 1/2",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"] / 2);
             return {m.one, std::pow(1 - m.omega, 2)};
         }},
        {"tse.eq11", "rows of different sums",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], stretched(v["P"]));
             return {m.two, m.delta * m.delta};
         }},
        {"tse.eq11", "columns of any sums",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::sqrt(mixed(v["X"], v["P"]).one), 1};
         }},
        {"tse.eq11", "ceiling of mu1, rows that sum to 2",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], 2 * v["P"]);
             return {std::sqrt(m.one), 1 + m.omega};
         }},
        {"tse.prop2.5", "eta with the other sign",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), v.number("sigma"));
             const double eta = m.one / m.two - m.ratio;
             return {m.rate, printed_rate(v["X"], P, a2_of(v), m) + 2 * eta * t_sim(v["X"])};
         }},
        {"tse.prop2.5", "rows of sums 1/n to 1",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], stretched(v["P"], 0.2));
             const double a2 = std::pow(v.number("alpha", 1), 2);
             return {gain(m, a2),
                     (1 + a2 * std::pow(1 - m.omega, 2)) / (1 + a2 * m.delta * m.delta)};
         }},
        {"tse.prop2.5", "rows of sums 1/n to 1, (15)",
         [](const DrawnMatrices& v) -> Numbers {
             return {1 + condition_15(mixed(v["X"], stretched(v["P"], 0.2))), 1};
         }},
        {"tse.thm2.6", "right side above 1, omega + delta beyond 1",
         [](const DrawnMatrices& v) -> Numbers {
             return {printed_16(v["X"], mixed(v["X"], v["P"]), std::pow(v.number("alpha", 1), 2)),
                     1};
         }},
        {"tse.thm2.6", "sharp, d = 1, without d/(d + 2)",
         [](const DrawnMatrices& v) -> Numbers {
             const double alpha = v.number("alpha", 1), t = t_sim(v["X"]);
             return {(rate_of_signs(v["X"], v["P"], alpha) - 1) / t + 1,
                     gain(mixed(v["X"], v["P"]), alpha * alpha)};
         }},
        {"tse.cor2.7", "columns of any sums",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {1 + std::max(std::abs(std::sqrt(m.one) - 1), m.omega), 1};
         }},
        {"tse.rem2.8", "all look at one token, and omega is large",
         [](const DrawnMatrices& v) -> Numbers {
             const double a2 = std::pow(v.number("alpha", 1), 2);
             return {printed_16(v["X"], mixed(v["X"], v["P"]), a2), 1 + a2};
         }},
        {"tse.prop2.9", "rows that sum to 1/2",
         [](const DrawnMatrices& v) -> Numbers {
             Numbers sum{0, 0};
             for (const char* name : {"P1", "P2", "P3", "P4"}) {
                 const Mixed m = mixed(v["X"], v[name] / 2);
                 sum.measured += m.one / 4;
                 sum.bound += std::pow(1 - m.omega, 2) / 4;
             }
             return sum;
         }},
        {"tse.prop2.9", "rows of different sums",
         [](const DrawnMatrices& v) -> Numbers {
             Numbers sum{0, 0};
             for (const char* name : {"P1", "P2", "P3", "P4"}) {
                 const Mixed m = mixed(v["X"], stretched(v[name]));
                 sum.measured += m.two / 4;
                 sum.bound += std::pow(m.delta, 2) / 4;
             }
             return sum;
         }},
        {"tse.prop2.9", "(18), entries of twice the deviation",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P1"], v["P2"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), 2 * v.number("sigma"));
             return {m.rate, printed_rate(v["X"], P, a2_of(v), m)};
         }},
        {"tse.prop2.9", "(29), similar part, entries of twice the deviation",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P1"], v["P2"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), 2 * v.number("sigma"));
             return {m.one, 1 + a2_of(v) * (mixed(v["X"], P[0]).one + mixed(v["X"], P[1]).one) / 2};
         }},
        {"tse.prop2.9", "(29), diverse part, entries of twice the deviation",
         [](const DrawnMatrices& v) -> Numbers {
             const std::vector<Matrix> P{v["P1"], v["P2"]};
             const Means m = over_signs(v["X"], P, v.number("alpha"), 2 * v.number("sigma"));
             return {m.two, 1 + a2_of(v) * (mixed(v["X"], P[0]).two + mixed(v["X"], P[1]).two) / 2};
         }},
        {"tse.lemmaA1", "P not doubly stochastic",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {std::pow(1 + m.two, 2) / (3 + m.one + 2 * m.two), 0.25};
         }},
        {"tse.lemmaA1", "least gamma, X near e u^T, tokens that are not alike",
         [](const DrawnMatrices& v) -> Numbers {
             const Mixed m = mixed(v["X"], v["P"]);
             return {std::pow(1 + m.two, 2) / (3 + m.one + 2 * m.two), 0.25};
         }},
        {"tse.lemmaA1", "(24), alpha^2 halved",
         [](const DrawnMatrices& v) -> Numbers {
             const double a2 = std::pow(v.number("alpha"), 2) * v.number("d sigma^2");
             const Mixed m = mixed(v["X"], softmax_rows(v["logits"]));
             const auto gamma = [&](double a) {
                 return std::pow(1 + a * m.two, 2) / (3 + a * (m.one + 2 * m.two));
             };
             return {gamma(a2), gamma(a2 / 2)};
         }},
        {"tse.sec2.2.1", "without the residual",
         [](const DrawnMatrices& v) -> Numbers {
             const double alpha = v.number("alpha");
             const Matrix Q = v["P4"] * v["P3"] * v["P2"] * v["P1"];
             double most = 0;
             for (Index i = 0; i < 5; ++i)
                 for (Index j = 0; j < 5; ++j)
                     most = std::max(most, (Q.row(i) - Q.row(j)).cwiseAbs().sum() / 2);
             return {most, 1 - std::pow((alpha < 1 ? alpha : 1) / (1 + alpha), 4)};
         }},
        {"tse.eq21", "first token taken away",
         [](const DrawnMatrices& v) -> Numbers {
             return {std::sqrt(similar(first_taken_away(v))),
                     (1 - v.number("tau")) * std::sqrt(similar(v["X"]))};
         }},
        {"tse.eq21", "first token taken away, similarity",
         [](const DrawnMatrices& v) -> Numbers {
             return {t_sim(first_taken_away(v)), t_sim(v["X"])};
         }},
        {"tse.eq21", "the rest stays, tau of every token taken away",
         [](const DrawnMatrices& v) -> Numbers {
             const double rest = std::sqrt(diverse(v["X"]));
             return {(1 + v.number("tau")) * rest, rest};
         }},
        {"tse.eq21", "similarity, first token taken away",
         [](const DrawnMatrices& v) -> Numbers {
             const double tau = v.number("tau"), t = t_sim(v["X"]);
             const double left = (1 - tau) * (1 - tau) * t;
             return {t_sim(first_taken_away(v)), left / (left + 1 - t)};
         }},
        {"tse.eq21", "diversity, first token taken away",
         [](const DrawnMatrices& v) -> Numbers {
             const double tau = v.number("tau"), t = t_sim(v["X"]);
             return {1 - t_sim(first_taken_away(v)), (1 - t) / (1 - (2 * tau - tau * tau) * t)};
         }},
    };
    return list;
}

class TwinOf : public testing::TestWithParam<Twin> {};

TEST_P(TwinOf, HasTheSidesThatAreExamined) {
    const Twin& twin = GetParam();
    const Claim& claim = *resolve_claims(std::vector<std::string>{twin.claim}).front();
    int seen = 0;
    for (Index trial = 0; trial < 24 && seen < 4; ++trial) {
        const Examined examined = examine(claim, {.n = twin.n, .d = twin.d, .only = trial});
        const auto r = std::ranges::find(examined.readings, twin.reading, &Reading::name);
        ASSERT_NE(r, examined.readings.end());
        if (!r->measured) continue;  // the statement is undefined for this draw
        ASSERT_TRUE(r->bound && !r->witness.empty());
        const Numbers n = twin.sides(DrawnMatrices(r->witness));
        EXPECT_NEAR(*r->measured, n.measured, twin.accuracy * std::abs(n.measured)) << trial;
        EXPECT_NEAR(*r->bound, n.bound, twin.accuracy * std::abs(n.bound)) << trial;
        ++seen;
    }
    EXPECT_GE(seen, 3);
}

class BrokenTwinOf : public testing::TestWithParam<Twin> {};

TEST_P(BrokenTwinOf, HasTheSidesThatAreFoundFalse) {
    const Twin& twin = GetParam();
    const Claim& claim = *resolve_claims(std::vector<std::string>{twin.claim}).front();
    // All of a claim are examined at once.
    static std::map<const Claim*, std::vector<Reading>> done;
    if (!done.contains(&claim))
        done.emplace(&claim, claim.violate(plan(claim, {.trials = 12, .n = twin.n, .d = twin.d})));
    const std::vector<Reading>& controls = done.at(&claim);
    const auto r = std::ranges::find(controls, twin.reading, &Reading::name);
    ASSERT_NE(r, controls.end());
    ASSERT_TRUE(r->measured && r->bound && !r->witness.empty());
    const Numbers n = twin.sides(DrawnMatrices(r->witness));
    EXPECT_NEAR(*r->measured, n.measured, twin.accuracy * std::abs(n.measured));
    EXPECT_NEAR(*r->bound, n.bound, twin.accuracy * std::abs(n.bound));
}

std::string twin_name(const testing::TestParamInfo<Twin>& test) {
    std::string name = std::string(test.param.claim) + " " + test.param.reading;
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(c); }, '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Devil, TwinOf, testing::ValuesIn(twins()), twin_name);
INSTANTIATE_TEST_SUITE_P(Other, TwinOf, testing::ValuesIn(more_twins()), twin_name);
INSTANTIATE_TEST_SUITE_P(Tails, TwinOf, testing::ValuesIn(tails()), twin_name);
INSTANTIATE_TEST_SUITE_P(Controls, BrokenTwinOf, testing::ValuesIn(controls()), twin_name);

}  // namespace
}  // namespace tsdiag
