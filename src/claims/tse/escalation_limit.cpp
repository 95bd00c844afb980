#include <cmath>

#include "escalation.hpp"
#include "growth.hpp"

/// Limit of the escalation rate as tokens become alike.  [TSE] Rem. 2.8
namespace tsdiag::claim {
namespace {

/// X = 1 v^T + Z/N and P(X) by softmax (2).
Step nearly_alike(const Check& how, Index width, double N, const Rng& rng) {
    const Matrix v = draw(rng, "v", 1, width, how.distribution);
    Step step;
    step.X = v.replicate(how.n, 1) + draw(rng, "Z", how.n, width, how.distribution) / N;
    step.P = attention_of(step.X, rng);
    step.alpha = draw_alpha(rng)(0);
    return step;
}

double ceiling_of(const Step& step) { return 1 + step.alpha * step.alpha; }

Growth limit_growth(const Check& how) {
    return {.reading = "limit",
            .formula = "|right side of (16) - (1 + alpha^2)| = O(1/N^2) for X = 1 v^T + Z/N",
            .hypotheses = Hypotheses{},  // no W
            .mutant = {.factor = -0.5, .why = "exponents are told apart to 0.25"},
            .claimed = -2,
            .sizes = {16, 32, 64, 128, 256, 512},
            .sample = [&how](Index N, const Rng& rng) {
                const Step step = nearly_alike(how, how.d, double(N), rng);
                return std::abs(theorem_bound(step) - ceiling_of(step));
            }};
}

/// The right side of (16), and E xi1/E xi2, against 1 + alpha^2.
Bound ceiling(std::string reading, std::string formula, bool bound, bool condition) {
    Bound b{.reading = std::move(reading),
            .formula = std::move(formula),
            .hypotheses = Hypotheses{},
            .draw = draw_mixed_by_alpha,
            .sides = [bound](const Variables& v) -> std::optional<BoundSides> {
                const Step step = mixed_step(v, v("alpha")(0));
                if (!(step.alpha > 0) || !has_both_parts(step.X)) return {};
                const double measured =
                    bound ? theorem_bound(step) : (limit_rate(step) - 1) / t_sim(step.X) + 1;
                return BoundSides{measured, ceiling_of(step)};
            },
            .search = {{2, 1}, {3, 1}},
            .shown = [](const Variables& v) { return named(mixed_step(v, v("alpha")(0))); }};
    if (condition)
        b.conditions = {{"omega + delta < 1", [](const Variables& v) {
                             const Mixing m = mixing_of(mixed_step(v));
                             return m.omega + m.delta - 1;
                         }}};
    return b;
}

/// t_div(Y)/t_div(X) of tokens that are nearly alike, at a width.
double diversity_left(const Check& how, Index width, const Rng& rng) {
    Step step = nearly_alike(how, width, 4096, rng);
    step.alpha = 1;
    const double variance = 1 / double(width);
    const Matrix Y = step.apply(draw(rng, "W", width, width, how.distribution, variance));
    return t_div(Y) / t_div(step.X);
}

Growth rate_growth(const Check& how) {
    return {.reading = "rate 1/2",
            .formula = "E|t_div(Y)/t_div(X) - 1/2| = O(1/sqrt(d)) as X tends to 1 v^T",
            .mutant = {.factor = -0.6, .why = "exponents are told apart to 0.25"},
            .claimed = -0.5,
            .sizes = {32, 45, 64, 90, 128, 181, 256},
            .sample =
                [&how](Index width, const Rng& rng) {
                    return std::abs(diversity_left(how, width, rng) - 0.5);
                },
            .size = "d"};
}

/// The mean itself at one width, where it is 1/2 up to O(1/d).
Mean rate_at(const Check& how, Index width) {
    return {.reading = "rate 1/2, d = 256",
            .formula = "E t_div(Y)/t_div(X) = 1/(1 + alpha^2) = 1/2 as X tends to 1 v^T, to 5 %",
            .within = 0.05,
            .mutant = {.factor = 1.12, .why = "5 % are meant"},
            .claimed = 0.5,
            .sample = [&how, width](const Rng& rng) { return diversity_left(how, width, rng); }};
}

std::vector<Reading> check_limit(const Check& how) {
    Bound largest = ceiling("maximum", "right side of (16) <= 1 + alpha^2", true, true);
    Bound gains = ceiling("as a ceiling", "E xi1/E xi2 <= 1 + alpha^2", false, false);
    gains.role = Role::sharper;
    gains.hypotheses.reset();  // E xi_i has d sigma^2 = 1
    Check more = how;
    more.trials = 4 * how.trials;
    return {examine_growth(limit_growth(how), how), examine_bound(largest, more),
            examine_growth(rate_growth(how), more), examine_mean(rate_at(how, 256), more),
            examine_bound(gains, more)};
}

/// Uniform attention: only t_sim remains, which is nearly 1.
Attained attain_limit() {
    const Matrix X{{1.0}, {1 + 1e-6}};
    return {theorem_bound({X, Matrix::Constant(2, 2, 0.5), 1}), 2, 1e-11};
}

std::vector<Reading> violate_limit(const Check& how) {
    Growth broken = limit_growth(how);
    broken.reading = "P that does not follow X";  // delta stays
    broken.sample = [&how](Index N, const Rng& rng) {
        Step step = nearly_alike(how, how.d, double(N), rng);
        step.P = softmax(draw(rng, "logits", how.n, how.n, Distribution::gaussian));
        return std::abs(theorem_bound(step) - ceiling_of(step));
    };
    Reading limit = examine_growth(broken, how);
    limit.of = "limit";
    Bound any = ceiling("all look at one token, and omega is large",
                        "right side of (16) <= 1 + alpha^2", true, false);
    any.draw = [](const Rng& rng, const Sizes& at, Distribution distribution) {
        const Matrix X = draw(rng, "X", at.n, at.d, distribution);
        const Matrix looks = draw(rng, "looks", 1, at.n, Distribution::gaussian, 100);
        return Variables{{"X", centred(X) + mean_part(X) / 20},
                         {"logits", looks.replicate(at.n, 1)},
                         {"alpha", draw_alpha(rng)}};
    };
    Reading largest = examine_bound(any, how);
    largest.of = "maximum";
    Mean diverse = rate_at(how, 64);
    diverse.reading = "tokens that are not alike";
    diverse.sample = [&how](const Rng& rng) {
        const Step step = draw_step(rng, how);
        const Matrix W = draw(rng, "W", how.d, how.d, how.distribution, 1 / double(how.d));
        return t_div(step.apply(W)) / t_div(step.X);
    };
    Reading rate = examine_mean(diverse, how);
    rate.of = "rate 1/2, d = 256";
    Growth apart = rate_growth(how);
    apart.sample = [&how](Index width, const Rng& rng) {
        Check wide = how;
        wide.d = width;
        const Step step = draw_step(rng, wide);
        const Matrix W = draw(rng, "W", width, width, how.distribution, 1 / double(width));
        return std::abs(t_div(step.apply(W)) / t_div(step.X) - 0.5);
    };
    return {limit, largest, rate, control(apart, "tokens that are not alike", how)};
}

}  // namespace

extern const Claim tse_rem28 = {
    .name = "tse.rem2.8",
    .statement =
        "As tokens become more similar, omega and delta vanish, so the right side of (16) tends to "
        "its maximum 1 + alpha^2; diversity falls at the rate 1/(1 + alpha^2), which is 1/2 for "
        "alpha = 1.",
    .words = "the rate is linear and asymptotically 1/(1 + alpha^2) = 1/2 for alpha = 1",
    .source = "[TSE] Rem. 2.8",
    .assumes =
        "X = 1 v^T + Z/N, P = P(X) by softmax (2); the maximum for omega + delta < 1; the rate for "
        "entries of W of variance 1/d and large d",
    .hypotheses = {&standard_scale},
    .sharp =
        "The distance falls like the square of the distance of the tokens. E xi1/E xi2 itself may "
        "exceed 1 + alpha^2.",
    .n = 8,
    .d = 8,
    .trials = 60,
    .least_n = 2,
    .chance = true,
    .check = check_limit,
    .tight = attain_limit,
    .violate = violate_limit};

}  // namespace tsdiag::claim
