#include <fmt/format.h>

#include <cmath>

#include "enumerated.hpp"

/// Several heads, concatenated.  [TSE] Prop. 2.9, Lemma A.6
namespace tsdiag::claim {
namespace {

// --- exact means, of two heads of one column each

/// Entries of W of `deviation` times sigma.
Bound exact_gain_of_heads(bool similar, double deviation = 1) {
    return enumerated_gain(similar ? "(29), similar part" : "(29), diverse part",
                           similar ? "E[xi1] = 1 + alpha^2 d sigma^2 mean_k mu1(k)^2, two heads"
                                   : "E[xi2] = 1 + alpha^2 d sigma^2 mean_k mu2(k)^2, two heads",
                           similar, 2, deviation);
}

Bound exact_rate_of_heads(double deviation = 1) {
    return enumerated_bound(
        {.reading = "(18)",
         .formula = "E r = 1 + (a2/(1 + a2 mu2) (mu1 - mu2) - E eta) t_sim, mu_i = mean_k "
                    "mu_i(k)^2, a2 = alpha^2 d sigma^2, two heads",
         .heads = 2,
         .sides =
             [](const Heads& heads, double a2, const Enumerated& e) {
                 const double ratio = printed_ratio(means_of(heads), a2);
                 const double eta = e.xi1 / e.xi2 - e.inverse;
                 return BoundSides{e.r, 1 + (ratio - 1 - eta) * t_sim(heads.X),
                                   (e.r + ratio + e.inverse) * e.worst};
             },
         .deviation = deviation});
}

// --- any number of heads

/// Entries of W of `scale` times the variance that is claimed.
Mean mean_ratio_of_heads(const Check& how, const FixedHeads& fixed, double scale = 1) {
    return drawn_ratio(how, fixed, "means, these heads",
                       "E xi1/E xi2 = 1 + a2/(1 + a2 mu2) (mu1 - mu2), W of --dist", scale);
}

// --- bounds of the means

Heads heads_of(const Variables& v, Index count) {
    Heads heads{v("X"), {}, 1};
    for (Index k = 0; k < count; ++k) heads.P.push_back(softmax(v(fmt::format("logits {}", k))));
    return heads;
}

using HeadSides = BoundSides (*)(const Heads&);

Bound head_bound(std::string reading, std::string formula, Relation relation, Index count,
                 HeadSides sides) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = relation,
            .accuracy = 1e-9,  // attained, and omega of a tiny mean is rounded
            .draw =
                [count](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v;
                    v.set("X", draw(rng, "X", at.n, at.d, distribution));
                    for (Index k = 0; k < count; ++k)
                        v.set(fmt::format("logits {}", k),
                              draw(rng.fork(std::uint64_t(k)), "logits", at.n, at.n,
                                   Distribution::gaussian));
                    return v;
                },
            .sides = [count, sides](const Variables& v) -> std::optional<BoundSides> {
                const Heads heads = heads_of(v, count);
                if (!has_both_parts(heads.X)) return {};
                return sides(heads);
            },
            .search = {{2, 1}, {3, 1}},
            .shown = [count](const Variables& v) { return named(heads_of(v, count)); }};
}

BoundSides similar_sides(const Heads& heads) {
    const HeadMeans m = means_of(heads);
    const double off = rounding_of_mu1(heads.X);
    return {m.mu1 + off * (2 * std::sqrt(m.mu1) + off), m.least};  // the mean of (mu1 + off)^2
}
/// For P of rank one, values of mu2 and delta below this are rounding errors.
constexpr double least_delta = 1e-6;
BoundSides diverse_sides(const Heads& heads) {
    double squares = 0;
    for (const Matrix& P : heads.P)
        squares += std::pow(std::max(delta_of(P), least_delta), 2) / double(heads.P.size());
    return {means_of(heads).mu2, squares};
}
BoundSides diverse_by_mean(const Heads& heads) {
    double sum = 0;
    for (const Matrix& P : heads.P)
        sum += std::max(delta_of(P), least_delta) / double(heads.P.size());
    return {means_of(heads).mu2, sum * sum};
}

