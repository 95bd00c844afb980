#include <cmath>

#include "derivatives.hpp"

/// Frobenius norms of softmax and of its derivative.  [POLY] Thm 4.1
namespace tsdiag::claim {
namespace {

Variables draw_logits(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("A", draw(rng, "A", at.n, at.n, distribution));
    return v;
}

double root_of_rows(const Variables& v) { return std::sqrt(double(v("A").rows())); }

using Measured = double (*)(const Matrix& A);

Bound bound_of(std::string reading, std::string formula, Measured measured, double factor) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_logits,
            .sides = [measured, factor](const Variables& v) -> std::optional<Sides> {
                return Sides{measured(v("A")), factor * root_of_rows(v)};
            },
            .search = {{2, 1}, {3, 1}}};
}

double softmax_norm(const Matrix& A) { return softmax(A).norm(); }

Bound norm() { return bound_of("from above", "|softmax(A)|_F <= sqrt(N)", softmax_norm, 1); }

std::vector<Reading> check_norm(const Check& how) {
    Bound below = norm();
    below.reading = "from below";
    below.formula = "|softmax(A)|_F >= 1";
    below.role = Role::sharper;
    below.relation = Relation::at_least;
    below.sides = [](const Variables& v) -> std::optional<Sides> {
        return Sides{softmax_norm(v("A")), 1};
    };
    return {examine_bound(norm(), how), examine_bound(below, how)};
}

/// Every row looks at one token: exactly so where exp underflows.
Attained attain_norm() {
    const Index N = 5;
    return {softmax_norm(1000 * Matrix::Identity(N, N)), std::sqrt(double(N)), 1e-14};
}

/// exp(A) divided by the largest entry of a row in place of its sum.
std::vector<Reading> violate_norm(const Check& how) {
    const Measured by_largest = [](const Matrix& A) {
        return Matrix((A.colwise() - A.rowwise().maxCoeff()).array().exp()).norm();
    };
    return {examine_bound(
        bound_of("divided by the largest", "|exp(A) / max exp(A)|_F <= sqrt(N)", by_largest, 1),
        how)};
}

double derivative_norm(const Matrix& A) {
    const Matrix P = softmax(A);
    double square = 0;
    for (Index i = 0; i < P.rows(); ++i) square += softmax_derivative(P.row(i)).squaredNorm();
    return std::sqrt(square);
}

/// F sqrt(1 - F^2 / N), F = |softmax(A)|_F, with N - F^2 = sum_ij p_ij (1 - p_ij).
double bound_by_norm(const Matrix& A) {
    const Matrix P = softmax(A);
    double rest = 0;
    for (Index i = 0; i < P.rows(); ++i) rest += softmax_derivative(P.row(i)).trace();
    return P.norm() * std::sqrt(rest / double(P.rows()));
}

Bound derivative() {
    return bound_of("as printed", "|dsoftmax(A)|_F <= 2 sqrt(N)", derivative_norm, 2);
}

std::vector<Reading> check_derivative(const Check& how) {
    Bound sharp = bound_of("sharp", "|dsoftmax(A)|_F <= sqrt(N) / 2", derivative_norm, 0.5);
    sharp.role = Role::sharper;
    Bound by_norm = derivative();
    by_norm.reading = "by the norm";
    by_norm.formula = "|dsoftmax(A)|_F <= F sqrt(1 - F^2 / N), F = |softmax(A)|_F";
    by_norm.role = Role::sharper;
    by_norm.sides = [](const Variables& v) -> std::optional<Sides> {
        return Sides{derivative_norm(v("A")), bound_by_norm(v("A"))};
    };
    return {examine_bound(derivative(), how), examine_bound(sharp, how),
            examine_bound(by_norm, how)};
}

/// softmax(10 A): the derivative by A is ten times as large.
std::vector<Reading> violate_derivative(const Check& how) {
    const Measured hot = [](const Matrix& A) { return 10 * derivative_norm(10 * A); };
    return {examine_bound(
        bound_of("a temperature of 1/10", "|dsoftmax(10 A)|_F <= 2 sqrt(N)", hot, 2), how)};
}

}  // namespace

extern const Claim poly_thm41a = {
    .name = "poly.thm4.1a",
    .statement = "Softmax attention has a Frobenius norm of at most sqrt(N).",
    .source = "[POLY] Thm 4.1, (6)",
    .assumes = "softmax of every row of A, N x N",
    .sharp = "And of at least 1, which uniform rows attain.",
    .check = check_norm,
    .tight = attain_norm,
    .violate = violate_norm};

extern const Claim poly_thm41b = {
    .name = "poly.thm4.1b",
    .statement =
        "The derivative of softmax attention by its logits has a Frobenius norm of at most 2 "
        "sqrt(N).",
    .source = "[POLY] Thm 4.1, (7), (39)",
    .assumes = "softmax of every row of A, N x N",
    .sharp =
        "sqrt(N) / 2: a row gives |diag(p) - p p^T|_F^2 <= s (1 - s) with s = |p|^2.  And F sqrt(1 "
        "- F^2 / N) with F = |softmax(A)|_F.",
    .loose = "measured / bound stays at or below 1/4.",
    .check = check_derivative,
    .violate = violate_derivative};

}  // namespace tsdiag::claim
