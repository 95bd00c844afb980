#include <algorithm>

#include "enumerated.hpp"

/// The escalation rate in terms of the mean gains.  [TSE] Prop. 2.5
namespace tsdiag::claim {
namespace {

// --- (13), with every mean over all W of two values

/// E r against (13); `sign` of E eta is 1 as printed.
Bound rate_bound(std::string reading, double sign) {
    return enumerated_bound(
        {.reading = std::move(reading),
         .formula =
             "E r = 1 + (a2/(1 + a2 mu2^2) (mu1^2 - mu2^2) - E eta) t_sim, a2 = alpha^2 d sigma^2",
         .sides = [sign](const Heads& heads, double a2, const Enumerated& e) {
             const double eta = e.xi1 / e.xi2 - e.inverse;
             const double ratio = printed_ratio(means_of(heads), a2);
             return BoundSides{e.r, 1 + (ratio - 1 - sign * eta) * t_sim(heads.X),
                               (e.r + ratio + e.inverse) * e.worst};
         }});
}

// --- the same at any width, by draws of W

/// Entries of W of `scale` times the variance that is claimed.
Mean mean_ratio(const Check& how, const FixedHeads& fixed, double scale = 1) {
    return drawn_ratio(how, fixed, "means, at this d",
                       "E xi1/E xi2 = 1 + a2/(1 + a2 mu2^2) (mu1^2 - mu2^2)", scale);
}

// --- (15), and the gap of A.3

using GapSides = BoundSides (*)(const Mixing&, double a2);

Bound gap_bound(std::string reading, std::string formula, GapSides sides,
                Matrix (*changed)(const Matrix& P) = nullptr) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::at_least,
            .accuracy = 1e-9,  // attained, and omega of a tiny mean is rounded
            .draw = draw_mixed_by_alpha,
            .sides = [sides, changed](const Variables& v) -> std::optional<BoundSides> {
                const double alpha = v("alpha")(0);
                Step step = mixed_step(v, alpha);
                if (changed) step.P = changed(step.P);
                if (!(alpha > 0) || !has_both_parts(step.X)) return {};
                const Mixing m = mixing_of(step);
                if (m.delta < 1e-6) return {};  // P of rank one: mu2 and delta are rounding errors
                return sides(m, alpha * alpha);
            },
            .search = {{2, 1}, {2, 2}, {3, 1}},
            .shown = [](const Variables& v) { return named(mixed_step(v, v("alpha")(0))); }};
}

/// Offset by 1, so that a relative change of a hundredth is significant.
BoundSides condition_sides(const Mixing& m, double) {
    const double least = (1 - m.omega) * (1 - m.omega);
    return {1 + std::max(m.mu1 * m.mu1 - least, m.delta * m.delta - m.mu2 * m.mu2), 1};
}
BoundSides gap_sides(const Mixing& m, double a2) {
    const Gains mean = expected_gains(m, a2);
    const double least = (1 - m.omega) * (1 - m.omega);
    return {mean.xi1 / mean.xi2, (1 + a2 * least) / (1 + a2 * m.delta * m.delta)};
}

constexpr const char* condition_formula =
    "max(mu1^2 - (1 - omega)^2, delta^2 - mu2^2) >= 0, each side offset by 1";
constexpr const char* gap_formula =
    "E xi1/E xi2 >= (1 + alpha^2 (1-omega)^2)/(1 + alpha^2 delta^2), d sigma^2 = 1";

std::vector<Reading> check_gap(const Check& how) {
    const FixedHeads fixed = fixed_heads(how, 1);
    Check more = how;  // a mean is cheap, and half a percent of it is required
    more.trials = 8 * how.trials;
    return {examine_bound(rate_bound("identity", 1), how),
            examine_mean(mean_ratio(more, fixed), more),
            examine_bound(gap_bound("(15)", condition_formula, condition_sides), how),
            examine_bound(gap_bound("gap is not negative", gap_formula, gap_sides), how)};
}

/// P = (I + Pi1)/2 and tokens on one line: mu2 = delta = 1/2, omega = 0, both sides are 1.6.
Attained attain_gap() {
    const BoundSides s =
        gap_sides(mixing_of({Matrix{{2.0}, {0}}, Matrix{{0.75, 0.25}, {0.25, 0.75}}, 1}), 1);
    return {s.measured, s.bound, 1e-14};
}

/// Rows of sums 1/n, 2/n, ..., 1.
Matrix shrunk_rows(const Matrix& P) {
    const double n = double(P.rows());
    return Vector::LinSpaced(P.rows(), 1 / n, 1).asDiagonal() * P;
}

std::vector<Reading> violate_gap(const Check& how) {
    Reading sign = examine_bound(rate_bound("eta with the other sign", -1), how);
    sign.of = "identity";
    Reading gap =
        examine_bound(gap_bound("rows of sums 1/n to 1", gap_formula, gap_sides, shrunk_rows), how);
    gap.of = "gap is not negative";
    Reading condition = examine_bound(
        gap_bound("rows of sums 1/n to 1, (15)", condition_formula, condition_sides, shrunk_rows),
        how);
    condition.of = "(15)";
    const FixedHeads fixed = fixed_heads(how, 1);
    return {sign, gap, condition,
            control(mean_ratio(how, fixed, 4), "entries of twice the deviation", how)};
}

}  // namespace

extern const Claim tse_prop25 = {
    .name = "tse.prop2.5",
    .statement =
        "E r = 1 + (alpha^2 d sigma^2/(1 + alpha^2 d sigma^2 mu2^2) (mu1^2 - mu2^2) - E eta) "
        "t_sim(X) with eta = E xi1/E xi2 - xi1/xi2; and max(mu1^2 - (1-omega)^2, delta^2 - mu2^2) "
        ">= 0, so that E xi1/E xi2 exceeds (1 + alpha^2 (1-omega)^2)/(1 + alpha^2 delta^2) by a "
        "nonnegative gap.",
    .words =
        "The equality (13) follows from replacing E[xi1/xi2] by E[xi1]/E[xi2] - E[eta] in (8) "
        "[...] the following condition always holds (15)",
    .source = "[TSE] Prop. 2.5, (13)-(15), App. A.3",
    .assumes =
        "P row-stochastic; entries of W independent, mean 0, variance sigma^2; the identity is "
        "examined with every mean taken over all W of entries -sigma and sigma, at most 2 x 2",
    .proof = "(9) put into r = 1 + (xi1/xi2 - 1) t_sim; (11).",
    .n = 8,
    .d = 8,
    .trials = 2000,
    .least_n = 2,
    .chance = true,
    .check = check_gap,
    .tight = attain_gap,
    .violate = violate_gap};

}  // namespace tsdiag::claim
