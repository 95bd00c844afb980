#include <cmath>
#include <limits>

#include "bound.hpp"
#include "similarity.hpp"

/// What a stochastic P does to the similar and the diverse part.  [TSE] (11), Prop. 2.5, Lemma A.1
namespace tsdiag::claim {
namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();

Variables draw_mixed(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("X", draw(rng, "X", at.n, at.d, distribution));
    v.set("logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian));
    return v;
}

Step step_of(const Variables& v) { return {v("X"), softmax(v("logits")), 1}; }

std::vector<NamedMatrix> shown(const Variables& v) { return named(step_of(v)); }

bool has_both_parts(const Matrix& X) {
    return mean_part(X).squaredNorm() > 1e-8 * X.squaredNorm() &&
           centred(X).squaredNorm() > 1e-8 * X.squaredNorm();
}

using MixingSides = Sides (*)(const Mixing&);

Bound mixing_bound(std::string reading, std::string formula, Relation relation, MixingSides sides) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = relation,
            .accuracy = 1e-9,  // mu1 = |1 - omega| is attained; omega of a tiny mean is rounded
            .draw = draw_mixed,
            .sides = [sides](const Variables& v) -> std::optional<Sides> {
                const Step step = step_of(v);
                if (!has_both_parts(step.X)) return {};
                const Mixing m = mixing_of(step);
                if (m.delta < 1e-6) return {};  // P of rank one: mu2 and delta are rounding errors
                return sides(m);
            },
            .search = {{2, 1}, {2, 2}, {3, 1}},
            .shown = shown};
}

// --- (11)

std::vector<Reading> check_mixing(const Check& how) {
    Bound ceiling =
        mixing_bound("ceiling of mu1", "mu1 <= 1 + omega", Relation::at_most, [](const Mixing& m) {
            return Sides{m.mu1, 1 + m.omega};
        });
    ceiling.role = Role::sharper;
    return {examine_bound(mixing_bound("similar part", "mu1 >= 1 - omega", Relation::at_least,
                                       [](const Mixing& m) {
                                           return Sides{m.mu1, 1 - m.omega};
                                       }),
                          how),
            examine_bound(mixing_bound("diverse part", "mu2 <= delta", Relation::at_most,
                                       [](const Mixing& m) {
                                           return Sides{m.mu2, m.delta};
                                       }),
                          how),
            examine_bound(ceiling, how)};
}

/// Both tokens become the smaller one: omega = 1/3, mu1 = 2/3.
Attained attain_mixing() {
    const Mixing m = mixing_of({Matrix{{1.0}, {2}}, Matrix{{1.0, 0}, {1, 0}}, 1});
    return {m.mu1, 1 - m.omega, 1e-14};
}

/// Rows that sum to one half.
std::vector<Reading> violate_mixing(const Check& how) {
    Bound b = mixing_bound("rows that sum to 1/2", "mu1 >= 1 - omega", Relation::at_least, nullptr);
    b.sides = [](const Variables& v) -> std::optional<Sides> {
        Step step = step_of(v);
        step.P /= 2;
        if (!has_both_parts(step.X)) return {};
        const Mixing m = mixing_of(step);
        return Sides{m.mu1, 1 - m.omega};
    };
    return {examine_bound(b, how)};
}

// --- Prop. 2.5

/// alpha = 1 and d sigma^2 = 1: E xi_i = 1 + mu_i^2.
struct Means {
    double xi1 = 0, xi2 = 0;
    double ratio() const { return xi1 / xi2; }
};
Means means_of(const Mixing& m) { return {1 + m.mu1 * m.mu1, 1 + m.mu2 * m.mu2}; }

Variables draw_weighted(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_mixed(rng, at, distribution);
    v.set("W", draw_weights(rng, "W", at.d, at.d, distribution, 1 / double(at.d)));
    return v;
}

