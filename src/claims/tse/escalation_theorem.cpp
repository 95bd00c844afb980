#include <fmt/format.h>

#include <cmath>

#include "escalation.hpp"
#include "growth.hpp"

/// The theorem of token similarity escalation.  [TSE] Thm 2.6
namespace tsdiag::claim {
namespace {

constexpr const char* theorem_formula =
    "E[r] >= 1 + alpha^2/(1 + alpha^2 delta^2) ((1-omega)^2 - delta^2) t_sim";

/// Small logits: omega and delta are small, as at initialisation.
Steps mild_steps(const Check& how) {
    return steps_of(how, [&how](const Rng& rng) -> std::optional<Step> {
        Step step = draw_step(rng, how, 0.3);
        step.alpha = draw_alpha(rng)(0);
        return step;
    });
}

double printed(const Step& step) { return theorem_bound(step); }

Mean rate_reading(std::string reading, Role role) {
    return {.reading = std::move(reading), .formula = theorem_formula, .role = role};
}

/// d sigma^2 for which sqrt(d) w has a sub-gaussian norm of 1: E exp(d w^2) = 2.
double sub_gaussian_variance(Distribution distribution) {
    if (distribution == Distribution::gaussian) return 3.0 / 8;  // E exp(w^2 v) = (1 - 2 v)^(-1/2)
    if (distribution == Distribution::rademacher) return std::log(2.0);
    // Uniform on [-a, a], c = d a^2: the integral of exp(c u^2) over (0, 1) is 2; variance c/3.
    const auto mean = [](double c) {
        double sum = 0, term = 1;
        for (int k = 0; k < 40; term *= c / ++k) sum += term / (2 * k + 1);
        return sum;
    };
    double low = 0, high = 3;
    for (int i = 0; i < 80; ++i) (mean((low + high) / 2) < 2 ? low : high) = (low + high) / 2;
    return low / 3;
}

// --- at one width: d = 1 and W = -1, 1, where E[r] is exact

Variables draw_line(const Rng& rng, const Sizes& at, Distribution distribution) {
    return draw_mixed_by_alpha(rng, {at.n, 1}, distribution);
}

std::optional<Step> step_of(const Variables& v) {
    if (!(v("alpha")(0) > 0) || !has_both_parts(v("X"))) return {};
    return mixed_step(v, v("alpha")(0));
}

std::vector<NamedMatrix> shown_with_mixing(const Variables& v) {
    const Step step = mixed_step(v, v("alpha")(0));
    const Mixing m = mixing_of(step);
    std::vector<NamedMatrix> all = named(step);
    all.push_back(
        named("omega, delta, left side of (15)", Matrix{{m.omega, m.delta, condition_of(m)}}));
    return all;
}

/// Strictly less than 1, with a margin for rounding, which alpha^2 amplifies.
constexpr double below_one = 1 - 1e-6;

std::vector<Condition> theorem_conditions() {
    const auto missed = [](double (*miss)(const Mixing&)) {
        return [miss](const Variables& v) {
            const std::optional<Step> step = step_of(v);
            return step ? miss(mixing_of(*step)) : INFINITY;
        };
    };
    return {{"omega + delta < 1",
             missed([](const Mixing& m) { return m.omega + m.delta - below_one; })},
            {"the left side of (15) is 0.01 at least",
             missed([](const Mixing& m) { return least_gap - condition_of(m); })}};
}

Bound every_width() {
    return {.reading = "every d",
            .formula = theorem_formula,
            .role = Role::interpretation,
            .relation = Relation::at_least,
            .conditions = theorem_conditions(),
            .draw = draw_line,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const std::optional<Step> step = step_of(v);
                const std::optional<double> r = step ? exact_rate(*step) : std::nullopt;
                if (!r) return {};
                return BoundSides{*r, theorem_bound(*step)};
            },
            .search = {{2, 1}, {3, 1}},
            .shown = shown_with_mixing};
}

/// The right side of (16) exceeds 1 where omega + delta < 1.
Bound above_one() {
    Bound b = every_width();
    b.reading = "right side above 1";
    b.formula = "1 + alpha^2/(1 + alpha^2 delta^2) ((1-omega)^2 - delta^2) t_sim >= 1";
    b.role = Role::part;
    b.conditions.pop_back();
    b.draw = draw_mixed_by_alpha;
    b.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const std::optional<Step> step = step_of(v);
        if (!step) return {};
        return BoundSides{theorem_bound(*step), 1};
    };
    return b;
}

