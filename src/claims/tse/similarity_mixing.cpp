#include <algorithm>
#include <cmath>

#include "bound.hpp"
#include "similarity.hpp"
#include "stochastic.hpp"

/// Effect of a stochastic P on the similar and the diverse part.  [TSE] (11), Lemma A.1
namespace tsdiag::claim {
namespace {

std::vector<NamedMatrix> shown_step(const Variables& v) { return named(mixed_step(v)); }

using MixingSides = BoundSides (*)(const Mixing&, const Matrix& X);

/// `changed` replaces the drawn P: a control.
Bound mixing_bound(std::string reading, std::string formula, Relation relation, MixingSides sides,
                   Matrix (*changed)(const Matrix& P) = nullptr) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = relation,
            .accuracy = 1e-9,  // mu1 = |1 - omega| is attained; omega of a tiny mean is rounded
            .draw = draw_mixed,
            .sides = [sides, changed](const Variables& v) -> std::optional<BoundSides> {
                Step step = mixed_step(v);
                if (changed) step.P = changed(step.P);
                if (!has_both_parts(step.X)) return {};
                const Mixing m = mixing_of(step);
                if (m.delta < 1e-6) return {};  // P of rank one: mu2 and delta are rounding errors
                return sides(m, step.X);
            },
            .search = {{2, 1}, {2, 2}, {3, 1}},
            .shown = shown_step};
}

// --- (11)

BoundSides similar_sides(const Mixing& m, const Matrix& X) {
    return {std::pow(m.mu1 + rounding_of_mu1(X), 2), std::pow(1 - m.omega, 2)};
}
BoundSides diverse_sides(const Mixing& m, const Matrix&) {
    return {m.mu2 * m.mu2, m.delta * m.delta};
}

constexpr const char* similar_formula = "mu1^2 >= (1 - omega)^2";
constexpr const char* diverse_formula = "mu2^2 <= delta^2";