/// r against 1 + (E xi1/E xi2 - eta - 1) t_sim, eta = E xi1/E xi2 - xi1/xi2.
std::optional<Sides> rate_identity(const Variables& v, double sign) {
    const Step step = step_of(v);
    if (!has_both_parts(step.X)) return {};
    const Matrix Y = step.apply(v("W"));
    if (!has_both_parts(Y)) return {};
    const Gains g = gains_of(step.X, Y);
    const double mean = means_of(mixing_of(step)).ratio(), eta = mean - g.xi1 / g.xi2;
    const double r = t_div(step.X) / t_div(Y);
    const double right = 1 + (mean - sign * eta - 1) * t_sim(step.X);
    const double rounding = 16 * eps * double(step.X.size() + step.P.size());
    return Sides{std::abs(r - right),
                 rounding * (r + mean + std::abs(eta)) * (1 + 1 / t_div(Y) + 1 / t_div(step.X))};
}

Bound rate_bound(std::string reading, double sign) {
    return {.reading = std::move(reading),
            .formula = "r = 1 + (E xi1/E xi2 - eta - 1) t_sim(X)",
            .draw = draw_weighted,
            .sides = [sign](const Variables& v) { return rate_identity(v, sign); },
            .shown = shown};
}

std::vector<Reading> check_gap(const Check& how) {
    return {
        examine_bound(rate_bound("identity", 1), how),
        examine_bound(
            mixing_bound(
                "gap is not negative",
                "E xi1/E xi2 >= (1 + alpha^2 (1-omega)^2)/(1 + alpha^2 delta^2)",
                Relation::at_least,
                [](const Mixing& m) {
                    const double most = std::max(0.0, 1 - m.omega);
                    return Sides{means_of(m).ratio(), (1 + most * most) / (1 + m.delta * m.delta)};
                }),
            how)};
}

/// P = (I + Pi1)/2 and tokens on one line: mu2 = delta = 1/2, omega = 0, both sides are 1.6.
Attained attain_gap() {
    const Mixing m = mixing_of({Matrix{{2.0}, {0}}, Matrix{{0.75, 0.25}, {0.25, 0.75}}, 1});
    return {means_of(m).ratio(), 1.6, 1e-14};
}

std::vector<Reading> violate_gap(const Check& how) {
    return {examine_bound(rate_bound("eta with the other sign", -1), how)};
}

// --- Lemma A.1

double gamma_of(const Means& m) { return m.xi2 * m.xi2 / (m.xi1 + 2 * m.xi2); }

/// |eta| against t = max |xi_i - E xi_i| / gamma, where t <= most.
std::optional<Sides> deviation(const Variables& v, double most) {
    const Step step = step_of(v);
    if (!has_both_parts(step.X)) return {};
    const Gains g = gains_of(step.X, step.apply(v("W")));
    const Means m = means_of(mixing_of(step));
    const double far = std::max(std::abs(g.xi1 - m.xi1), std::abs(g.xi2 - m.xi2));
    const double t = far / gamma_of(m);
    if (!(t <= most) || g.xi2 <= 0) return {};
    return Sides{std::abs(m.ratio() - g.xi1 / g.xi2), t};
}

Bound deviation_bound(std::string reading, double most) {
    return {.reading = std::move(reading),
            .formula = "|xi_i - E xi_i| <= gamma t for both i and t <= 1 give |eta| <= t",
            .draw = draw_weighted,
            .sides = [most](const Variables& v) { return deviation(v, most); },
            .search = {{2, 1}, {2, 2}},
            .shown =
                [](const Variables& v) {
                    std::vector<NamedMatrix> all = shown(v);
                    all.push_back(named("W", v("W")));
                    return all;
                }};
}

/// Doubly stochastic: some rounds of Sinkhorn's scaling, where those suffice.
std::optional<Matrix> doubly_stochastic(const Matrix& logits) {
    Matrix p = softmax(logits);
    for (int round = 0; round < 200; ++round) {
        p = p * p.colwise().sum().cwiseInverse().asDiagonal();
        p = p.rowwise().sum().cwiseInverse().asDiagonal() * p;
    }
    if (!((p.colwise().sum().array() - 1).abs().maxCoeff() < 1e-12)) return {};
    return p;
}

