#include <algorithm>
#include <cmath>

#include "escalation.hpp"
#include "growth.hpp"

/// Second eigenvalues of attention matrices.  [TSE] 2.5
namespace tsdiag::claim {
namespace {

// --- section 2.5

/// Rows of independent entries |1 + x|, x drawn, divided by their sums.
double independent_entries(Index n, Distribution distribution, const Rng& rng) {
    Matrix P = (draw(rng, "P", n, n, distribution).array() + 1).abs();
    const Vector sums = P.rowwise().sum();
    P.array().colwise() /= sums.array();
    return second_eigenvalue(P);
}

/// Of independent tokens.
double drawn_attention(Index n, Index width, Distribution distribution, const Rng& rng) {
    const Matrix X = draw(rng, "X", n, width, distribution);
    return second_eigenvalue(attention_of(X, rng, std::max<Index>(width / 8, 1)));
}

Growth gap_growth(std::string reading, std::vector<Index> sizes,
                  std::function<double(Index, const Rng&)> sample) {
    return {.reading = std::move(reading),
            .formula = "|lambda2(P)| = O(1/sqrt(n))",
            .role = Role::sharper,
            .mutant = {.factor = -0.6, .why = "exponents are told apart to 0.25"},
            .claimed = -0.5,
            .sizes = std::move(sizes),
            .sample = std::move(sample),
            .size = "n"};
}

Growth independent_growth(const Check& how) {
    Growth g = gap_growth(
        "independent entries", {32, 64, 128, 256},
        [&how](Index n, const Rng& rng) { return independent_entries(n, how.distribution, rng); });
    g.role = Role::part;
    g.mutant = {};
    g.resolution = fine_resolution;
    return g;
}

/// A gap of a half is large; `least` is what is claimed of E (1 - |lambda2|).
Mean attention_gap(const Check& how) {
    return {.reading = "attention has large gaps",
            .formula = "E|lambda2(P)| <= 1/2, P = softmax(X Wq (X Wk)^T/sqrt(d)) of --n and --d",
            .relation = Relation::at_most,
            .mutant = {.factor = 0.05, .why = "the gaps are much larger"},
            .claimed = 0.5,
            .sample = [&how](const Rng& rng) {
                return drawn_attention(how.n, how.d, how.distribution, rng);
            }};
}

Growth attention_growth(const Check& how, std::string reading, std::vector<Index> sizes,
                        Index width) {
    return gap_growth(std::move(reading), std::move(sizes), [&how, width](Index n, const Rng& rng) {
        return drawn_attention(n, width, how.distribution, rng);
    });
}
Growth below_width(const Check& how) {
    return attention_growth(how, "attention, n below the width of 512", {8, 16, 32, 64}, 512);
}

std::vector<Reading> check_spectral_gap(const Check& how) {
    return {examine_growth(independent_growth(how), how), examine_mean(attention_gap(how), how),
            examine_growth(below_width(how), how),
            examine_growth(attention_growth(how, "attention, n beyond the width of 32",
                                            {48, 64, 96, 128, 192, 256, 384}, 32),
                           how)};
}

/// Half of the identity and half of Pi1: |lambda2| = 1/2 at every n.
std::vector<Reading> violate_spectral_gap(const Check& how) {
    const auto half = [](Index n, const Rng& rng) {
        const Matrix I = Matrix::Identity(n, n);
        return second_eigenvalue((I + mean_part(I)) / 2) *
               (1 + 1e-9 * std::abs(draw(rng, "w", 1, 1, Distribution::gaussian)(0)));
    };
    Reading growth = examine_growth(gap_growth("half of the identity", {8, 16, 32, 64}, half), how);
    growth.of = "independent entries";
    Mean large = attention_gap(how);
    large.reading = "attention to oneself";
    large.sample = [&how](const Rng& rng) {
        const Matrix X = draw(rng, "X", how.n, how.d, how.distribution);
        return second_eigenvalue(
            softmax(10 * Matrix::Identity(how.n, how.n) + X * X.transpose() / double(how.d)));
    };
    Reading gap = examine_mean(large, how);
    gap.of = "attention has large gaps";
    Growth same = below_width(how);
    same.sample = half;
    return {growth, gap, control(same, "half of the identity", how)};
}

}  // namespace

extern const Claim tse_sec25 = {
    .name = "tse.sec2.5",
    .statement =
        "Stochastic matrices made of independent entries have gaps of 1 - O(1/sqrt(n)): |lambda2| "
        "falls like 1/sqrt(n); random attention matrices also have large gaps.",
    .words =
        "stochastic (or Markov) matrices generated from normalizations of i.i.d. nonnegative "
        "random variables almost surely have large spectral gaps of the order 1 - O(1/sqrt(n))",
    .source = "[TSE] section 2.5",
    .assumes =
        "rows of independent non-constant entries |1 + x|, divided by their sums; attention as "
        "softmax of random projections of independent tokens, for which the paper gives no order",
    .sharp =
        "For softmax attention |lambda2| is about (1/3) sqrt(1/n + 1/D), D the width of the "
        "states: it stops falling once n exceeds D.",
    .loose = "An exponent fitted at finite n differs from -1/2 by lower orders.",
    .n = 64,
    .d = 64,
    .trials = 16,
    .least_n = 2,
    .chance = true,
    .check = check_spectral_gap,
    .violate = violate_spectral_gap};

}  // namespace tsdiag::claim
