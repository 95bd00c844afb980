#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <array>
#include <cmath>

#include "claims/stochastic.hpp"
#include "claims/tse/similarity.hpp"

/// Draws and witnesses meet the hypotheses of their claim: computed from the matrices shown alone,
/// independent of the claim.
namespace tsdiag {
namespace {

using claim::Matrix;

Matrix matrix(const NamedMatrix& m) {
    Matrix out(m.rows, m.cols);
    for (Index i = 0; i < m.rows; ++i)
        for (Index j = 0; j < m.cols; ++j) out(i, j) = m.values[std::size_t(i * m.cols + j)];
    return out;
}

/// The amount by which a matrix violates a hypothesis of a claim.
struct Rule {
    std::string_view claims;   ///< prefix of their names
    std::string_view reading;  ///< part of the reading's name, its end with a $; empty: all
    std::string_view matrix;
    double (*missed)(const Matrix&);
};

double positive(const Matrix& m) { return m.minCoeff() > 0 ? 0 : INFINITY; }
double unit_interval(const Matrix& m) { return m(0) > 0 ? std::max(m(0) - 1, 0.0) : INFINITY; }
double symmetric(const Matrix& m) { return (m - m.transpose()).cwiseAbs().maxCoeff(); }
double second_is_one(const Matrix& m) {
    Eigen::VectorXd values = m.selfadjointView<Eigen::Lower>().eigenvalues();
    std::ranges::sort(values, {}, [](double v) { return -std::abs(v); });
    return std::abs(std::abs(values(1)) - 1);
}
double both_parts(const Matrix& m) {
    const double t = claim::t_sim(m);
    return t > 0 && t < 1 ? 0 : INFINITY;
}
double no_zero_row(const Matrix& m) { return m.rowwise().norm().minCoeff() > 0 ? 0 : INFINITY; }
double no_constant_row(const Matrix& m) {
    return (m.rowwise().maxCoeff() - m.rowwise().minCoeff()).minCoeff() > 0 ? 0 : INFINITY;
}
double not_zero(const Matrix& m) { return m.squaredNorm() > 0 ? 0 : INFINITY; }
/// omega, delta and the left side of (15)
double theorem(const Matrix& m) { return m(0) + m(1) < 1 ? std::max(0.01 - m(2), 0.0) : INFINITY; }
double below_one(const Matrix& m) { return m(0) + m(1) < 1 ? 0 : INFINITY; }

constexpr Rule rules[] = {
    {"tse.", "", "P", claim::stochastic_miss},
    {"tse.", "", "P1", claim::stochastic_miss},
    {"tse.", "", "P2", claim::stochastic_miss},
    {"tse.", "", "P3", claim::stochastic_miss},
    {"tse.", "", "P4", claim::stochastic_miss},
    {"tse.", "", "alpha", positive},
    {"tse.", "", "sigma", positive},
    {"tse.", "", "d sigma^2", positive},
    {"tse.", "", "tau", unit_interval},
    {"tse.", "", "K", unit_interval},
    {"tse.", "", "B", not_zero},
    {"tse.", "", "c", positive},
    {"tse.lemmaA5", "", "eps", unit_interval},
    {"tse.def1.1", "", "X", not_zero},
    {"tse.prop2", "", "X", both_parts},
    {"tse.prop2.3", "", "Y", both_parts},
    {"tse.lemma2.4", "part", "X", both_parts},
    {"tse.eq11", "part", "X", both_parts},
    {"tse.lemmaA1", "", "X", both_parts},
    {"tse.thm2.6", "", "X", both_parts},
    {"tse.thm2.6", "every d", "omega, delta, left side of (15)", theorem},
    {"tse.thm2.6", "above 1", "omega, delta, left side of (15)", below_one},
    {"tse.cor2.7", "doubly", "P", claim::doubly_stochastic_miss},
    {"tse.cor2.7", "symmetric P", "P", symmetric},
    {"tse.cor2.7", "|lambda2| = 1", "P", symmetric},
    {"tse.cor2.7", "|lambda2| = 1", "P", second_is_one},
    {"tse.lemmaA1", "gamma$", "P", claim::doubly_stochastic_miss},
    {"tse.rem2.8", "", "X", both_parts},
    {"tse.eq1", "average", "X", no_zero_row},
    {"tse.eq1", "identity", "X", no_zero_row},
    {"tse.eq1", "range", "X", no_zero_row},
    {"tse.eq3", "", "X", both_parts},
    {"tse.eq21", "", "X", both_parts},
    {"tse.sec2.3-ln", "any tokens", "X", no_constant_row},
    {"devil.eq7", "general", "s", positive},
    {"devil.eq47", "", "s", positive},
    {"devil.eq5", "", "eps", positive},
    {"devil.eq53-steps", "", "t", not_zero},
    {"devil.eq61", "", "eps", positive},
    {"devil.eq11", "", "s", positive},
    {"devil.eq48-linear", "", "s", positive},
    {"devil.prop3.1", "for every M", "M", positive},
    {"devil.eq49", "", "M", positive},
    {"devil.eq60", "", "M", positive},
};

bool names(std::string_view part, std::string_view reading) {
    if (part.ends_with('$')) return reading.ends_with(part.substr(0, part.size() - 1));
    return reading.find(part) != std::string_view::npos;
}

using Met = std::array<int, std::size(rules)>;  ///< matrices checked per rule

void check_witness(const Claim& claim, const Reading& reading, Met& met) {
    for (const NamedMatrix& m : reading.witness)
        for (std::size_t k = 0; k < std::size(rules); ++k) {
            const Rule& rule = rules[k];
            if (!claim.name.starts_with(rule.claims) || m.name != rule.matrix) continue;
            if (!names(rule.reading, reading.name)) continue;
            EXPECT_LE(rule.missed(matrix(m)), 1e-9)
                << claim.name << ", " << reading.name << ": " << m.name << "\n"
                << matrix(m);
            ++met[k];
        }
}

/// The assumptions of all claims on random entries, which no single draw can show.
TEST(Hypotheses, EntriesHaveMeanZeroTheirVarianceAndNoCorrelation) {
    constexpr Index side = 300, count = side * side;
    for (const Distribution dist : distributions()) {
        const Matrix a = claim::draw_weights(Rng(7), "W", side, side, dist, 0.25),
                     b = claim::draw_weights(Rng(7), "X", side, side, dist, 0.25);
        const double variance = claim::weight_variance(dist, side, side, 0.25);
        const double five = 5 / std::sqrt(double(count));  // standard errors of a mean of `count`
        EXPECT_LT(std::abs(a.mean()), five * std::sqrt(variance)) << name(dist);
        EXPECT_NEAR(a.squaredNorm() / count, variance, 2 * five * variance) << name(dist);
        const auto product = [&](const Matrix& x, const Matrix& y) {
            return std::abs((x.array() * y.array()).mean()) / variance;
        };
        EXPECT_LT(product(a, b), five) << name(dist) << ", two streams";
        EXPECT_LT(product(a.leftCols(side - 1), a.rightCols(side - 1)), 1.01 * five) << name(dist);
        EXPECT_LT(product(a.topRows(side - 1), a.bottomRows(side - 1)), 1.01 * five) << name(dist);
    }
}

TEST(Hypotheses, HoldOnWhatIsDrawnAndOnEachWitness) {
    Met met{};
    for (const Claim* claim : claims()) {
        for (Index trial = 0; trial < 8; ++trial)  // sizes at which all matrices are shown
            for (const Reading& r : examine(*claim, {.n = 4, .d = 4, .only = trial}).readings)
                check_witness(*claim, r, met);
        if (!claim->name.starts_with("tse.")) continue;
        for (const Reading& r : claim->check(plan(*claim, {.trials = 50, .seed = 3})))
            check_witness(*claim, r, met);
    }
    for (std::size_t k = 0; k < std::size(rules); ++k)
        EXPECT_GT(met[k], 0) << rules[k].claims << " " << rules[k].reading << " " << rules[k].matrix
                             << ": a rule that nothing is checked by guards nothing";
}

TEST(Searches, KeepToTheHypothesesOfWhatTheySearch) {
    // (1 - tau)^2 <= 1 is nearly attained as tau tends to 0, and beyond tau = 1 as it tends to 2.
    const Claim& claim = *resolve_claims(std::vector<std::string>{"tse.eq21"}).front();
    for (const std::uint64_t seed : {0, 1, 2}) {
        const Examined examined = examine(claim, {.trials = 4, .n = 3, .d = 2, .seed = seed});
        const auto r = std::ranges::find(examined.readings, "less similarity", &Reading::name);
        ASSERT_TRUE(r != examined.readings.end() && r->tightness);
        const auto tau = std::ranges::find(r->witness, "tau", &NamedMatrix::name);
        ASSERT_NE(tau, r->witness.end());
        EXPECT_LT(tau->values.at(0), 1e-6) << seed;
        EXPECT_GT(*r->tightness, 1 - 1e-6) << seed;
    }
}

}  // namespace
}  // namespace tsdiag
