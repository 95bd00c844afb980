#include <fmt/format.h>

#include <cmath>

#include "growth.hpp"
#include "polynomial.hpp"

/// Growth of polynomial attention and its gradient with the number of tokens.  [POLY] Thm 4.2, 4.4
namespace tsdiag::claim {
namespace {

using Norm = double (*)(const Logits&, int p);

/// The statement: the mean of |.|_F N^-divided is O(N^claimed).
struct Statement {
    std::string_view formula;
    Norm elementwise, matrix;
    double claimed, divided;
    bool outside = false;  ///< sqrt(d) divides the power, not the logits
};
constexpr Statement plain_norm{"E |S^p|_F = O(N)", elementwise_norm, matrix_norm, 1, 0};
constexpr Statement scaled_norm{"E |S^p / sqrt(N)|_F = O(sqrt(N))", elementwise_norm, matrix_norm,
                                0.5, 0.5};
constexpr Statement plain_gradient{"E |d((X Q K^T X^T)^p / sqrt(d))/dQ|_F = O(N)",
                                   elementwise_gradient_norm,
                                   matrix_gradient_norm,
                                   1,
                                   0,
                                   true};
constexpr Statement scaled_gradient{"E |d((X Q K^T X^T)^p / sqrt(d))/dQ / sqrt(N)|_F = O(sqrt(N))",
                                    elementwise_gradient_norm,
                                    matrix_gradient_norm,
                                    0.5,
                                    0.5,
                                    true};

double by_keys_elementwise(const Logits& s, int p) {
    return elementwise_gradient_norm(by_keys(s), p);
}
double by_keys_matrix(const Logits& s, int p) { return matrix_gradient_norm(by_keys(s), p); }
constexpr Statement key_gradient{"E |d((X Q K^T X^T)^p / sqrt(d))/dK|_F = O(N)",
                                 by_keys_elementwise,
                                 by_keys_matrix,
                                 1,
                                 0,
                                 true};

const std::vector<Index> token_counts{32, 48, 64, 96, 128, 192, 256};

/// One draw of the stated quantity.  S has sqrt(d) in each of p factors.
double value_of(const Logits& logits, const Statement& s, Norm measured, int p) {
    const double d = double(logits.A.cols()), N = double(logits.X.rows());
    return measured(logits, p) * std::pow(N, -s.divided) *
           (s.outside ? std::pow(d, (p - 1) / 2.0) : 1);
}

Growth growth_of(const Check& how, const Statement& s, Norm measured, int p,
                 std::string_view meaning) {
    return {.reading = fmt::format("{}, p = {}", meaning, p),
            .formula = std::string(s.formula),
            .role = Role::interpretation,
            .claimed = s.claimed,
            .sizes = token_counts,
            .sample = [&how, s, measured, p](Index N, const Rng& rng) {
                return value_of(draw_logits(how, N, rng), s, measured, p);
            }};
}

template <const Statement& s>
std::vector<Reading> check_growth(const Check& how) {
    std::vector<Reading> readings;
    for (const int p : {1, 2, 3})
        readings.push_back(examine_growth(growth_of(how, s, s.elementwise, p, "elementwise"), how));
    for (const int p : {2, 3})
        readings.push_back(examine_growth(growth_of(how, s, s.matrix, p, "matrix power"), how));
    return readings;
}

/// X with equal rows: every entry of the logits is equal, and so is its gradient by Q.
template <const Statement& s>
Attained attain_growth() {
    const Matrix x{{1.0, 2, -1, 0.5}};
    const auto at = [&](Index N) {
        const Matrix rows = x.replicate(N, 1);
        return value_of({rows, rows, rows}, s, s.elementwise, 2);
    };
    return {std::log(at(64) / at(16)) / std::log(4.0), s.claimed, 1e-12};
}

/// Entries of X that grow with N violate the common variance.
Reading with_growing_entries(const Check& how, const Statement& s, Norm measured, int p,
                             Growth broken) {
    broken.sample = [&how, s, measured, p](Index N, const Rng& rng) {
        Logits logits = draw_logits(how, N, rng);
        for (Matrix* factor : {&logits.X, &logits.A, &logits.B}) *factor *= std::sqrt(double(N));
        return value_of(logits, s, measured, p);
    };
    return control(broken, "entries of X of deviation sqrt(N)", how);
}

template <const Statement& s>
std::vector<Reading> violate_growth(const Check& how) {
    std::vector<Reading> controls;
    for (const int p : {1, 2, 3})
        controls.push_back(with_growing_entries(
            how, s, s.elementwise, p, growth_of(how, s, s.elementwise, p, "elementwise")));
    return controls;
}

/// Softmax attention at initialisation: weights of variance 1/D; entries of Q and X multiplied by
/// `scale(N)` together.
Growth softmax_growth(const Check& how, double (*scale)(Index N)) {
    return {.reading = "softmax, Q and K of variance 1/D",
            .formula = "E |softmax(S)|_F = Theta(1)",
            .role = Role::sharper,
            .relation = Relation::equal,
            .claimed = 0,
            .sizes = token_counts,
            .sample = [&how, scale](Index N, const Rng& rng) {
                const Logits s =
                    draw_logits(how, N, rng, {.tokens = 1, .weights = 1 / double(how.d)});
                return softmax(scale(N) * s.A * s.B.transpose()).norm();
            }};
}

constexpr Statement from_both_sides{"E |S^p / sqrt(N)|_F = Theta(sqrt(N))", elementwise_norm,
                                    matrix_norm, 0.5, 0.5};
constexpr Statement divided_by_N{"E |S^p / N|_F = Theta(1)", elementwise_norm, matrix_norm, 0, 1};

Growth theta(const Check& how, const Statement& s) {
    Growth growth =
        growth_of(how, s, elementwise_norm, 2,
                  s.divided == 1 ? "elementwise, divided by N" : "elementwise, from both sides");
    growth.role = Role::sharper;
    growth.relation = Relation::equal;
    return growth;
}

std::vector<Reading> check_scaled_norm(const Check& how) {
    std::vector<Reading> readings = check_growth<scaled_norm>(how);
    for (const Statement* s : {&from_both_sides, &divided_by_N})
        readings.push_back(examine_growth(theta(how, *s), how));
    readings.push_back(examine_growth(softmax_growth(how, [](Index) { return 1.0; }), how));
    return readings;
}

/// With logits that grow with N each row attends to one token in the limit.
std::vector<Reading> violate_scaled_norm(const Check& how) {
    std::vector<Reading> controls = violate_growth<scaled_norm>(how);
    for (const Statement* s : {&from_both_sides, &divided_by_N})
        controls.push_back(with_growing_entries(how, *s, elementwise_norm, 2, theta(how, *s)));
    controls.push_back(control(softmax_growth(how, [](Index N) { return double(N); }),
                               "logits that grow like N", how));
    return controls;
}

/// No norm is named: the spectral one is the smallest of those in use.
Growth spectral_growth(const Check& how) {
    Statement spectral = plain_gradient;
    spectral.formula = "E |d((X Q K^T X^T)^p / sqrt(d))/dQ|_2 = O(N)";
    Growth growth = growth_of(how, spectral, elementwise_gradient_spectral_norm, 2,
                              "elementwise, spectral norm");
    growth.mutant = {.factor = -0.5, .why = "it grows more slowly than what is stated"};
    return growth;
}

std::vector<Reading> check_gradient_growth(const Check& how) {
    std::vector<Reading> readings = check_growth<plain_gradient>(how);
    readings.push_back(examine_growth(spectral_growth(how), how));
    return readings;
}

std::vector<Reading> violate_gradient_growth(const Check& how) {
    std::vector<Reading> controls = violate_growth<plain_gradient>(how);
    controls.push_back(with_growing_entries(how, plain_gradient, elementwise_gradient_spectral_norm,
                                            2, spectral_growth(how)));
    return controls;
}

constexpr std::string_view assumptions =
    "S = X Q K^T X^T / sqrt(d); entries of X normal with variance sigma_x^2, of Q and K with "
    "sigma_t^2, all independent with mean 0; D and d fixed";
constexpr std::string_view gradient_assumptions =
    "entries of X normal with variance sigma_x^2, of Q and K with sigma_t^2, all independent with "
    "mean 0; D and d fixed; no norm is named, the Frobenius norm of the N^2 x D d matrix unless a "
    "reading says otherwise";

/// `claim` with what all of them have: the case that attains `s`, and the controls of its readings
/// unless it has more.
template <const Statement& s>
constexpr Claim claim_of(Claim claim) {
    claim.hypotheses = {&normal_entries};
    claim.d = 16;
    claim.heads = 2;
    claim.trials = 80;
    claim.chance = true;
    claim.tight = attain_growth<s>;
    if (!claim.violate) claim.violate = violate_growth<s>;
    return claim;
}

}  // namespace

extern const Claim poly_thm42 = claim_of<plain_norm>(
    {.name = "poly.thm4.2",
     .statement = "The p-th power of the logits grows at most linearly with the number of tokens: "
                  "E |(X Q K^T X^T / sqrt(d))^p|_F = O(N), in two readings: entry by entry, and as "
                  "a power of the matrix.",
     .words = "E|(X Q K^T X^T/sqrt(d))^p|_F <= O(N) (8)",
     .source = "[POLY] Thm 4.2, (8)",
     .assumes = assumptions,
     .sharp = "Entry by entry Theta(N) for every p; as a matrix power N^p.",
     .check = check_growth<plain_norm>});

extern const Claim poly_cor43 = claim_of<scaled_norm>(
    {.name = "poly.cor4.3",
     .statement =
         "Divided by sqrt(N), the p-th power of the logits grows as the bound of softmax attention "
         "does: E |(X Q K^T X^T / sqrt(d))^p / sqrt(N)|_F = O(sqrt(N)), in two readings: entry by "
         "entry, and as a power of the matrix.",
     .words = "By scaling such an activation by 1/sqrt(N) we can obtain a O(sqrt(N)) bound",
     .source = "[POLY] Cor. 4.3, (9)",
     .assumes = assumptions,
     .sharp =
         "Entry by entry Theta(sqrt(N)), while softmax attention of small logits has a norm of "
         "order 1: a power divided by N does not grow.",
     .check = check_scaled_norm,
     .violate = violate_scaled_norm});

extern const Claim poly_thm44 = claim_of<plain_gradient>(
    {.name = "poly.thm4.4",
     .statement =
         "The gradient of the p-th power of the logits with respect to the weights Q grows at most "
         "linearly with the number of tokens: E |d((X Q K^T X^T)^p / sqrt(d))/dQ| = O(N), in two "
         "readings: entry by entry, and as a power of the matrix.",
     .words = "E|d/dQ ((X Q K^T X^T)^p/sqrt(d))| <= O(N) (10)",
     .source = "[POLY] Thm 4.4, (10)",
     .assumes = gradient_assumptions,
     .sharp = "Entry by entry Theta(N) for every p; as a matrix power N^p.",
     .check = check_gradient_growth,
     .violate = violate_gradient_growth});

extern const Claim poly_cor45 = claim_of<scaled_gradient>(
    {.name = "poly.cor4.5",
     .statement =
         "Divided by sqrt(N), the gradient of the p-th power of the logits grows as the bound of "
         "softmax attention does: E |d((X Q K^T X^T)^p / sqrt(d))/dQ / sqrt(N)| = O(sqrt(N)), in "
         "two readings: entry by entry, and as a power of the matrix.",
     .words =
         "Assume the same condition as in theorem 4.4. Then E|1/sqrt(N) d/dQ (...)| <= O(sqrt(N)). "
         "(11)",
     .source = "[POLY] Cor. 4.5, (11)",
     .assumes = gradient_assumptions,
     .check = check_growth<scaled_gradient>});

extern const Claim poly_cor45_k = claim_of<key_gradient>(
    {.name = "poly.cor4.5-k",
     .statement =
         "An analogous estimate holds for derivatives with respect to the weights K: E |d((X Q K^T "
         "X^T)^p / sqrt(d))/dK| = O(N), in two readings: entry by entry, and as a power of the "
         "matrix.",
     .words = "An analogous estimate holds for derivatives with respect to the K matrix",
     .source = "[POLY] after Cor. 4.5",
     .assumes = gradient_assumptions,
     .sharp = "The logits of Q and K are those of K and Q transposed, so the norms have the same "
              "distribution: entry by entry Theta(N) for every p; as a matrix power N^p.",
     .check = check_growth<key_gradient>});

}  // namespace tsdiag::claim
