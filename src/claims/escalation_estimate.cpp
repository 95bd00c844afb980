#include <cmath>
#include <limits>

#include "escalation.hpp"
#include "expectation.hpp"
#include "growth.hpp"

/// Estimates of the escalation rate by |lambda2|, and its limit.  [TSE] Cor. 2.7, Rem. 2.8
namespace tsdiag::claim {
namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();

/// Symmetric and doubly stochastic: a positive kernel, scaled from both sides until its rows sum to
/// one.
Matrix symmetric_attention(const Matrix& logits) {
    Matrix P = (logits + logits.transpose()).array().exp().matrix();
    for (int round = 0; round < 400; ++round) {
        const Vector scale = P.rowwise().sum().cwiseSqrt().cwiseInverse();
        P = scale.asDiagonal() * P * scale.asDiagonal();
    }
    return P;
}

Step symmetric_step(const Check& how, const Rng& rng) {
    Step step = draw_step(rng, how);
    step.P = symmetric_attention(draw(rng, "symmetric", how.n, how.n, Distribution::gaussian));
    return step;
}

// --- Cor. 2.7

Bound symmetric_identities() {
    return {.reading = "symmetric P",
            .formula = "mu1 = 1, omega = 0 and delta = |lambda2|",
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v;
                    v.set("X", draw(rng, "X", at.n, at.d, distribution));
                    v.set("logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian));
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Step step{v("X"), symmetric_attention(v("logits")), 1};
                const double n = double(step.X.rows());
                const double mean = mean_part(step.X).norm() / step.X.norm();
                if (!(mean > 1e-3)) return {};
                const Mixing m = mixing_of(step);
                const double off = std::max(
                    {std::abs(m.mu1 - 1), m.omega, std::abs(m.delta - second_eigenvalue(step.P))});
                return Sides{off, 64 * n * n * eps / mean};
            },
            .shown =
                [](const Variables& v) {
                    return named(Step{v("X"), symmetric_attention(v("logits")), 1});
                }};
}

/// The estimate says that similarity escalates for every P with |lambda2| < 1; in the limit of wide
/// models E[r] says otherwise for some that are not symmetric.  The smallest such case among maps.
Reading asymmetric_case() {
    const std::string formula = "E[r] >= 1 where |lambda2| < 1 (d large)";
    std::optional<Step> found;
    for (std::size_t n = 2; n <= 3 && !found; ++n) {
        std::vector<double> points;
        for (std::size_t i = 0; i < n; ++i) points.push_back(double(i));
        for_each_tuple(n, points, [&](const std::vector<double>& map) {
            const Matrix P = map_matrix(map);
            if (second_eigenvalue(P) > 0.5) return false;
            return for_each_tuple(n, {2, 1, 0, -1, -2}, [&](const std::vector<double>& x) {
                const Step step{Eigen::Map<const Vector>(x.data(), Index(n)), P, 1};
                const double t = t_sim(step.X);
                if (!(t > 0.05 && t < 0.999) || !(limit_rate(step) < 1 - 1e-9)) return false;
                found = step;
                return true;
            });
        });
    }
    Reading none;
    none.name = "estimate, any P";
    none.formula = formula;
    none.role = Role::interpretation;
    if (!found) return none;
    Reading r = compare(none.name, formula, none.role, Relation::at_least, {limit_rate(*found), 1},
                        1e-12, named(*found));
    r.note = "the estimate (17) is " + shortest(estimate(*found, second_eigenvalue(found->P)));
    return r;
}

/// |lambda2| = 1 without escalation?  Two blocks that average: E[r] = 3/2.
Reading reducible_case() {
    Matrix P = Matrix::Zero(4, 4);
    P.topLeftCorner(2, 2).setConstant(0.5);
    P.bottomRightCorner(2, 2).setConstant(0.5);
    const Step step{Matrix{{2.0}, {0}, {2}, {0}}, P, 1};
    Reading r = compare("no escalation at |lambda2| = 1", "E[r] <= 1 where |lambda2| = 1",
                        Role::interpretation, Relation::at_most, {exact_rate(step).value_or(0), 1},
                        1e-12, named(step));
    r.note = "d = 1, W = -1 and 1 equally likely: exact";
    return r;
}

Mean estimated(const Check& how, const Step& step, double variance, double claimed) {
    return {.reading = "bound, symmetric P",
            .formula = "E[r] >= 1 + (2/(1 + lambda2^2) - 1) t_sim",
            .role = Role::interpretation,
            .relation = Relation::at_least,
            .claimed = claimed,
            .sample = [&how, &step, variance](const Rng& rng) {
                return drawn_rate(step, rng, how.distribution, variance);
            }};
}

std::vector<Reading> check_estimate(const Check& how) {
    const double variance = weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
    const Step symmetric = symmetric_step(how, how.rng.fork("step"));
    const Step softmaxed = draw_step(how.rng.fork("softmax"), how, 0.3);
    const double exact = estimate(symmetric, second_eigenvalue(symmetric.P));
    const double guess = estimate(softmaxed, second_eigenvalue(softmaxed.P));
    Reading limit = compare(
        "estimate, softmax P, wide", "limit of E[r] - 1 = (2/(1 + lambda2^2) - 1) t_sim, to 5 %",
        Role::interpretation, Relation::equal, {limit_rate(softmaxed) - 1, guess - 1}, 0.05);
    Bound identities = symmetric_identities();
    return {examine_bound(identities, how),
            examine_mean(estimated(how, symmetric, variance, exact), how), limit, asymmetric_case(),
            reducible_case()};
}

/// A walk on a circle of three: the second eigenvalues are -1/2, and so is delta in modulus.
Attained attain_estimate() {
    const Matrix P{{0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}};
    return {mixing_of({Matrix{{1.0}, {2}, {0}}, P, 1}).delta, second_eigenvalue(P), 1e-14};
}

/// A triangular P: delta exceeds |lambda2|.
std::vector<Reading> violate_estimate(const Check& how) {
    Bound broken = symmetric_identities();
    broken.reading = "P not symmetric";
    broken.sides = [](const Variables& v) -> std::optional<Sides> {
        const Step step{v("X"), softmax(v("logits")), 1};
        return Sides{std::abs(mixing_of(step).delta - second_eigenvalue(step.P)),
                     64 * double(step.X.size()) * eps};
    };
    return {examine_bound(broken, how)};
}

// --- Rem. 2.8

/// X = 1 v^T + Z/N and P = softmax(X X^T/sqrt(d)).
Step nearly_alike(const Check& how, Index N, const Rng& rng) {
    const Matrix v = draw(rng, "v", 1, how.d, how.distribution);
    Step step;
    step.X = v.replicate(how.n, 1) + draw(rng, "Z", how.n, how.d, how.distribution) / double(N);
    step.P = softmax(step.X * step.X.transpose() / std::sqrt(double(how.d)));
    return step;
}

Growth limit_growth(const Check& how) {
    return {.reading = "limit",
            .formula = "|right side of (16) - (1 + alpha^2)| = O(1/N^2) for X = 1 v^T + Z/N",
            .claimed = -2,
            .sizes = {16, 32, 64, 128, 256, 512},
            .sample = [&how](Index N, const Rng& rng) {
                return std::abs(theorem_bound(nearly_alike(how, N, rng)) - 2);
            }};
}

std::vector<Reading> check_limit(const Check& how) {
    const Step step{Matrix{{1.0}, {0.2}}, Matrix{{1.0, 0}, {1, 0}}, 1};
    Reading ceiling =
        compare("as a ceiling", "E xi1/E xi2 <= 1 + alpha^2", Role::sharper, Relation::at_most,
                {(limit_rate(step) - 1) / t_sim(step.X) + 1, 2}, 1e-12, named(step));
    return {examine_growth(limit_growth(how), how), ceiling};
}

/// All tokens look at all alike: nothing but t_sim is left, which is nearly 1.
Attained attain_limit() {
    const Matrix X{{1.0}, {1 + 1e-6}};
    return {theorem_bound({X, Matrix::Constant(2, 2, 0.5), 1}), 2, 1e-11};
}

/// P does not depend on X: delta stays.
std::vector<Reading> violate_limit(const Check& how) {
    Growth broken = limit_growth(how);
    broken.reading = "P that does not follow X";
    broken.sample = [&how](Index N, const Rng& rng) {
        Step step = nearly_alike(how, N, rng);
        step.P = softmax(draw(rng, "logits", how.n, how.n, Distribution::gaussian));
        return std::abs(theorem_bound(step) - 2);
    };
    return {examine_growth(broken, how)};
}

}  // namespace

