#include <cmath>
#include <limits>

#include "bound.hpp"
#include "similarity.hpp"

/// Definitions and identities of token similarity.  [TSE] Def. 1.1, (1), Prop. 2.3, (21)
namespace tsdiag::claim {
namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();

Variables draw_tokens(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("X", draw(rng, "X", at.n, at.d, distribution));
    return v;
}

/// What n d additions and some products can be off by, as part of the result.
double rounding(const Matrix& x) { return 4 * eps * double(x.size() + 8); }

Sides identity(double left, double right, double tolerance) { return {left, right, tolerance}; }

Bound tokens(std::string reading, std::string formula,
             std::optional<Sides> (*sides)(const Variables&)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .draw = draw_tokens,
            .sides = sides};
}

// --- Def. 1.1

std::optional<Sides> whole(const Variables& v) {
    const Matrix& X = v("X");
    if (X.squaredNorm() == 0) return {};
    return identity(t_sim(X) + t_div(X), 1, rounding(X));
}

std::vector<Reading> check_definition(const Check& how) {
    const auto similarity = [](const Variables& v) -> std::optional<Sides> {
        if (v("X").squaredNorm() == 0) return {};
        return Sides{t_sim(v("X")), 1};
    };
    const auto diversity = [](const Variables& v) -> std::optional<Sides> {
        if (v("X").squaredNorm() == 0) return {};
        return Sides{t_div(v("X")), 1};
    };
    Bound most = tokens("t_sim at most 1", "t_sim <= 1", similarity);
    Bound rest = tokens("t_div at most 1", "t_div <= 1", diversity);
    most.relation = rest.relation = Relation::at_most;
    most.search = rest.search = {{2, 1}, {3, 2}};
    return {examine_bound(tokens("sum", "t_sim + t_div = 1", whole), how), examine_bound(most, how),
            examine_bound(rest, how)};
}

Attained attain_definition() { return {t_sim(Matrix{{1.0, 2}, {1, 2}, {1, 2}}), 1, 1e-15}; }

/// A mean with unequal weights is no orthogonal projection.
std::vector<Reading> violate_definition(const Check& how) {
    const auto weighted = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& X = v("X");
        Vector weight = Vector::LinSpaced(X.rows(), 1, double(X.rows()));
        weight /= weight.sum();
        const Matrix part = Vector::Ones(X.rows()) * (weight.transpose() * X);
        const double sum = (part.squaredNorm() + (X - part).squaredNorm()) / X.squaredNorm();
        return identity(sum, 1, rounding(X));
    };
    return {examine_bound(tokens("weighted mean", "t_sim + t_div = 1", weighted), how)};
}

// --- (1)

/// Mean cosine over the pairs of different rows.
double mean_cosine(const Matrix& x) {
    double sum = 0;
    for (Index i = 0; i < x.rows(); ++i)
        for (Index j = 0; j < i; ++j)
            sum += x.row(i).dot(x.row(j)) / (x.row(i).norm() * x.row(j).norm());
    return 2 * sum / double(x.rows() * (x.rows() - 1));
}

bool has_cosines(const Matrix& x) {
    return x.rows() > 1 && x.rowwise().squaredNorm().minCoeff() > 0;
}

double through_similarity(const Matrix& x) {
    const double n = double(x.rows());
    return (n * t_sim(x) - 1) / (n - 1);
}

std::optional<Sides> cosine_identity(const Variables& v) {
    const Matrix& X = v("X");
    if (!has_cosines(X)) return {};
    return identity(mean_cosine(X), through_similarity(X.rowwise().normalized()),
                    2 * rounding(X) * double(X.rows()));
}

std::vector<Reading> check_cosine(const Check& how) {
    const auto least = [](const Variables& v) -> std::optional<Sides> {
        if (!has_cosines(v("X"))) return {};
        return Sides{1 + mean_cosine(v("X")), 1 - 1 / double(v("X").rows() - 1)};
    };
    Bound range = tokens("range", "t_cos >= -1/(n-1)", least);
    range.relation = Relation::at_least;
    range.accuracy = 1e-9;  // attained, by searches that end within rounding of it
    range.search = {{3, 1}, {3, 2}};
    return {
        examine_bound(
            tokens("identity", "t_cos = (n t_sim(X/|rows|) - 1)/(n - 1)", cosine_identity), how),
        examine_bound(range, how)};
}

