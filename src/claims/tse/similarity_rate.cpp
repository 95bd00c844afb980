#include <cmath>

#include "similarity.hpp"
#include "tokens.hpp"

/// The escalation rate, and de-escalation.  [TSE] Prop. 2.3, (21)
namespace tsdiag::claim {
namespace {

// --- Prop. 2.3

Variables draw_pair(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_tokens(rng, at, distribution);
    v.set("Y", draw(rng, "Y", at.n, at.d, distribution));
    return v;
}

/// Rounding of r grows as the diversities shrink.
double rate_tolerance(const Matrix& X, const Matrix& Y, double r) {
    return rounding_of(X) * r * (2 + 1 / t_div(X) + 1 / t_div(Y));
}

bool escalates(const Variables& v) { return has_both_parts(v("X")) && has_both_parts(v("Y")); }

std::vector<Condition> rate_conditions() {
    const auto inside = [](const char* name) {
        return [name](const Variables& v) {
            const double t = t_sim(v(name));
            return t > 0 && t < 1 ? 0 : INFINITY;
        };
    };
    return {{"t_sim(X) lies in (0, 1)", inside("X")}, {"t_sim(Y) lies in (0, 1)", inside("Y")}};
}

std::optional<BoundSides> rate(const Variables& v) {
    if (!escalates(v)) return {};
    const Matrix &X = v("X"), &Y = v("Y");
    const Gains g = gains_of(X, Y);
    const double r = t_div(X) / t_div(Y);
    return BoundSides{r, 1 + (g.xi1 / g.xi2 - 1) * t_sim(X), rate_tolerance(X, Y, r)};
}

Bound pair_identity(std::string reading, std::string formula,
                    std::optional<BoundSides> (*sides)(const Variables&)) {
    Bound b = token_equation(std::move(reading), std::move(formula), sides);
    b.draw = draw_pair;
    b.conditions = rate_conditions();
    return b;
}

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/// Signs of r - 1 and of xi1 - xi2, where they are more than rounding.
std::optional<BoundSides> same_sign(const Variables& v) {
    if (!escalates(v)) return {};
    const Matrix &X = v("X"), &Y = v("Y");
    const Gains g = gains_of(X, Y);
    const double r = t_div(X) / t_div(Y);
    if (std::abs(r - 1) < 1e-6 || std::abs(g.xi1 - g.xi2) < 1e-6 * (g.xi1 + g.xi2)) return {};
    return BoundSides{sign(r - 1), sign(g.xi1 - g.xi2), ulp};
}

constexpr const char* odds_formula = "t_sim(Y)/t_div(Y) = (xi1/xi2) t_sim(X)/t_div(X)";

std::vector<Reading> check_rate(const Check& how) {
    const auto odds = [](const Variables& v) -> std::optional<BoundSides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        const Gains g = gains_of(X, Y);
        const double left = t_sim(Y) / t_div(Y);
        return BoundSides{left, g.xi1 / g.xi2 * t_sim(X) / t_div(X), rate_tolerance(X, Y, left)};
    };
    Bound sharper = pair_identity("odds", odds_formula, odds);
    sharper.role = Role::sharper;
    return examine_bounds(
        {pair_identity("rate", "r = 1 + (xi1/xi2 - 1) t_sim(X)", rate),
         pair_identity("above 1", "r > 1 if and only if xi1 > xi2", same_sign), sharper},
        how);
}

/// X = (2, 0), Y = (3.5, 0.5): t_div 1/2 and 9/50, xi1 = 4, xi2 = 9/4.
Attained attain_rate() {
    const Matrix X{{2.0}, {0}}, Y{{3.5}, {0.5}};
    return {t_div(X) / t_div(Y), 1 + (16.0 / 9 - 1) / 2, 1e-14};
}

std::vector<Reading> violate_rate(const Check& how) {
    const auto after = [](const Variables& v) -> std::optional<BoundSides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        const Gains g = gains_of(X, Y);
        const double r = t_div(X) / t_div(Y);
        return BoundSides{r, 1 + (g.xi1 / g.xi2 - 1) * t_sim(Y), rate_tolerance(X, Y, r)};
    };
    const auto by_size = [](const Variables& v) -> std::optional<BoundSides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        return BoundSides{sign(t_div(X) / t_div(Y) - 1), sign(gains_of(X, 2 * Y).xi1 - 1), ulp};
    };
    Reading rate = examine_bound(
        pair_identity("similarity after the step", "r = 1 + (xi1/xi2 - 1) t_sim(Y)", after), how);
    rate.of = "rate";
    Reading size = examine_bound(
        pair_identity("the diverse part may grow more", "r > 1 if and only if xi1 > 1", by_size),
        how);
    size.of = "above 1";
    const auto parts = [](const Variables& v) -> std::optional<BoundSides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        const Gains g = gains_of(X, Y);
        return BoundSides{t_sim(Y), g.xi1 / g.xi2 * t_sim(X), rate_tolerance(X, Y, 1)};
    };
    return {rate, size,
            control(pair_identity("odds", odds_formula, parts), "t_sim in place of odds", how)};
}

