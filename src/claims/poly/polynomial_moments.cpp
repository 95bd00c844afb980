#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "expectation.hpp"
#include "polynomial.hpp"

/// Mean squares of polynomial attention and of its gradient at a given size.  [POLY] (43), (55),
/// (71)
namespace tsdiag::claim {
namespace {

/// Draws averaged in one trial: high powers of normal numbers are heavy-tailed.
constexpr Index pairs = 256;
constexpr std::uint64_t copies = 16;

/// Entry by entry <a, b>^2p of rows a and b of two matrices of D columns.
double mean_power(const Matrix& a, const Matrix& b, int p) {
    const Vector products = a.cwiseProduct(b).rowwise().sum();
    return products.array().square().pow(p).mean();
}

/// Variances of the two factors of a product.
constexpr double first_variance = 2, second_variance = 0.75;

double entry_power(const Check& how, Index D, int p, const Rng& rng) {
    return mean_power(draw(rng, "a", pairs, D, how.distribution, first_variance),
                      draw(rng, "b", pairs, D, how.distribution, second_variance), p);
}

/// Undoes the division of the logits by sqrt(w).
double undivided(double norm, const Logits& s, int p) {
    return std::pow(double(s.A.cols()), p) * norm * norm;
}
double norm_square(const Logits& s, int p) { return undivided(elementwise_norm(s, p), s, p); }
double gradient_norm_square(const Logits& s, int p) {
    return undivided(elementwise_gradient_norm(s, p), s, p);
}

/// Logits whose Q and K are the same matrix.
Logits same(Logits s) {
    s.B = s.A * std::sqrt(double(s.A.cols()));
    return s;
}

constexpr Index kept_width = 64;  ///< D where D!/(D - p)! is near D^p

Check with_trials(Check how, Index trials) {
    how.trials = std::max<Index>(trials, 2);
    return how;
}

/// The mean over several copies of X, Q and K.
template <class Measured>
double mean_of_copies(const Check& how, const Rng& rng, const Measured& measured) {
    double sum = 0;
    for (std::uint64_t copy = 0; copy < copies; ++copy)
        sum += measured(draw_logits(how, how.n, rng.fork(copy)));
    return sum / double(copies);
}

double printed_entry(Index D, int p, double scale = first_variance * second_variance) {
    return std::pow(double(D) * scale, p) * double_factorial(2 * p - 1);
}
double exact_entry(Index D, int p) {
    return norm_moment(D, p) * double_factorial(2 * p - 1) *
           std::pow(first_variance * second_variance, p);
}

Mean entry(const Check& how, int p) {
    return {.reading = fmt::format("p = {}", p),
            .formula = p == 1 ? "E <a, b>^2 = D sigma_1^2 sigma_2^2"
                              : "E <a, b>^(2p) <= D^p (2p - 1)!! sigma_1^(2p) sigma_2^(2p)",
            .relation = p == 1 ? Relation::equal : Relation::at_most,
            .claimed = printed_entry(how.d, p),
            .exact = exact_entry(how.d, p),
            .sample = [&how, p](const Rng& rng) { return entry_power(how, how.d, p, rng); }};
}

/// (43) keeps only products of p squares of distinct entries, D!/(D - p)! of them.
Mean kept_terms(const Check& how) {
    constexpr Index D = kept_width;
    Mean kept = entry(how, 2);
    kept.reading = "approximation, p = 2, D = 64";
    kept.formula = "E <a, b>^(2p) = D!/(D - p)! (2p - 1)!! sigma_1^(2p) sigma_2^(2p), to 10 %";
    kept.relation = Relation::equal;
    kept.within = 0.1;
    kept.mutant = {.factor = 1.25, .why = "10 % are meant"};
    kept.claimed = printed_entry(D, 2) * double(D - 1) / double(D);
    kept.exact = exact_entry(D, 2);
    kept.sample = [&how](const Rng& rng) { return entry_power(how, D, 2, rng); };
    return kept;
}

Mean exact_moment(const Check& how) {
    Mean exact = entry(how, 2);
    exact.reading = "exact, p = 2";
    exact.formula =
        "E <a, b>^(2p) = D (D + 2) ... (D + 2p - 2) (2p - 1)!! sigma_1^(2p) sigma_2^(2p)";
    exact.role = Role::sharper;
    exact.relation = Relation::equal;
    exact.claimed = exact_entry(how.d, 2);
    return exact;
}

Mean shared_factor(const Check& how) {
    Mean shared;
    shared.reading = "X in both factors, p = 2";
    shared.formula =
        "E |(X Q K^T X^T)^p|_F^2 = (2p - 1)!! d ... (d + 2p - 2) (N (N - 1) (D ... (D + "
        "2p - 2))^2 + N D ... (D + 4p - 2)) sigma_t^(4p) sigma_x^(4p), to 1 %";
    shared.role = Role::sharper;
    shared.within = 0.01;
    shared.mutant = {.factor = 1.025, .why = "1 % is meant"};
    shared.claimed = logit_square(logit_sizes(how), 2);
    shared.sample = [&how](const Rng& rng) {
        return mean_of_copies(how, rng, [](const Logits& s) { return norm_square(s, 2); });
    };
    return shared;
}

std::vector<Reading> check_entry(const Check& how) {
    std::vector<Reading> readings;
    for (const Mean& m :
         {entry(how, 1), entry(how, 2), entry(how, 3), exact_moment(how), shared_factor(how)})
        readings.push_back(examine_mean(m, how));
    const Check fewer = with_trials(how, how.trials / 4);
    readings.push_back(examine_mean(kept_terms(fewer), fewer));
    return readings;
}

/// Numbers -1 and 1, equally likely, in one dimension: a^2 b^2 = 1.
Attained attain_entry() {
    const Matrix a{{-1.0}, {-1}, {1}, {1}}, b{{-1.0}, {1}, {-1}, {1}};
    return {mean_power(a, b, 1), printed_entry(1, 1, 1), 1e-14};
}

/// a = b with entries of variance sqrt(sigma_1 sigma_2): E |a|^4 is D + 2 times as large.
std::vector<Reading> violate_entry(const Check& how) {
    std::vector<Reading> controls;
    const auto add = [&](Mean broken, int p, Index D, const Check& with) {
        broken.sample = [&how, p, D](const Rng& rng) {
            const Matrix a = draw(rng, "a", pairs, D, how.distribution,
                                  std::sqrt(first_variance * second_variance));
            return mean_power(a, a, p);
        };
        controls.push_back(control(broken, "a and b the same", with));
    };
    for (const int p : {1, 2, 3}) add(entry(how, p), p, how.d, how);
    add(exact_moment(how), 2, how.d, how);
    const Check fewer = with_trials(how, how.trials / 4);
    add(kept_terms(fewer), 2, kept_width, fewer);
    Mean shared = shared_factor(how);
    shared.sample = [&how](const Rng& rng) {
        return mean_of_copies(how, rng, [](const Logits& s) { return norm_square(same(s), 2); });
    };
    controls.push_back(control(shared, "Q and K the same", how));
    return controls;
}

/// (55): pairs of tokens and of entries, without those where only the tokens or only the entries
/// are equal.
double printed_first(const LogitSizes& s) {
    const double N = double(s.N), D = double(s.D);
    return double(s.w) * s.weights * s.x * s.x * (N * (N - 1) * D * (D - 1) + 3 * N * D);
}

/// (71)
double printed_power(const LogitSizes& s, int p) {
    return double_factorial(2 * p - 3) * std::pow(double(s.w), p) * std::pow(s.weights, 2 * p - 1) *
           std::pow(s.x, 2 * p) * std::pow(double(s.N), 2) * std::pow(double(s.D), 2 * p);
}

Mean gradient_mean(const Check& how, int p, std::string reading, std::string formula,
                   double claimed) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .claimed = claimed,
            .exact = gradient_square(logit_sizes(how), p),
            .sample = [&how, p](const Rng& rng) {
                return mean_of_copies(how, rng,
                                      [p](const Logits& s) { return gradient_norm_square(s, p); });
            }};
}

