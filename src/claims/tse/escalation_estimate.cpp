#include <algorithm>
#include <array>
#include <cmath>

#include "escalation.hpp"
#include "stochastic.hpp"

/// The escalation rate of doubly stochastic and of symmetric P, and its estimate.  [TSE] Cor. 2.7
namespace tsdiag::claim {
namespace {

using Balanced = std::optional<Matrix> (*)(const Matrix& logits);
using StepSides = std::optional<BoundSides> (*)(const Step&);

std::optional<Matrix> any_stochastic(const Matrix& logits) { return softmax(logits); }

double symmetric_miss(const Matrix& P) {
    return std::max(doubly_stochastic_miss(P), (P - P.transpose()).cwiseAbs().maxCoeff());
}

/// A comparison determined by X and a P of some kind; `miss` is the distance of P from that kind.
Bound step_bound(std::string reading, std::string formula, Relation relation, Balanced balanced,
                 StepSides sides) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = relation,
            .hypotheses = Hypotheses{},  // no W
            .draw = draw_mixed,
            .sides = [balanced, sides](const Variables& v) -> std::optional<BoundSides> {
                const std::optional<Matrix> P = balanced(v("logits"));
                if (!P || !has_both_parts(v("X"))) return {};
                return sides({v("X"), *P, 1});
            },
            .shown =
                [balanced](const Variables& v) {
                    const std::optional<Matrix> P = balanced(v("logits"));
                    return P ? named(Step{v("X"), *P, 1}) : v.named();
                }};
}

Condition kind(std::string name, Balanced balanced, double (*miss)(const Matrix&)) {
    return {std::move(name), [balanced, miss](const Variables& v) {
                const std::optional<Matrix> P = balanced(v("logits"));
                return P ? miss(*P) : INFINITY;
            }};
}

// --- identities

/// 1 + max(|mu1 - 1|, omega): 1 where both are as claimed.
std::optional<BoundSides> kept_sides(const Step& step) {
    const Mixing m = mixing_without_delta(step);
    const double n = double(step.X.rows());
    const double part = mean_part(step.X).norm() / step.X.norm();
    return BoundSides{1 + std::max(std::abs(m.mu1 - 1), m.omega), 1, 64 * n * n * ulp / part};
}

std::optional<BoundSides> gap_sides(const Step& step) {
    const double n = double(step.P.rows());
    return BoundSides{delta_of(step.P), second_eigenvalue(step.P), 64 * n * n * ulp};
}

Bound doubly_identity() {
    Bound b = step_bound("doubly stochastic P", "mu1 = 1 and omega = 0", Relation::equal,
                         doubly_stochastic, kept_sides);
    b.conditions = {kind("P doubly stochastic", doubly_stochastic, doubly_stochastic_miss)};
    return b;
}

Bound symmetric_identity() {
    Bound b = step_bound("symmetric P", "delta = |lambda2|", Relation::equal, symmetric_stochastic,
                         gap_sides);
    b.conditions = {kind("P symmetric and stochastic", symmetric_stochastic, symmetric_miss)};
    return b;
}

// --- bounds, at the width that is examined

Steps balanced_steps(const Check& how, Balanced balanced) {
    return steps_of(how, [&how, balanced](const Rng& rng) -> std::optional<Step> {
        Step step = draw_step(rng, how);
        const std::optional<Matrix> P =
            balanced(draw(rng, "balanced", how.n, how.n, Distribution::gaussian));
        if (!P) return {};
        step.P = *P;
        return step;
    });
}

double by_delta(const Step& step) { return estimate(step, delta_of(step.P)); }
double by_eigenvalue(const Step& step) { return estimate(step, second_eigenvalue(step.P)); }

Reading rates(const Check& how, Balanced balanced, std::string reading, std::string formula,
              double (*bound)(const Step&), double scale = 1) {
    const Mean like{.reading = std::move(reading),
                    .formula = std::move(formula),
                    .role = Role::interpretation,
                    .mutant = {.factor = 1.05, .why = "(15) keeps the bound below E[r]"}};
    const double d = double(how.d);
    return examine_rates(how, balanced_steps(how, balanced), like,
                         scale * weight_variance(how.distribution, how.d, how.d, 1 / d), bound);
}

