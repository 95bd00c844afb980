#include <cmath>

#include "derivatives.hpp"

/// Derivatives of one attention weight by one logit.  [DEVIL] (7) to (11)
namespace tsdiag::claim {
namespace {

/// Rounding error: of a sum of n numbers and a few operations, of terms of size f'_k / sum f.
Matrix rounding(const Matrix& p, const Matrix& slope) {
    const double n = double(p.cols());
    const Matrix columns = (4 * n + 32) * ulp * p.cwiseProduct(slope).cwiseAbs();
    return columns.replicate(p.cols(), 1);
}

Bound entry_formula(std::string reading, std::string text, const Weights& family) {
    return {.reading = std::move(reading),
            .formula = std::move(text),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_scores,
            .sides = [family](const Variables& v) -> std::optional<BoundSides> {
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
                    return Variables{{"s", std::move(s)}};
                },
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& s = v("s");
                if (!(s.sum() > 0)) return {};
                const Matrix ones = Matrix::Ones(1, s.cols());
                return worst_difference(complex_step(linear_weights.of, s), linear_derivative(s),
                                        rounding(ones / s.sum(), ones));
            }};
}

struct Family {
    const char *reading, *formula;
    const Weights& weights;
    ComplexRow (*alone)(const ComplexRow& s);  ///< f(s) without the sum in the denominator
};
const Family families[] = {
    {"general", "f(x) = 1 + x^2: dp_ij/ds_ik = f'(s_ik) / f(s_ik) (1_{j=k} p_ij - p_ij p_ik)",
     parabola_weights, [](const ComplexRow& s) -> ComplexRow { return 1 + s.array().square(); }},
    {"softmax", "f = exp: dp_ij/ds_ik = 1_{j=k} p_ij - p_ij p_ik", softmax_weights,
     [](const ComplexRow& s) -> ComplexRow { return s.array().exp(); }},
    {"linear", "f(x) = x: dp_ij/ds_ik = (1_{j=k} p_ij - p_ij p_ik) / s_ik", linear_weights,
     [](const ComplexRow& s) -> ComplexRow { return s; }}};

std::vector<Reading> check_formulas(const Check& how) {
    std::vector<Reading> readings;
    for (const Family& f : families)
        readings.push_back(examine_bound(entry_formula(f.reading, f.formula, f.weights), how));
    readings.push_back(examine_bound(zero_score(), how));
    return readings;
}

/// Two equal logits: a derivative of 1/4.
Attained attain_formulas() {
    const Matrix s = Matrix::Zero(1, 2), p = softmax(s);
    return {complex_step(softmax_weights.of, s)(0, 0),
            weight_derivative(p, softmax_weights.slope(s))(0, 0), 1e-14};
}

/// f(s) without the sum in the denominator.
std::vector<Reading> violate_formulas(const Check& how) {
    std::vector<Reading> controls;
    for (const Family& f : families)
        controls.push_back(
            control(entry_formula(f.reading, "p_ij = f(s_ij)", {f.alone, f.weights.slope}),
                    "not normalised", how));
    Bound zero = zero_score();
    zero.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& s = v("s");
        const auto shifted = [](const ComplexRow& x) -> ComplexRow { return x / (1.0 + x.sum()); };
        if (!(s.sum() > 0)) return {};
        const Matrix ones = Matrix::Ones(1, s.cols());
        return worst_difference(complex_step(shifted, s), linear_derivative(s),
                                rounding(ones / s.sum(), ones));
    };
    controls.push_back(control(zero, "1 added to Delta_i", how));
    return controls;
}

Bound quarter() {
    return {.reading = "entries",
            .formula = "|dp_ij/ds_ik| <= 1/4",
            .draw = draw_signed_scores,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                return BoundSides{softmax_derivative(softmax(v("s"))).cwiseAbs().maxCoeff(), 0.25};
            },
            .search = {{2, 1}, {3, 1}, {6, 1}}};
}

Bound half() {
    Bound norm = quarter();
    norm.reading = "as a matrix";
    norm.formula = "|dp_i/ds_i|_2 <= 1/2";
    norm.role = Role::sharper;
    norm.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{spectral_norm(softmax_derivative(softmax(v("s")))), 0.5};
    };
    norm.search = {{2, 1}, {3, 1}};
    return norm;
}

std::vector<Reading> check_quarter(const Check& how) {
    return examine_bounds({quarter(), half()}, how);
}

Attained attain_quarter() {
    return {softmax_derivative(softmax(Matrix::Zero(1, 2)))(0, 0), 0.25, 1e-14};
}

/// p = softmax(2 s): every derivative is doubled.
std::vector<Reading> violate_quarter(const Check& how) {
    std::vector<Reading> controls;
    for (const Bound& b : {quarter(), half()})
        controls.push_back(control(scaled(b, "s", 2), "a temperature of 1/2", how));
    return controls;
}

