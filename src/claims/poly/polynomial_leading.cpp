#include <fmt/format.h>

#include <cmath>

#include "expectation.hpp"
#include "growth.hpp"
#include "polynomial.hpp"

/// The leading term of the mean square of the gradient of the logits.  [POLY] (56)
namespace tsdiag::claim {
namespace {

/// |d(X Q K^T X^T)/dQ|_F^2 of N tokens, all the `same` or independent, and heads of width w;
/// entries of X of variance `tokens`.
double square_at(const Check& how, Index N, Index D, bool same, const Rng& rng,
                 double tokens = Scales{}.tokens) {
    const Index w = how.d / how.heads;
    Matrix X = draw(rng, "X", same ? 1 : N, D, how.distribution, tokens);
    if (same) X = X.replicate(N, 1).eval();
    const Matrix B = X * draw_weights(rng, "K", D, w, how.distribution, Scales{}.weights);
    return double(w) * std::pow(elementwise_gradient_norm({X, B, B}, 1), 2);
}

constexpr Index large_size = 48;  ///< where 2/(N D) is less than a thousandth

double leading(const LogitSizes& s) {
    return std::pow(double(s.N * s.D) * s.x, 2) * double(s.w) * s.weights;
}

/// Entries of X of `growing` variance, or of one.
Growth growth_in(const Check& how, bool tokens, bool growing = false) {
    return {.reading = tokens ? "in N" : "in D",
            .formula = tokens ? "E |d(X Q K^T X^T)/dQ|_F^2 = Theta(N^2)"
                              : "E |d(X Q K^T X^T)/dQ|_F^2 = Theta(D^2)",
            .relation = Relation::equal,
            .claimed = 2,
            .sizes = {16, 32, 64, 128},
            .sample =
                [&how, tokens, growing](Index size, const Rng& rng) {
                    return square_at(how, tokens ? size : how.n, tokens ? how.d : size, false, rng,
                                     growing ? double(size) : Scales{}.tokens);
                },
            .size = tokens ? "N" : "D"};
}

Mean leading_term(const Check& how, Index size, bool same = false) {
    LogitSizes s = logit_sizes(how);
    s.N = s.D = size;
    return {.reading = fmt::format("constant, N = D = {}", size),
            .formula = "E |d(X Q K^T X^T)/dQ|_F^2 = N^2 D^2 d sigma_x^4 sigma_w^2, to 5 %",
            .within = 0.05,
            .mutant = {.factor = 1.1, .why = "5 % are meant"},
            .claimed = leading(s),
            .sample = [&how, size, same](const Rng& rng) {
                return square_at(how, size, size, same, rng);
            }};
}

std::vector<Reading> check_leading(const Check& how) {
    return {examine_growth(growth_in(how, true), how), examine_growth(growth_in(how, false), how),
            examine_mean(leading_term(how, large_size), how)};
}

/// N = D = 10^6: the exact N D (N D + 2) against (N D)^2.
Attained attain_leading() {
    const LogitSizes s{1000000, 1000000, 1};
    return {gradient_square(s, 1), leading(s), 1e-11};
}

/// One and the same token N times: E |x|^4 = D (D + 2) for all pairs.
std::vector<Reading> violate_leading(const Check& how) {
    Check more = how;
    more.trials *= 10;
    Mean one = leading_term(more, 4, true);
    one.reading = leading_term(how, large_size).reading;
    return {control(one, "of one token N times, N = D = 4", more),
            control(growth_in(how, true, true), "entries of X of deviation sqrt(N)", how),
            control(growth_in(how, false, true), "entries of X of deviation sqrt(D)", how)};
}

}  // namespace

extern const Claim poly_eq56 = {
    .name = "poly.eq56",
    .statement =
        "The gradient of the logits with respect to the weights Q has approximately the mean "
        "square E |d(X Q K^T X^T)/dQ|_F^2 = N^2 D^2 d sigma_x^4 sigma_w^2.",
    .words = "approximately N^2 D^2 d sigma_x^4 sigma_w^2. (56)",
    .source = "[POLY] (56)",
    .assumes =
        "entries of X (N x D) normal with variance sigma_x^2, of Q and K (D x d) with sigma_w^2, "
        "all independent; N D large",
    .hypotheses = {&normal_entries},
    .sharp = "It is too small by a fraction of exactly 2/(N D).",
    .n = 8,
    .d = 8,
    .heads = 2,
    .trials = 400,
    .chance = true,
    .check = check_leading,
    .tight = attain_leading,
    .violate = violate_leading};

}  // namespace tsdiag::claim