constexpr const char* delta_formula = "E[r] >= 1 + (1 - delta^2)/(1 + delta^2) t_sim";
constexpr const char* lambda_formula = "E[r] >= 1 + (1 - lambda2^2)/(1 + lambda2^2) t_sim";

// --- as an estimate, in practice

/// X normal, and P(X) by softmax (2), as in Figure 3.
Step practical_step(const Check& how, const Rng& rng) {
    Step step{draw(rng, "X", how.n, how.d, how.distribution), {}, 1};
    step.P = attention_of(step.X, rng);
    return step;
}

/// Distances to E[r] as d grows, of (17) and of (16).
/// `other`: (16) against (17) instead.
Mean closer(const Check& how, bool other = false) {
    return {.reading = "closer than (16), softmax P",
            .formula = "E |(17) - E[r]| <= E |(16) - E[r]| over X and P(X), d large",
            .relation = Relation::at_most,
            .hypotheses = Hypotheses{},
            .mutant = {.factor = 0.01, .why = "it is closer by far"},
            .claimed = 1,
            .ratio = [&how, other](const Rng& rng) -> std::array<double, 2> {
                const Step step = practical_step(how, rng);
                const double limit = limit_rate(step), one = std::abs(by_eigenvalue(step) - limit),
                             two = std::abs(theorem_bound(step) - limit);
                return {other ? two : one, other ? one : two};
            }};
}

/// `sharp`: logits independent of X, of deviation 3.
Mean wide_estimate(const Check& how, bool sharp = false) {
    return {.reading = "estimate, softmax P, wide",
            .formula = "limit of E[r] - 1 = (2/(1 + lambda2^2) - 1) t_sim, to 5 %",
            .role = Role::sharper,
            .within = 0.05,
            .hypotheses = Hypotheses{},
            .mutant = {.factor = 1.12, .why = "5 % are meant"},
            .claimed = 1,
            .ratio = [&how, sharp](const Rng& rng) -> std::array<double, 2> {
                const Step step = sharp ? draw_step(rng, how, 3) : practical_step(how, rng);
                return {limit_rate(step) - 1, by_eigenvalue(step) - 1};
            }};
}