/// mu1 = 1 and omega = 0 where every column of P sums to 1, or where X = e u^T.
/// `sum`: that of the rows of P.
Bound kept_mean(std::string reading, bool equal_tokens, double sum = 1) {
    return {.reading = std::move(reading),
            .formula =
                equal_tokens ? "Pi1 P X = Pi1 X for X = e u^T" : "Pi1 P X = Pi1 X for e^T P = e^T",
            .relation = Relation::equal,
            .draw =
                [equal_tokens](const Rng& rng, const Sizes& at, Distribution distribution) {
                    return Variables{
                        {"X", draw(rng, "X", equal_tokens ? 1 : at.n, at.d, distribution)},
                        {"logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian)}};
                },
            .sides = [equal_tokens, sum](const Variables& v) -> std::optional<BoundSides> {
                const Index n = v("logits").rows();
                const std::optional<Matrix> P =
                    equal_tokens ? softmax(v("logits")) : doubly_stochastic(v("logits"));
                const Matrix X = equal_tokens ? v("X").replicate(n, 1).eval() : v("X");
                const double kept = mean_part(X).norm();
                if (!P || !(kept > 1e-4 * X.norm())) return {};
                return BoundSides{sum * mean_part(*P * X).norm() / kept, 1,
                                  64 * double(n) * ulp * X.norm() / kept};
            }};
}

Bound ceiling(Matrix (*changed)(const Matrix& P) = nullptr) {
    Bound b = mixing_bound(
        "ceiling of mu1", "mu1 <= 1 + omega", Relation::at_most,
        [](const Mixing& m, const Matrix&) -> BoundSides {
            return {m.mu1, 1 + m.omega};
        },
        changed);
    b.role = Role::sharper;
    return b;
}

std::vector<Reading> check_mixing(const Check& how) {
    return examine_bounds(
        {mixing_bound("similar part", similar_formula, Relation::at_least, similar_sides),
         mixing_bound("diverse part", diverse_formula, Relation::at_most, diverse_sides),
         kept_mean("columns that sum to 1", false), kept_mean("X = e u^T", true), ceiling()},
        how);
}

/// Both tokens become the smaller one: omega = 1/3, mu1 = 2/3.
Attained attain_mixing() {
    const Mixing m = mixing_of({Matrix{{1.0}, {2}}, Matrix{{1.0, 0}, {1, 0}}, 1});
    return {m.mu1 * m.mu1, (1 - m.omega) * (1 - m.omega), 1e-14};
}

/// Row i of P times i: sums of 1, 2, ..., n.
Matrix stretched_rows(const Matrix& P) {
    return Vector::LinSpaced(P.rows(), 1, double(P.rows())).asDiagonal() * P;
}

std::vector<Reading> violate_mixing(const Check& how) {
    Reading similar =
        examine_bound(mixing_bound("rows that sum to 1/2", similar_formula, Relation::at_least,
                                   similar_sides, [](const Matrix& P) -> Matrix { return P / 2; }),
                      how);
    similar.of = "similar part";
    Reading diverse = examine_bound(mixing_bound("rows of different sums", diverse_formula,
                                                 Relation::at_most, diverse_sides, stretched_rows),
                                    how);
    diverse.of = "diverse part";
    Reading mean = examine_bound(mixing_bound("columns of any sums", "mu1 = 1", Relation::equal,
                                              [](const Mixing& m, const Matrix&) -> BoundSides {
                                                  return {m.mu1, 1, 1e-9};
                                              }),
                                 how);
    mean.of = "columns that sum to 1";
    return {similar, diverse, mean,
            control(kept_mean("X = e u^T", true, 0.5), "rows that sum to 1/2", how),
            control(ceiling([](const Matrix& P) -> Matrix { return 2 * P; }), "rows that sum to 2",
                    how)};
}

// --- Lemma A.1

/// (E xi2)^2 / (E xi1 + 2 E xi2)
double gamma_of(const Gains& mean) { return mean.xi2 * mean.xi2 / (mean.xi1 + 2 * mean.xi2); }

/// X, logits, alpha, d sigma^2 and W, whose entries have that variance.
Variables draw_weighted(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_mixed_by_alpha(rng, at, distribution);
    const double variance = weight_variance(distribution, at.d, at.d, 1 / double(at.d));
    v.set("d sigma^2", Matrix::Constant(1, 1, double(at.d) * variance));
    v.set("W", draw(rng, "W", at.d, at.d, distribution, variance));
    return v;
}

std::optional<Gains> means_of(const Variables& v, const Step& step) {
    const double scale = v("d sigma^2")(0);
    if (!(step.alpha > 0 && scale > 0) || !has_both_parts(step.X)) return {};
    return expected_gains(mixing_without_delta(step), step.alpha * step.alpha * scale);
}

/// |eta| >= t gives max |xi_i - E xi_i| >= gamma t for each t <= most: min(|eta|, most) gamma is at
/// most that deviation.
std::optional<BoundSides> deviation(const Variables& v, double most) {
    const Step step = mixed_step(v, v("alpha")(0));
    const std::optional<Gains> mean = means_of(v, step);
    if (!mean) return {};
    const Gains g = gains_of(step.X, step.apply(v("W")));
    if (!(g.xi2 > 0)) return {};
    const double far = std::max(std::abs(g.xi1 - mean->xi1), std::abs(g.xi2 - mean->xi2));
    const double eta = mean->xi1 / mean->xi2 - g.xi1 / g.xi2;
    return BoundSides{std::min(std::abs(eta), most) * gamma_of(*mean), far};
}

Bound deviation_bound(std::string reading, double most) {
    return {.reading = std::move(reading),
            .formula = "|eta| >= t gives max_i |xi_i - E xi_i| >= gamma t, t <= 1",
            .accuracy = 1e-9,  // differences of gains near their means are rounded
            .draw = draw_weighted,
            .sides = [most](const Variables& v) { return deviation(v, most); },
            .search = {{2, 1}, {2, 2}},
            .shown =
                [](const Variables& v) {
                    std::vector<NamedMatrix> all = named(mixed_step(v, v("alpha")(0)));
                    all.push_back(named("d sigma^2", v("d sigma^2")));
                    all.push_back(named("W", v("W")));
                    return all;
                }};
}

/// The two expressions of (24); `part` of a2 in the second.
Bound gamma_identity(double part = 1) {
    return {.reading = "(24)",
            .formula = "(E xi2)^2/(E xi1 + 2 E xi2) = (1 + a2 mu2^2)^2/(3 + a2 (mu1^2 + 2 mu2^2))",
            .relation = Relation::equal,
            .draw = draw_weighted,
            .sides = [part](const Variables& v) -> std::optional<BoundSides> {
                const Step step = mixed_step(v, v("alpha")(0));
                const std::optional<Gains> mean = means_of(v, step);
                if (!mean) return {};
                const double a2 = part * step.alpha * step.alpha * v("d sigma^2")(0);
                const Mixing m = mixing_without_delta(step);
                const double one = m.mu1 * m.mu1, two = m.mu2 * m.mu2;
                const double right = std::pow(1 + a2 * two, 2) / (3 + a2 * (one + 2 * two));
                return BoundSides{gamma_of(*mean), right, 16 * ulp * right};
            }};
}

/// gamma >= 1/4 for alpha = d sigma^2 = 1.  Any P with X = e u^T is a limit, X = e u^T + 10^-7 Q,
/// since Pi2 X = 0 leaves mu2, xi2 and eta undefined.
Bound least_gamma(std::string reading, std::string formula,
                  std::optional<Step> (*step_of)(const Variables&),
                  std::vector<Condition> conditions = {}) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::at_least,
            .accuracy = 1e-5,
            .conditions = std::move(conditions),
            .draw = draw_mixed,
            .sides = [step_of](const Variables& v) -> std::optional<BoundSides> {
                const std::optional<Step> step = step_of(v);
                if (!step || !has_both_parts(v("X"))) return {};
                return BoundSides{gamma_of(expected_gains(mixing_without_delta(*step), 1)), 0.25};
            },
            .search = {{2, 1}, {3, 1}},
            .shown =
                [step_of](const Variables& v) {
                    const std::optional<Step> step = step_of(v);
                    return step ? named(*step) : v.named();
                }};
}