extern const Claim tse_cor27 = {
    .name = "tse.cor2.7",
    .statement =
        "E[r] >= 1 + (alpha^2 (1 - lambda2^2)/(1 + alpha^2 lambda2^2)) t_sim for symmetric "
        "P, lambda2 its second eigenvalue; an estimate of E[r] for any P; and no "
        "escalation where |lambda2| = 1.",
    .source = "[TSE] Cor. 2.7, (17)",
    .assumes = "as Theorem 2.6; alpha = 1, d sigma^2 = 1",
    .hypotheses = {&standard_scale},
    .sharp =
        "Better, and as cheap: (1 + alpha^2 mu1^2)/(1 + alpha^2 mu2^2) - 1, exact for any P as "
        "d grows.",
    .n = 16,
    .d = 64,
    .trials = 2000,
    .least_n = 2,
    .chance = true,
    .check = check_estimate,
    .tight = attain_estimate,
    .violate = violate_estimate};

extern const Claim tse_rem28 = {
    .name = "tse.rem2.8",
    .statement =
        "As tokens grow alike the right side of (16) tends to 1 + alpha^2 for softmax "
        "attention.",
    .source = "[TSE] Rem. 2.8",
    .assumes = "P = softmax(X X^T/sqrt(d)), X bounded; alpha = 1",
    .sharp =
        "The distance falls like the square of that of the tokens. E xi1/E xi2 itself may exceed 1 "
        "+ "
        "alpha^2.",
    .n = 8,
    .d = 8,
    .trials = 40,
    .least_n = 2,
    .chance = true,
    .check = check_limit,
    .tight = attain_limit,
    .violate = violate_limit};

}  // namespace tsdiag::claim