/// Sharp logits: the sign of the estimate is that of E[r] - 1 for symmetric P alone.
Bound any_estimate() {
    Bound b = step_bound("estimate, any P", "E[r] >= 1 where |lambda2| <= 0.9 (d large)",
                         Relation::at_least, any_stochastic,
                         [](const Step& step) -> std::optional<BoundSides> {
                             if (second_eigenvalue(step.P) > 0.9) return {};
                             return BoundSides{limit_rate(step), 1};
                         });
    b.role = Role::sharper;
    b.hypotheses.reset();  // the limit of E[r] has d sigma^2 = 1
    b.draw = [](const Rng& rng, const Sizes& at, Distribution distribution) {
        return Variables{{"X", draw(rng, "X", at.n, at.d, distribution)},
                         {"logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian, 9)}};
    };
    b.search = {{2, 1}, {3, 1}};
    return b;
}

// --- |lambda2| = 1

/// Two groups of tokens, each attending to itself: symmetric, with a double eigenvalue 1.
std::optional<Matrix> two_groups(const Matrix& logits) {
    const Index n = logits.rows(), first = n / 2, rest = n - first;
    const std::optional<Matrix> one = symmetric_stochastic(logits.topLeftCorner(first, first));
    const std::optional<Matrix> two = symmetric_stochastic(logits.bottomRightCorner(rest, rest));
    if (!one || !two) return {};
    Matrix P = Matrix::Zero(n, n);
    P.topLeftCorner(first, first) = *one;
    P.bottomRightCorner(rest, rest) = *two;
    return P;
}

Bound no_escalation(std::string reading, Balanced balanced) {
    Bound b =
        step_bound(std::move(reading), "E[r] <= 1 where |lambda2| = 1 (d large)", Relation::at_most,
                   balanced, [](const Step& step) -> std::optional<BoundSides> {
                       return BoundSides{limit_rate(step), 1};
                   });
    b.role = Role::interpretation;
    b.hypotheses.reset();  // the limit of E[r] has d sigma^2 = 1
    b.conditions = {kind("|lambda2| = 1", balanced,
                         [](const Matrix& P) { return std::abs(second_eigenvalue(P) - 1); }),
                    kind("P symmetric and stochastic", balanced, symmetric_miss)};
    b.search = {{4, 1}, {5, 1}};
    return b;
}

std::vector<Reading> check_estimate(const Check& how) {
    Check part = how;
    part.trials = std::max<Index>(how.trials / 5, 2);
    return {examine_bound(doubly_identity(), part),
            examine_bound(symmetric_identity(), part),
            rates(how, doubly_stochastic, "bound, doubly stochastic P", delta_formula, by_delta),
            rates(how, symmetric_stochastic, "bound, symmetric P", lambda_formula, by_eigenvalue),
            examine_mean(closer(part), part),
            examine_bound(no_escalation("no escalation at |lambda2| = 1", two_groups), part),
            examine_mean(wide_estimate(part), part),
            examine_bound(any_estimate(), part)};
}

/// A walk on a circle of three: the second eigenvalues are -1/2, and so is delta in modulus.
Attained attain_estimate() {
    const Matrix P{{0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}};
    return {mixing_of({Matrix{{1.0}, {2}, {0}}, P, 1}).delta, second_eigenvalue(P), 1e-14};
}

std::vector<Reading> violate_estimate(const Check& how) {
    Check part = how;
    part.trials = std::max<Index>(how.trials / 10, 2);
    Reading symmetric = examine_bound(step_bound("P not symmetric", "delta = |lambda2|",
                                                 Relation::equal, any_stochastic, gap_sides),
                                      part);
    symmetric.of = "symmetric P";
    Reading doubly = examine_bound(step_bound("columns of any sums", "mu1 = 1 and omega = 0",
                                              Relation::equal, any_stochastic, kept_sides),
                                   part);
    doubly.of = "doubly stochastic P";
    Reading small = rates(part, symmetric_stochastic, "variance 1/(100 d)", lambda_formula,
                          by_eigenvalue, 0.01);
    small.of = "bound, symmetric P";
    Reading other = rates(part, doubly_stochastic, "doubly stochastic P, variance 1/(100 d)",
                          delta_formula, by_delta, 0.01);
    other.of = "bound, doubly stochastic P";
    return {symmetric,
            doubly,
            small,
            other,
            control(closer(part, true), "(16) against (17)", part),
            control(wide_estimate(part, true), "logits of deviation 3", part)};
}

}  // namespace

extern const Claim tse_cor27 = {
    .name = "tse.cor2.7",
    .statement =
        "For a doubly stochastic P, mu1 = 1, omega = 0 and E[r] >= 1 + (1 - delta^2)/(1 + delta^2) "
        "t_sim. For a symmetric P, delta = |lambda2|, so E[r] >= 1 + (1 - lambda2^2)/(1 + "
        "lambda2^2) t_sim, in practice the better estimate also for other P. There is no "
        "escalation if |lambda2| = 1.",
    .words =
        "when P is symmetric (thus doubly stochastic), then delta^2 = |lambda2(P)|^2 and (17) "
        "[...] If |lambda2(P)| = 1 (say, for P = I), then no escalation would happen",
    .source = "[TSE] Cor. 2.7, (17), and the text after it",
    .assumes =
        "as Theorem 2.6, at the examined width; alpha = 1, d sigma^2 = 1; for other P the paper "
        "claims an estimate seen in experiments, not a bound",
    .hypotheses = {&standard_scale},
    .sharp =
        "Better, at the same cost: (1 + alpha^2 mu1^2)/(1 + alpha^2 mu2^2) - 1, exact for any P as "
        "d grows.  For P that are not symmetric the estimate can have the wrong sign.",
    .n = 16,
    .d = 64,
    .trials = 2000,
    .least_n = 2,
    .chance = true,
    .check = check_estimate,
    .tight = attain_estimate,
    .violate = violate_estimate};

}  // namespace tsdiag::claim
