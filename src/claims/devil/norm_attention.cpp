#include <algorithm>
#include <cmath>

#include "derivatives.hpp"

/// Gradient of the loss by the scores of attention with RMS-normalised rows.  [DEVIL] (55) to (61)
namespace tsdiag::claim {
namespace {

Variables draw_normalised_row(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_row(rng, at, distribution);
    v.set("eps", draw_eps(rng));
    return v;
}

Matrix gradient(const Variables& v, double eps) {
    return norm_attention_gradient(v("s"), v("V"), v("g"), eps);
}

/// factor(d) c1 c2 / sqrt(eps)
double uniform_bound(const Variables& v, double (*factor)(double d)) {
    return factor(double(v("V").cols())) * v("g").norm() * largest_row(v("V")) /
           std::sqrt(eps_of(v));
}

Bound gradient_bound(std::string reading, std::string formula, double (*factor)(double d)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_normalised_row,
            .sides = [factor](const Variables& v) -> std::optional<BoundSides> {
                if (!(eps_of(v) > 0)) return {};
                return BoundSides{gradient(v, eps_of(v)).cwiseAbs().maxCoeff(),
                                  uniform_bound(v, factor)};
            },
            .search = {{1, 1}, {2, 1}, {2, 2}}};
}

Bound printed_gradient() {
    Bound b =
        gradient_bound("as printed", "|dL/ds_ij| <= 3 c1 c2 d / (2 sqrt(eps))", three_halves_d);
    b.mutant = {.factor = 0.6, .why = "nothing exceeds 2 / (3 d) of it"};
    return b;
}

Bound sharp_gradient() {
    return sharper(gradient_bound("sharp", "|dL/ds_ij| <= c1 c2 / sqrt(eps)", one));
}
/// The norm uses `part` of the eps in the bound.
Bound row_gradient(double part) {
    Bound token =
        sharper(gradient_bound("by row", "|dL/ds_ij| <= |g_i| |v_j| / sqrt(sigma_i^2 + eps)", one));
    token.sides = [part](const Variables& v) -> std::optional<BoundSides> {
        const double eps = eps_of(v);
        if (!(eps > 0)) return {};
        const double root = std::sqrt(rms_square(v("s") * v("V"), eps));
        const Matrix bound = v("V").rowwise().norm().transpose() * v("g").norm() / root;
        return worst_entry(gradient(v, part * eps), bound);
    };
    return token;
}

std::vector<Reading> check_norm_gradient(const Check& how) {
    return examine_bounds({printed_gradient(), sharp_gradient(), row_gradient(1)}, how);
}

/// The norm uses a hundredth of the eps in the bound.
std::vector<Reading> violate_norm_gradient(const Check& how) {
    const auto broken = [&](Bound bound, double (*factor)(double d)) {
        bound.sides = [factor](const Variables& v) -> std::optional<BoundSides> {
            if (!(eps_of(v) > 0)) return {};
            return BoundSides{gradient(v, eps_of(v) / 100).cwiseAbs().maxCoeff(),
                              uniform_bound(v, factor)};
        };
        return control(bound, "another eps", how);
    };
    return {broken(printed_gradient(), three_halves_d), broken(sharp_gradient(), one),
            control(row_gradient(0.01), "another eps", how)};
}

// --- (55), (56), (58)

/// s, V and eps, and a: the loss is |o - a|^2 / 2, so that dL/do = o - a.
Variables draw_loss(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"s", draw(rng, "s", 1, at.n, distribution)},
            {"V", draw(rng, "V", at.n, at.d, distribution)},
            {"eps", draw_eps(rng)},
            {"a", draw(rng, "a", 1, at.d, distribution)}};
}

std::complex<double> loss_of(const ComplexRow& t, const Matrix& a, double eps) {
    const ComplexRow o = t / std::sqrt(t.array().square().sum() / double(t.cols()) + eps);
    return (o - a.row(0).cast<std::complex<double>>()).array().square().sum() / 2.0;
}

