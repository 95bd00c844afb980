#include <fmt/format.h>

#include <cmath>

#include "growth.hpp"

/// How polynomial attention grows with the number of tokens.  [POLY] Thm 4.2
namespace tsdiag::claim {
namespace {

/// The logits X Q K^T X^T / sqrt(w) as A B^T: A = X Q / sqrt(w), B = X K, each N x w.
struct Factors {
    Matrix a, b;
};

Factors draw_factors(const Check& how, Index N, const Rng& rng) {
    const Index D = how.d, w = how.d / how.heads;
    const Matrix X = draw(rng, "X", N, D, how.distribution);
    const Matrix Q = draw_weights(rng, "Q", D, w, how.distribution, 1);
    const Matrix K = draw_weights(rng, "K", D, w, how.distribution, 1);
    return {X * Q / std::sqrt(double(w)), X * K};
}

double elementwise_norm(const Factors& f, int p) {
    const Matrix S = f.a * f.b.transpose();
    Matrix power = S;
    for (int i = 1; i < p; ++i) power = power.cwiseProduct(S);
    return power.norm();
}

/// |(A B^T)^p|_F = |A C B^T|_F, C = (B^T A)^(p - 1): never N x N.
double matrix_norm(const Factors& f, int p) {
    const Index w = f.a.cols();
    Matrix C = Matrix::Identity(w, w);
    for (int i = 1; i < p; ++i) C = C * (f.b.transpose() * f.a);
    const Matrix left = f.a.transpose() * f.a, right = f.b.transpose() * f.b;
    return std::sqrt((C.transpose() * left * C * right).trace());
}

using Norm = double (*)(const Factors&, int);

Growth growth_of(const Check& how, Norm norm, int p, std::string_view meaning) {
    return {.reading = fmt::format("{}, p = {}", meaning, p),
            .formula = "E |(X Q K^T X^T / sqrt(d))^p|_F = O(N)",
            .role = Role::interpretation,
            .claimed = 1,
            .sizes = {32, 64, 128, 256, 512},
            .sample = [&how, norm, p](Index N, const Rng& rng) {
                return norm(draw_factors(how, N, rng), p);
            }};
}

std::vector<Reading> check_growth(const Check& how) {
    std::vector<Reading> readings;
    for (const int p : {1, 2, 3})
        readings.push_back(examine_growth(growth_of(how, elementwise_norm, p, "elementwise"), how));
    for (const int p : {2, 3})
        readings.push_back(examine_growth(growth_of(how, matrix_norm, p, "matrix power"), how));
    return readings;
}

/// X with one and the same row: every entry of the logits is equal, and the norm is N times it.
Attained attain_growth() {
    const Matrix x{{1.0, 2, -1, 0.5}};
    const auto norm = [&](Index N) {
        return elementwise_norm({x.replicate(N, 1), x.replicate(N, 1)}, 2);
    };
    return {std::log(norm(64) / norm(16)) / std::log(4.0), 1, 1e-12};
}

/// Entries of X that grow with N are not of one variance.
Reading violate_growth(const Check& how) {
    Growth broken = growth_of(how, elementwise_norm, 2, "entries of X of deviation sqrt(N)");
    broken.sample = [&how](Index N, const Rng& rng) {
        Factors f = draw_factors(how, N, rng);
        f.a *= std::sqrt(double(N));
        f.b *= std::sqrt(double(N));
        return elementwise_norm(f, 2);
    };
    return examine_growth(broken, how);
}

}  // namespace

extern const Claim poly_thm42 = {
    .name = "poly.thm4.2",
    .statement =
        "The p-th power of the logits grows at most linearly with the number of tokens: "
        "E |(X Q K^T X^T / sqrt(d))^p|_F = O(N), in two readings: entry by entry, and as "
        "a power of the matrix.",
    .source = "[POLY] Thm 4.2, (8)",
    .assumes = "entries of X, Q and K independent with mean 0 and one variance; D and d fixed",
    .sharp = "Entry by entry Theta(N) for every p; as a matrix power N^p.",
    .d = 8,
    .heads = 2,
    .trials = 60,
    .chance = true,
    .check = check_growth,
    .tight = attain_growth,
    .violate = violate_growth};

}  // namespace tsdiag::claim