/// Three unit vectors at 120 degrees.
Attained attain_cosine() {
    const double h = std::sqrt(3.0) / 2;
    return {mean_cosine(Matrix{{1.0, 0}, {-0.5, h}, {-0.5, -h}}), -0.5, 1e-14};
}

std::vector<Reading> violate_cosine(const Check& how) {
    const auto unnormalised = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& X = v("X");
        Matrix stretched = X;  // rows of different length, for any distribution
        for (Index i = 0; i < X.rows(); ++i) stretched.row(i) *= double(i + 1);
        if (!has_cosines(stretched)) return {};
        return identity(mean_cosine(stretched), through_similarity(stretched),
                        2 * rounding(X) * double(X.rows()));
    };
    return {examine_bound(
        tokens("rows of any length", "t_cos = (n t_sim - 1)/(n - 1)", unnormalised), how)};
}

// --- Prop. 2.3

Variables draw_pair(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_tokens(rng, at, distribution);
    v.set("Y", draw(rng, "Y", at.n, at.d, distribution));
    return v;
}

/// Rounding of r grows as the diversities shrink.
double rate_tolerance(const Matrix& X, const Matrix& Y, double r) {
    return rounding(X) * r * (2 + 1 / t_div(X) + 1 / t_div(Y));
}

bool escalates(const Variables& v) {
    return t_sim(v("X")) > 0 && t_div(v("X")) > 0 && t_div(v("Y")) > 0;
}

std::optional<Sides> rate(const Variables& v) {
    if (!escalates(v)) return {};
    const Matrix &X = v("X"), &Y = v("Y");
    const Gains g = gains_of(X, Y);
    const double r = t_div(X) / t_div(Y);
    return identity(r, 1 + (g.xi1 / g.xi2 - 1) * t_sim(X), rate_tolerance(X, Y, r));
}

Bound pair_identity(std::string reading, std::string formula,
                    std::optional<Sides> (*sides)(const Variables&)) {
    Bound b = tokens(std::move(reading), std::move(formula), sides);
    b.draw = draw_pair;
    return b;
}

std::vector<Reading> check_rate(const Check& how) {
    const auto odds = [](const Variables& v) -> std::optional<Sides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        const Gains g = gains_of(X, Y);
        const double left = t_sim(Y) / t_div(Y);
        return identity(left, g.xi1 / g.xi2 * t_sim(X) / t_div(X), rate_tolerance(X, Y, left));
    };
    Bound sharper = pair_identity("odds", "t_sim(Y)/t_div(Y) = (xi1/xi2) t_sim(X)/t_div(X)", odds);
    sharper.role = Role::sharper;
    return {examine_bound(pair_identity("rate", "r = 1 + (xi1/xi2 - 1) t_sim(X)", rate), how),
            examine_bound(sharper, how)};
}

/// X = (2, 0), Y = (3.5, 0.5): t_div 1/2 and 9/50, xi1 = 4, xi2 = 9/4.
Attained attain_rate() {
    const Matrix X{{2.0}, {0}}, Y{{3.5}, {0.5}};
    return {t_div(X) / t_div(Y), 1 + (16.0 / 9 - 1) / 2, 1e-14};
}

std::vector<Reading> violate_rate(const Check& how) {
    const auto after = [](const Variables& v) -> std::optional<Sides> {
        if (!escalates(v)) return {};
        const Matrix &X = v("X"), &Y = v("Y");
        const Gains g = gains_of(X, Y);
        const double r = t_div(X) / t_div(Y);
        return identity(r, 1 + (g.xi1 / g.xi2 - 1) * t_sim(Y), rate_tolerance(X, Y, r));
    };
    return {examine_bound(
        pair_identity("similarity after the step", "r = 1 + (xi1/xi2 - 1) t_sim(Y)", after), how)};
}

// --- (21)

Variables draw_removal(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_tokens(rng, at, distribution);
    v.set("tau", draw(rng, "tau", 1, 1, Distribution::uniform));
    return v;
}

/// What t_sim and t_div become when the part tau of the mean is taken away.
Sides removal(const Variables& v, bool similarity) {
    const Matrix& X = v("X");
    const double tau = v("tau")(0, 0), t = t_sim(X);
    const Matrix Y = X - tau * mean_part(X);
    const double rest = t_div(X) + (1 - tau) * (1 - tau) * t;  // 1 - (2 tau - tau^2) t
    const double left = similarity ? t_sim(Y) : t_div(Y);
    const double right = (similarity ? (1 - tau) * (1 - tau) * t : t_div(X)) / rest;
    return identity(left, right, rounding(X) * (1 + tau * tau) * (1 + 1 / rest));
}