std::vector<Reading> check_deviation(const Check& how) {
    Bound least = mixing_bound("least gamma", "gamma >= 1/4 for doubly stochastic P",
                               Relation::at_least, nullptr);
    least.sides = [](const Variables& v) -> std::optional<Sides> {
        const std::optional<Matrix> P = doubly_stochastic(v("logits"));
        if (!P || !has_both_parts(v("X"))) return {};
        const Step step{v("X"), *P, 1};
        return Sides{gamma_of(means_of(mixing_of(step))), 0.25};
    };
    least.shown = [](const Variables& v) {
        return named(Step{v("X"), doubly_stochastic(v("logits")).value_or(Matrix()), 1});
    };
    return {examine_bound(deviation_bound("ratio", 1), how), examine_bound(least, how)};
}

/// P = Pi1: E xi1 = 2, E xi2 = 1, gamma = 1/4; xi1 = 2 + 1/4 and xi2 = 1 - 1/4 give eta = -1.
Attained attain_deviation() {
    const Means m = means_of(mixing_of({Matrix{{2.0}, {0}}, Matrix{{0.5, 0.5}, {0.5, 0.5}}, 1}));
    const double gamma = gamma_of(m);
    return {(m.xi1 + gamma) / (m.xi2 - gamma) - m.ratio(), 1, 1e-14};
}

/// Deviations larger than gamma.
std::vector<Reading> violate_deviation(const Check& how) {
    return {examine_bound(deviation_bound("t beyond 1", 1e6), how)};
}

}  // namespace

extern const Claim tse_eq11 = {
    .name = "tse.eq11",
    .statement =
        "Of a row-stochastic P, mu1 >= 1 - omega and mu2 <= delta, with mu_i = |Pi_i P "
        "X|_F/|Pi_i X|_F, omega = |e^T P Pi2 X|/|e^T X| and delta = |Pi2 P|_2.",
    .source = "[TSE] (10)-(12)",
    .assumes = "rows of P sum to 1; Pi1 X and Pi2 X not zero",
    .sharp = "mu1 lies between |1 - omega| and 1 + omega, since e^T P X = e^T X + e^T P Pi2 X.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_mixing,
    .tight = attain_mixing,
    .violate = violate_mixing};

extern const Claim tse_prop25 = {
    .name = "tse.prop2.5",
    .statement =
        "r = 1 + (E xi1/E xi2 - eta - 1) t_sim(X) with eta = E xi1/E xi2 - xi1/xi2, and E "
        "xi1/E xi2 exceeds (1 + alpha^2 (1-omega)^2)/(1 + alpha^2 delta^2) by a gap that "
        "is not negative.",
    .source = "[TSE] Prop. 2.5, (13)-(15)",
    .assumes = "alpha = 1, E xi_i = 1 + mu_i^2 (Lemma 2.4 with d sigma^2 = 1)",
    .hypotheses = {&standard_scale},
    .n = 8,
    .d = 8,
    .least_n = 2,
    .check = check_gap,
    .tight = attain_gap,
    .violate = violate_gap};

extern const Claim tse_lemmaA1 = {
    .name = "tse.lemmaA1",
    .statement =
        "Where both gains stay within gamma t of their means, t <= 1, their ratio stays "
        "within t of E xi1/E xi2; gamma = (E xi2)^2/(E xi1 + 2 E xi2) is at least 1/4 for "
        "doubly stochastic P.",
    .source = "[TSE] Lemma A.1, (23), (24)",
    .assumes = "alpha = 1, d sigma^2 = 1; Pi1 X and Pi2 X not zero",
    .hypotheses = {&standard_scale},
    .sharp =
        "Attained at t = 1. Without double stochasticity gamma can be smaller: 1/12 for mu1 = "
        "3, mu2 = 0.",
    .n = 8,
    .d = 512,
    .trials = 100,
    .least_n = 2,
    .check = check_deviation,
    .tight = attain_deviation,
    .violate = violate_deviation};

}  // namespace tsdiag::claim