/// E[xi1/xi2] of d = 1 and W = -1, 1, exact.
Bound sharp_at_one() {
    Bound b = every_width();
    b.reading = "sharp, d = 1";
    b.formula = "E[xi1/xi2] >= (1 + alpha^2 mu1^2)/(1 + alpha^2 mu2^2) d/(d+2)";
    b.role = Role::sharper;
    b.conditions.clear();
    b.mutant = {.factor = 2, .why = "rho is less than 2/d"};
    b.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const std::optional<Step> step = step_of(v);
        const std::optional<double> r = step ? exact_rate(*step) : std::nullopt;
        if (!r) return {};
        const double t = t_sim(step->X), ratio = (limit_rate(*step) - 1) / t + 1;
        return BoundSides{(*r - 1) / t + 1, ratio / 3};
    };
    return b;
}

// --- as d grows

/// Padding X with zero columns to `width` keeps its Gram matrix, hence its mixing; only the first
/// rows of W matter.
double padded_rate(const Step& step, Index width, Distribution distribution, const Rng& rng) {
    const Index m = step.X.cols();
    const Matrix W = draw(rng, "W", m, width, distribution, 1 / double(width));
    Matrix Y = step.alpha * step.P * step.X * W;
    Y.leftCols(m) += step.X;
    return t_div(step.X) / t_div(Y);
}

/// r concentrates at 1 + (E xi1/E xi2 - 1) t_sim as d grows, above the right side of (16).
Growth width_growth(const Check& how, const Steps& steps) {
    Growth growth{.reading = "d to infinity",
                  .formula =
                      "E|r - 1 - (E xi1/E xi2 - 1) t_sim| = Theta(1/sqrt(d)), and the limit "
                      "of E[r] is at least the right side of (16)",
                  .role = Role::interpretation,
                  .relation = Relation::equal,
                  .given = steps.given,
                  .mutant = {.factor = -0.6, .why = "exponents are told apart to 0.25"},
                  .claimed = -0.5,
                  .size = "d"};
    for (const Index factor : {1, 2, 4, 8, 16}) growth.sizes.push_back(factor * how.d);
    return growth;
}

Reading growing_width(const Check& how, const Steps& steps) {
    Growth growth = width_growth(how, steps);
    Check part = how;
    part.trials = std::max<Index>(how.trials / 10, 2);
    if (steps.all.empty()) return examine_growth(growth, part);
    const Step& step = steps.all.front();
    const double limit = limit_rate(step), bound = theorem_bound(step);
    growth.sample = [&](Index width, const Rng& rng) {
        return std::abs(padded_rate(step, std::max(width, step.X.cols()), how.distribution, rng) -
                        limit);
    };
    Reading r = examine_growth(growth, part);
    if (!(limit >= bound)) r.verdict = Verdict::false_as_stated;
    r.note += fmt::format("; E[r] tends to {:.6g}, the right side of (16) is {:.6g}", limit, bound);
    return r;
}

// --- readings

/// The non-asymptotic form, a2 = alpha^2 d sigma^2.
double sharp_rate(const Step& step, double scale) {
    const double d = double(step.X.cols());
    const Gains m = expected_gains(mixing_without_delta(step), step.alpha * step.alpha * scale);
    return 1 + (m.xi1 / m.xi2 * d / (d + 2) - 1) * t_sim(step.X);
}

std::vector<Reading> check_theorem(const Check& how) {
    const Steps steps = mild_steps(how);
    const double d = double(how.d), own = weight_variance(how.distribution, how.d, how.d, 1 / d);
    Mean sharp = rate_reading("sharp", Role::sharper);
    sharp.formula = "E[r] >= 1 + ((1 + a2 mu1^2)/(1 + a2 mu2^2) d/(d+2) - 1) t_sim";
    sharp.hypotheses = Hypotheses{};  // of any scale
    Mean bounded = rate_reading("uniform in +-1/sqrt(d), K by Remark A.4", Role::interpretation);
    Mean norm = rate_reading("sub-gaussian norm 1/sqrt(d)", Role::sharper);
    Check uniform = how;
    if (standard_scale.unmet(how).empty()) uniform.distribution = Distribution::uniform;
    return {examine_bound(every_width(), how),
            examine_rates(how, steps, rate_reading("this d", Role::interpretation), own, printed),
            growing_width(how, steps),
            examine_rates(uniform, steps, bounded, 1 / (3 * d), printed),
            examine_bound(above_one(), how),
            examine_rates(how, steps, norm, sub_gaussian_variance(how.distribution) / d, printed),
            examine_rates(how, steps, sharp, own,
                          [&](const Step& step) { return sharp_rate(step, d * own); }),
            examine_bound(sharp_at_one(), how)};
}

