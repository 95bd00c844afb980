#include <cmath>
#include <limits>

#include "derivatives.hpp"

/// What one attention weight gains by one logit.  [DEVIL] (7) to (11)
namespace tsdiag::claim {
namespace {

Variables draw_logits(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("s", draw(rng, "s", 1, at.n, distribution));
    return v;
}

Variables draw_scores(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("s", draw(rng, "s", 1, at.n, distribution).cwiseAbs());
    return v;
}

/// What rounding explains: a sum of n numbers and a few operations, of terms of size f'_k / sum f.
Matrix rounding(const Matrix& p, const Matrix& slope) {
    const double n = double(p.cols());
    const Matrix columns =
        (4 * n + 32) * std::numeric_limits<double>::epsilon() * p.cwiseProduct(slope).cwiseAbs();
    return columns.replicate(p.cols(), 1);
}

Bound formula(std::string reading, std::string text, const Weights& family) {
    return {.reading = std::move(reading),
            .formula = std::move(text),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_scores,
            .sides = [family](const Variables& v) -> std::optional<Sides> {
                const Matrix& s = v("s");
                const Matrix p = family.of(s.row(0).cast<std::complex<double>>()).real();
                const Matrix slope = family.slope(s);
                return worst_difference(complex_step(family.of, s),
                                        weight_derivative(p.row(0), slope), rounding(p, slope));
            }};
}

/// The first score is 0: the printed form is 0/0 there.
Bound zero_score() {
    return {.reading = "linear, a score of 0",
            .formula = "f(x) = x: dp_ij/ds_ik = (1_{j=k} - p_ij) / Delta_i for every s_ik",
            .role = Role::sharper,
            .relation = Relation::equal,
            .accuracy = 0,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Matrix s = draw(rng, "s", 1, at.n, distribution).cwiseAbs();
                    s(0) = 0;
                    Variables v;
                    v.set("s", std::move(s));
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Matrix& s = v("s");
                if (!(s.sum() > 0)) return {};
                const Matrix ones = Matrix::Ones(1, s.cols());
                return worst_difference(complex_step(linear_weights.of, s), linear_derivative(s),
                                        rounding(ones / s.sum(), ones));
            }};
}

std::vector<Reading> check_formulas(const Check& how) {
    const Bound general = formula(
        "general", "f(x) = 1 + x^2: dp_ij/ds_ik = f'(s_ik) / f(s_ik) (1_{j=k} p_ij - p_ij p_ik)",
        parabola_weights);
    const Bound vanilla =
        formula("softmax", "f = exp: dp_ij/ds_ik = 1_{j=k} p_ij - p_ij p_ik", softmax_weights);
    const Bound linear = formula(
        "linear", "f(x) = x: dp_ij/ds_ik = (1_{j=k} p_ij - p_ij p_ik) / s_ik", linear_weights);
    return {examine_bound(general, how), examine_bound(vanilla, how), examine_bound(linear, how),
            examine_bound(zero_score(), how)};
}

/// Two equal logits: a derivative of 1/4.
Attained attain_formulas() {
    const Matrix s = Matrix::Zero(1, 2), p = softmax(s);
    return {complex_step(softmax_weights.of, s)(0, 0),
            weight_derivative(p, softmax_weights.slope(s))(0, 0), 1e-14};
}

/// f(s) without the sum in the denominator.
std::vector<Reading> violate_formulas(const Check& how) {
    Weights alone = softmax_weights;
    alone.of = [](const ComplexRow& s) -> ComplexRow { return s.array().exp(); };
    return {examine_bound(formula("not normalised", "p_ij = f(s_ij)", alone), how)};
}

Bound quarter() {
    return {.reading = "entries",
            .formula = "|dp_ij/ds_ik| <= 1/4",
            .draw = draw_logits,
            .sides = [](const Variables& v) -> std::optional<Sides> {
                return Sides{softmax_derivative(softmax(v("s"))).cwiseAbs().maxCoeff(), 0.25};
            },
            .search = {{2, 1}, {3, 1}, {6, 1}}};
}

std::vector<Reading> check_quarter(const Check& how) {
    Bound norm = quarter();
    norm.reading = "as a matrix";
    norm.formula = "|dp_i/ds_i|_2 <= 1/2";
    norm.role = Role::sharper;
    norm.sides = [](const Variables& v) -> std::optional<Sides> {
        return Sides{spectral_norm(softmax_derivative(softmax(v("s")))), 0.5};
    };
    norm.search = {{2, 1}, {3, 1}};
    return {examine_bound(quarter(), how), examine_bound(norm, how)};
}

Attained attain_quarter() {
    return {softmax_derivative(softmax(Matrix::Zero(1, 2)))(0, 0), 0.25, 1e-14};
}

/// p = softmax(2 s): every derivative is doubled.
std::vector<Reading> violate_quarter(const Check& how) {
    Bound broken = quarter();
    broken.reading = "a temperature of 1/2";
    broken.sides = [](const Variables& v) -> std::optional<Sides> {
        return Sides{2 * softmax_derivative(softmax(2 * v("s"))).cwiseAbs().maxCoeff(), 0.25};
    };
    return {examine_bound(broken, how)};
}

bool positive(const Matrix& s) { return s.minCoeff() > 0; }

Matrix inverse_scores(const Matrix& s) {
    return (s.cwiseAbs().cwiseInverse() / 4).replicate(s.cols(), 1);
}

Bound linear_entries() {
    return {.reading = "entries",
            .formula = "|dp_ij/ds_ik| <= 1 / (4 |s_ik|)",
            .draw = draw_scores,
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Matrix& s = v("s");
                if (!positive(s)) return {};
                return worst_entry(linear_derivative(s), inverse_scores(s));
            },
            .search = {{2, 1}, {3, 1}, {6, 1}}};
}

