#include <cmath>
#include <limits>

#include "derivatives.hpp"

/// Linear attention with phi = elu + 1 has gradients above any number M: for every draw of the keys
/// a query is made that exceeds it.  [DEVIL] Prop. 3.1, (60)
namespace tsdiag::claim {
namespace {

double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }
double feature_inverse(double y) { return y > 1 ? y - 1 : std::log(y); }

/// s_j = <phi(q), phi(k_j)>, 1 x n.  q: 1 x d, k: n x d.
Matrix scores(const Matrix& q, const Matrix& k) {
    return q.unaryExpr(&feature) * k.unaryExpr(&feature).transpose();
}

/// The query whose features are all c.
Matrix query(double c, Index d) { return Matrix::Constant(1, d, feature_inverse(c)); }

/// M from 1 to 10^12, keys, values and g = dL/do.
Variables draw_keys(const Rng& rng, const Sizes& at, Distribution distribution) {
    Rng stream = rng.fork("M");
    Variables v;
    v.set("M", Matrix{{std::pow(10.0, 12 * stream.uniform())}});
    v.set("k", draw(rng, "k", at.n, at.d, distribution));
    v.set("V", draw(rng, "V", at.n, at.d, distribution));
    v.set("g", draw(rng, "g", 1, at.d, distribution));
    return v;
}

using Quantity = Matrix (*)(const Matrix& s, const Variables& v);

Matrix derivative(const Matrix& s, const Variables&) { return linear_derivative(s); }
Matrix gradient(const Matrix& s, const Variables& v) { return linear_gradient(s, v("V"), v("g")); }
/// Both quantities are of degree -1 in the scores: the query is scaled to give 2 M.
Bound exceeds(std::string reading, std::string formula, Quantity quantity) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::at_least,
            .draw = draw_keys,
            .sides = [quantity](const Variables& v) -> std::optional<Sides> {
                const Matrix& k = v("k");
                const double M = v("M")(0);
                if (!(M > 0)) return {};
                const double at_one =
                    quantity(scores(query(1, k.cols()), k), v).cwiseAbs().maxCoeff();
                const double c = at_one > 0 ? at_one / (2 * M) : 1 / M;
                return Sides{quantity(scores(query(c, k.cols()), k), v).cwiseAbs().maxCoeff(), M};
            }};
}

Bound without_values(Bound bound) {
    bound.shown = [](const Variables& v) {
        return std::vector<NamedMatrix>{named("M", v("M")), named("k", v("k"))};
    };
    return bound;
}

Bound unbounded_derivative() {
    return without_values(
        exceeds("for every M", "for every M some q and k have |dp_ij/ds_ik| > M", derivative));
}

/// Any positive scores.
Variables draw_scores(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v;
    v.set("s", draw(rng, "s", 1, at.n, distribution).cwiseAbs());
    return v;
}

Bound by_the_sum() {
    return {.reading = "only as the sum vanishes",
            .formula = "|dp_ij/ds_ik| <= 1 / Delta_i",
            .role = Role::sharper,
            .draw = draw_scores,
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Matrix& s = v("s");
                if (!(s.minCoeff() >= 0 && s.sum() > 0)) return {};
                return Sides{linear_derivative(s).cwiseAbs().maxCoeff(), 1 / s.sum()};
            },
            .search = {{2, 1}, {3, 1}}};
}

std::vector<Reading> check_derivative(const Check& how) {
    return {examine_bound(unbounded_derivative(), how), examine_bound(by_the_sum(), how)};
}

/// n scores of eps: (1 / eps) (1 / n) (1 - 1 / n).
Attained attain_derivative() {
    const double n = 4, eps = 1e-6;
    const Matrix k = Matrix::Zero(Index(n), 2);
    const Matrix s = scores(query(eps / 2, 2), k);
    return {linear_derivative(s).cwiseAbs().maxCoeff(), (1 - 1 / n) / (n * eps), 1e-13};
}

Reading alone(Bound bound, Check how) {
    how.n = 1;
    bound.reading = "a single key";
    return examine_bound(bound, how);
}

/// One key has the weight 1 whatever its score.
Reading violate_derivative(const Check& how) { return alone(unbounded_derivative(), how); }

Bound unbounded_gradient() {
    return exceeds("for every M", "for every M some q and k have |dL/ds_ij| > M", gradient);
}

