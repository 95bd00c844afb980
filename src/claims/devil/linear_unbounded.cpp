#include <cmath>

#include "derivatives.hpp"

/// Equal queries and keys with short features make the derivatives of linear attention exceed any
/// number; phi = elu + 1.  [DEVIL] Prop. 3.1, (23) to (27), (49), (50), (60)
namespace tsdiag::claim {
namespace {

double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }
double feature_inverse(double y) { return y > 1 ? y - 1 : std::log(y); }

/// s_j = <phi(q), phi(k_j)>, 1 x n.  q: 1 x d, k: n x d.
Matrix scores(const Matrix& q, const Matrix& k) {
    return q.unaryExpr(&feature) * k.unaryExpr(&feature).transpose();
}

/// q_i = k_j = phi^-1(x0) for all i and j, x0 = sqrt(length) u/|u|: every score is `length`.  (23)
Matrix construction(const Matrix& u, double length, Index n) {
    const Matrix x0 = u.cwiseAbs().normalized() * std::sqrt(length);
    const Matrix q = x0.unaryExpr(&feature_inverse);
    return scores(q, q.replicate(n, 1));
}
/// Relative rounding error of such a score: logarithms of features, and d products.
double score_rounding(const Matrix& u, double length) {
    const Matrix x0 = u.cwiseAbs().normalized() * std::sqrt(length);
    const double logarithm = x0.array().log().abs().maxCoeff();
    return (8 * (1 + logarithm) + double(u.cols())) * ulp;
}

bool nonzero(const Matrix& u) { return u.cwiseAbs().minCoeff() > 0; }

/// M from 1 to 10^12, the direction u of x0, the number of keys, values and g = dL/do.
Variables draw_construction(const Rng& rng, const Sizes& at, Distribution distribution) {
    Rng stream = rng.fork("M");
    return {{"M", Matrix{{std::pow(10.0, 12 * stream.uniform())}}},
            {"u", draw(rng, "u", 1, at.d, distribution)},
            {"V", draw(rng, "V", at.n, at.d, distribution)},
            {"g", draw(rng, "g", 1, at.d, distribution)}};
}

double keys(const Variables& v) { return double(v("V").rows()); }

/// Values to check by hand: M, and the queries and keys.
std::vector<NamedMatrix> shown_by(const Variables& v, double length) {
    const Matrix x0 = v("u").cwiseAbs().normalized() * std::sqrt(length);
    return {named("M", v("M")), named("q = k", x0.unaryExpr(&feature_inverse)),
            named("n", Matrix::Constant(1, 1, keys(v)))};
}

/// dp_j/ds_k, n x n, by a complex step, independent of (10).
Matrix derivative(const Matrix& s) { return complex_step(linear_weights.of, s); }
/// dL/ds, 1 x n, of L = <g, o>.
Matrix gradient(const Matrix& s, const Matrix& V, const Matrix& g) {
    const Eigen::VectorXcd along = (V * g.transpose()).cast<std::complex<double>>();
    return complex_step(
        [&](const ComplexRow& x) -> ComplexRow { return linear_weights.of(x) * along; }, s);
}

// --- Prop. 3.1

/// 1/(n^2 M), less a margin for rounding.
double short_enough(const Variables& v) { return 0.999 / (keys(v) * keys(v) * v("M")(0)); }

Bound unbounded_derivative() {
    return {.reading = "for every M",
            .formula = "for every M equal q_i and k_j have |dp_ij/ds_ik| > M for all j and k",
            .relation = Relation::at_least,
            .draw = draw_construction,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const double M = v("M")(0);
                if (!(M > 0 && nonzero(v("u")))) return {};
                const Matrix s = construction(v("u"), short_enough(v), v("V").rows());
                return BoundSides{derivative(s).cwiseAbs().minCoeff(), M};
            },
            .shown = [](const Variables& v) { return shown_by(v, short_enough(v)); }};
}

