#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "escalation.hpp"
#include "growth.hpp"

/// Second eigenvalues of attention matrices, and products of such matrices.  [TSE] 2.2.1, 2.5
namespace tsdiag::claim {
namespace {

// --- section 2.5

/// Rows of independent positive entries, mean 1 and deviation 1/3, divided by their sums.
double independent_entries(Index n, const Rng& rng) {
    Matrix P = draw(rng, "P", n, n, Distribution::uniform, 1.0 / 9).array() + 1;
    const Vector sums = P.rowwise().sum();
    P.array().colwise() /= sums.array();
    return second_eigenvalue(P);
}

/// softmax(X Wq (X Wk)^T/sqrt(d)) of independent tokens, projections as torch.nn.Linear draws them.
double drawn_attention(Index n, Index width, Distribution distribution, const Rng& rng) {
    const Index d = std::max<Index>(width / 8, 1);
    const Matrix X = draw(rng, "X", n, width, distribution);
    const auto project = [&](const char* name) -> Matrix {
        return X * draw(rng, name, width, d, Distribution::uniform, 1 / (3 * double(width)));
    };
    const Matrix q = project("Wq"), k = project("Wk");
    return second_eigenvalue(softmax(q * k.transpose() / std::sqrt(double(d))));
}

Growth gap_growth(std::string reading, std::vector<Index> sizes,
                  std::function<double(Index, const Rng&)> sample) {
    return {.reading = std::move(reading),
            .formula = "|lambda2(P)| = O(1/sqrt(n))",
            .role = Role::interpretation,
            .claimed = -0.5,
            .sizes = std::move(sizes),
            .sample = std::move(sample),
            .size = "n"};
}

std::vector<Reading> check_spectral_gap(const Check& how) {
    const auto attention = [&how](Index width) {
        return [&how, width](Index n, const Rng& rng) {
            return drawn_attention(n, width, how.distribution, rng);
        };
    };
    return {examine_growth(
                gap_growth("independent entries", {32, 64, 128, 256}, independent_entries), how),
            examine_growth(
                gap_growth("attention, n below the width of 512", {8, 16, 32, 64}, attention(512)),
                how),
            examine_growth(gap_growth("attention, n beyond the width of 32",
                                      {48, 64, 96, 128, 192, 256, 384}, attention(32)),
                           how)};
}

/// Half of the identity and half of Pi1: |lambda2| = 1/2 at every n.
std::vector<Reading> violate_spectral_gap(const Check& how) {
    const auto half = [](Index n, const Rng& rng) {
        const Matrix I = Matrix::Identity(n, n);
        return second_eigenvalue((I + mean_part(I)) / 2) *
               (1 + 1e-9 * std::abs(draw(rng, "w", 1, 1, Distribution::gaussian)(0)));
    };
    return {examine_growth(gap_growth("half of the identity", {8, 16, 32, 64}, half), how)};
}

// --- section 2.2.1

/// Two matrices of maps whose second eigenvalues vanish and whose product has one of modulus 1.
Reading plain_products() {
    const std::string formula = "products of P_k with |lambda2(P_k)| <= c < 1 converge to rank one";
    for (std::size_t n = 2; n <= 3; ++n) {
        std::vector<double> points;
        std::vector<Matrix> nilpotent;  // but for the eigenvalue 1
        for (std::size_t i = 0; i < n; ++i) points.push_back(double(i));
        for_each_tuple(n, points, [&](const std::vector<double>& map) {
            const Matrix P = map_matrix(map);
            if (second_eigenvalue(P) < 0.5) nilpotent.push_back(P);
            return false;
        });
        for (const Matrix& first : nilpotent)
            for (const Matrix& second : nilpotent)
                if (second_eigenvalue(first * second) > 0.99) {
                    Reading r =
                        compare("plain products", formula, Role::interpretation, Relation::at_most,
                                {second_eigenvalue(first * second), 0.99}, 1e-12,
                                {named("P1", first), named("P2", second)});
                    r.note = "measured: |lambda2(P1 P2)|; bound: below 1";
                    return r;
                }
    }
    Reading none;
    none.name = "plain products";
    none.formula = formula;
    none.role = Role::interpretation;
    return none;
}

/// 1/2 max_ij sum_k |Q_ik - Q_jk|.
double dobrushin(const Matrix& Q) {
    double most = 0;
    for (Index i = 0; i < Q.rows(); ++i)
        for (Index j = 0; j < i; ++j)
            most = std::max(most, (Q.row(i) - Q.row(j)).cwiseAbs().sum() / 2);
    return most;
}

/// Row k of `maps` is a map of the n points: entry i is the point that i goes to.
Matrix map_of(const Matrix& maps, Index k) {
    std::vector<double> map;
    for (Index i = 0; i < maps.cols(); ++i)
        map.push_back(std::fmod(std::abs(std::round(maps(k, i))), double(maps.cols())));
    return map_matrix(map);
}

/// n - 1 random maps with one closed class and |lambda2| = 0.
Variables draw_maps(const Rng& rng, const Sizes& at, Distribution) {
    const Index n = std::min<Index>(at.n, 8);  // one map in n has such a spectrum
    Matrix maps(n - 1, n);
    Rng stream = rng.fork("maps");
    for (Index k = 0; k < n - 1; ++k) {
        do
            for (Index i = 0; i < n; ++i) maps(k, i) = double(stream.below(std::uint64_t(n)));
        while (second_eigenvalue(map_of(maps, k)) > 0.5);
    }
    Variables v;
    v.set("maps", maps);
    return v;
}

/// The product of (residual I + P_k)/(residual + 1).  With the residual each path of n - 1 steps
/// has a weight of 2^-(n-1), and any two rows share one.
std::optional<Sides> contraction(const Variables& v, double residual) {
    const Matrix& maps = v("maps");
    const Index n = maps.cols();
    Matrix Q = Matrix::Identity(n, n);
    for (Index k = 0; k < maps.rows(); ++k) {
        const Matrix P = map_of(maps, k);
        if (second_eigenvalue(P) > 0.5) return {};
        Q = (residual * Matrix::Identity(n, n) + P) / (1 + residual) * Q;
    }
    return Sides{dobrushin(Q), 1 - std::pow(0.5, double(n - 1))};
}

Bound residual_bound(std::string reading, double residual) {
    return {.reading = std::move(reading),
            .formula = "n - 1 factors (I + P_k)/2: 1/2 max_ij sum_k |Q_ik - Q_jk| <= 1 - 2^(1-n)",
            .role = Role::interpretation,
            .draw = draw_maps,
            .sides = [residual](const Variables& v) { return contraction(v, residual); },
            .shown =
                [](const Variables& v) {
                    std::vector<NamedMatrix> all;
                    for (Index k = 0; k < v("maps").rows(); ++k)
                        all.push_back(named(fmt::format("P{}", k + 1), map_of(v("maps"), k)));
                    return all;
                }};
}

std::vector<Reading> check_products(const Check& how) {
    return {plain_products(), examine_bound(residual_bound("with the residual", 1), how)};
}

/// n = 2, P_1 constant: (I + P)/2 has rows (1, 0) and (1/2, 1/2), which differ by 1/2.
Attained attain_products() {
    const Matrix P = map_matrix({0, 0});
    return {dobrushin((Matrix::Identity(2, 2) + P) / 2), 0.5, 1e-15};
}

/// Without the residual n - 1 such factors need not contract at all.
std::vector<Reading> violate_products(const Check& how) {
    return {examine_bound(residual_bound("without the residual", 0), how)};
}

}  // namespace

extern const Claim tse_sec25 = {
    .name = "tse.sec2.5",
    .statement =
        "The spectral gap of a random attention matrix is 1 - O(1/sqrt(n)): |lambda2| "
        "falls like 1/sqrt(n).",
    .source = "[TSE] section 2.5",
    .assumes = "rows of independent positive entries, or softmax of random projections",
    .sharp =
        "For softmax attention |lambda2| is about (1/3) sqrt(1/n + 1/D), D the width of the "
        "states: it stops falling once n exceeds D.",
    .loose = "An exponent fitted at finite n differs from -1/2 by lower orders.",
    .trials = 16,
    .chance = true,
    .check = check_spectral_gap,
    .violate = violate_spectral_gap};

extern const Claim tse_sec221 = {
    .name = "tse.sec2.2.1",
    .statement =
        "Products of stochastic matrices whose |lambda2| stays away from 1 converge to "
        "rank one: as they are, or with the residual, as products of I + alpha P_k.",
    .source = "[TSE] section 2.2.1",
    .assumes = "P_k row-stochastic; alpha = 1; examined on 0/1 matrices, where bounds are attained",
    .sharp =
        "With the residual, n - 1 factors contract differences of rows by 1 - 2^(1-n) at "
        "least.",
    .n = 5,
    .trials = 400,
    .least_n = 2,
    .check = check_products,
    .tight = attain_products,
    .violate = violate_products};

}  // namespace tsdiag::claim
