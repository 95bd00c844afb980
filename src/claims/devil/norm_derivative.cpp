#include <cmath>

#include "derivatives.hpp"

/// The derivative of RMS normalisation of a row.  [DEVIL] (52), (53), (57)
namespace tsdiag::claim {
namespace {

Variables draw_token(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"t", draw(rng, "t", 1, at.d, distribution)}, {"eps", draw_eps(rng)}};
}

using Measured = double (*)(const Matrix& R);
using Factor = double (*)(double d);

/// measured(R) against factor(d) / sqrt(sigma^2 + eps), R the derivative of the norm.
Bound norm_bound(std::string reading, std::string formula, Measured measured, Factor factor) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .draw = draw_token,
            .sides = [measured, factor](const Variables& v) -> std::optional<BoundSides> {
                if (!(eps_of(v) > 0)) return {};
                const Matrix& t = v("t");
                return BoundSides{measured(rms_norm_derivative(t, eps_of(v))),
                                  factor(double(t.cols())) / std::sqrt(rms_square(t, eps_of(v)))};
            },
            .search = {{1, 1}, {1, 2}, {1, 4}}};
}

/// The mutant of a bound whose sharp form is `part` of it.
Bound loose(Bound bound, double part, std::string why) {
    bound.mutant = {.factor = 0.95 * part, .why = std::move(why)};
    return bound;
}

/// The reading of the bound with a negative eps, as long as the root exists.
Reading with_negative_eps(Bound bound, Measured measured, Factor factor, const Check& how) {
    bound.sides = [measured, factor](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& t = v("t");
        const double eps = -eps_of(v), square = rms_square(t, eps);
        if (!(eps < 0 && square > 0)) return {};
        return BoundSides{measured(rms_norm_derivative(t, eps)),
                          factor(double(t.cols())) / std::sqrt(square)};
    };
    return control(bound, "a negative eps", how);
}

double largest_entry(const Matrix& R) { return R.cwiseAbs().maxCoeff(); }
double largest_diagonal(const Matrix& R) { return R.diagonal().cwiseAbs().maxCoeff(); }
double largest_off_diagonal(const Matrix& R) {
    return Matrix(R - Matrix(R.diagonal().asDiagonal())).cwiseAbs().maxCoeff();
}
double frobenius_norm(const Matrix& R) { return R.norm(); }
double three_halves(double) { return 1.5; }
double half(double) { return 0.5; }
double root(double d) { return std::sqrt(d); }

// --- (52)

ComplexRow normed(const ComplexRow& t, double eps) {
    return t / std::sqrt(t.array().square().sum() / double(t.cols()) + eps);
}

/// The printed derivative; `share` is 1/d of the mean of squares.
Bound derivative_formula(std::string reading, std::string formula, double (*share)(double d)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_token,
            .sides = [share](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& t = v("t");
                const double eps = eps_of(v), d = double(t.cols()), square = rms_square(t, eps);
                if (!(eps > 0)) return {};
                const auto f = [eps](const ComplexRow& x) { return normed(x, eps); };
                const Matrix printed =
                    (Matrix::Identity(t.cols(), t.cols()) - share(d) * t.transpose() * t / square) /
                    std::sqrt(square);
                // rounding error: sums of d squares, and terms of size 1 at most
                const double off = 8 * (d + 4) * ulp;
                return worst_difference(
                    complex_step(f, t), printed,
                    Matrix::Constant(t.cols(), t.cols(), off / std::sqrt(square)));
            }};
}

Bound printed_derivative() {
    return derivative_formula(
        "as printed",
        "do_ij/dt_ik = (1{j=k} - t_ij t_ik / (d (sigma_i^2 + eps))) / sqrt(sigma_i^2 + eps)",
        [](double d) { return 1 / d; });
}

std::vector<Reading> check_formula(const Check& how) {
    return {examine_bound(printed_derivative(), how)};
}

