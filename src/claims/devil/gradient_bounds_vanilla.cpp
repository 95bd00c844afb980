#include <cmath>

#include "derivatives.hpp"

/// Bounds of the gradient by a logit of softmax attention.  [DEVIL] (48), (59)
namespace tsdiag::claim {
namespace {

Matrix gradient(const Variables& v) { return softmax_gradient(v("s"), v("V"), v("g")); }
double largest_softmax_gradient(const Variables& v) { return gradient(v).cwiseAbs().maxCoeff(); }

double printed_bound(const Variables& v) {
    return std::sqrt(double(v("V").rows())) / 4 * v("g").norm() * largest_row(v("V"));
}

Bound printed_vanilla() {
    return {.reading = "as printed",
            .formula = "|dL/ds_ij| <= sqrt(n) c1 c2 / 4",
            .draw = draw_row,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                return BoundSides{largest_softmax_gradient(v), printed_bound(v)};
            },
            .search = {{2, 1}, {3, 1}, {4, 1}, {5, 1}, {8, 1}}};
}

/// c2, or `size` of the values in its place.
Bound sharp(double (*size)(const Matrix& V)) {
    Bound b = printed_vanilla();
    b.reading = "sharp";
    b.formula = "|dL/ds_ij| <= c1 c2 / 2";
    b.role = Role::sharper;
    b.sides = [size](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{largest_softmax_gradient(v), v("g").norm() * size(v("V")) / 2};
    };
    return b;
}
Bound of_a_row(double (*size)(const Matrix& V)) {
    Bound b = printed_vanilla();
    b.reading = "of a row";
    b.formula = "|dL/ds_i| <= c1 c2 / sqrt(2)";
    b.role = Role::sharper;
    b.sides = [size](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{gradient(v).norm(), v("g").norm() * size(v("V")) / std::sqrt(2)};
    };
    b.search = {{2, 1}, {3, 1}};
    return b;
}

std::vector<Reading> check_vanilla(const Check& how) {
    Bound step = of_a_row(largest_row);
    step.reading = "row of U, a step of (48)";
    step.formula = "|U_j|_2 <= 1/4, U_jk = dp_ik/ds_ij";
    step.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix U = softmax_derivative(softmax(v("s")));
        return BoundSides{largest_row(U), 0.25};
    };
    return examine_bounds({printed_vanilla(), sharp(largest_row), of_a_row(largest_row), step},
                          how);
}

/// n = 4, p = (1/2, 1/6, 1/6, 1/6), v_1 opposite to the others: 1/2 on both sides.
Attained attain_vanilla() {
    const Variables v{{"s", Matrix{{std::log(3.0), 0, 0, 0}}},
                      {"V", Matrix{{1.0}, {-1}, {-1}, {-1}}},
                      {"g", Matrix{{1.0}}}};
    return {largest_softmax_gradient(v), printed_bound(v), 1e-14};
}

double shortest_row(const Matrix& V) { return V.rowwise().norm().minCoeff(); }

/// A c2 that bounds the shortest value instead of all.
std::vector<Reading> violate_vanilla(const Check& how) {
    Bound broken = printed_vanilla();
    broken.reading = "c2 of one value only";
    broken.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& V = v("V");
        return BoundSides{largest_softmax_gradient(v),
                          std::sqrt(double(V.rows())) / 4 * v("g").norm() * shortest_row(V)};
    };
    return {examine_bound(broken, how), control(sharp(shortest_row), "c2 of one value only", how),
            control(of_a_row(shortest_row), "c2 of one value only", how)};
}

}  // namespace

extern const Claim devil_eq59 = {
    .name = "devil.eq59",
    .statement =
        "Softmax attention bounds the gradient with respect to its logits: |dL/ds_ij| <= sqrt(n) "
        "c1 c2 / 4 with c1 = max |dL/do_i| and c2 = max |v_j|.",
    .words =
        "Let's summarize the previous results. [...] |dL/ds_ij| <= sqrt(n) c1 c2/4 < infinity. "
        "(59)",
    .source = "[DEVIL] (48), (59), vanilla",
    .assumes = "p = softmax(s), o = p V; s, V and g = dL/do arbitrary",
    .sharp =
        "|dL/ds_ij| <= c1 c2 / 2 for every n >= 2: dL/ds_ij = p_ij (1 - p_ij) <g_i, v_j - "
        "vbar> with vbar in the convex hull of the other values.  So (59) is true for n >= 4 and "
        "false only for n = 2 and 3.",
    .n = 16,
    .d = 4,
    .check = check_vanilla,
    .tight = attain_vanilla,
    .violate = violate_vanilla};

}  // namespace tsdiag::claim
