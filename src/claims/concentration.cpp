#include <cmath>

#include "expectation.hpp"
#include "growth.hpp"
#include "similarity.hpp"

/// How closely the gains keep to their means.  [TSE] Lemma A.5
namespace tsdiag::claim {
namespace {

/// Of normal W with d sigma^2 = 1 and Pi1 X, of rank one always, xi1 = |u + s g|^2 with |u| = 1,
/// s^2 = m/d, m = mu1^2: log E exp(d t xi1) = d (t/(1 - 2 t m) - log(1 - 2 t m)/2).
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
            .formula = "P(|xi1 - E xi1| >= eps) <= 2 exp(-c eps^2 d): the rate grows like eps^2",
            .role = Role::interpretation,
            .relation = Relation::equal,
            .claimed = 2,
            .sizes = std::move(sizes),
            .sample = [unit, m](Index N, const Rng&) { return tail_rate(double(N) / unit, m); },
            .size = unit == 1 ? "eps" : "512 eps"};
}

/// E (xi1 - E xi1)^2 = (4 mu1^2 + 2 mu1^4)/d.
Mean spread(const Check& how, const Step& step) {
    const double m = std::pow(mixing_of(step).mu1, 2), d = double(how.d);
    return {.reading = "variance of normal gains",
            .formula = "E (xi1 - E xi1)^2 = (4 mu1^2 + 2 mu1^4)/d",
            .role = Role::sharper,
            .claimed = (4 * m + 2 * m * m) / d,
            .sample = [&how, &step, m](const Rng& rng) {
                const Matrix W =
                    draw(rng, "W", how.d, how.d, Distribution::gaussian, 1 / double(how.d));
                const double off = gains_of(step.X, step.apply(W)).xi1 - 1 - m;
                return off * off;
            }};
}

std::vector<Reading> check_concentration(const Check& how) {
    const Step step = draw_step(how.rng.fork("step"), how);
    const double m = std::pow(mixing_of(step).mu1, 2);
    Check fixed = how;  // the tail is exact: the user's range and trials have no meaning for it
    fixed.range.clear();
    fixed.trials = 2;
    return {examine_growth(rate_growth("eps in (0, 1)", {2, 4, 8, 16, 32, 64, 128, 256}, 512, m),
                           fixed),
            examine_growth(rate_growth("every eps", {32, 64, 128, 256, 512}, 1, m), fixed),
            examine_mean(spread(how, step), how)};
}

/// Small eps: I = eps^2/(2 v), v = 4 m + 2 m^2 the variance of sqrt(d) xi1.
Attained attain_concentration() {
    constexpr double eps = 1e-4, m = 1;
    return {tail_rate(eps, m), eps * eps / (2 * (4 * m + 2 * m * m)), 1e-3};
}

/// Gains whose W is one number, not d of them: nothing concentrates.
std::vector<Reading> violate_concentration(const Check& how) {
    const Step step = draw_step(how.rng.fork("step"), how);
    Mean broken = spread(how, step);
    broken.reading = "one number for all of W";
    broken.sample = [&how, &step](const Rng& rng) {
        const double w = draw(rng, "w", 1, 1, Distribution::gaussian)(0, 0);
        const Matrix W = Matrix::Identity(how.d, how.d) * w;
        const double off =
            gains_of(step.X, step.apply(W)).xi1 - 1 - std::pow(mixing_of(step).mu1, 2);
        return off * off;
    };
    return {examine_mean(broken, how)};
}

}  // namespace

extern const Claim tse_lemmaA5 = {
    .name = "tse.lemmaA5",
    .statement =
        "The gains concentrate: P(|xi_i - E xi_i| >= eps) <= 2 exp(-c eps^2 d), without a "
        "range for eps.",
    .source = "[TSE] Lemma A.5, (28)",
    .assumes =
        "normal W with d sigma^2 = 1; alpha = 1; the rate of the tail is computed exactly "
        "(Cramer)",
    .sharp =
        "exp(-c eps^2 d) for eps in (0, 1), exp(-c eps d) beyond; sd(xi1) = sqrt((4 mu1^2 + 2 "
        "mu1^4)/d).",
    .n = 8,
    .d = 32,
    .trials = 20000,
    .least_n = 2,
    .chance = true,
    .check = check_concentration,
    .tight = attain_concentration,
    .violate = violate_concentration};

}  // namespace tsdiag::claim
