#include <cmath>

#include "derivatives.hpp"

/// Attention whose rows are divided by their root mean square.  [DEVIL] (53) to (61)
namespace tsdiag::claim {
namespace {

double eps_of(const Variables& v) { return v("eps")(0); }

Matrix draw_eps(const Rng& rng) {
    return draw(rng, "eps", 1, 1, Distribution::gaussian).cwiseAbs();
}

Variables draw_token(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("t", draw(rng, "t", 1, at.d, distribution));
    v.set("eps", draw_eps(rng));
    return v;
}

/// measured(R) against factor(d) / sqrt(sigma^2 + eps), R the derivative of the norm.
Bound norm_bound(std::string reading, std::string formula, double (*measured)(const Matrix& R),
                 double (*factor)(double d)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_token,
            .sides = [measured, factor](const Variables& v) -> std::optional<Sides> {
                if (!(eps_of(v) > 0)) return {};
                const Matrix& t = v("t");
                return Sides{measured(rms_norm_derivative(t, eps_of(v))),
                             factor(double(t.cols())) / std::sqrt(rms_square(t, eps_of(v)))};
            },
            .search = {{1, 1}, {1, 2}, {1, 4}}};
}

/// The same with a negative eps, as long as the root exists.
Reading with_negative_eps(Bound bound, double (*measured)(const Matrix& R),
                          double (*factor)(double d), const Check& how) {
    bound.reading = "a negative eps";
    bound.sides = [measured, factor](const Variables& v) -> std::optional<Sides> {
        const Matrix& t = v("t");
        const double eps = -eps_of(v), square = rms_square(t, eps);
        if (!(eps < 0 && square > 0)) return {};
        return Sides{measured(rms_norm_derivative(t, eps)),
                     factor(double(t.cols())) / std::sqrt(square)};
    };
    return examine_bound(bound, how);
}

double largest_entry(const Matrix& R) { return R.cwiseAbs().maxCoeff(); }
double largest_diagonal(const Matrix& R) { return R.diagonal().cwiseAbs().maxCoeff(); }
double largest_off_diagonal(const Matrix& R) {
    return Matrix(R - Matrix(R.diagonal().asDiagonal())).cwiseAbs().maxCoeff();
}
double three_halves(double) { return 1.5; }
double three_halves_d(double d) { return 1.5 * d; }
double one(double) { return 1; }
double half(double) { return 0.5; }

Bound entries() {
    return norm_bound("entries", "|do_j/dt_k| <= 3 / (2 sqrt(sigma^2 + eps))", largest_entry,
                      three_halves);
}

Bound sharper(Bound bound) {
    bound.role = Role::sharper;
    return bound;
}

std::vector<Reading> check_entries(const Check& how) {
    const Bound diagonal = sharper(norm_bound(
        "sharp, diagonal", "|do_j/dt_j| <= 1 / sqrt(sigma^2 + eps)", largest_diagonal, one));
    const Bound rest = sharper(norm_bound("sharp, off the diagonal",
                                          "|do_j/dt_k| <= 1 / (2 sqrt(sigma^2 + eps)), j != k",
                                          largest_off_diagonal, half));
    return {examine_bound(entries(), how), examine_bound(diagonal, how), examine_bound(rest, how)};
}

Reading violate_entries(const Check& how) {
    return with_negative_eps(entries(), largest_entry, three_halves, how);
}

Bound norm() {
    return norm_bound("norm", "|R|_2 <= 3 d / (2 sqrt(sigma^2 + eps))", spectral_norm,
                      three_halves_d);
}

std::vector<Reading> check_norm(const Check& how) {
    const Bound sharp =
        sharper(norm_bound("sharp", "|R|_2 <= 1 / sqrt(sigma^2 + eps)", spectral_norm, one));
    return {examine_bound(norm(), how), examine_bound(sharp, how)};
}

Reading violate_norm(const Check& how) {
    return with_negative_eps(norm(), spectral_norm, three_halves_d, how);
}

Variables draw_row(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("s", draw(rng, "s", 1, at.n, distribution));
    v.set("V", draw(rng, "V", at.n, at.d, distribution));
    v.set("g", draw(rng, "g", 1, at.d, distribution));
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
    return {
        .reading = std::move(reading),
        .formula = std::move(formula),
        .draw = draw_row,
        .sides = [factor](const Variables& v) -> std::optional<Sides> {
            if (!(eps_of(v) > 0)) return {};
            return Sides{gradient(v, eps_of(v)).cwiseAbs().maxCoeff(), uniform_bound(v, factor)};
        },
        .search = {{1, 1}, {2, 1}, {2, 2}}};
}

Bound printed_gradient() {
    return gradient_bound("as printed", "|dL/ds_ij| <= 3 c1 c2 d / (2 sqrt(eps))", three_halves_d);
}

std::vector<Reading> check_gradient(const Check& how) {
    Bound token =
        sharper(gradient_bound("by row", "|dL/ds_ij| <= |g_i| |v_j| / sqrt(sigma_i^2 + eps)", one));
    token.sides = [](const Variables& v) -> std::optional<Sides> {
        const double eps = eps_of(v);
        if (!(eps > 0)) return {};
        const double root = std::sqrt(rms_square(v("s") * v("V"), eps));
        const Matrix bound = v("V").rowwise().norm().transpose() * v("g").norm() / root;
        return worst_entry(gradient(v, eps), bound);
    };
    const Bound sharp = sharper(gradient_bound("sharp", "|dL/ds_ij| <= c1 c2 / sqrt(eps)", one));
    return {examine_bound(printed_gradient(), how), examine_bound(sharp, how),
            examine_bound(token, how)};
}

/// The norm uses a hundredth of the eps that the bound knows.
Reading violate_gradient(const Check& how) {
    Bound broken = printed_gradient();
    broken.reading = "another eps";
    broken.sides = [](const Variables& v) -> std::optional<Sides> {
        if (!(eps_of(v) > 0)) return {};
        return Sides{gradient(v, eps_of(v) / 100).cwiseAbs().maxCoeff(),
                     uniform_bound(v, three_halves_d)};
    };
    return examine_bound(broken, how);
}

}  // namespace