/// t = (3, 4), eps = 25/2: sigma^2 + eps = 25, and the first entry is (1 - 9/50)/5.
Attained attain_formula() {
    const auto f = [](const ComplexRow& x) { return normed(x, 12.5); };
    return {complex_step(f, Matrix{{3.0, 4}})(0, 0), 0.2 * (1 - 9.0 / 50), 1e-14};
}

/// A sum instead of the mean of squares: (52) without its 1/d.
std::vector<Reading> violate_formula(const Check& how) {
    return {control(derivative_formula("as printed", "(52) without 1/d", one), "without 1/d", how)};
}

// --- (53)

Bound entries() {
    return loose(norm_bound("entries", "|do_j/dt_k| <= 3 / (2 sqrt(sigma^2 + eps))", largest_entry,
                            three_halves),
                 2.0 / 3, "nothing exceeds two thirds of it");
}

Bound diagonal() {
    return sharper(norm_bound("sharp, diagonal", "|do_j/dt_j| <= 1 / sqrt(sigma^2 + eps)",
                              largest_diagonal, one));
}
Bound off_diagonal() {
    return sharper(norm_bound("sharp, off the diagonal",
                              "|do_j/dt_k| <= 1 / (2 sqrt(sigma^2 + eps)), j != k",
                              largest_off_diagonal, half));
}

std::vector<Reading> check_norm_entries(const Check& how) {
    return examine_bounds({entries(), diagonal(), off_diagonal()}, how);
}

std::vector<Reading> violate_norm_entries(const Check& how) {
    return {with_negative_eps(entries(), largest_entry, three_halves, how),
            with_negative_eps(diagonal(), largest_diagonal, one, how),
            with_negative_eps(off_diagonal(), largest_off_diagonal, half, how)};
}

/// The brackets of the lines of (53), d x d each.
struct Lines {
    Matrix derivative;  ///< |do_j/dt_k| sqrt(sigma^2 + eps)
    Matrix first;       ///< 1{j=k} - t_j t_k / (|t|^2 + d eps)
    Matrix second;      ///< 1{j=k} + t_j t_k / (|t|^2 + d eps)
    Matrix third;       ///< 1{j=k} + (t_j^2 + t_k^2) / (2 |t|^2)
};
Lines lines_of(const Matrix& t, double eps) {
    const Index d = t.cols();
    const Matrix I = Matrix::Identity(d, d);
    const double square = rms_square(t, eps);
    const Matrix products = t.transpose() * t / (double(d) * square);
    const Matrix squares = t.cwiseAbs2().replicate(d, 1);
    return {rms_norm_derivative(t, eps).cwiseAbs() * std::sqrt(square), I - products, I + products,
            I + (squares + squares.transpose()) / (2 * t.squaredNorm())};
}

using Line = Matrix (*)(const Lines&);

/// Entry by entry; of an equality the differences beyond rounding.
Bound line_bound(std::string reading, std::string formula, Line left, Line right, bool equality) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = equality ? Relation::equal : Relation::at_most,
            .draw = draw_token,
            .sides = [=](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& t = v("t");
                if (!(eps_of(v) > 0 && t.squaredNorm() > 0)) return {};
                const Lines lines = lines_of(t, eps_of(v));
                const Matrix a = left(lines), b = right(lines);
                if (!equality) return worst_entry(a, b);
                const double off = 8 * double(t.cols() + 4) * ulp;
                return worst_difference(a, b, Matrix::Constant(a.rows(), a.cols(), off));
            },
            .search = {{1, 1}, {1, 2}, {1, 3}}};
}

Matrix derivative_line(const Lines& l) { return l.derivative; }
Matrix first_line(const Lines& l) { return l.first; }
Matrix second_line(const Lines& l) { return l.second; }
Matrix third_line(const Lines& l) { return l.third; }
Matrix fourth_line(const Lines& l) { return Matrix::Constant(l.third.rows(), l.third.cols(), 1.5); }

