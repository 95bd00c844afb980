#include <cmath>

#include "derivatives.hpp"

/// Frobenius norms of softmax and of its derivative.  [POLY] Thm 4.1, (34)
namespace tsdiag::claim {
namespace {

Variables draw_logit_matrix(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"A", draw(rng, "A", at.n, at.n, distribution)}};
}

double root_of_rows(const Variables& v) { return std::sqrt(double(v("A").rows())); }

using Measured = double (*)(const Matrix& A);

Bound bound_of(std::string reading, std::string formula, Measured measured, double factor) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_logit_matrix,
            .sides = [measured, factor](const Variables& v) -> std::optional<BoundSides> {
                return BoundSides{measured(v("A")), factor * root_of_rows(v)};
            },
            .search = {{2, 1}, {3, 1}}};
}

double softmax_norm(const Matrix& A) { return softmax(A).norm(); }

Bound from_above() { return bound_of("from above", "|softmax(A)|_F <= sqrt(N)", softmax_norm, 1); }

/// Rows that sum to `sum`.
Bound from_below(double sum) {
    Bound below = from_above();
    below.reading = "from below";
    below.formula = "|softmax(A)|_F >= 1";
    below.role = Role::sharper;
    below.relation = Relation::at_least;
    below.sides = [sum](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{sum * softmax_norm(v("A")), 1};
    };
    return below;
}

std::vector<Reading> check_softmax_norm(const Check& how) {
    return examine_bounds({from_above(), from_below(1)}, how);
}

/// Every row attends to one token: exactly so where exp underflows.
Attained attain_softmax_norm() {
    const Index N = 5;
    return {softmax_norm(1000 * Matrix::Identity(N, N)), std::sqrt(double(N)), 1e-14};
}

/// exp(A) divided by the largest entry of a row instead of its sum.
std::vector<Reading> violate_softmax_norm(const Check& how) {
    const Measured by_largest = [](const Matrix& A) {
        return Matrix((A.colwise() - A.rowwise().maxCoeff()).array().exp()).norm();
    };
    return {control(bound_of("from above", "|exp(A) / max exp(A)|_F <= sqrt(N)", by_largest, 1),
                    "divided by the largest", how),
            control(from_below(0.5), "rows that sum to 1/2", how)};
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
    Bound b = bound_of("as printed", "|dsoftmax(A)|_F <= 2 sqrt(N)", derivative_norm, 2);
    b.mutant = {.factor = 0.2, .why = "nothing exceeds a quarter of it"};
    return b;
}

std::vector<Bound> derivative_bounds() {
    Bound sharp = bound_of("sharp", "|dsoftmax(A)|_F <= sqrt(N) / 2", derivative_norm, 0.5);
    sharp.role = Role::sharper;
    Bound by_norm = derivative();
    by_norm.mutant = {};
    by_norm.reading = "by the norm";
    by_norm.formula = "|dsoftmax(A)|_F <= F sqrt(1 - F^2 / N), F = |softmax(A)|_F";
    by_norm.role = Role::sharper;
    by_norm.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{derivative_norm(v("A")), bound_by_norm(v("A"))};
    };
    return {derivative(), sharp, by_norm};
}

std::vector<Reading> check_derivative(const Check& how) {
    return examine_bounds(derivative_bounds(), how);
}

/// softmax(10 A): the derivative by A is ten times as large.
std::vector<Reading> violate_derivative(const Check& how) {
    std::vector<Reading> controls;
    for (const Bound& b : derivative_bounds())
        controls.push_back(control(scaled(b, "A", 10), "a temperature of 1/10", how));
    return controls;
}

// --- the proof, (30) to (38)

/// 1 - F_j of every row, as the sum of the other weights.
Matrix others(const Matrix& P) {
    Matrix rest(P.rows(), P.cols());
    for (Index i = 0; i < P.rows(); ++i)
        rest.row(i) = softmax_derivative(P.row(i)).diagonal().cwiseQuotient(P.row(i).transpose());
    return rest;
}

/// An equation between matrices of the weights, entry by entry; sums of N weights are rounded.
Bound equation(std::string reading, std::string formula, Matrix (*left)(const Matrix& P),
               Matrix (*right)(const Matrix& P)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_logit_matrix,
            .sides = [left, right](const Variables& v) -> std::optional<BoundSides> {
                const Matrix P = softmax(v("A"));
                if (!(P.minCoeff() > 0)) return {};
                const double room = double(4 * P.cols() + 16) * ulp;
                const Matrix a = left(P);
                return worst_difference(a, right(P), Matrix::Constant(a.rows(), a.cols(), room));
            },
            .search = {{2, 1}, {3, 1}}};
}

Matrix one_less(const Matrix& P) { return (1 - P.array()).matrix(); }
Matrix twice_the_others(const Matrix& P) { return 2 * others(P); }

/// Row by row sum_j |grad F_ij|^2 against sum_j F_ij^2 times `factor`.
Bound row_bound(std::string reading, std::string formula, Mutant mutant,
                Matrix (*factor)(const Matrix& P), double temperature) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .mutant = std::move(mutant),
            .draw = draw_logit_matrix,
            .sides = [factor, temperature](const Variables& v) -> std::optional<BoundSides> {
                const Matrix P = softmax(v("A") / temperature);
                if (!(P.minCoeff() > 0)) return {};
                Matrix gradients(P.rows(), 1);
                for (Index i = 0; i < P.rows(); ++i)
                    gradients(i) =
                        softmax_derivative(P.row(i)).squaredNorm() / (temperature * temperature);
                return worst_entry(gradients,
                                   P.cwiseAbs2().cwiseProduct(factor(P)).rowwise().sum());
            },
            .search = {{2, 1}, {3, 1}}};
}