/// One row of attention: t = s V, g = dL/do, R_jk = do_k/dt_j.
struct Row {
    Matrix t, g, R;
    double root = 0, off = 0;  ///< sqrt(sigma^2 + eps); rounding error of dL/dt
};
Row row_of(const Variables& v) {
    const double eps = eps_of(v);
    Row r;
    r.t = v("s") * v("V");
    r.root = std::sqrt(rms_square(r.t, eps));
    r.g = r.t / r.root - v("a");
    r.R = rms_norm_derivative(r.t, eps).transpose();
    // sums of n and of d numbers; t cancels by the excess of its terms, which moves o and R
    const double terms = double(v("V").rows() + r.t.cols() + 8);
    const double size = r.g.norm() + std::sqrt(double(r.t.cols()));
    const double moved = 1 + (v("s").cwiseAbs() * v("V").cwiseAbs()).norm() / r.root;
    r.off = 16 * terms * ulp * size * moved / r.root;
    return r;
}

/// The printed dL/dt against the derivative of the loss, 1 x d each.
Bound by_input(std::string reading, std::string formula, Matrix (*printed)(const Row&, Index n)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_loss,
            .sides = [printed](const Variables& v) -> std::optional<BoundSides> {
                const Index n = v("V").rows();
                if (!(eps_of(v) > 0)) return {};
                const Row r = row_of(v);
                const auto f = [&](const ComplexRow& t) {
                    return ComplexRow::Constant(1, loss_of(t, v("a"), eps_of(v))).eval();
                };
                return worst_difference(complex_step(f, r.t), printed(r, n),
                                        Matrix::Constant(1, r.t.cols(), r.off));
            }};
}

Matrix whole_sum(const Row& r, Index) { return r.g * r.R.transpose(); }
/// The first n of the d terms of each sum.
Matrix sum_to_n(const Row& r, Index n) {
    const Index first = std::min(n, r.g.cols());
    return r.g.leftCols(first) * r.R.leftCols(first).transpose();
}

Bound printed_sum() {
    Bound b = by_input("k from 1 to n, as printed", "dL/dt_ij = sum_{k=1}^n dL/do_ik do_ik/dt_ij",
                       sum_to_n);
    b.sides = [inner = b.sides](const Variables& v) -> std::optional<BoundSides> {
        if (v("V").rows() > v("V").cols()) return {};  // o_ik has no k beyond d
        return inner(v);
    };
    return b;
}

Bound sum_to_d(Matrix (*printed)(const Row&, Index n)) {
    return sharper(
        by_input("k from 1 to d", "dL/dt_ij = sum_{k=1}^d dL/do_ik do_ik/dt_ij", printed));
}

std::vector<Reading> check_sum(const Check& how) {
    return examine_bounds({printed_sum(), sum_to_d(whole_sum)}, how);
}

/// n = d: the sums are equal.  t = (3, 4), eps = 25/2, a = 0: dL/dt = t eps / 25^2.
Attained attain_sum() {
    const Variables v{{"s", Matrix{{3.0, 4}}},
                      {"V", Matrix::Identity(2, 2)},
                      {"eps", Matrix{{12.5}}},
                      {"a", Matrix::Zero(1, 2)}};
    return {sum_to_n(row_of(v), 2)(0), 3 * 12.5 / 625, 1e-14};
}

/// R = I / sqrt(sigma^2 + eps).
Matrix first_term(const Row& r, Index) { return r.g / r.root; }

/// The derivative without its second term.
std::vector<Reading> violate_sum(const Check& how) {
    return {control(sum_to_d(first_term), "without the second term", how)};
}

/// The printed gradient by the scores of one row, 1 x n.
Bound by_scores(std::string reading, std::string formula,
                Matrix (*printed)(const Row&, const Matrix& V)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_loss,
            .sides = [printed](const Variables& v) -> std::optional<BoundSides> {
                if (!(eps_of(v) > 0)) return {};
                const Row r = row_of(v);
                const Matrix& V = v("V");
                const auto f = [&](const ComplexRow& s) {
                    const ComplexRow t = s * V.cast<std::complex<double>>();
                    return ComplexRow::Constant(1, loss_of(t, v("a"), eps_of(v))).eval();
                };
                return worst_difference(complex_step(f, v("s")), printed(r, V),
                                        r.off * V.rowwise().norm().transpose());
            }};
}