/// W = w I with one random number w: no concentration.
Reading with_one_number(const Check& how, const Steps& steps) {
    Growth growth = width_growth(how, steps);
    Check part = how;
    part.trials = std::max<Index>(how.trials / 10, 2);
    if (!steps.all.empty())
        growth.sample = [&step = steps.all.front(), &how](Index, const Rng& rng) {
            const double w = draw(rng, "w", 1, 1, how.distribution)(0, 0);
            const Matrix W = w * Matrix::Identity(step.X.cols(), step.X.cols());
            return std::abs(t_div(step.X) / t_div(step.apply(W)) - limit_rate(step));
        };
    return control(growth, "one number for all of W", part);
}

/// Entries of W that are nearly 0, violated hypotheses, and an omitted factor.
std::vector<Reading> violate_theorem(const Check& how) {
    const Steps steps = mild_steps(how);
    const double d = double(how.d), own = weight_variance(how.distribution, how.d, how.d, 1 / d);
    Mean sharp = rate_reading("sharp, variance divided by 100", Role::sharper);
    sharp.hypotheses = Hypotheses{};
    Reading small = examine_rates(how, steps, sharp, own / 100,
                                  [&](const Step& step) { return sharp_rate(step, d * own); });
    small.of = "sharp";
    Bound any = above_one();
    any.conditions.clear();
    Bound without = sharp_at_one();
    without.sides = [inner = without.sides](const Variables& v) {
        std::optional<BoundSides> s = inner(v);
        if (s) s->bound *= 3;
        return s;
    };
    Reading r = examine_rates(how, mild_steps(how),
                              rate_reading("variance 1/(100 d)", Role::interpretation),
                              0.01 / double(how.d), printed);
    r.of = "this d";
    return {r, small, with_one_number(how, steps), control(any, "omega + delta beyond 1", how),
            control(without, "without d/(d + 2)", how)};
}

}  // namespace

extern const Claim tse_thm26 = {
    .name = "tse.thm2.6",
    .statement =
        "Similarity escalates on average: E[r] >= 1 + alpha^2/(1 + alpha^2 delta^2) ((1-omega)^2 - "
        "delta^2) t_sim(X) > 1 for d sufficiently large; read for large d, for every width, and "
        "for the examined width.",
    .words =
        "with sub-gaussian norm equal to sigma = 1/sqrt(d). Suppose that omega + delta < 1 and the "
        "left-hand side of (15) is bounded away from zero for d sufficiently large. Then the "
        "expected escalation rate satisfies (16)",
    .source = "[TSE] Thm 2.6, (16), Remark A.4",
    .assumes =
        "Y = X + alpha P X W; P row-stochastic; omega + delta < 1; the left side of (15) bounded "
        "away from 0 as d grows: at least 0.01; entries of W independent, mean 0, of sub-gaussian "
        "norm sigma = 1/sqrt(d), which by Remark A.4 is the deviation of normal entries and the "
        "largest modulus of bounded ones",
    .hypotheses = {&standard_scale},
    .sharp =
        "For every d and symmetric entries with E w^4 <= 3 sigma^4: E[r] >= 1 + ((1 + a2 mu1^2)/"
        "(1 + a2 mu2^2) d/(d+2) - 1) t_sim, a2 = alpha^2 d sigma^2.  Without Remark A.4, a "
        "sub-gaussian norm of 1/sqrt(d) by E exp(w^2/K^2) <= 2 leaves d sigma^2 <= ln 2, for which "
        "(16) can fail at every d.",
    .loose =
        "E[r] approaches the bound as d grows if omega = 0 and mu2 = delta, which (15) excludes.",
    .n = 16,
    .d = 64,
    .trials = 2000,
    .least_n = 2,
    .chance = true,
    .check = check_theorem,
    .violate = violate_theorem};

}  // namespace tsdiag::claim