Bound absolute_values() {
    return sharper(line_bound(
        "absolute values", "|do_j/dt_k| sqrt(sigma^2 + eps) = |1{j=k} - t_j t_k / (|t|^2 + d eps)|",
        derivative_line, [](const Lines& l) -> Matrix { return l.first.cwiseAbs(); }, true));
}
Bound third() {
    return line_bound("third line",
                      "1{j=k} + t_j t_k / (|t|^2 + d eps) <= 1{j=k} + (t_j^2 + t_k^2) / (2 |t|^2)",
                      second_line, third_line, false);
}

std::vector<Reading> check_lines(const Check& how) {
    return examine_bounds(
        {line_bound("first equality",
                    "|do_j/dt_k| sqrt(sigma^2 + eps) = 1{j=k} - t_j t_k / (|t|^2 + d eps)",
                    derivative_line, first_line, true),
         line_bound("second equality",
                    "1{j=k} - t_j t_k / (|t|^2 + d eps) = 1{j=k} + t_j t_k / (|t|^2 + d eps)",
                    first_line, second_line, true),
         third(),
         line_bound("fourth line", "1{j=k} + (t_j^2 + t_k^2) / (2 |t|^2) <= 3/2", third_line,
                    fourth_line, false),
         absolute_values()},
        how);
}

/// t = (1, 1): both sides of the third line are 1/2 off the diagonal as eps vanishes.
Attained attain_lines() {
    const Lines l = lines_of(Matrix{{1.0, 1}}, 1e-12);
    return {l.second(0, 1), l.third(0, 1), 1e-11};
}

/// The third line with a negative eps, and absolute values of a line without it.
std::vector<Reading> violate_lines(const Check& how) {
    Bound broken = third();
    broken.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& t = v("t");
        if (!(eps_of(v) > 0 && rms_square(t, -eps_of(v)) > 0)) return {};
        const Lines lines = lines_of(t, -eps_of(v));
        return worst_entry(lines.second, lines.third);
    };
    Bound without = absolute_values();
    without.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& t = v("t");
        if (!(eps_of(v) > 0 && t.squaredNorm() > 0)) return {};
        const Matrix a = lines_of(t, eps_of(v)).derivative, b = lines_of(t, 0).first.cwiseAbs();
        return worst_difference(a, b, Matrix::Constant(a.rows(), a.cols(), 1e-9));
    };
    return {control(broken, "a negative eps", how), control(without, "no eps", how)};
}

// --- (57)

Bound printed_norm() {
    return loose(
        norm_bound("norm", "|R|_2 <= 3 d / (2 sqrt(sigma^2 + eps))", spectral_norm, three_halves_d),
        2.0 / 3, "nothing exceeds 2 / (3 d) of it");
}

Bound frobenius() {
    return loose(norm_bound("Frobenius norm", "|R|_2 <= |R|_F <= 3 d / (2 sqrt(sigma^2 + eps))",
                            frobenius_norm, three_halves_d),
                 2.0 / 3, "nothing exceeds 2 / (3 sqrt(d)) of it");
}
Bound sharp_norm() {
    return sharper(norm_bound("sharp", "|R|_2 <= 1 / sqrt(sigma^2 + eps)", spectral_norm, one));
}
Bound sharp_frobenius() {
    return sharper(norm_bound("sharp, Frobenius norm", "|R|_F <= sqrt(d) / sqrt(sigma^2 + eps)",
                              frobenius_norm, root));
}

std::vector<Reading> check_derivative_norm(const Check& how) {
    return examine_bounds({printed_norm(), frobenius(), sharp_norm(), sharp_frobenius()}, how);
}

std::vector<Reading> violate_derivative_norm(const Check& how) {
    return {with_negative_eps(printed_norm(), spectral_norm, three_halves_d, how),
            with_negative_eps(frobenius(), frobenius_norm, three_halves_d, how),
            with_negative_eps(sharp_norm(), spectral_norm, one, how),
            with_negative_eps(sharp_frobenius(), frobenius_norm, root, how)};
}

}  // namespace