std::vector<Reading> check_chain(const Check& how) {
    return {examine_bound(by_input("by inputs", "dL/dT_i = dL/dO_i R^T", whole_sum), how),
            examine_bound(by_scores("by scores", "dL/dS_i = dL/dO_i R^T V^T",
                                    [](const Row& r, const Matrix& V) -> Matrix {
                                        return r.g * r.R.transpose() * V.transpose();
                                    }),
                          how)};
}

/// The derivative of the norm without its second term, or omitted.
std::vector<Reading> violate_chain(const Check& how) {
    return {control(by_input("by inputs", "dL/dT_i = dL/dO_i / sqrt(...)", first_term),
                    "without the second term", how),
            control(by_scores("by scores", "dL/dS_i = dL/dO_i V^T",
                              [](const Row& r, const Matrix& V) -> Matrix {
                                  return r.g * V.transpose();
                              }),
                    "without R", how)};
}

}  // namespace

extern const Claim devil_eq55 = {
    .name = "devil.eq55",
    .statement =
        "The gradient with respect to the input of the norm is dL/dt_ij = sum_{k=1}^n dL/do_ik "
        "do_ik/dt_ij, a sum of as many terms as there are rows.",
    .words = "dL/dt_ij = sum_{k=1}^n dL/do_ik do_ik/dt_ij (55)",
    .source = "[DEVIL] (54), (55)",
    .assumes =
        "o_i = t_i / sqrt(sigma_i^2 + eps) in d entries, eps > 0; n <= d, as o_ik has no k > d",
    .proof = "the chain rule, over the d entries of o_i.",
    .sharp = "The sum runs over the d entries of o_i; for n = d the two are equal.",
    .n = 2,
    .d = 4,
    .check = check_sum,
    .tight = attain_sum,
    .violate = violate_sum};

extern const Claim devil_eq58 = {
    .name = "devil.eq58",
    .statement =
        "The gradients of NormAttention with respect to its inputs and its scores are dL/dT_i = "
        "dL/dO_i R^T and dL/dS_i = dL/dO_i R^T V^T with R_jk = do_ik/dt_ij.",
    .words = "grad_{S_i} L = (grad_{T_i} L) V^T (58)",
    .source = "[DEVIL] (56), (58)",
    .assumes =
        "o_i = t_i / sqrt(sigma_i^2 + eps), t_i = sum_j s_ij v_j, eps > 0; examined with the loss "
        "|o - a|^2 / 2",
    .proof = "T_i = S_i V, and the chain rule.",
    .n = 8,
    .d = 4,
    .check = check_chain,
    .tight = attain_sum,  // V = I: the gradient by scores is that by inputs
    .violate = violate_chain};

extern const Claim devil_eq61 = {
    .name = "devil.eq61",
    .statement =
        "Attention with a norm in place of a denominator bounds the gradient with respect to its "
        "scores: |dL/ds_ij| <= 3 c1 c2 d / (2 sqrt(eps)) with c1 = max |dL/do_i| and c2 = max "
        "|v_j|.",
    .words =
        "the gradients of NormAttention is bounded by: |dL/ds_ij| <= 3 c1 c2 d/(2 sqrt(eps)) < "
        "infinity, (15)",
    .source = "[DEVIL] (15), (58), (61)",
    .assumes = "o_i = t_i / sqrt(sigma_i^2 + eps), t_i = sum_j s_ij v_j, sigma_i^2 = |t_i|^2 / d",
    .proof = "(58), (57) and |v_j| <= c2.",
    .sharp = "|dL/ds_ij| <= |g_i| |v_j| / sqrt(sigma_i^2 + eps) <= c1 c2 / sqrt(eps).",
    .loose = "measured / bound stays at or below 2 / (3 d).",
    .n = 8,
    .d = 4,
    .check = check_norm_gradient,
    .violate = violate_norm_gradient};

}  // namespace tsdiag::claim