std::vector<Bound> row_bounds(double temperature) {
    return {row_bound(
                "(30)", "sum_j |grad F_ij|^2 <= sum_j F_ij^2 (|1 - F_ij| + sum_{k != j} F_ik)^2",
                {.factor = 0.475, .why = "nothing exceeds a half of it"},
                [](const Matrix& P) -> Matrix { return (2 * others(P)).cwiseAbs2(); }, temperature),
            row_bound(
                "(34)", "sum_j |grad F_ij|^2 <= 4 sum_j F_ij^2 sum_{k != j} F_ik",
                {.factor = 0.2, .why = "nothing exceeds a quarter of it"},
                [](const Matrix& P) -> Matrix { return 4 * others(P); }, temperature)};
}

/// Rows that sum to `sum`.
Bound corrected(double sum) {
    Bound b = equation(
        "before (34), corrected", "|1 - F_ij| + sum_{k != j} F_ik = 2 sum_{k != j} F_ik",
        [](const Matrix& P) -> Matrix { return one_less(P) + others(P); }, twice_the_others);
    b.role = Role::sharper;
    if (sum != 1)
        b.sides = [sum](const Variables& v) -> std::optional<BoundSides> {
            const Matrix P = softmax(v("A"));
            if (!(P.minCoeff() > 0)) return {};
            const Matrix a = one_less(sum * P) + sum * others(P), c = 2 * sum * others(P);
            return worst_difference(a, c, Matrix::Constant(a.rows(), a.cols(), 1e-9));
        };
    return b;
}

std::vector<Reading> check_steps(const Check& how) {
    std::vector<Bound> list = row_bounds(1);
    list.insert(list.begin() + 1, {equation("before (34)", "1 - F_ij = 2 sum_{k != j} F_ik",
                                            one_less, twice_the_others),
                                   corrected(1)});
    list.push_back(equation(
        "(38)", "4 sum_j F_ij^2 = 4",
        [](const Matrix& P) -> Matrix { return 4 * P.cwiseAbs2().rowwise().sum(); },
        [](const Matrix& P) -> Matrix { return Matrix::Constant(P.rows(), 1, 4); }));
    return examine_bounds(list, how);
}

/// softmax(10 A), whose gradient is ten times as large.
std::vector<Reading> violate_steps(const Check& how) {
    std::vector<Reading> controls;
    for (const Bound& b : row_bounds(0.1))
        controls.push_back(control(b, "a temperature of 1/10", how));
    controls.push_back(control(corrected(0.5), "rows that sum to 1/2", how));
    return controls;
}

}  // namespace

extern const Claim poly_thm41a = {
    .name = "poly.thm4.1a",
    .statement = "Softmax attention has a Frobenius norm of at most sqrt(N).",
    .words =
        "We then have the following bounds on the Frobenius norms |softmax(A)|_F <= sqrt(N) (6)",
    .source = "[POLY] Thm 4.1, (6)",
    .assumes = "softmax of every row of A, N x N",
    .proof = "sum_j p_j^2 <= (sum_j p_j)^2 = 1 in each row.",
    .sharp = "And at least 1, which uniform rows attain.",
    .check = check_softmax_norm,
    .tight = attain_softmax_norm,
    .violate = violate_softmax_norm};

extern const Claim poly_thm41b = {
    .name = "poly.thm4.1b",
    .statement =
        "The derivative of softmax attention with respect to its logits has a Frobenius norm of at "
        "most 2 sqrt(N).",
    .words = "|grad softmax(A)|_F <= 2 sqrt(N) (7)",
    .source = "[POLY] Thm 4.1, (7), (39), (40)",
    .assumes = "softmax of every row of A, N x N",
    .proof = "for a row, s2 - 2 s3 + s2^2 <= s2 (1 - s2) <= 1/4, s_k = sum_j p_j^k.",
    .sharp =
        "sqrt(N) / 2: a row gives |diag(p) - p p^T|_F^2 <= s (1 - s) with s = |p|^2.  And F sqrt(1 "
        "- F^2 / N) with F = |softmax(A)|_F.",
    .loose = "measured / bound stays at or below 1/4.",
    .check = check_derivative,
    .violate = violate_derivative};

extern const Claim poly_eq34 = {
    .name = "poly.eq34",
    .statement =
        "The steps by which (7) is derived: sum_j |grad F_ij|^2 <= sum_j F_ij^2 (|1 - F_ij| + "
        "sum_{k != j} F_ik)^2, and 1 - F_ij = 2 sum_{k != j} F_ik, hence <= 4 sum_j F_ij^2 "
        "sum_{k != j} F_ik <= 4 sum_j F_ij^2 = 4.",
    .words =
        "since F_i1 + ... + F_iN = 1 we have that 1 - F_ij = 2(F_i1 + ... + hat F_ij + ... + "
        "F_iN) where hat F_ij means we don't include F_ij in the sum",
    .source = "[POLY] (26) to (38)",
    .assumes = "F = softmax(A), row by row",
    .sharp =
        "|1 - F_ij| + sum_{k != j} F_ik is twice the sum, as (34) uses it; the last = is <=, with "
        "equality if a row attends to a single token.",
    .loose = "(30) stays at or below 1/2, (34) at or below 1/4, which uniform rows attain.",
    .check = check_steps,
    .violate = violate_steps};

}  // namespace tsdiag::claim