extern const Claim devil_eq53 = {
    .name = "devil.eq53",
    .statement =
        "No entry of the derivative of o = t / sqrt(sigma^2 + eps), sigma^2 = |t|^2 / d, exceeds "
        "3 / (2 sqrt(sigma^2 + eps)).",
    .source = "[DEVIL] (53)",
    .assumes = "eps > 0, t arbitrary",
    .sharp = "1 / sqrt(sigma^2 + eps) on the diagonal, half of it off the diagonal.",
    .loose = "measured / bound stays at or below 2/3.",
    .n = 1,
    .d = 8,
    .check = check_entries,
    .violate = violate_entries};

extern const Claim devil_eq57 = {
    .name = "devil.eq57",
    .statement =
        "The derivative R of o = t / sqrt(sigma^2 + eps), sigma^2 = |t|^2 / d, has |R|_2 <= 3 d / "
        "(2 sqrt(sigma^2 + eps)).",
    .source = "[DEVIL] (57)",
    .assumes = "eps > 0, t arbitrary",
    .sharp = "|R|_2 = 1 / sqrt(sigma^2 + eps) for d >= 2, eps (sigma^2 + eps)^(-3/2) for d = 1.",
    .loose = "measured / bound stays at or below 2 / (3 d).",
    .n = 1,
    .d = 8,
    .check = check_norm,
    .violate = violate_norm};

extern const Claim devil_eq61 = {
    .name = "devil.eq61",
    .statement =
        "Attention with a norm in place of a denominator bounds the gradient by its scores: "
        "|dL/ds_ij| <= 3 c1 c2 d / (2 sqrt(eps)) with c1 = max |dL/do_i| and c2 = max |v_j|.",
    .source = "[DEVIL] (15), (58), (61)",
    .assumes = "o_i = t_i / sqrt(sigma_i^2 + eps), t_i = sum_j s_ij v_j, sigma_i^2 = |t_i|^2 / d",
    .sharp = "|dL/ds_ij| <= |g_i| |v_j| / sqrt(sigma_i^2 + eps) <= c1 c2 / sqrt(eps).",
    .loose = "measured / bound stays at or below 2 / (3 d).",
    .n = 8,
    .d = 4,
    .check = check_gradient,
    .violate = violate_gradient};

}  // namespace tsdiag::claim