std::vector<Reading> check_heads(const Check& how) {
    const FixedHeads fixed = fixed_heads(how, how.heads);
    Check part = how;
    part.trials = std::max<Index>(how.trials / 4, 2);
    Check more = how;  // a mean is cheap, and half a percent of it is required
    more.trials = 4 * how.trials;
    Bound square = head_bound("square of the mean delta", "mean mu2^2 <= (mean delta)^2, two heads",
                              Relation::at_most, 2, diverse_by_mean);
    square.role = Role::sharper;
    return {examine_bound(exact_rate_of_heads(), part),
            examine_bound(exact_gain_of_heads(true), part),
            examine_bound(exact_gain_of_heads(false), part),
            examine_mean(mean_ratio_of_heads(more, fixed), more),
            examine_bound(head_bound("bound of the similar part", "mean mu1^2 >= mean (1-omega)^2",
                                     Relation::at_least, how.heads, similar_sides),
                          part),
            examine_bound(head_bound("bound of the diverse part", "mean mu2^2 <= mean delta^2",
                                     Relation::at_most, how.heads, diverse_sides),
                          part),
            examine_bound(square, part)};
}

/// Two heads of one column each, all sixteen W of entries -1/sqrt(2) and 1/sqrt(2).
Attained attain_heads() {
    const Heads heads{Matrix{{2.0, 1}, {0, 1}},
                      {Matrix{{0.75, 0.25}, {0.25, 0.75}}, Matrix{{0.5, 0.5}, {0.5, 0.5}}},
                      1};
    double sum = 0;
    for_each_sign(2, std::sqrt(0.5),
                  [&](const Matrix& W) { sum += gains_of(heads.X, heads.apply(W)).xi1 / 16; });
    return {sum, 1 + means_of(heads).mu1, 1e-14};
}

std::vector<Reading> violate_heads(const Check& how) {
    const FixedHeads fixed = fixed_heads(how, how.heads);
    Check part = how;
    part.trials = std::max<Index>(how.trials / 4, 2);
    Bound halved = head_bound("rows that sum to 1/2", "mean mu1^2 >= mean (1-omega)^2",
                              Relation::at_least, how.heads, [](const Heads& heads) {
                                  Heads half = heads;
                                  for (Matrix& P : half.P) P /= 2;
                                  return similar_sides(half);
                              });
    Reading similar = examine_bound(halved, part);
    similar.of = "bound of the similar part";
    Bound stretched =
        head_bound("rows of different sums", "mean mu2^2 <= mean delta^2", Relation::at_most,
                   how.heads, [](const Heads& heads) {
                       Heads other = heads;
                       for (Matrix& P : other.P)
                           P = Vector::LinSpaced(P.rows(), 1, double(P.rows())).asDiagonal() * P;
                       return diverse_sides(other);
                   });
    Reading diverse = examine_bound(stretched, part);
    diverse.of = "bound of the diverse part";
    constexpr const char* twice = "entries of twice the deviation";
    return {control(mean_ratio_of_heads(how, fixed, 4), twice, how),
            similar,
            diverse,
            control(exact_rate_of_heads(2), twice, part),
            control(exact_gain_of_heads(true, 2), twice, part),
            control(exact_gain_of_heads(false, 2), twice, part)};
}

}  // namespace

extern const Claim tse_prop29 = {
    .name = "tse.prop2.9",
    .statement =
        "With several concatenated heads, E[xi_i] and E[r] are those of one head with mean_k "
        "mu_i(k)^2 in place of mu_i^2, and these means satisfy the bounds mean_k (1-omega_k)^2 and "
        "mean_k delta_k^2.",
    .words =
        "the only difference in (18) is that mu_i^2 are replaced by [...] the average across "
        "multiple heads",
    .source = "[TSE] Prop. 2.9, (18) and the text after it, Lemma A.6, (29)",
    .assumes =
        "head k has its own row-stochastic P_k and W_k of d x d/h, independent entries of mean 0 "
        "and variance sigma^2; Pi1 X and Pi2 X not zero; the equations with every mean taken over "
        "all W of entries -sigma and sigma, two heads of one column each",
    .proof = "as Lemma 2.4, with E[W_k W_k^T] = (d/h) sigma^2 I.",
    .sharp =
        "The square of the mean delta is not a bound: P1 = I and P2 = Pi1 have mean mu2^2 = 1/2.",
    .n = 16,
    .d = 8,
    .heads = 4,
    .trials = 4000,
    .least_n = 2,
    .chance = true,
    .check = check_heads,
    .tight = attain_heads,
    .violate = violate_heads};

}  // namespace tsdiag::claim