bool positive(const Matrix& s) { return s.minCoeff() > 0; }

Matrix inverse_scores(const Matrix& s) {
    return (s.cwiseAbs().cwiseInverse() / 4).replicate(s.cols(), 1);
}

/// max(p_ij, 1 - p_ik) / |Delta_i|
Matrix sharp_entries(const Matrix& s) {
    const Index n = s.cols();
    const Matrix p = s / s.sum();
    const Matrix own = p.transpose().replicate(1, n);
    const Matrix rest = (1 - p.array()).matrix().replicate(n, 1);
    return own.cwiseMax(rest) / std::abs(s.sum());
}

struct LinearBound {
    const char *reading, *formula;
    Role role;
    Matrix (*bound)(const Matrix& s);  ///< n x n
};
const LinearBound linear_bounds[] = {
    {"entries", "|dp_ij/ds_ik| <= 1 / (4 |s_ik|)", Role::part, inverse_scores},
    {"by the least score", "|dp_ik/ds_ij| <= 1 / (4 c3), c3 = min |s_ij|", Role::part,
     [](const Matrix& s) -> Matrix {
         return Matrix::Constant(s.cols(), s.cols(), 0.25 / s.cwiseAbs().minCoeff());
     }},
    {"sharp", "|dp_ij/ds_ik| <= max(p_ij, 1 - p_ik) / Delta_i", Role::sharper, sharp_entries}};

Bound linear_entries(const LinearBound& l) {
    return {.reading = l.reading,
            .formula = l.formula,
            .role = l.role,
            .draw = draw_scores,
            .sides = [bound = l.bound](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& s = v("s");
                if (!positive(s)) return {};
                return worst_entry(linear_derivative(s), bound(s));
            },
            .search = {{2, 1}, {3, 1}, {6, 1}}};
}

std::vector<Reading> check_linear_entries(const Check& how) {
    std::vector<Reading> readings;
    for (const LinearBound& l : linear_bounds)
        readings.push_back(examine_bound(linear_entries(l), how));
    return readings;
}

Attained attain_linear_entries() {
    const Matrix s = Matrix::Ones(1, 2);
    return {linear_derivative(s)(0, 0), inverse_scores(s)(0, 0), 1e-14};
}

/// Scores of both signs, whose sum can vanish.
std::vector<Reading> violate_linear_entries(const Check& how) {
    std::vector<Reading> controls;
    for (const LinearBound& l : linear_bounds) {
        Bound broken = linear_entries(l);
        broken.draw = draw_signed_scores;
        broken.sides = [bound = l.bound](const Variables& v) -> std::optional<BoundSides> {
            const Matrix& s = v("s");
            if (s.sum() == 0 || s.cwiseAbs().minCoeff() == 0) return {};
            return worst_entry(linear_derivative(s), bound(s));
        };
        controls.push_back(control(broken, "scores of both signs", how));
    }
    return controls;
}

}  // namespace

extern const Claim devil_eq7 = {
    .name = "devil.eq7",
    .statement =
        "The derivative of an attention weight p_ij = f(s_ij) / Delta_i, Delta_i = sum_k f(s_ik), "
        "with respect to a logit is f'(s_ik) / f(s_ik) (1_{j=k} p_ij - p_ij p_ik): without the "
        "factor for softmax, with 1 / s_ik for linear attention.",
    .words =
        "Given the above definitions, the gradients of the attention matrix P is derived as: (7)",
    .source = "[DEVIL] (7), (8), (10)",
    .assumes = "f(s_ij) >= 0, f(s_ik) != 0 and Delta_i != 0",
    .proof = "the quotient rule.",
    .sharp = "(1_{j=k} - p_ij) f'(s_ik) / Delta_i, which also holds for f(s_ik) = 0.",
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
        "The derivative of linear attention with respect to a score is bounded by the score: "
        "|dp_ij/ds_ik| <= 1 / (4 |s_ik|), hence by the smallest score c3: at most 1 / (4 c3).",
    .words = "However, for linear attentions, we have: [...] |dp_ij/ds_ik| <= 1/(4 |s_ik|). (11)",
    .source = "[DEVIL] (11), (46)",
    .assumes = "p_ij = s_ij / sum_k s_ik with every s_ik > 0",
    .proof = "(10), and p (1 - p) <= 1/4.",
    .sharp =
        "|dp_ij/ds_ik| <= max(p_ij, 1 - p_ik) / Delta_i <= 1 / Delta_i: a single small score does "
        "not make the derivative large.",
    .d = 1,
    .check = check_linear_entries,
    .tight = attain_linear_entries,
    .violate = violate_linear_entries};

}  // namespace tsdiag::claim