Bound removal_bound(bool similarity) {
    Bound b = tokens(similarity ? "similarity" : "diversity",
                     similarity ? "t_sim' = (1-tau)^2 t / (1 - (2 tau - tau^2) t)"
                                : "t_div' = (1-t) / (1 - (2 tau - tau^2) t)",
                     nullptr);
    b.draw = draw_removal;
    b.sides = [similarity](const Variables& v) -> std::optional<Sides> {
        if (v("X").squaredNorm() == 0) return {};
        return removal(v, similarity);
    };
    return b;
}

std::vector<Reading> check_removal(const Check& how) {
    return {examine_bound(removal_bound(true), how), examine_bound(removal_bound(false), how)};
}

/// X = (3, 1), tau = 1/2: t = 4/5 becomes 1/2.
Attained attain_removal() {
    const Matrix X{{3.0}, {1}};
    return {t_sim(X - 0.5 * mean_part(X)), 0.25 * 0.8 / (1 - 0.75 * 0.8), 1e-14};
}

/// Takes away the first token instead of the mean.
std::vector<Reading> violate_removal(const Check& how) {
    Bound b = removal_bound(true);
    b.reading = "first token taken away";
    b.sides = [](const Variables& v) -> std::optional<Sides> {
        const Matrix& X = v("X");
        const double tau = v("tau")(0, 0), t = t_sim(X);
        const Matrix Y = X - tau * Vector::Ones(X.rows()) * X.row(0);
        if (Y.squaredNorm() == 0) return {};
        const double rest = t_div(X) + (1 - tau) * (1 - tau) * t;
        return identity(t_sim(Y), (1 - tau) * (1 - tau) * t / rest, rounding(X));
    };
    return {examine_bound(b, how)};
}

}  // namespace

extern const Claim tse_def11 = {
    .name = "tse.def1.1",
    .statement =
        "Similarity t_sim = |Pi1 X|_F^2/|X|_F^2 and diversity t_div = |Pi2 X|_F^2/|X|_F^2 "
        "of the rows of X lie in [0, 1] and sum to 1.",
    .source = "[TSE] Def. 1.1",
    .assumes = "X != 0; Pi1 = e e^T/n, Pi2 = I - Pi1",
    .n = 16,
    .d = 8,
    .check = check_definition,
    .tight = attain_definition,
    .violate = violate_definition};

extern const Claim tse_eq1 = {
    .name = "tse.eq1",
    .statement =
        "The mean cosine over pairs of rows is t_cos = (n t_sim(Xhat) - 1)/(n - 1), Xhat "
        "the rows of X divided by their norms; it is at least -1/(n - 1).",
    .source = "[TSE] (1)",
    .assumes = "n >= 2, no zero row",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_cosine,
    .tight = attain_cosine,
    .violate = violate_cosine};

extern const Claim tse_prop23 = {
    .name = "tse.prop2.3",
    .statement =
        "The escalation rate r = t_div(X)/t_div(Y) of a step from X to Y is r = 1 + "
        "(xi1/xi2 - 1) t_sim(X), xi_i = |Pi_i Y|_F^2/|Pi_i X|_F^2.",
    .source = "[TSE] Def. 2.2, Prop. 2.3, (5)-(7)",
    .assumes = "Pi1 X, Pi2 X and Pi2 Y not zero",
    .sharp = "The odds t_sim/t_div are multiplied by xi1/xi2, whatever the step.",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_rate,
    .tight = attain_rate,
    .violate = violate_rate};

extern const Claim tse_eq21 = {
    .name = "tse.eq21",
    .statement =
        "Taking the part tau of the mean token away, Y = (I - tau Pi1) X, turns t = t_sim "
        "into (1-tau)^2 t/(1 - (2 tau - tau^2) t) and t_div into (1-t)/(1 - (2 tau - "
        "tau^2) t).",
    .source = "[TSE] (21)",
    .assumes = "X != 0",
    .sharp =
        "The odds t_sim/t_div are multiplied by (1-tau)^2: escalation is stopped where "
        "(1-tau)^2 xi1/xi2 < 1, from tau = 1 - 1/sqrt(2) on at a rate of 2.",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_removal,
    .tight = attain_removal,
    .violate = violate_removal};

}  // namespace tsdiag::claim