/// The same first key and value for all, as equal tokens have, and dp/ds scaled to 2 M.
Bound equal_tokens() {
    Bound bound =
        exceeds("equal tokens",
                "for every M some q, equal keys and equal values have |dL/ds_ij| > M", gradient);
    bound.role = Role::sharper;
    bound.draw = [](const Rng& rng, const Sizes& at, Distribution distribution) {
        const Variables all = draw_keys(rng, at, distribution);
        Variables v;
        v.set("M", all("M"));
        v.set("k", all("k").row(0));
        v.set("v", all("V").row(0));
        v.set("g", all("g"));
        v.set("n", Matrix::Constant(1, 1, double(at.n)));
        return v;
    };
    bound.sides = [](const Variables& v) -> std::optional<Sides> {
        const double M = v("M")(0);
        const auto n = Index(v("n")(0));
        if (!(M > 0 && n > 1 && std::abs(v("v").cwiseProduct(v("g")).sum()) > 0)) return {};
        const Matrix k = v("k").replicate(n, 1), V = v("v").replicate(n, 1);
        const double at_one = linear_derivative(scores(query(1, k.cols()), k)).maxCoeff();
        const Matrix s = scores(query(at_one / (2 * M), k.cols()), k);
        return Sides{linear_gradient(s, V, v("g")).cwiseAbs().maxCoeff(), M};
    };
    return bound;
}

Bound homogeneous() {
    return {.reading = "homogeneous",
            .formula = "|c dL/dS(c S) - dL/dS(S)| = 0 for c > 0",
            .role = Role::sharper,
            .accuracy = 0,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v = draw_keys(rng, at, distribution);
                    v.set("s", draw(rng, "s", 1, at.n, distribution).cwiseAbs());
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<Sides> {
                const Matrix& s = v("s");
                if (!(s.minCoeff() > 0)) return {};
                const double c = 1 / v("M")(0);
                const Matrix apart = c * gradient(c * s, v) - gradient(s, v);
                // what rounding explains: sums of n and of d numbers, no larger than c1 c2 each
                const double terms = double(s.cols() + v("V").cols() + 8);
                return Sides{apart.cwiseAbs().maxCoeff(),
                             2 * terms * std::numeric_limits<double>::epsilon() * v("g").norm() *
                                 largest_row(v("V")) / s.sum()};
            }};
}

std::vector<Reading> check_gradient(const Check& how) {
    return {examine_bound(unbounded_gradient(), how), examine_bound(homogeneous(), how),
            examine_bound(equal_tokens(), how)};
}

/// Two scores of eps, values 1 and -1: 1 / (2 eps).
Attained attain_gradient() {
    const double eps = 1e-6;
    const Matrix s = scores(query(eps, 1), Matrix::Zero(2, 1));
    return {linear_gradient(s, Matrix{{1.0}, {-1}}, Matrix{{1.0}})(0), 1 / (2 * eps), 1e-13};
}

Reading violate_gradient(const Check& how) { return alone(unbounded_gradient(), how); }

}  // namespace

extern const Claim devil_prop31 = {
    .name = "devil.prop3.1",
    .statement =
        "The derivative of linear attention by its scores is unbounded: for every M > 0 some q_i "
        "and k_j have |dp_ij/ds_ik| > M.",
    .source = "[DEVIL] Prop. 3.1, (12)",
    .assumes =
        "n >= 2; s_ij = <phi(q_i), phi(k_j)>, phi = elu + 1 reaches arbitrarily small vectors",
    .sharp =
        "n equal scores of eps give (1 / eps) (1 / n) (1 - 1 / n); nothing exceeds 1 / Delta_i, so "
        "that the sum of the scores, not one of them, must vanish.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_derivative,
    .tight = attain_derivative,
    .violate = violate_derivative};

extern const Claim devil_eq60 = {
    .name = "devil.eq60",
    .statement =
        "The gradient by the scores of linear attention is unbounded: for every M > 0 some q_i and "
        "k_j have |dL/ds_ij| > M.",
    .source = "[DEVIL] (60)",
    .assumes = "n >= 2; values that are not all equal; phi = elu + 1",
    .sharp =
        "dL/dS(c S) = dL/dS(S) / c.  Equal tokens, from which Prop. 3.1 is proved, give no "
        "gradient at all, as their values are equal too.",
    .n = 8,
    .d = 4,
    .least_n = 2,
    .check = check_gradient,
    .tight = attain_gradient,
    .violate = violate_gradient};

}  // namespace tsdiag::claim