extern const Claim devil_eq52 = {
    .name = "devil.eq52",
    .statement =
        "The derivative of a row of NormAttention with respect to its input is do_ij/dt_ik = "
        "(1{j=k} - t_ij t_ik / (d (sigma_i^2 + eps))) / sqrt(sigma_i^2 + eps).",
    .words =
        "do_ij/dt_ik = 1/sqrt(sigma_i^2 + eps) [1{j=k} - 1/d t_ij t_ik/(sigma_i^2 + eps)]. (52)",
    .source = "[DEVIL] (34), (51), (52)",
    .assumes = "o_i = t_i / sqrt(sigma_i^2 + eps), sigma_i^2 = |t_i|^2 / d, eps > 0, t arbitrary",
    .proof = "the quotient rule.",
    .n = 1,
    .d = 8,
    .check = check_formula,
    .tight = attain_formula,
    .violate = violate_formula};

extern const Claim devil_eq53 = {
    .name = "devil.eq53",
    .statement =
        "No entry of the derivative of o = t / sqrt(sigma^2 + eps), sigma^2 = |t|^2 / d, exceeds "
        "3 / (2 sqrt(sigma^2 + eps)).",
    .words = "|do_ij/dt_ik| (53) [...] <= 3/(2 sqrt(sigma_i^2 + eps))",
    .source = "[DEVIL] (53), first and last line",
    .assumes = "eps > 0, t arbitrary",
    .proof = "|t_j t_k| <= |t|^2 = d sigma^2.",
    .sharp = "1 / sqrt(sigma^2 + eps) on the diagonal, half of it off the diagonal.",
    .loose = "measured / bound stays at or below 2/3.",
    .n = 1,
    .d = 8,
    .check = check_norm_entries,
    .violate = violate_norm_entries};

extern const Claim devil_eq53_steps = {
    .name = "devil.eq53-steps",
    .statement =
        "The lines that derive (53), each divided by 1 / sqrt(sigma^2 + eps): |do_j/dt_k| = 1{j=k} "
        "- t_j t_k / (|t|^2 + d eps) = 1{j=k} + t_j t_k / (|t|^2 + d eps) <= 1{j=k} + (t_j^2 + "
        "t_k^2) / (2 |t|^2) <= 3/2.",
    .words = "|do_ij/dt_ik| (53)",
    .source = "[DEVIL] (53), the lines between",
    .assumes = "eps > 0, t != 0",
    .sharp =
        "|do_j/dt_k| is the absolute value of the first line, which is at most 1 where j = k and "
        "at most 1/2 elsewhere; that gives (53) without its other lines.",
    .n = 1,
    .d = 8,
    .check = check_lines,
    .tight = attain_lines,
    .violate = violate_lines};

extern const Claim devil_eq57 = {
    .name = "devil.eq57",
    .statement =
        "The derivative R of o = t / sqrt(sigma^2 + eps), sigma^2 = |t|^2 / d, has |R|_2 <= |R|_F "
        "<= 3 d / (2 sqrt(sigma^2 + eps)).",
    .words = "According to (53), we have: |R^(i)|_2 <= |R^(i)|_F (57)",
    .source = "[DEVIL] (57)",
    .assumes = "eps > 0, t arbitrary",
    .proof = "d^2 entries, each bounded by (53).",
    .sharp =
        "|R|_2 = 1 / sqrt(sigma^2 + eps) for d >= 2, eps (sigma^2 + eps)^(-3/2) for d = 1; |R|_F "
        "is at most sqrt(d) / sqrt(sigma^2 + eps).",
    .loose = "measured / bound stays at or below 2 / (3 sqrt(d)).",
    .n = 1,
    .d = 8,
    .check = check_derivative_norm,
    .violate = violate_derivative_norm};

}  // namespace tsdiag::claim