// --- (21)

Variables draw_removal(const Rng& rng, const Sizes& at, Distribution distribution) {
    Rng stream = rng.fork("tau");
    Variables v = draw_tokens(rng, at, distribution);
    v.set("tau", Matrix::Constant(1, 1, 1 - stream.uniform()));
    return v;
}

Matrix removed(const Variables& v) {
    const Matrix& X = v("X");
    return X - v("tau")(0) * mean_part(X);
}

Bound removal_bound(std::string reading, std::string formula,
                    std::function<std::optional<BoundSides>(const Variables&)> sides) {
    Bound b = token_equation(std::move(reading), std::move(formula), nullptr);
    b.sides = std::move(sides);
    b.draw = draw_removal;
    b.conditions = {{"tau lies in (0, 1]", [](const Variables& v) {
                         const double tau = v("tau")(0);
                         return tau > 0 ? tau - 1 : INFINITY;
                     }}};
    return b;
}

std::optional<BoundSides> portion(const Variables& v) {
    const Matrix& X = v("X");
    if (!has_both_parts(X)) return {};
    const double kept = mean_part(removed(v)).norm() / mean_part(X).norm();
    return BoundSides{1 + kept, 2 - v("tau")(0), rounding_of(X) * X.norm() / mean_part(X).norm()};
}

/// The remainder of X; `removed` as stated.
using Removal = Matrix (*)(const Variables&);

Bound diverse_stays(Removal left) {
    return removal_bound("the rest stays", "Pi2 Y = Pi2 X",
                         [left](const Variables& v) -> std::optional<BoundSides> {
                             const Matrix& X = v("X");
                             if (!has_both_parts(X)) return {};
                             const Matrix rest = centred(X);
                             // offset by |Pi2 X|, so that a hundredth of it is something
                             return BoundSides{(centred(left(v)) - rest).norm() + rest.norm(),
                                               rest.norm(), rounding_of(X) * X.norm()};
                         });
}

/// The resulting t_sim and t_div.
BoundSides similarity_left(const Variables& v, bool similarity, const Matrix& Y) {
    const Matrix& X = v("X");
    const double tau = v("tau")(0), t = t_sim(X);
    const double rest = t_div(X) + (1 - tau) * (1 - tau) * t;  // 1 - (2 tau - tau^2) t
    const double left = similarity ? t_sim(Y) : t_div(Y);
    const double right = (similarity ? (1 - tau) * (1 - tau) * t : t_div(X)) / rest;
    return BoundSides{left, right, rounding_of(X) * (1 + tau * tau) * (1 + 1 / rest)};
}

Bound similarity_becomes(bool similarity, Removal left) {
    Bound b = removal_bound(similarity ? "similarity" : "diversity",
                            similarity ? "t_sim(Y) = (1-tau)^2 t / (1 - (2 tau - tau^2) t)"
                                       : "t_div(Y) = (1-t) / (1 - (2 tau - tau^2) t)",
                            [similarity, left](const Variables& v) -> std::optional<BoundSides> {
                                const Matrix Y = left(v);
                                if (!has_both_parts(v("X")) || !(Y.norm() > 0)) return {};
                                return similarity_left(v, similarity, Y);
                            });
    b.role = Role::sharper;  // derived here
    return b;
}

std::vector<Reading> check_removal(const Check& how) {
    const Bound less = [] {
        Bound b = removal_bound("less similarity", "t_sim(Y) <= t_sim(X)",
                                [](const Variables& v) -> std::optional<BoundSides> {
                                    if (!has_both_parts(v("X"))) return {};
                                    return BoundSides{t_sim(removed(v)), t_sim(v("X"))};
                                });
        b.relation = Relation::at_most;
        b.search = {{2, 1}, {3, 2}};
        return b;
    }();
    return examine_bounds(
        {removal_bound("portion", "|Pi1 Y|_F = (1 - tau) |Pi1 X|_F, offset by 1", portion),
         diverse_stays(removed), less, similarity_becomes(true, removed),
         similarity_becomes(false, removed)},
        how);
}

