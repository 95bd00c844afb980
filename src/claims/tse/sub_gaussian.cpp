#include <algorithm>
#include <cmath>

#include "expectation.hpp"

/// Tails of linear and quadratic forms of sub-gaussian entries, on which the concentration of the
/// gains rests.  [TSE] Lemmas A.2, A.3, (27)
namespace tsdiag::claim {
namespace {

/// How the 2^q vectors w of entries -K and K are drawn: independent signs, or a shared one.
enum class Signs { independent, shared };

std::vector<Matrix> sign_vectors(Index q, double K, Signs signs) {
    std::vector<Matrix> all;
    for (int bits = 0; bits < 1 << (signs == Signs::shared ? 1 : q); ++bits) {
        Matrix w(q, 1);
        for (Index k = 0; k < q; ++k)
            w(k) = (bits >> (signs == Signs::shared ? 0 : k)) & 1 ? K : -K;
        all.push_back(w);
    }
    return all;
}

/// P(level >= eps) against bound(eps) where they are closest, eps in (0, most); the levels are
/// equally likely.
template <class BoundOf>
BoundSides closest_tail(std::vector<double> levels, double most, const BoundOf& bound) {
    std::sort(levels.rbegin(), levels.rend());
    BoundSides worst{0, 1};
    std::size_t count = 0;
    for (const double level : levels) {
        ++count;
        const double eps = std::min(level, most) * (1 - 1e-9);
        if (!(eps > 0)) break;
        const BoundSides next{double(count) / double(levels.size()), bound(eps)};
        if (tightness(next, Relation::at_most) > tightness(worst, Relation::at_most)) worst = next;
    }
    return worst;
}

/// B of 3 x 6 at most, a, and K <= 1.
Variables draw_forms(const Rng& rng, const Sizes& at, Distribution distribution) {
    const Index p = std::min<Index>(at.n, 3), q = std::min<Index>(at.d, 6);
    Rng stream = rng.fork("K");
    return {{"B", draw(rng, "B", p, q, distribution)},
            {"a", draw(rng, "a", p, 1, distribution)},
            {"K", Matrix::Constant(1, 1, 1 - 0.9 * stream.uniform())}};
}

using Levels = std::vector<double> (*)(const Variables&, const std::vector<Matrix>& w);

struct FormTail {
    const char* formula;
    Levels levels;
    double most;                            ///< of eps
    double (*bound)(double eps, double K);  ///< with its constant c
    double mutant;
    const char* why;
};

Bound tail_bound(std::string reading, const FormTail& tail, Signs signs = Signs::independent,
                 double largest = 1) {
    return {.reading = std::move(reading),
            .formula = tail.formula,
            .hypotheses = Hypotheses{},
            .conditions = {{"K lies in (0, 1]",
                            [largest](const Variables& v) {
                                const double K = v("K")(0);
                                return K > 0 ? K - largest : INFINITY;
                            }},
                           {"B is not 0",
                            [](const Variables& v) {
                                return v("B").squaredNorm() > 1e-12 ? 0 : INFINITY;
                            }}},
            .mutant = {.factor = tail.mutant, .why = tail.why},
            .draw =
                [largest](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v = draw_forms(rng, at, distribution);
                    if (largest == 1) return v;
                    Variables other;
                    for (const char* name : {"B", "a"}) other.set(name, v(name));
                    other.set("K", largest * v("K"));
                    return other;
                },
            .sides = [tail, signs](const Variables& v) -> std::optional<BoundSides> {
                const double K = v("K")(0);
                const auto w = sign_vectors(v("B").cols(), K, signs);
                return closest_tail(tail.levels(v, w), tail.most,
                                    [&](double eps) { return tail.bound(eps, K); });
            },
            .search = {{1, 1}, {1, 2}, {2, 2}}};
}

/// With the entries of --dist plus `shift`: how often a number reaches eps.
Mean drawn_tail(const Check& how, std::string formula, double claimed,
                std::function<double(const Matrix& w)> reached, const Matrix& shift) {
    return {.reading = "entries of --dist",
            .formula = std::move(formula),
            .relation = Relation::at_most,
            .hypotheses = Hypotheses{},
            .mutant = {.factor = 0.2, .why = "the constant is that of all eps and K"},
            .claimed = claimed,
            .sample =
                [&how, shift, reached = std::move(reached)](const Rng& rng) {
                    return reached(draw(rng, "w", how.d, 1, how.distribution) + shift);
                },
            .frequency = true};
}

/// The norm K of entries of variance 1: by Remark A.4 their deviation where they are normal, their
/// largest modulus where they are bounded.
double norm_of(Distribution distribution) {
    const bool flat =
        distribution != Distribution::gaussian && distribution != Distribution::rademacher;
    return flat ? std::sqrt(3.0) : 1;
}

std::vector<double> each(const std::vector<Matrix>& w,
                         const std::function<double(const Matrix&)>& level) {
    std::vector<double> all;
    for (const Matrix& one : w) all.push_back(level(one));
    return all;
}

// --- Lemma A.2

/// The first row of B is the vector of the lemma.
std::vector<double> linear_levels(const Variables& v, const std::vector<Matrix>& w) {
    const Matrix row = v("B").row(0);
    return each(
        w, [&](const Matrix& one) { return row.norm() > 0 ? 2 * (row * one)(0) / row.norm() : 0; });
}
double linear_tail(double eps, double K) { return std::exp(-eps * eps / (8 * K * K)); }
constexpr FormTail linear_form{
    "P(2<a, w> >= eps |a|) <= exp(-c eps^2/K^2), c = 1/8, a the first row of B",
    linear_levels,
    INFINITY,
    linear_tail,
    0.8,
    "nothing exceeds 0.83 of it"};

/// Entries whose means are `mean` K times those of a vector of norm 1 along a.
Mean drawn_linear(const Check& how, double mean = 0) {
    const double K = norm_of(how.distribution);
    const Matrix a = draw(how.rng.fork("a"), "a", 1, how.d, Distribution::gaussian);
    return drawn_tail(
        how, "the same at eps = 2 K", linear_tail(2 * K, K),
        [a, K](const Matrix& w) { return 2 * (a * w)(0) >= 2 * K * a.norm() ? 1.0 : 0.0; },
        mean * K * a.normalized().transpose());
}

std::vector<Reading> check_linear(const Check& how) {
    return {examine_bound(tail_bound("entries -K and K", linear_form), how),
            examine_mean(drawn_linear(how), how)};
}

std::vector<Reading> violate_linear(const Check& how) {
    Reading r =
        examine_bound(tail_bound("one sign for all entries", linear_form, Signs::shared), how);
    r.of = "entries -K and K";
    return {r, control(drawn_linear(how, 4), "entries of means along a", how)};
}

// --- Lemma A.3

std::vector<double> square_levels(const Variables& v, const std::vector<Matrix>& w) {
    const Matrix& B = v("B");
    return each(w,
                [&](const Matrix& one) { return (B * one).squaredNorm() / B.squaredNorm() - 1; });
}
double square_tail(double eps, double K) { return std::exp(-eps * eps / (2 * K * K)); }
constexpr FormTail square_form{
    "P(|B w|^2 - |B|_F^2 >= eps |B|_F^2) <= exp(-c eps^2/K^2), c = 1/2, eps < 1",
    square_levels,
    1,
    square_tail,
    0.8,
    "nothing exceeds 0.83 of it"};

/// As `drawn_linear`.
Mean drawn_square(const Check& how, double mean = 0) {
    const double K = norm_of(how.distribution);
    const Matrix b = draw(how.rng.fork("b"), "b", 1, how.d, Distribution::gaussian);
    return drawn_tail(
        how, "the same at eps = 1/2 and K = 1, B of one row", square_tail(0.5, 1),
        [b, K](const Matrix& w) {
            const double form = (b * w)(0) / K;
            return form * form >= 1.5 * b.squaredNorm() ? 1.0 : 0.0;
        },
        mean * K * b.normalized().transpose());
}

std::vector<Reading> check_square(const Check& how) {
    return {examine_bound(tail_bound("entries -K and K", square_form), how),
            examine_mean(drawn_square(how), how)};
}

std::vector<Reading> violate_square(const Check& how) {
    Reading r = examine_bound(tail_bound("K up to 2", square_form, Signs::independent, 2), how);
    r.of = "entries -K and K";
    return {r, control(drawn_square(how, 6), "entries of means along b", how)};
}

// --- (27)

std::vector<double> shifted_levels(const Variables& v, const std::vector<Matrix>& w) {
    const Matrix &B = v("B"), &a = v("a");
    const double K = v("K")(0), unit = B.squaredNorm() + (B.transpose() * a).norm();
    const double mean = K * K * B.squaredNorm() + a.squaredNorm();
    return each(w, [&](const Matrix& one) { return ((B * one + a).squaredNorm() - mean) / unit; });
}
double shifted_tail(double eps, double K) { return 2 * linear_tail(eps, K); }
constexpr FormTail shifted_form{
    "P(|B w + a|^2 - E|B w + a|^2 >= eps (|B|_F^2 + |B^T a|)) <= 2 exp(-c eps^2/K^2), c = 1/8, eps "
    "< 1",
    shifted_levels,
    1,
    shifted_tail,
    0.35,
    "nothing exceeds a half of it"};

/// B = 1, a = 0, K = 1 and w normal: P(w^2 - 1 >= eps) at eps = 4 + 1/c, for any c.
Bound every_eps() {
    return {
        .reading = "every eps >= 0, any c",
        .formula = "P(w^2 - 1 >= eps) <= 2 exp(-c eps^2), w normal, at eps = 4 + 1/c",
        .role = Role::interpretation,
        .hypotheses = Hypotheses{},
        .conditions = {{"c > 0", [](const Variables& v) { return v("c")(0) > 0 ? 0 : INFINITY; }}},
        .draw =
            [](const Rng& rng, const Sizes&, Distribution) {
                Rng stream = rng.fork("c");
                return Variables{
                    {"c", Matrix::Constant(1, 1, std::pow(10.0, -2 * stream.uniform()))}};
            },
        .sides = [](const Variables& v) -> std::optional<BoundSides> {
            const double c = v("c")(0), eps = 4 + 1 / c;
            return BoundSides{std::erfc(std::sqrt((1 + eps) / 2)), 2 * std::exp(-c * eps * eps)};
        }};
}

/// As `drawn_linear`, of entries of norm 1/8, for which the bound is less than 1, and a = 8 |B|.
Mean drawn_shifted(const Check& how, double mean = 0) {
    constexpr double eps = 0.4, norm = 0.125, far = 8;
    const double K = norm_of(how.distribution);
    const Matrix b = draw(how.rng.fork("b"), "b", 1, how.d, Distribution::gaussian);
    Mean drawn = drawn_tail(
        how, "the same at eps = 0.4 and K = 1/8, B of one row, a = 8 |B|", shifted_tail(eps, norm),
        [b, K](const Matrix& w) {
            const double size = b.norm(), form = norm / K * (b * w)(0) + far * size;
            const double expected = size * size * (far * far + norm * norm / (K * K));
            return form * form - expected >= eps * (1 + far) * size * size ? 1.0 : 0.0;
        },
        mean * K * b.normalized().transpose());
    drawn.role = Role::interpretation;
    drawn.mutant.factor = 0.03;
    return drawn;
}

std::vector<Reading> check_shifted(const Check& how) {
    Bound small = tail_bound("eps in (0, 1)", shifted_form);
    small.role = Role::interpretation;
    return {examine_bound(small, how), examine_mean(drawn_shifted(how), how),
            examine_bound(every_eps(), how)};
}

std::vector<Reading> violate_shifted(const Check& how) {
    Bound shared = tail_bound("one sign for all entries", shifted_form, Signs::shared);
    shared.search = {{1, 6}};
    Reading r = examine_bound(shared, how);
    r.of = "eps in (0, 1)";
    return {r, control(drawn_shifted(how, 6), "entries of means along b", how)};
}

}  // namespace

extern const Claim tse_lemmaA2 = {
    .name = "tse.lemmaA2",
    .statement =
        "Linear forms have sub-gaussian tails: P(2<a, w> >= eps |a|) <= exp(-c eps^2/K^2) "
        "for some absolute constant c; examined with c = 1/8.",
    .words = "Then for any a in R^q and eps >= 0 there holds (25)",
    .source = "[TSE] Lemma A.2, (25), Remark A.4",
    .assumes =
        "entries of w independent, mean 0, of norm K, which by Remark A.4 is the deviation "
        "of normal ones and the largest modulus of bounded ones; a not 0: at "
        "a = 0 both sides of the event are 0, which always happens, and (25) is false for eps > 0",
    .proof = "Hoeffding: E exp(t <a, w>) <= exp(t^2 K^2 |a|^2/2).",
    .loose = "One entry at eps = 2 K reaches 0.82 of exp(-eps^2/(8 K^2)); no larger c is possible.",
    .n = 1,
    .d = 6,
    .trials = 2000,
    .chance = true,
    .check = check_linear,
    .violate = violate_linear};

extern const Claim tse_lemmaA3 = {
    .name = "tse.lemmaA3",
    .statement =
        "Quadratic forms concentrate: P(|B w|^2 - |B|_F^2 >= eps |B|_F^2) <= exp(-c eps^2/K^2) for "
        "eps in (0, 1) and some absolute constant c; examined with c = 1/2.",
    .words =
        "sub-gaussian norm K <= 1. Then for any given B in R^(p x q) and any eps in (0,1) "
        "there holds (26)",
    .source = "[TSE] Lemma A.3, (26), Remark A.4",
    .assumes = "entries of w independent, mean 0, of norm K <= 1 as in Lemma A.2; B not 0",
    .loose = "Two entries of K = 1 at eps = 1 reach 0.82 of exp(-eps^2/2).",
    .n = 3,
    .d = 6,
    .trials = 2000,
    .chance = true,
    .check = check_square,
    .violate = violate_square};

extern const Claim tse_eq27 = {
    .name = "tse.eq27",
    .statement =
        "P(|B w + a|^2 - E|B w + a|^2 >= eps (|B|_F^2 + |B^T a|)) <= 2 exp(-c eps^2/K^2) "
        "for some absolute constant c; examined with c = 1/8, for eps in (0, 1) as in "
        "(26), and for every eps, since no range is printed.",
    .words =
        "Combining the above two results, we readily deduce that for some absolute constant c (27)",
    .source = "[TSE] (27)",
    .assumes = "as Lemma A.3",
    .sharp =
        "Beyond eps = 1 the tail falls like exp(-c eps), as that of chi-square does.  (26) "
        "subtracts |B|_F^2 and (27) the mean, which is smaller where K < 1: (27) is more than (25) "
        "and (26) combined.",
    .loose = "At eps = 0 the right side is 2.",
    .n = 3,
    .d = 6,
    .trials = 2000,
    .chance = true,
    .check = check_shifted,
    .violate = violate_shifted};

}  // namespace tsdiag::claim
