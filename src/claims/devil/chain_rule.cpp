
#include "derivatives.hpp"

/// From dL/dO back to the weights and to the scores of attention.  [DEVIL] (43), (44), (47)
namespace tsdiag::claim {
namespace {

/// For one row: o = p V, and the loss |o - a|^2 / 2, so that dL/do = o - a.
std::complex<double> loss_of(const ComplexRow& p, const Variables& v) {
    const ComplexRow o = p * v("V").cast<std::complex<double>>();
    return (o - v("a").row(0).cast<std::complex<double>>()).array().square().sum() / 2.0;
}

Matrix weight_gradient(const Matrix& p, const Variables& v) {
    return (p * v("V") - v("a")) * v("V").transpose();
}

/// Rounding error of dL/dp, 1 x n: sums of n and of d numbers.
Matrix rounding(const Matrix& p, const Variables& v) {
    const Matrix &V = v("V"), &a = v("a");
    const double terms = 16 * double(V.rows() + V.cols() + 8);
    const double size = (p.cwiseAbs() * V.cwiseAbs() + a.cwiseAbs()).norm();
    return terms * ulp * size * V.rowwise().norm().transpose();
}

/// Scores s >= 0, values V and the target a.
Variables draw_target_row(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"s", draw(rng, "s", 1, at.n, distribution).cwiseAbs()},
            {"V", draw(rng, "V", at.n, at.d, distribution)},
            {"a", draw(rng, "a", 1, at.d, distribution)}};
}

// --- (43)

Bound by_weights(std::string reading, Matrix (*printed)(const Matrix& p, const Variables&)) {
    return {.reading = std::move(reading),
            .formula = "dL/dP = dL/dO V^T",
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_target_row,
            .sides = [printed](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& p = v("s");
                const auto f = [&](const ComplexRow& x) {
                    return ComplexRow::Constant(1, loss_of(x, v)).eval();
                };
                return worst_difference(complex_step(f, p), printed(p, v), rounding(p, v));
            }};
}

std::vector<Reading> check_weights(const Check& how) {
    return {examine_bound(by_weights("as printed", weight_gradient), how)};
}

Variables small_case() {
    return {{"s", Matrix{{3.0, 1}}}, {"V", Matrix{{1.0}, {-1}}}, {"a", Matrix{{0.0}}}};
}

/// p = (3, 1), V = (1; -1): o = 2, and dL/dp_1 = 2.
Attained attain_weights() {
    const Variables v = small_case();
    const auto f = [&](const ComplexRow& x) {
        return ComplexRow::Constant(1, loss_of(x, v)).eval();
    };
    return {complex_step(f, v("s"))(0), 2, 1e-14};
}

/// dL/dO at a = 0.
std::vector<Reading> violate_weights(const Check& how) {
    const auto without = [](const Matrix& p, const Variables& v) -> Matrix {
        return p * v("V") * v("V").transpose();
    };
    return {control(by_weights("as printed", without), "the output in place of dL/dO", how)};
}

// --- (47)

/// U_jk = dp_k/ds_j, [DEVIL] (44), or a version changed by `broken`.
struct Scored {
    const char* reading;
    const Weights& weights;
};
const Scored scored[] = {
    {"softmax", softmax_weights}, {"linear", linear_weights}, {"f(x) = 1 + x^2", parabola_weights}};
Bound by_scores(const Scored& of, Matrix (*broken)(const Matrix& U) = nullptr) {
    return {
        .reading = of.reading,
        .formula = "dL/ds_ij = sum_k dL/dp_ik dp_ik/ds_ij = dL/dO_i V^T U_j^T",
        .relation = Relation::equal,
        .accuracy = 0,
        .draw = draw_target_row,
        .sides = [&weights = of.weights, broken](const Variables& v) -> std::optional<BoundSides> {
            const Matrix& s = v("s");
            if (!(s.minCoeff() > 0)) return {};
            const Matrix slope = weights.slope(s);
            const Matrix p = weights.of(s.row(0).cast<std::complex<double>>()).real();
            const auto f = [&](const ComplexRow& x) {
                return ComplexRow::Constant(1, loss_of(weights.of(x), v)).eval();
            };
            Matrix U = weight_derivative(p, slope).transpose();
            if (broken) U = broken(U);
            const Matrix whole = (Matrix(p.row(0).asDiagonal()) + p.transpose() * p) *
                                 slope.cwiseAbs().row(0).asDiagonal();
            return worst_difference(complex_step(f, s), weight_gradient(p, v) * U.transpose(),
                                    rounding(p, v) * whole);
        }};
}

std::vector<Reading> check_scores(const Check& how) {
    std::vector<Reading> readings;
    for (const Scored& of : scored) readings.push_back(examine_bound(by_scores(of), how));
    return readings;
}

/// Linear scores (3, 1): p = (3, 1)/4, o = 1/2; dp/ds_1 = (1, -1)/16, dL/dp = (1, -1)/2.
Attained attain_scores() {
    const Variables v = small_case();
    const auto f = [&](const ComplexRow& x) {
        return ComplexRow::Constant(1, loss_of(linear_weights.of(x), v)).eval();
    };
    return {complex_step(f, v("s"))(0), 1.0 / 16, 1e-14};
}

/// The diagonal of U alone; and its transpose, which softmax, whose U is symmetric, does not
/// distinguish.
std::vector<Reading> violate_scores(const Check& how) {
    const auto diagonal = [](const Matrix& U) -> Matrix { return U.diagonal().asDiagonal(); };
    const auto turned = [](const Matrix& U) -> Matrix { return U.transpose(); };
    std::vector<Reading> controls;
    for (const Scored& of : scored) {
        controls.push_back(control(by_scores(of, diagonal), "without k != j", how));
        if (&of.weights == &softmax_weights) continue;
        Bound other = by_scores(of, turned);
        other.given = {{"scores that differ", how.distribution == Distribution::rademacher
                                                  ? "--dist rademacher draws equal ones"
                                                  : ""}};
        controls.push_back(control(other, "U_jk = dp_j/ds_k", how));
    }
    return controls;
}

}  // namespace

extern const Claim devil_eq43 = {
    .name = "devil.eq43",
    .statement = "The gradient with respect to the attention weights is dL/dP = dL/dO V^T.",
    .words = "grad_P L = [grad_O L] V^T in R^(n x n). (43)",
    .source = "[DEVIL] (43)",
    .assumes = "O = P V; examined row by row with the loss |o - a|^2 / 2",
    .proof = "dL = <grad_O L, dP V>.",
    .n = 8,
    .d = 4,
    .check = check_weights,
    .tight = attain_weights,
    .violate = violate_weights};

extern const Claim devil_eq47 = {
    .name = "devil.eq47",
    .statement =
        "The gradient with respect to the attention scores is dL/ds_ij = sum_k dL/dp_ik "
        "dp_ik/ds_ij = dL/dO_i V^T U_j^T with U_jk = dp_ik/ds_ij.",
    .words = "dL/ds_ij = sum_{k=1}^n dL/dp_ik dp_ik/ds_ij (47)",
    .source = "[DEVIL] (44), (47)",
    .assumes =
        "p_ij = f(s_ij) / sum_k f(s_ik), o_i = sum_j p_ij v_j; scores positive; examined with the "
        "loss |o - a|^2 / 2",
    .proof = "the chain rule.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_scores,
    .tight = attain_scores,
    .violate = violate_scores};

}  // namespace tsdiag::claim