/// X = (3, 1), tau = 1/2: t = 4/5 becomes 1/2.
Attained attain_removal() {
    const Matrix X{{3.0}, {1}};
    return {t_sim(X - 0.5 * mean_part(X)), 0.25 * 0.8 / (1 - 0.75 * 0.8), 1e-14};
}

/// Removes the first token instead of the mean.
Matrix first_removed(const Variables& v) {
    const Matrix& X = v("X");
    return X - v("tau")(0) * Vector::Ones(X.rows()) * X.row(0);
}

std::vector<Reading> violate_removal(const Check& how) {
    Bound part = removal_bound("first token taken away", "|Pi1 Y|_F = (1 - tau) |Pi1 X|_F",
                               [](const Variables& v) -> std::optional<BoundSides> {
                                   const Matrix& X = v("X");
                                   if (!has_both_parts(X)) return {};
                                   return BoundSides{mean_part(first_removed(v)).norm(),
                                                     (1 - v("tau")(0)) * mean_part(X).norm(),
                                                     rounding_of(X) * X.norm()};
                               });
    Bound less = removal_bound("first token taken away, similarity", "t_sim(Y) <= t_sim(X)",
                               [](const Variables& v) -> std::optional<BoundSides> {
                                   const Matrix Y = first_removed(v);
                                   if (!has_both_parts(v("X")) || !(Y.norm() > 1e-3)) return {};
                                   return BoundSides{t_sim(Y), t_sim(v("X"))};
                               });
    less.relation = Relation::at_most;
    Reading portion = examine_bound(part, how), similar = examine_bound(less, how);
    portion.of = "portion";
    similar.of = "less similarity";
    std::vector<Reading> controls{portion, similar};
    const auto shrunk = [](const Variables& v) -> Matrix { return (1 - v("tau")(0)) * v("X"); };
    controls.push_back(control(diverse_stays(shrunk), "tau of every token taken away", how));
    for (const bool similarity : {true, false})
        controls.push_back(
            control(similarity_becomes(similarity, first_removed), "first token taken away", how));
    return controls;
}

}  // namespace

extern const Claim tse_prop23 = {
    .name = "tse.prop2.3",
    .statement =
        "The escalation rate r = t_div(X)/t_div(Y) of a step from X to Y is r = 1 + (xi1/xi2 - 1) "
        "t_sim(X), xi_i = |Pi_i Y|_F^2/|Pi_i X|_F^2, so that r > 1 if and only if xi1 > xi2.",
    .words = "Therefore, r(X,Y) > 1 if and only if xi1 > xi2",
    .source = "[TSE] Def. 2.2, Prop. 2.3, (5)-(7)",
    .assumes = "t_sim(X) and t_sim(Y) in (0, 1)",
    .proof = "|Y|_F^2/|X|_F^2 = xi1 t_sim(X) + xi2 t_div(X).",
    .sharp = "The odds t_sim/t_div are multiplied by xi1/xi2, for any step.",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_rate,
    .tight = attain_rate,
    .violate = violate_rate};

extern const Claim tse_eq21 = {
    .name = "tse.eq21",
    .statement =
        "Y = (I - tau Pi1) X keeps the fraction 1 - tau of the mean token and all of the rest, and "
        "so de-escalates.  Derived here: t = t_sim becomes (1-tau)^2 t/(1 - (2 tau - tau^2) t), "
        "and t_div becomes (1-t)/(1 - (2 tau - tau^2) t).",
    .words =
        "we first project X onto span [...] and then subtract a portion of the projection "
        "from X. The parameter tau in (0,1] determines the removed portion",
    .source = "[TSE] (21) and the text after it",
    .assumes = "tau in (0, 1]; Pi1 X and Pi2 X not zero",
    .proof = "Pi1 Y = (1 - tau) Pi1 X and Pi2 Y = Pi2 X.",
    .sharp =
        "The odds t_sim/t_div are multiplied by (1-tau)^2: escalation stops if (1-tau)^2 xi1/xi2 < "
        "1; at a rate of 2, for tau above 1 - 1/sqrt(2).",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_removal,
    .tight = attain_removal,
    .violate = violate_removal};

}  // namespace tsdiag::claim