Bound by_the_sum() {
    return {.reading = "only as the sum vanishes",
            .formula = "|dp_ij/ds_ik| <= 1 / Delta_i",
            .role = Role::sharper,
            .draw = draw_scores,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& s = v("s");
                if (!(s.minCoeff() >= 0 && s.sum() > 0)) return {};
                return BoundSides{linear_derivative(s).cwiseAbs().maxCoeff(), 1 / s.sum()};
            },
            .search = {{2, 1}, {3, 1}}};
}

std::vector<Reading> check_unbounded_derivative(const Check& how) {
    return examine_bounds({unbounded_derivative(), by_the_sum()}, how);
}

/// n scores of c: (1 / c) (1 / n) (1 - 1 / n).
Attained attain_unbounded_derivative() {
    const double n = 4, c = 1e-6;
    const Matrix s = construction(Matrix{{1.0, 2}}, c, Index(n));
    return {derivative(s).cwiseAbs().maxCoeff(), (1 - 1 / n) / (n * c), 1e-13};
}

Reading alone(const Bound& bound, Check how) {
    how.n = 1;
    return control(bound, "a single key", how);
}

/// A single key has weight 1 whatever its score.
std::vector<Reading> violate_unbounded_derivative(const Check& how) {
    Bound signs = by_the_sum();
    signs.draw = draw_signed_scores;
    signs.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& s = v("s");
        if (s.sum() == 0) return {};
        return BoundSides{linear_derivative(s).cwiseAbs().maxCoeff(), 1 / std::abs(s.sum())};
    };
    return {alone(unbounded_derivative(), how), control(signs, "scores of both signs", how)};
}

// --- (27), (49), (50)

/// t_jk of (49).
Matrix printed_table(Index n) {
    const double part = 1 / double(n);
    return Matrix::Identity(n, n) * part - Matrix::Constant(n, n, part * part);
}

Bound printed_entries(std::string reading, Matrix (*table)(Index n)) {
    return {.reading = std::move(reading),
            .formula = "dp_ik/ds_ij = t_jk / (x0^T x0), t_jk = 1/n (1 - 1/n) or -1/n^2",
            .relation = Relation::equal,
            .accuracy = 0,
            .draw = draw_construction,
            .sides = [table](const Variables& v) -> std::optional<BoundSides> {
                if (!(v("M")(0) > 0 && nonzero(v("u")))) return {};
                const Index n = v("V").rows();
                const double length = 1 / v("M")(0);
                const Matrix s = construction(v("u"), length, n);
                const double off = 8 * (score_rounding(v("u"), length) + keys(v) * ulp);
                return worst_difference(derivative(s) * length, table(n),
                                        Matrix::Constant(n, n, off / keys(v)));
            },
            .shown = [](const Variables& v) { return shown_by(v, 1 / v("M")(0)); }};
}

/// |sum_k dL/dp_ik t_jk|, 1 x n, by differences of values.
Matrix weighted_values(const Variables& v) {
    return (linear_gradient(Matrix::Ones(1, v("V").rows()), v("V"), v("g"))).cwiseAbs();
}

/// x0^T x0 = length(eps), eps = 1/M.
Bound printed_gradient(double (*length)(double eps)) {
    return {.reading = "gradient, (50)",
            .formula = "|dL/ds_ij| >= |sum_k dL/dp_ik t_jk| / eps for x0^T x0 <= eps",
            .relation = Relation::at_least,
            .accuracy = 1e-9,  // attained; logarithms of the features are rounded
            .draw = draw_construction,
            .sides = [length](const Variables& v) -> std::optional<BoundSides> {
                const Matrix least = weighted_values(v);
                if (!(v("M")(0) > 0 && nonzero(v("u")) && least.maxCoeff() > 0)) return {};
                const Matrix s = construction(v("u"), length(1 / v("M")(0)), v("V").rows());
                Index worst = 0;
                least.row(0).maxCoeff(&worst);
                return BoundSides{std::abs(gradient(s, v("V"), v("g"))(worst)),
                                  v("M")(0) * least(worst)};
            }};
}