Mean first_power(const Check& how) {
    return gradient_mean(how, 1, "as printed",
                         "E |d(X Q K^T X^T)/dQ|_F^2 = d sigma_w^2 sigma_x^4 (N (N - 1) D (D - 1) + "
                         "3 N D)",
                         printed_first(logit_sizes(how)));
}

Mean first_power_exact(const Check& how) {
    return sharper(gradient_mean(how, 1, "exact",
                                 "E |d(X Q K^T X^T)/dQ|_F^2 = d sigma_w^2 sigma_x^4 N D (N D + 2)",
                                 gradient_square(logit_sizes(how), 1)));
}

std::vector<Reading> check_first_power(const Check& how) {
    return {examine_mean(first_power(how), how), examine_mean(first_power_exact(how), how)};
}

/// N = D = d = 1: x^4 k^2 over the three points of Gauss-Hermite, exact to the fifth power.
Attained attain_first_power() {
    const std::array<double, 3> at{-std::sqrt(3), 0, std::sqrt(3)},
        weight{1.0 / 6, 2.0 / 3, 1.0 / 6};
    double mean = 0;
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t k = 0; k < 3; ++k) {
            const Matrix X{{at[i]}}, B = X * at[k];
            mean += weight[i] * weight[k] * gradient_norm_square({X, X, B}, 1);
        }
    return {mean, printed_first({1, 1, 1}), 1e-14};
}

