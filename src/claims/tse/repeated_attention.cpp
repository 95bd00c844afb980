#include <cmath>

#include "expectation.hpp"
#include "similarity.hpp"

/// Repeated self-attention steps with residual.  [TSE] (3)
namespace tsdiag::claim {
namespace {

constexpr Index step_count = 32;

/// log t_div(SA_k(... SA_1(X)))/k, SA_i(X) = X + P_i X W_i, c_k = 1/|.|_F.
double rate_of(const Check& how, bool mixing, const Rng& rng) {
    Matrix X = draw(rng, "X", how.n, how.d, how.distribution);
    for (Index k = 0; k < step_count; ++k) {
        const Rng step = rng.fork(std::uint64_t(k));
        const Matrix P = mixing
                             ? softmax(draw(step, "logits", how.n, how.n, Distribution::gaussian))
                             : Matrix(Matrix::Identity(how.n, how.n));
        X += P * X * draw(step, "W", how.d, how.d, how.distribution, 1 / double(how.d));
        X /= X.norm();
    }
    return std::log(t_div(X)) / double(step_count);
}

Mean random_weights(const Check& how, bool mixing) {
    return {.reading = "random weights",
            .formula = "E log t_div(SA_k(... SA_1(X)))/k <= -1/10, k = 32, W_i of variance 1/d",
            .role = Role::interpretation,
            .relation = Relation::at_most,
            .mutant = {.factor = 10, .why = "a step leaves more than exp(-1) of it"},
            .claimed = -0.1,
            .sample = [&how, mixing](const Rng& rng) { return rate_of(how, mixing, rng); }};
}

/// One P and one W for all steps, which have the same directions as limit.
Bound any_weights() {
    return {.reading = "any weights",
            .formula = "t_div(SA_k(... SA_1(X))) <= 1/2, k = 32, for every W",
            .role = Role::interpretation,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v = draw_mixed(rng, at, distribution);
                    v.set("W", draw(rng, "W", at.d, at.d, distribution, 1 / double(at.d)));
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                Step step = mixed_step(v);
                if (!has_both_parts(step.X)) return {};
                for (Index k = 0; k < step_count; ++k) {
                    step.X = step.apply(v("W"));
                    const double size = step.X.norm();
                    if (!(size > 1e-100)) return {};
                    step.X /= size;
                }
                return BoundSides{t_div(step.X), 0.5};
            },
            .search = {{2, 1}},
            .shown =
                [](const Variables& v) {
                    std::vector<NamedMatrix> all = named(mixed_step(v));
                    all.push_back(named("W", v("W")));
                    return all;
                }};
}

std::vector<Reading> check_repeated(const Check& how) {
    return {examine_mean(random_weights(how, true), how), examine_bound(any_weights(), how)};
}

/// |lambda2(P_k)| = 1: every token is multiplied by the same matrices.
std::vector<Reading> violate_repeated(const Check& how) {
    return {control(random_weights(how, false), "P_k = I", how)};
}

}  // namespace

extern const Claim tse_eq3 = {
    .name = "tse.eq3",
    .statement =
        "Repeated self-attention with the residual, SA_i(X) = X + alpha P_i X W_i, makes all "
        "tokens equal up to scale: c_k (SA_k o ... o SA_1)(X) tends to the span of 1 e_j^T; for "
        "random weights, or for any.",
    .words =
        "Hence, roughly speaking, the escalation process can be characterized as (3) where [...] "
        "{c_k} [...] is a proper normalization sequence",
    .source = "[TSE] (3)",
    .assumes =
        "alpha = 1; P_k row-stochastic with |lambda2(P_k)| away from 1: softmax of normal logits; "
        "random weights: independent entries of mean 0 and variance 1/d, a new W_k at each step",
    .sharp =
        "Two growth rates compete: W = -I removes the similar part at once, and for d = 1 and "
        "normal W it shrinks by exp(-0.2) per step.",
    .loose = "The statement is a limit, without a rate.",
    .n = 8,
    .d = 16,
    .trials = 200,
    .least_n = 2,
    .chance = true,
    .check = check_repeated,
    .violate = violate_repeated};

}  // namespace tsdiag::claim