std::vector<Reading> check_table(const Check& how) {
    return {examine_bound(printed_entries("derivative", printed_table), how),
            examine_bound(printed_gradient([](double most) { return most; }), how)};
}

/// Two keys, x0^T x0 = 1/8: dp_1/ds_1 = 8/4.
Attained attain_table() {
    const Matrix s = construction(Matrix{{3.0, 4}}, 0.125, 2);
    return {derivative(s)(0, 0), 8 * printed_table(2)(0, 0), 1e-14};
}

/// The table of n + 1 keys, and features of twice the claimed length.
std::vector<Reading> violate_table(const Check& how) {
    const Bound table = printed_entries(
        "derivative", [](Index n) -> Matrix { return printed_table(n + 1).topLeftCorner(n, n); });
    return {control(table, "a key too many", how),
            control(printed_gradient([](double most) { return 2 * most; }),
                    "x0 longer than eps allows", how)};
}

// --- (60)

Bound unbounded_gradient() {
    return {.reading = "for every M",
            .formula = "for every M equal q_i and k_j have |dL/ds_ij| > M",
            .relation = Relation::at_least,
            .conditions = {{"values differ along dL/dO",
                            [](const Variables& v) {
                                return weighted_values(v).maxCoeff() > 0 ? 0 : INFINITY;
                            }}},
            .draw = draw_construction,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const double M = v("M")(0), most = weighted_values(v).maxCoeff();
                if (!(M > 0 && nonzero(v("u")))) return {};
                // where values do not differ along g no length helps: then 1/M
                const double length = most > 0 ? 0.999 * most / M : 1 / M;
                const Matrix s = construction(v("u"), length, v("V").rows());
                return BoundSides{gradient(s, v("V"), v("g")).cwiseAbs().maxCoeff(), M};
            }};
}

/// The construction from tokens: q_i = W_Q^T x_i is the same for all, so an injective W_Q implies
/// equal tokens, and one value.
Bound equal_tokens() {
    return {.reading = "equal tokens",
            .formula = "the same where q_i = x_i W_Q with an invertible W_Q: all values are equal",
            .role = Role::sharper,
            .relation = Relation::at_least,
            .draw = draw_construction,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const double M = v("M")(0);
                const Matrix first = v("V").row(0);
                const double along = (first * v("g").transpose())(0);
                if (!(M > 0 && nonzero(v("u")) && along != 0 && keys(v) > 1)) return {};
                const Matrix s = construction(v("u"), short_enough(v), v("V").rows());
                const Matrix V = first.replicate(v("V").rows(), 1);
                return BoundSides{linear_gradient(s, V, v("g")).cwiseAbs().maxCoeff(), M};
            },
            .shown =
                [](const Variables& v) {
                    std::vector<NamedMatrix> all = shown_by(v, short_enough(v));
                    all.push_back(named("v", v("V").row(0)));
                    all.push_back(named("g", v("g")));
                    return all;
                }};
}

/// Homogeneous of degree -degree.
Bound homogeneous(double degree) {
    return {.reading = "homogeneous",
            .formula = "c dL/dS(c S) = dL/dS(S) for c > 0",
            .role = Role::sharper,
            .relation = Relation::equal,
            .accuracy = 0,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v = draw_construction(rng, at, distribution);
                    v.set("s", draw(rng, "s", 1, at.n, distribution).cwiseAbs());
                    return v;
                },
            .sides = [degree](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& s = v("s");
                if (!(s.minCoeff() > 0)) return {};
                const double c = 1 / v("M")(0);
                // rounding error: sums of n and of d numbers, no larger than c1 c2 each
                const double terms = double(s.cols() + v("V").cols() + 8);
                const double off = 2 * terms * ulp * v("g").norm() * largest_row(v("V")) / s.sum();
                return worst_difference(
                    std::pow(c, degree) * linear_gradient(c * s, v("V"), v("g")),
                    linear_gradient(s, v("V"), v("g")), Matrix::Constant(1, s.cols(), off));
            }};
}