/// Entries of X with mean 1.
std::vector<Reading> violate_first_power(const Check& how) {
    Mean broken = first_power_exact(how);
    broken.sample = [&how](const Rng& rng) {
        const Index w = how.d / how.heads;
        const Scales scales;
        const Matrix X = draw(rng, "X", how.n, how.d, how.distribution, scales.tokens).array() + 1;
        const Matrix B = X * draw_weights(rng, "K", how.d, w, how.distribution, scales.weights);
        return gradient_norm_square({X, B, B}, 1);
    };
    return {control(broken, "entries of X of mean 1", how)};
}

Mean higher_power(const Check& how, int p, std::string reading) {
    Mean power = gradient_mean(how, p, std::move(reading),
                               "E |d((X Q K^T X^T)^p)/dQ|_F^2 = (2p - 3)!! d^p sigma_w^(4p - 2) "
                               "sigma_x^(4p) N^2 D^(2p), to a factor of 2",
                               printed_power(logit_sizes(how), p));
    power.within = 1;  // "approximately": a factor of p^2 or more is missing
    return power;
}

Mean second_power_exact(const Check& how) {
    Mean exact = sharper(gradient_mean(
        how, 2, "exact, p = 2",
        "p^2 (2p - 3)!! d ... (d + 2p - 2) sigma_w^(4p - 2) sigma_x^(4p) (N (N - 1) (D ... (D + 2p "
        "- 2))^2 + N D ... (D + 4p - 2)), to 1 %",
        gradient_square(logit_sizes(how), 2)));
    exact.within = 0.01;
    exact.mutant = {.factor = 1.025, .why = "1 % is meant"};
    return exact;
}

// --- (71)

/// `how` at sizes where lower orders are small, which show that p^2 is missing.
Check at_large_sizes(Check how) {
    how.n = how.d = 48;
    how.heads = 1;
    how.trials = std::clamp<Index>(how.trials / 50, 2, 40);
    return how;
}

std::vector<Reading> check_higher_power(const Check& how) {
    const Check large = at_large_sizes(how);
    return {examine_mean(higher_power(how, 2, "p = 2"), how),
            examine_mean(higher_power(how, 3, "p = 3"), how),
            examine_mean(higher_power(large, 2, "p = 2, N = D = d = 48"), large),
            examine_mean(second_power_exact(how), how)};
}

