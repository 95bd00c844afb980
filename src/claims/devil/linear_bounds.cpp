#include <cmath>

#include "derivatives.hpp"

/// Bounds of the gradient by a score of linear attention in terms of the smallest score.
/// [DEVIL] (48)
namespace tsdiag::claim {
namespace {

/// A row of scores that are positive.
Variables draw_positive_row(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_row(rng, at, distribution);
    v.set("s", v("s").cwiseAbs());
    return v;
}

double largest_linear_gradient(const Variables& v) {
    return linear_gradient(v("s"), v("V"), v("g")).cwiseAbs().maxCoeff();
}

/// factor(n) c1 c2 / c3
BoundSides sides_of(const Variables& v, double (*factor)(double n)) {
    const double c3 = v("s").cwiseAbs().minCoeff();
    return {largest_linear_gradient(v),
            factor(double(v("s").cols())) * v("g").norm() * largest_row(v("V")) / c3};
}

double printed_factor(double n) { return std::sqrt(n) / 4; }
double sharp_factor(double n) { return 2 * (n - 1) / (n * n); }

Bound bound_by(std::string reading, std::string formula, double (*factor)(double n)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_positive_row,
            .sides = [factor](const Variables& v) -> std::optional<BoundSides> {
                if (!(v("s").minCoeff() > 0)) return {};
                return sides_of(v, factor);
            },
            .search = {{2, 1}, {3, 1}, {4, 1}, {6, 1}}};
}

Bound printed_linear() {
    return bound_by("as printed", "|dL/ds_ij| <= sqrt(n) c1 c2 / (4 c3)", printed_factor);
}

Bound sharp_bound() {
    Bound sharp = bound_by("sharp", "|dL/ds_ij| <= 2 (n - 1) c1 c2 / (n^2 c3)", sharp_factor);
    sharp.role = Role::sharper;
    return sharp;
}

std::vector<Reading> check_bound(const Check& how) {
    Bound step = sharp_bound();
    step.reading = "row of U, a step of (48)";
    step.formula = "|U_j|_2 <= 1 / (4 c3), U_jk = dp_ik/ds_ij";
    step.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& s = v("s");
        if (!(s.minCoeff() > 0)) return {};
        return BoundSides{largest_row(linear_derivative(s).transpose()), 0.25 / s.minCoeff()};
    };
    return examine_bounds({printed_linear(), sharp_bound(), step}, how);
}

/// n = 2, equal scores, values 1 and 1 - sqrt(2): sqrt(2)/4 on both sides.
Attained attain_bound() {
    const Variables v{
        {"s", Matrix{{1.0, 1.0}}}, {"V", Matrix{{1.0}, {1 - std::sqrt(2)}}}, {"g", Matrix{{1.0}}}};
    const BoundSides s = sides_of(v, printed_factor);
    return {s.measured, s.bound, 1e-14};
}

/// Scores of both signs.
Reading with_signs(Bound broken, double (*factor)(double n), const Check& how) {
    broken.draw = draw_row;
    broken.sides = [factor](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& s = v("s");
        if (s.sum() == 0 || s.cwiseAbs().minCoeff() == 0) return {};
        return sides_of(v, factor);
    };
    broken.search = {{4, 1}, {6, 1}};  // where positive scores satisfy the printed bound
    return control(broken, "scores of both signs", how);
}

std::vector<Reading> violate_bound(const Check& how) {
    return {with_signs(printed_linear(), printed_factor, how),
            with_signs(sharp_bound(), sharp_factor, how)};
}

}  // namespace

extern const Claim devil_eq48_linear = {
    .name = "devil.eq48-linear",
    .statement =
        "If no score is below c3 > 0, linear attention bounds the gradient with respect to its "
        "scores: |dL/ds_ij| <= sqrt(n) c1 c2 / (4 c3) with c1 = max |dL/do_i|, c2 = max |v_j|.",
    .words = "where t = 1 in vanilla attention and t = c3 in linear attention",
    .source = "[DEVIL] (48), linear",
    .assumes = "p_ij = s_ij / sum_k s_ik, o = p V; every s_ij >= c3 > 0",
    .sharp =
        "|dL/ds_ij| <= 2 (n - 1) c1 c2 / (n^2 c3): it falls with n.  So (48) is true for n >= 4 "
        "and false only for n = 2 and 3.",
    .n = 16,
    .d = 4,
    .check = check_bound,
    .tight = attain_bound,
    .violate = violate_bound};

}  // namespace tsdiag::claim