std::vector<Reading> check_unbounded_gradient(const Check& how) {
    return examine_bounds({unbounded_gradient(), homogeneous(1), equal_tokens()}, how);
}

/// Two scores of c, values 1 and -1: 1 / (2 c).
Attained attain_unbounded_gradient() {
    const double c = 1e-6;
    const Matrix s = construction(Matrix{{1.0}}, c, 2);
    return {gradient(s, Matrix{{1.0}, {-1}}, Matrix{{1.0}})(0), 1 / (2 * c), 1e-13};
}

std::vector<Reading> violate_unbounded_gradient(const Check& how) {
    Bound any = unbounded_gradient();
    any.conditions.clear();  // values of a single key do not differ
    return {alone(any, how), control(homogeneous(2), "degree -2", how)};
}

}  // namespace

extern const Claim devil_prop31 = {
    .name = "devil.prop3.1",
    .statement =
        "The derivative of linear attention with respect to its scores is unbounded: for every M > "
        "0 some q_i and k_j have |dp_ij/ds_ik| > M.",
    .words =
        "For all M > 0, there exists q_i, k_j in R^d, j = 1, ..., n, such that: |dp_ij/ds_ik| > M. "
        "(12)",
    .source = "[DEVIL] Prop. 3.1, (12), (23) to (27)",
    .assumes =
        "n >= 2; s_ij = <phi(q_i), phi(k_j)>, phi = elu + 1 reaches arbitrarily small vectors; "
        "q_i = k_j = phi^-1(x0) as in the proof, derivatives by a complex step",
    .proof = "n equal scores c have derivatives of at least 1/(n^2 c).",
    .sharp =
        "n equal scores of c give (1 / c) (1 / n) (1 - 1 / n); nothing exceeds 1 / Delta_i, so the "
        "sum of the scores, not one of them, must vanish.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_unbounded_derivative,
    .tight = attain_unbounded_derivative,
    .violate = violate_unbounded_derivative};

extern const Claim devil_eq49 = {
    .name = "devil.eq49",
    .statement =
        "If q_i = k_j = phi^-1(x0) for all i and j, dp_ik/ds_ij = t_jk / (x0^T x0) with t_jk = 1/n "
        "(1 - 1/n) for j = k and -1/n^2 otherwise, and |dL/ds_ij| >= |sum_k dL/dp_ik t_jk| / eps "
        "for x0^T x0 <= eps.",
    .words =
        "On the other hand, according to Appendix C, in linear attention, there exist q_i, k_j, "
        "such that: dp_ik/ds_ij = 1/|x0^T x0| t_ijk, (49)",
    .source = "[DEVIL] (27), (49), (50)",
    .assumes = "s_ij = <phi(q_i), phi(k_j)>, phi = elu + 1; values and dL/dO arbitrary",
    .proof = "(10) at n equal scores.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_table,
    .tight = attain_table,
    .violate = violate_table};

extern const Claim devil_eq60 = {
    .name = "devil.eq60",
    .statement =
        "The gradient with respect to the scores of linear attention is unbounded: for every M > 0 "
        "some q_i and k_j have |dL/ds_ij| > M.",
    .words =
        "Let eps -> 0+, then |dL/ds_ik| -> infinity. This means that the gradient in linear "
        "attention is unbounded",
    .source = "[DEVIL] (60)",
    .assumes =
        "n >= 2; values that are not all equal along dL/dO; phi = elu + 1; q_i = k_j as in "
        "Prop. 3.1",
    .proof = "the gradient is homogeneous of degree -1 in the scores of a row.",
    .sharp =
        "dL/dS(c S) = dL/dS(S) / c.  If q_i = x_i W_Q with an invertible W_Q, the equal queries of "
        "the proof are equal tokens, whose values are also equal: the gradient is 0.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_unbounded_gradient,
    .tight = attain_unbounded_gradient,
    .violate = violate_unbounded_gradient};

}  // namespace tsdiag::claim