/// The second power of logits with equal Q and K: sign and independence are lost.
std::vector<Reading> violate_higher_power(const Check& how) {
    Mean broken = second_power_exact(how);
    broken.sample = [&how](const Rng& rng) {
        return mean_of_copies(how, rng,
                              [](const Logits& s) { return gradient_norm_square(same(s), 2); });
    };
    return {control(broken, "Q and K the same", how)};
}

}  // namespace

extern const Claim poly_eq43 = {
    .name = "poly.eq43",
    .statement =
        "An entry of a product of two Gaussian matrices of inner dimension D has E <a, b>^2 = D "
        "sigma_1^2 sigma_2^2; its even moments are about D!/(D - p)! (2p - 1)!! sigma_1^(2p) "
        "sigma_2^(2p), and at most D^p (2p - 1)!! sigma_1^(2p) sigma_2^(2p).",
    .words = "so the expectation can be upper bounded by D^p (2p-1)!! sigma_1^2p sigma_2^2p",
    .source = "[POLY] (41) to (43)",
    .assumes = "entries of a and b independent and normal with variances sigma_1^2 and sigma_2^2",
    .hypotheses = {&normal_entries},
    .sharp = "D (D + 2) ... (D + 2p - 2) (2p - 1)!! sigma_1^(2p) sigma_2^(2p), exactly.",
    .n = 8,
    .d = 8,
    .trials = 4000,
    .chance = true,
    .check = check_entry,
    .tight = attain_entry,
    .violate = violate_entry};

extern const Claim poly_eq55 = {
    .name = "poly.eq55",
    .statement =
        "The gradient of the logits with respect to the weights Q has the mean square E |d(X Q K^T "
        "X^T)/dQ|_F^2 = d sigma_w^2 sigma_x^4 (N (N - 1) D (D - 1) + 3 N D).",
    .words = "= N D d 3 sigma_x^4 sigma_w^2 + N (N-1) D (D-1) d sigma_x^4 sigma_w^2 (55)",
    .source = "[POLY] (53) to (55)",
    .assumes =
        "entries of X (N x D) normal with variance sigma_x^2, of Q and K (D x d) with sigma_w^2, "
        "all independent",
    .hypotheses = {&normal_entries},
    .sharp =
        "d sigma_w^2 sigma_x^4 N D (N D + 2): the terms of one token and two entries, and of two "
        "tokens and one entry, are missing.",
    .n = 4,
    .d = 4,
    .heads = 2,
    .trials = 2000,
    .chance = true,
    .check = check_first_power,
    .tight = attain_first_power,
    .violate = violate_first_power};

extern const Claim poly_eq71 = {
    .name = "poly.eq71",
    .statement =
        "The gradient of the p-th power of the logits, entry by entry, with respect to the weights "
        "Q has the mean square E |d((X Q K^T X^T)^p)/dQ|_F^2 of about (2p - 3)!! d^p sigma_w^(4p - "
        "2) sigma_x^(4p) N^2 D^(2p).",
    .words = "approximately [...] (70) = N^2 D^2p d^p (2p-3)!! sigma_x^4p sigma_w^(4p-2) (71)",
    .source = "[POLY] (65) to (71)",
    .assumes =
        "entries of X (N x D) normal with variance sigma_x^2, of Q and K (D x d) with sigma_w^2, "
        "all independent",
    .hypotheses = {&normal_entries},
    .sharp =
        "p^2 (2p - 3)!! d ... (d + 2p - 2) sigma_w^(4p - 2) sigma_x^(4p) (N (N - 1) (D ... (D + 2p "
        "- 2))^2 + N D ... (D + 4p - 2)), the dots in steps of 2.  A factor p^2 is missing at "
        "every size.",
    .loose = "the mean square is more than p^2 times what is stated.",
    .n = 8,
    .d = 8,
    .trials = 2000,
    .chance = true,
    .check = check_higher_power,
    .violate = violate_higher_power};

}  // namespace tsdiag::claim
