#include <cmath>

#include "escalation.hpp"
#include "expectation.hpp"

/// The theorem of token similarity escalation.  [TSE] Thm 2.6
namespace tsdiag::claim {
namespace {

constexpr const char* formula =
    "E[r] >= 1 + ((1 + alpha^2 (1-omega)^2)/(1 + alpha^2 delta^2) - 1) t_sim";

/// Mild logits: omega and delta are small, as at initialisation.
Step mild_step(const Check& how) { return draw_step(how.rng.fork("step"), how, 0.3); }

Mean rate_of(const Check& how, const Step& step, std::string reading, double variance,
             double claimed) {
    return {
        .reading = std::move(reading),
        .formula = formula,
        .role = Role::interpretation,
        .relation = Relation::at_least,
        .claimed = claimed,
        .sample = [&how, &step, variance](
                      const Rng& rng) { return drawn_rate(step, rng, how.distribution, variance); },
        .fixed = step.X.size() <= 64 ? named(step) : std::vector<NamedMatrix>{}};
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

/// The smallest case, d = 1 and W = -1, 1: two tokens that are whole numbers, a symmetric P.
Reading smallest_case() {
    std::optional<Step> found;
    double measured = 0, bound = 0;
    for (const double stay : {0.5, 0.75, 0.625, 0.875}) {
        const Matrix P{{stay, 1 - stay}, {1 - stay, stay}};
        const bool fails = for_each_tuple(2, {0, 1, 2, 3}, [&](const std::vector<double>& x) {
            const Step step{Matrix{{x[0]}, {x[1]}}, P, 1};
            if (x[0] == x[1] || t_sim(step.X) == 0) return false;
            const std::optional<double> r = exact_rate(step);
            if (!r || !(*r < theorem_bound(step) * (1 - 1e-9))) return false;
            found = step;
            measured = *r;
            bound = theorem_bound(step);
            return true;
        });
        if (fails) break;
    }
    if (!found) {
        Reading none;
        none.name = "every d";
        none.formula = formula;
        none.role = Role::interpretation;
        none.note = "no case among small numbers breaks it";
        return none;
    }
    Reading r = compare("every d", formula, Role::interpretation, Relation::at_least,
                        {measured, bound}, 1e-12, named(*found));
    r.note = "d = 1, W = -1 and 1 equally likely: exact";
    return r;
}

/// E[xi1/xi2] of d = 1 and W = -1, 1, exact.
Bound sharp_at_one() {
    return {.reading = "sharp, d = 1",
            .formula = "E[xi1/xi2] >= (1 + mu1^2)/(1 + mu2^2) d/(d+2)",
            .role = Role::sharper,
            .relation = Relation::at_least,
            .hypotheses = Hypotheses{},  // the entries of W are -1 and 1
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution) {
                    Variables v;
                    v.set("X", draw(rng, "X", at.n, 1, Distribution::gaussian));
                    v.set("logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian));
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Step step{v("X"), softmax(v("logits")), 1};
                const double t = t_sim(step.X);
                if (!(t > 1e-9 && t < 1 - 1e-9)) return {};
                const std::optional<double> r = exact_rate(step);
                if (!r) return {};
                const double ratio = (limit_rate(step) - 1) / t + 1;
                return Sides{(*r - 1) / t + 1, ratio / 3};
            },
            .search = {{2, 1}, {3, 1}},
            .shown =
                [](const Variables& v) {
                    return named(Step{v("X"), softmax(v("logits")), 1});
                }};
}

/// The non-asymptotic form, a2 = alpha^2 d sigma^2.
double sharp_rate(const Step& step, double a2) {
    const Mixing m = mixing_of(step);
    const double d = double(step.X.cols());
    const double ratio = (1 + a2 * m.mu1 * m.mu1) / (1 + a2 * m.mu2 * m.mu2);
    return 1 + (ratio * d / (d + 2) - 1) * t_sim(step.X);
}

std::vector<Reading> check_theorem(const Check& how) {
    const Step step = mild_step(how);
    const double d = double(how.d), own = weight_variance(how.distribution, how.d, how.d, 1 / d);
    Mean sharp = rate_of(how, step, "sharp", own, sharp_rate(step, d * own));
    sharp.formula = "E[r] >= 1 + ((1 + a2 mu1^2)/(1 + a2 mu2^2) d/(d+2) - 1) t_sim";
    sharp.role = Role::sharper;
    sharp.hypotheses = Hypotheses{};  // of any scale
    const Mean literal = rate_of(how, step, "sub-gaussian norm 1/sqrt(d)",
                                 sub_gaussian_variance(how.distribution) / d, theorem_bound(step));
    return {
        smallest_case(), examine_mean(rate_of(how, step, "this d", own, theorem_bound(step)), how),
        examine_mean(literal, how), examine_mean(sharp, how), examine_bound(sharp_at_one(), how)};
}

/// Entries of W that are nearly 0.
std::vector<Reading> violate_theorem(const Check& how) {
    const Step step = mild_step(how);
    return {examine_mean(
        rate_of(how, step, "variance 1/(100 d)", 0.01 / double(how.d), theorem_bound(step)), how)};
}

}  // namespace

extern const Claim tse_thm26 = {
    .name = "tse.thm2.6",
    .statement =
        "Similarity escalates on average: E[r] >= 1 + ((1 + alpha^2 (1-omega)^2)/(1 + "
        "alpha^2 delta^2) - 1) t_sim(X), for every width d or for large ones, and for "
        "entries of variance 1/d or of sub-gaussian norm 1/sqrt(d).",
    .source = "[TSE] Thm 2.6, (16)",
    .assumes =
        "Y = X + alpha P X W, alpha = 1; P row-stochastic; entries of W independent, mean "
        "0, variance 1/d unless the reading says otherwise",
    .hypotheses = {&standard_scale},
    .sharp =
        "For every d and symmetric entries with E w^4 <= 3 sigma^4: E[r] >= 1 + ((1 + a2 mu1^2)/"
        "(1 + a2 mu2^2) d/(d+2) - 1) t_sim, a2 = alpha^2 d sigma^2.",
    .loose =
        "E[r] approaches the bound as d grows where omega = 0 and mu2 = delta; at finite d it "
        "falls below it by a part of the order of 1/d.",
    .n = 16,
    .d = 64,
    .trials = 2000,
    .least_n = 2,
    .chance = true,
    .check = check_theorem,
    .violate = violate_theorem};

}  // namespace tsdiag::claim