std::vector<Reading> check_linear(const Check& how) {
    Bound least = linear_entries();
    least.reading = "by the least score";
    least.formula = "|dp_ik/ds_ij| <= 1 / (4 c3), c3 = min |s_ij|";
    least.sides = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& s = v("s");
        if (!positive(s)) return {};
        return Sides{linear_derivative(s).cwiseAbs().maxCoeff(), 0.25 / s.minCoeff()};
    };
    Bound sharp = linear_entries();
    sharp.reading = "sharp";
    sharp.formula = "|dp_ij/ds_ik| <= max(p_ij, 1 - p_ik) / Delta_i";
    sharp.role = Role::sharper;
    sharp.sides = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& s = v("s");
        if (!positive(s)) return {};
        const Index n = s.cols();
        const Matrix p = s / s.sum();
        const Matrix own = p.transpose().replicate(1, n);
        const Matrix rest = (1 - p.array()).matrix().replicate(n, 1);
        return worst_entry(linear_derivative(s), own.cwiseMax(rest) / s.sum());
    };
    return {examine_bound(linear_entries(), how), examine_bound(least, how),
            examine_bound(sharp, how)};
}

Attained attain_linear() {
    const Matrix s = Matrix::Ones(1, 2);
    return {linear_derivative(s)(0, 0), inverse_scores(s)(0, 0), 1e-14};
}

/// Scores of both signs, whose sum can vanish.
std::vector<Reading> violate_linear(const Check& how) {
    Bound broken = linear_entries();
    broken.reading = "scores of both signs";
    broken.draw = draw_logits;
    broken.sides = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& s = v("s");
        if (s.sum() == 0 || s.cwiseAbs().minCoeff() == 0) return {};
        return worst_entry(linear_derivative(s), inverse_scores(s));
    };
    return {examine_bound(broken, how)};
}

}  // namespace

extern const Claim devil_eq7 = {
    .name = "devil.eq7",
    .statement =
        "The derivative of an attention weight p_ij = f(s_ij) / Delta_i, Delta_i = sum_k f(s_ik), "
        "by a logit is f'(s_ik) / f(s_ik) (1_{j=k} p_ij - p_ij p_ik): without the factor for "
        "softmax, with 1 / s_ik for linear attention.",
    .words =
        "Given the above definitions, the gradients of the attention matrix P is derived as: (7)",
    .source = "[DEVIL] (7), (8), (10)",
    .assumes = "f(s_ij) >= 0, f(s_ik) != 0 and Delta_i != 0",
    .proof = "the quotient rule.",
    .sharp = "(1_{j=k} - p_ij) f'(s_ik) / Delta_i, which also holds where f(s_ik) = 0.",
    .d = 1,
    .check = check_formulas,
    .tight = attain_formulas,
    .violate = violate_formulas};

extern const Claim devil_eq9 = {
    .name = "devil.eq9",
    .statement = "No entry of the derivative of softmax exceeds a quarter: |dp_ij/ds_ik| <= 1/4.",
    .words = "and it is bounded as: |dp_ij/ds_ik| <= 1/4. (9)",
    .source = "[DEVIL] (9), (18) to (22), (45)",
    .assumes = "p_i = softmax(s_i), s arbitrary",
    .proof = "p (1 - p) <= 1/4, and p_ij p_ik <= (1 - p_ik) p_ik.",
    .sharp = "As a matrix |diag(p) - p p^T|_2 <= 1/2, attained by two weights of 1/2.",
    .d = 1,
    .check = check_quarter,
    .tight = attain_quarter,
    .violate = violate_quarter};

extern const Claim devil_eq11 = {
    .name = "devil.eq11",
    .statement =
        "The derivative of linear attention by a score is bounded by the score: |dp_ij/ds_ik| <= "
        "1 / (4 |s_ik|), and so by the least one, c3: at most 1 / (4 c3).",
    .words = "However, for linear attentions, we have: [...] |dp_ij/ds_ik| <= 1/(4 |s_ik|). (11)",
    .source = "[DEVIL] (11), (46)",
    .assumes = "p_ij = s_ij / sum_k s_ik with every s_ik > 0",
    .proof = "(10), and p (1 - p) <= 1/4.",
    .sharp =
        "|dp_ij/ds_ik| <= max(p_ij, 1 - p_ik) / Delta_i <= 1 / Delta_i: a small score alone makes "
        "no large derivative.",
    .d = 1,
    .check = check_linear,
    .tight = attain_linear,
    .violate = violate_linear};

}  // namespace tsdiag::claim
