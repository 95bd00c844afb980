#include <algorithm>
#include <cmath>

#include "enumerated.hpp"
#include "expectation.hpp"
#include "growth.hpp"

/// Concentration of the gains around their means.  [TSE] Lemma A.5
namespace tsdiag::claim {
namespace {

/// alpha^2 mu_i^2 + alpha |(Pi_i P X)^T Pi_i X|_F/|Pi_i X|_F^2: kappa_i by (27), with w in units of
/// 1/sqrt(d).
double kappa_of(const Step& step, bool similar) {
    const auto part = [&](const Matrix& x) { return similar ? mean_part(x) : centred(x); };
    const Matrix own = part(step.X), mixed = part(step.P * step.X);
    const double square = own.squaredNorm(), a = step.alpha;
    return a * a * mixed.squaredNorm() / square + a * (mixed.transpose() * own).norm() / square;
}

// --- the tail of xi1 of normal W, exactly

/// xi1 = |u + s g|^2 with |u| = 1 and s^2 = m/d, m = alpha^2 mu1^2: Pi1 X is of rank one always.
/// So d xi1/m is noncentral chi-square of d = 2 half and d/m, and the probability that it exceeds
/// 2 y is that of Poisson(y) < half + Poisson(d/(2 m)).
double tail_of(Index half, double m, double y) {
    const double l = double(half) / m;
    if (y <= 0) return 1;
    const auto poisson = [](double mean, double k) {
        return std::exp(k * std::log(mean) - mean - std::lgamma(k + 1));
    };
    const Index last = Index(l + 40 * std::sqrt(l) + 200);
    double below = 0, sum = 0;
    for (Index k = 0; k < half; ++k) below += poisson(y, double(k));
    for (Index j = 0; j <= last; ++j) {
        sum += poisson(l, double(j)) * std::min(below, 1.0);
        below += poisson(y, double(half + j));
    }
    return sum;
}

/// P(|xi1 - E xi1| >= off)
double two_tails(Index half, double m, double off) {
    const auto at = [&](double xi) { return tail_of(half, m, double(half) / m * xi); };
    return at(1 + m + off) + (1 - at(1 + m - off));
}

/// alpha^2 mu1^2 of a step, eps in (0, 1), and an even d.
Variables draw_exact_tail(const Rng& rng, const Sizes& at, Distribution distribution) {
    Check how;
    how.n = at.n;
    how.d = at.d;
    how.distribution = distribution;
    const Heads heads = draw_heads(rng, how, 1);
    Rng stream = rng.fork("eps");
    return {
        {"alpha^2 mu1^2", Matrix::Constant(1, 1, heads.alpha * heads.alpha * means_of(heads).mu1)},
        {"eps", Matrix::Constant(1, 1, stream.uniform())},
        {"d", Matrix::Constant(1, 1, 2 * double((at.d + 1) / 2))}};
}

/// Entries of W of `scale` times the claimed deviation.
Bound exact_tail(std::string reading, double scale) {
    return {.reading = std::move(reading),
            .formula =
                "P(|xi1 - E xi1| >= eps kappa_1) <= 4 exp(-c eps^2 d), c = 1/8, kappa_1 = "
                "alpha^2 mu1^2 + alpha mu1, W normal",
            .role = Role::interpretation,
            .hypotheses = Hypotheses{},  // W is not drawn
            .conditions = {{"eps lies in (0, 1)",
                            [](const Variables& v) {
                                const double eps = v("eps")(0);
                                return eps > 0 ? eps - 1 : INFINITY;
                            }},
                           {"d is an even number",
                            [](const Variables& v) {
                                const double d = v("d")(0);
                                return d >= 2 ? std::abs(std::remainder(d, 2)) : INFINITY;
                            }}},
            .mutant = {.factor = 0.2, .why = "nothing exceeds a quarter of it"},
            .draw = draw_exact_tail,
            .sides = [scale](const Variables& v) -> std::optional<BoundSides> {
                const double m = v("alpha^2 mu1^2")(0), eps = v("eps")(0), d = v("d")(0);
                if (!(m > 1e-3)) return {};
                const double off = eps * (m + std::sqrt(m));
                return BoundSides{two_tails(Index(d / 2), scale * scale * m, off),
                                  4 * std::exp(-eps * eps * d / 8)};
            }};
}

// --- the rate of that tail, for any c

/// log E exp(d t xi1) = d (t/(1 - 2 t m) - log(1 - 2 t m)/2).
double log_moment(double t, double m) { return t / (1 - 2 * t * m) - std::log1p(-2 * t * m) / 2; }

/// The rate of Cramer and Chernoff: P(xi1 >= E xi1 + eps) = exp(-d (I(eps) + o(1))).
double tail_rate(double eps, double m) {
    // The exponent t x - log_moment is concave on (0, 1/(2 m)): golden section.
    const double x = 1 + m + eps, golden = (std::sqrt(5.0) - 1) / 2;
    double low = 0, high = 1 / (2 * m);
    const auto value = [&](double t) { return t * x - log_moment(t, m); };
    for (int i = 0; i < 200; ++i) {
        const double a = high - golden * (high - low), b = low + golden * (high - low);
        if (value(a) < value(b))
            low = a;
        else
            high = b;
    }
    return value((low + high) / 2);
}

/// The exponent of eps in the rate; eps = N/unit.
Growth rate_growth(std::string reading, std::vector<Index> sizes, double unit, double m) {
    return {.reading = std::move(reading),
            .formula =
                "P(|xi1 - E xi1| >= eps kappa_1) <= 4 exp(-c eps^2 d), whatever c: the rate "
                "grows like eps^2",
            .role = Role::interpretation,
            .relation = Relation::equal,
            .hypotheses = Hypotheses{},
            .claimed = 2,
            .sizes = std::move(sizes),
            .sample = [unit, m](Index N, const Rng&) { return tail_rate(double(N) / unit, m); },
            .size = unit == 1 ? "eps" : "512 eps",
            .resolution = fine_resolution};
}

// --- deviations, by draws of W

/// X padded with zero columns to `width` has the mixing of X: only the first rows of W matter.
Gains drawn_gains(const Step& step, Index width, Distribution distribution, double variance,
                  const Rng& rng) {
    const Index m = step.X.cols();
    Matrix Y = step.alpha * step.P * (step.X * draw(rng, "W", m, width, distribution, variance));
    Y.leftCols(m) += step.X;
    return gains_of(step.X, Y);
}

/// (28) with eps = t/sqrt(d), summed over t: E|xi_i - E xi_i| <= const kappa_i/sqrt(d).
Growth deviation_growth(const Check& how, const Step& step, bool similar) {
    Growth growth{.reading = similar ? "deviation of xi1" : "deviation of xi2",
                  .formula = similar ? "E|xi1 - E xi1| = O(kappa_1/sqrt(d))"
                                     : "E|xi2 - E xi2| = O(kappa_2/sqrt(d))",
                  .claimed = -0.5,
                  .size = "d",
                  .resolution = fine_resolution};
    for (const Index factor : {1, 2, 4, 8, 16}) growth.sizes.push_back(factor * how.d);
    const double kappa = kappa_of(step, similar);
    const Mixing m = mixing_without_delta(step);
    growth.sample = [&how, step, similar, kappa, m](Index size, const Rng& rng) {
        const Index width = std::max(size, step.X.cols());
        const double scale =
            double(how.d) * weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
        const Gains g = drawn_gains(step, width, how.distribution, scale / double(width), rng);
        const Gains mean = expected_gains(m, step.alpha * step.alpha * scale);
        return std::abs(similar ? g.xi1 - mean.xi1 : g.xi2 - mean.xi2) / kappa;
    };
    return growth;
}

/// E (xi1 - E xi1)^2 = (4 m + 2 m^2)/d.
/// `scale`: of the variance of the entries.
Mean spread(const Check& how, const Step& step, double scale = 1) {
    const double m = std::pow(step.alpha * mixing_without_delta(step).mu1, 2), d = double(how.d);
    return {.reading = "variance of normal gains",
            .formula = "E (xi1 - E xi1)^2 = (4 m + 2 m^2)/d, m = alpha^2 mu1^2, to 5 %",
            .role = Role::sharper,
            .within = 0.05,
            .hypotheses = Hypotheses{},
            .mutant = {.factor = 1.12, .why = "5 % are meant"},
            .claimed = (4 * m + 2 * m * m) / d,
            .sample = [&how, &step, m, scale](const Rng& rng) {
                const double variance = scale / double(how.d);
                const Gains g = drawn_gains(step, how.d, Distribution::gaussian, variance, rng);
                return std::pow(g.xi1 - 1 - m, 2);
            }};
}

Step drawn_step(const Check& how) {
    const Heads heads = draw_heads(how.rng.fork("step"), how, 1);
    return {heads.X, heads.P.front(), heads.alpha};
}

std::vector<Reading> check_concentration(const Check& how) {
    const Step step = drawn_step(how);
    const double m = std::pow(step.alpha * mixing_without_delta(step).mu1, 2);
    Check exact = how;  // the rate is not a mean
    exact.range.clear();
    exact.trials = 2;
    Check part = how;
    part.trials = std::min<Index>(how.trials, 1000);
    return {examine_growth(deviation_growth(how, step, true), part),
            examine_growth(deviation_growth(how, step, false), part),
            examine_bound(exact_tail("eps in (0, 1), c = 1/8", 1), part),
            examine_growth(rate_growth("eps in (0, 1)", {2, 4, 8, 16, 32, 64, 128, 256}, 512, m),
                           exact),
            examine_growth(rate_growth("every eps", {32, 64, 128, 256, 512}, 1, m), exact),
            examine_mean(spread(how, step), how)};
}

/// Small eps: I = eps^2/(2 v), v = 4 m + 2 m^2 the variance of sqrt(d) xi1.
Attained attain_concentration() {
    constexpr double eps = 1e-4, m = 1;
    return {tail_rate(eps, m), eps * eps / (2 * (4 * m + 2 * m * m)), 1e-3};
}

std::vector<Reading> violate_concentration(const Check& how) {
    const Step step = drawn_step(how);
    Check part = how;
    part.trials = std::min<Index>(how.trials, 1000);
    std::vector<Reading> controls;
    for (const bool similar : {true, false}) {
        Growth single = deviation_growth(how, step, similar);
        single.sample = [&how, step, similar](Index, const Rng& rng) {
            const double w = draw(rng, "w", 1, 1, how.distribution)(0, 0);
            const Gains g = gains_of(step.X, step.apply(Matrix::Identity(how.d, how.d) * w));
            const Gains mean = expected_gains(mixing_without_delta(step), step.alpha * step.alpha);
            return std::abs(similar ? g.xi1 - mean.xi1 : g.xi2 - mean.xi2);
        };
        controls.push_back(control(single, "one number for all of W", part));
    }
    Reading tail = examine_bound(exact_tail("entries of three times the deviation", 3), part);
    tail.of = "eps in (0, 1), c = 1/8";
    controls.push_back(tail);
    const double m = std::pow(step.alpha * mixing_without_delta(step).mu1, 2);
    Check exact = how;
    exact.range.clear();
    exact.trials = 2;
    controls.push_back(control(rate_growth("eps in (0, 1)", {32, 64, 128, 256, 512}, 1, m),
                               "eps beyond 1", exact));
    controls.push_back(control(spread(how, step, 2), "entries of twice the variance", how));
    return controls;
}

}  // namespace

extern const Claim tse_lemmaA5 = {
    .name = "tse.lemmaA5",
    .statement =
        "The gains concentrate: P(|xi_i - E xi_i| >= eps kappa_i) <= 4 exp(-c eps^2 d) for some "
        "absolute constant c and kappa_i that depend only on X and P; the range of eps is not "
        "printed.",
    .words =
        "where c is an absolute constant and kappa_i, i = 1, 2, are constants dependent on "
        "the matrices [...] but independent of W",
    .source = "[TSE] Lemma A.5, (28)",
    .assumes =
        "entries of W independent, mean 0, of norm 1/sqrt(d); kappa_i = alpha^2 mu_i^2 + alpha "
        "|(Pi_i P X)^T Pi_i X|_F/|Pi_i X|_F^2, the scale of (27) with w in units of 1/sqrt(d); "
        "for w without that unit, kappa_i grows like d, and (28) is vacuous; the tail of xi1 for "
        "normal W and its rate (Cramer) are computed without drawing W",
    .sharp =
        "exp(-c eps^2 d) for eps in (0, 1), exp(-c eps d) beyond; sd(xi1) = sqrt((4 m + 2 m^2)/d), "
        "m = alpha^2 mu1^2, of normal W.",
    .n = 8,
    .d = 32,
    .trials = 20000,
    .least_n = 2,
    .chance = true,
    .check = check_concentration,
    .tight = attain_concentration,
    .violate = violate_concentration};

}  // namespace tsdiag::claim