std::optional<Step> balanced_step(const Variables& v) {
    const std::optional<Matrix> P = doubly_stochastic(v("logits"));
    if (!P) return {};
    return Step{v("X"), *P, 1};
}
Condition balanced_attention() {
    return {"P is doubly stochastic", [](const Variables& v) {
                const std::optional<Step> step = balanced_step(v);
                return step ? doubly_stochastic_miss(step->P) : INFINITY;
            }};
}
std::optional<Step> nearly_equal_tokens(const Variables& v) {
    const Matrix same = mean_part(v("X")), rest = centred(v("X"));
    return Step{same / same.norm() + 1e-7 / rest.norm() * rest, softmax(v("logits")), 1};
}
std::optional<Step> any_step(const Variables& v) { return mixed_step(v); }

std::vector<Reading> check_deviation(const Check& how) {
    return examine_bounds(
        {deviation_bound("ratio", 1), gamma_identity(),
         least_gamma("least gamma", "gamma >= 1/4 for doubly stochastic P", balanced_step,
                     {balanced_attention()}),
         least_gamma("least gamma, X near e u^T", "gamma >= 1/4 as X tends to e u^T, any P",
                     nearly_equal_tokens)},
        how);
}

/// P = Pi1: E xi1 = 2, E xi2 = 1, gamma = 1/4; xi1 = 2 + 1/4 and xi2 = 1 - 1/4 give eta = -1.
Attained attain_deviation() {
    const Gains m =
        expected_gains(mixing_of({Matrix{{2.0}, {0}}, Matrix{{0.5, 0.5}, {0.5, 0.5}}, 1}), 1);
    const double gamma = gamma_of(m);
    return {(m.xi1 + gamma) / (m.xi2 - gamma) - m.xi1 / m.xi2, 1, 1e-14};
}

std::vector<Reading> violate_deviation(const Check& how) {
    Reading beyond = examine_bound(deviation_bound("t beyond 1", 1e6), how);
    beyond.of = "ratio";
    Reading any = examine_bound(
        least_gamma("P not doubly stochastic", "gamma >= 1/4 for any P", any_step), how);
    any.of = "least gamma";
    return {beyond, any, control(gamma_identity(0.5), "alpha^2 halved", how),
            control(least_gamma("least gamma, X near e u^T", "gamma >= 1/4 for any X", any_step),
                    "tokens that are not alike", how)};
}

}  // namespace

extern const Claim tse_eq11 = {
    .name = "tse.eq11",
    .statement =
        "For a row-stochastic P, mu1^2 >= (1 - omega)^2 and mu2^2 <= delta^2, with mu_i = |Pi_i P "
        "X|_F/|Pi_i X|_F, omega = |e^T P Pi2 X|/|e^T X| and delta = |Pi2 P|_2; and Pi1 P X = Pi1 X "
        "if e^T P = e^T or X = e u^T.",
    .words =
        "Furthermore, there holds the bounds for mu_1 and mu_2, mu_1^2 >= (1 - omega)^2, mu_2^2 <= "
        "delta^2, (11)",
    .source = "[TSE] (10)-(12), App. A.1, (22)",
    .assumes = "rows of P sum to 1; Pi1 X and Pi2 X not zero",
    .proof = "Pi1 P X = Pi1 X + Pi1 P Pi2 X and Pi2 P X = Pi2 P Pi2 X.",
    .sharp = "mu1 lies between |1 - omega| and 1 + omega, since e^T P X = e^T X + e^T P Pi2 X.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_mixing,
    .tight = attain_mixing,
    .violate = violate_mixing};

extern const Claim tse_lemmaA1 = {
    .name = "tse.lemmaA1",
    .statement =
        "P(|eta| >= t) <= P(max_i |xi_i - E xi_i| >= gamma t) for t in [0, 1], gamma = (E "
        "xi2)^2/(E xi1 + 2 E xi2); gamma is at least 1/4 if P is doubly stochastic or X = e u^T, "
        "and alpha^2 = d sigma^2 = 1.",
    .words =
        "In particular, gamma >= 1/4 when P is doubly stochastic or X = e u^T for some u in R^d, "
        "and alpha^2 = d sigma^2 = 1",
    .source = "[TSE] Lemma A.1, (23), (24)",
    .assumes =
        "eta = E xi1/E xi2 - xi1/xi2; Pi1 X and Pi2 X not zero, so X = e u^T is examined as a "
        "limit, where mu2, xi2 and eta are 0/0",
    .proof = "one event implies the other, draw by draw.",
    .sharp =
        "Attained at t = 1. Without double stochasticity gamma can be smaller: 1/12 for mu1 = "
        "3, mu2 = 0.",
    .n = 8,
    .d = 64,
    .trials = 400,
    .least_n = 2,
    .check = check_deviation,
    .tight = attain_deviation,
    .violate = violate_deviation};

}  // namespace tsdiag::claim
