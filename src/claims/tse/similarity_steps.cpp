#include <algorithm>
#include <cmath>
#include <numbers>

#include "expectation.hpp"
#include "similarity.hpp"
#include "tokens.hpp"

/// Effect of feed-forward steps and layer norms on token similarity.  [TSE] section 2.3
namespace tsdiag::claim {
namespace {

/// Rows around one common row, t_sim about strength^2/(strength^2 + 1); independent for 0.
Matrix similar_tokens(const Rng& rng, const Check& how, double strength) {
    const Matrix v = draw(rng, "v", 1, how.d, how.distribution);
    return strength * v.replicate(how.n, 1) + draw(rng, "X", how.n, how.d, how.distribution);
}

/// `step` of the first token in every row has t_sim = 1.  Undefined where that token is constant.
Bound invariant(std::string reading, std::string formula,
                std::function<Matrix(const Matrix&)> step) {
    Bound b = token_equation(std::move(reading), std::move(formula), nullptr);
    b.sides = [step = std::move(step)](const Variables& v) -> std::optional<BoundSides> {
        const Matrix row = v("X").row(0);
        if (row.maxCoeff() - row.minCoeff() < 1e-6) return {};
        const Matrix Y = step(row.replicate(v("X").rows(), 1));
        if (!(Y.squaredNorm() > 0)) return {};
        return BoundSides{t_sim(Y), 1, 1e-12};
    };
    return b;
}

// --- feed-forward step

/// Variances of the entries of W1, d x q, and of W2, q x d: torch.nn.Linear's, or those of --dist.
struct Weighting {
    Index d = 0, q = 0;
    double first = 0, second = 0;
};
Weighting weighting(Distribution distribution, Index d) {
    const Index q = 4 * d;
    return {d, q, weight_variance(distribution, d, q, 1 / (3 * double(d))),
            weight_variance(distribution, q, d, 1 / (3 * double(q)))};
}

/// relu(X W1 + on) W2
Matrix feed_forward(const Matrix& X, const Rng& rng, Distribution distribution, double on = 0) {
    const Weighting w = weighting(distribution, X.cols());
    const Matrix H = (X * draw(rng, "W1", w.d, w.q, distribution, w.first)).array() + on;
    return H.cwiseMax(0) * draw(rng, "W2", w.q, w.d, distribution, w.second);
}

/// E[relu(u) relu(v)] of centred normal u, v with the given second moments: the arc-cosine kernel.
double arc_cosine(double uu, double vv, double uv) {
    const double size = std::sqrt(uu * vv), rho = std::clamp(uv / size, -1.0, 1.0);
    return size * (std::sqrt(1 - rho * rho) + rho * (std::numbers::pi - std::acos(rho))) /
           (2 * std::numbers::pi);
}

/// E xi1/E xi2 of Y = X + F for wide layers: E[F F^T]_ij = d q s1^2 s2^2 k(x_i, x_j).
double wide_ratio(const Matrix& X, Distribution distribution) {
    const Weighting w = weighting(distribution, X.cols());
    const Matrix gram = w.first * (X * X.transpose());
    double all = 0, trace = 0;
    for (Index i = 0; i < X.rows(); ++i)
        for (Index j = 0; j < X.rows(); ++j) {
            const double k = arc_cosine(gram(i, i), gram(j, j), gram(i, j));
            all += double(w.d * w.q) * w.second * k;
            trace += i == j ? double(w.d * w.q) * w.second * k : 0;
        }
    const double n = double(X.rows());
    return (1 + all / n / mean_part(X).squaredNorm()) /
           (1 + (trace - all / n) / centred(X).squaredNorm());
}

Mean feed_forward_ratio(const Check& how, const Matrix& X, std::string reading, double on = 0) {
    return {.reading = std::move(reading),
            .formula = "E xi1/E xi2 = 1, to 5 %",
            .within = 0.05,
            .mutant = {.factor = 1.12, .why = "5 % are meant"},
            .claimed = 1,
            .ratio = [&how, &X, on](const Rng& rng) -> std::array<double, 2> {
                // The term linear in W2 has mean 0 and cancels in the mean of both signs.
                const Matrix F = feed_forward(X, rng, how.distribution, on);
                const Gains one = gains_of(X, X + F), other = gains_of(X, X - F);
                return {(one.xi1 + other.xi1) / 2, (one.xi2 + other.xi2) / 2};
            },
            .fixed = X.size() <= 64 ? std::vector{named("X", X)} : std::vector<NamedMatrix>{}};
}

/// W plus `along` times the image of the mean token: a control where it is not 0.
Mean product_odds(const Check& how, const Matrix& X, std::string reading, double along) {
    return {.reading = std::move(reading),
            .formula = "E|Pi1 X W|_F^2 / E|Pi2 X W|_F^2 = |Pi1 X|_F^2 / |Pi2 X|_F^2",
            .claimed = t_sim(X) / t_div(X),
            .ratio = [&how, &X, along](const Rng& rng) -> std::array<double, 2> {
                Matrix W = draw(rng, "W", how.d, how.d, how.distribution);
                if (along != 0) W += along * X.colwise().mean().transpose() * W.row(0);
                const Matrix Y = X * W;
                return {mean_part(Y).squaredNorm(), centred(Y).squaredNorm()};
            }};
}

/// E xi1/E xi2 by the arc-cosine kernel, with biases `on` that the kernel lacks.
Mean kernel_ratio(const Check& how, const Matrix& X, double on = 0) {
    Mean kernel = feed_forward_ratio(how, X, "arc-cosine kernel", on);
    kernel.formula = "E xi1/E xi2 as of wide layers, to 5 %";
    kernel.role = Role::sharper;
    kernel.claimed = wide_ratio(X, how.distribution);
    return kernel;
}

std::vector<Reading> check_feed_forward(const Check& how) {
    const Matrix diverse = similar_tokens(how.rng.fork("diverse"), how, 0);
    const Matrix similar = similar_tokens(how.rng.fork("similar"), how, 20);
    const Matrix both = similar_tokens(how.rng.fork("both"), how, 1);
    const Mean kernel = kernel_ratio(how, diverse);
    Mean independent = feed_forward_ratio(how, diverse, "independent tokens");
    independent.exact = kernel.claimed;
    Check more = how;  // a mean is cheap, and half a percent of it is required
    more.trials = 16 * how.trials;
    const auto step = [rng = how.rng.fork("weights"), &how](const Matrix& X) -> Matrix {
        return X + feed_forward(X, rng, how.distribution);
    };
    return {examine_bound(
                invariant("equal tokens", "t_sim(X + relu(X W1) W2) = 1 for X = 1 v^T", step), how),
            examine_mean(product_odds(more, both, "products with W", 0), more),
            examine_mean(feed_forward_ratio(how, similar, "tokens alike"), how),
            examine_mean(independent, how), examine_mean(kernel, how)};
}

/// Equal tokens stay equal.
Attained attain_feed_forward() {
    const Matrix X = Matrix{{1.0, -2, 0.5}}.replicate(4, 1);
    return {t_sim(X + feed_forward(X, Rng(0).fork("tight"), Distribution::gaussian)), 1, 1e-14};
}

std::vector<Reading> violate_feed_forward(const Check& how) {
    const Matrix diverse = similar_tokens(how.rng.fork("diverse"), how, 0);
    const Matrix both = similar_tokens(how.rng.fork("both"), how, 1);
    Reading on = examine_mean(feed_forward_ratio(how, diverse, "a large shared bias", 10), how);
    on.of = "tokens alike";
    Reading along = examine_mean(product_odds(how, both, "W along the mean token", 1), how);
    along.of = "products with W";
    Reading bias = examine_bound(invariant("a bias of one token", "t_sim = 1 for X = 1 v^T",
                                           [](const Matrix& X) -> Matrix {
                                               Matrix Y = X;
                                               Y.row(0).array() += 1;
                                               return Y;
                                           }),
                                 how);
    bias.of = "equal tokens";
    return {on, along, bias, control(kernel_ratio(how, diverse, 10), "a large shared bias", how)};
}

// --- layer norm

/// D X (I - 1 1^T/d); rows that are constant as 0.
Matrix layer_norm(const Matrix& x) {
    Matrix y = x.colwise() - x.rowwise().mean();
    for (Index i = 0; i < y.rows(); ++i) {
        const double deviation = y.row(i).norm() / std::sqrt(double(y.cols()));
        if (deviation > 1e-12 * x.row(i).norm())
            y.row(i) /= deviation;
        else
            y.row(i).setZero();
    }
    return y;
}

/// `shift`: the mean of the entries.
Mean norm_ratio(const Check& how, std::string reading, double shift) {
    return {.reading = std::move(reading),
            .formula = "E xi1/E xi2 = 1, to 5 %",
            .role = Role::interpretation,
            .within = 0.05,
            .mutant = {.factor = 1.12, .why = "5 % are meant"},
            .claimed = 1,
            .ratio = [&how, shift](const Rng& rng) -> std::array<double, 2> {
                const Matrix X = similar_tokens(rng, how, 0).array() + shift;
                const Gains g = gains_of(X, layer_norm(X));
                return {g.xi1, g.xi2};
            }};
}

Bound any_tokens() {
    return {.reading = "any tokens",
            .formula = "|t_sim(LN(X)) - t_sim(X)| <= 0.05",
            .role = Role::interpretation,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    return Variables{{"X", draw(rng, "X", at.n, at.d, distribution)}};
                },
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& X = v("X");
                const Matrix Y = layer_norm(X);
                if (!(Y.rowwise().norm().minCoeff() > 0)) return {};
                return BoundSides{std::abs(t_sim(Y) - t_sim(X)), 0.05};
            },
            .search = {{2, 2}, {3, 3}}};
}

std::vector<Reading> check_layer_norm(const Check& how) {
    return {
        examine_bound(invariant("equal tokens", "t_sim(LN(X)) = 1 for X = 1 v^T", layer_norm), how),
        examine_mean(norm_ratio(how, "independent entries", 0), how),
        examine_bound(any_tokens(), how)};
}

/// One token repeated, with entries that differ.
Attained attain_layer_norm() {
    return {t_sim(layer_norm(Matrix{{1.0, -2, 0.5}}.replicate(4, 1))), 1, 1e-14};
}

std::vector<Reading> violate_layer_norm(const Check& how) {
    Reading mean = examine_mean(norm_ratio(how, "entries of mean 1", 1), how);
    mean.of = "independent entries";
    Reading scale = examine_bound(invariant("a scale of one token", "t_sim = 1 for X = 1 v^T",
                                            [](const Matrix& X) -> Matrix {
                                                Matrix Y = layer_norm(X);
                                                Y.row(0) *= 2;
                                                return Y;
                                            }),
                                  how);
    scale.of = "equal tokens";
    return {mean, scale};
}

}  // namespace

extern const Claim tse_sec23_ffn = {
    .name = "tse.sec2.3-ffn",
    .statement =
        "Feed-forward steps X + relu(X W1) W2 do not impact token similarity: equal tokens stay "
        "equal, products with W keep the ratio of |Pi1 X|_F and |Pi2 X|_F, and xi1/xi2 is 1 on "
        "average.",
    .words =
        "in FFN, the right-multiplications of X by weight matrices do not change, in one way "
        "or another, the column space of X at all",
    .source = "[TSE] section 2.3, on feed-forward networks; Algorithm 1, step 3",
    .assumes =
        "no biases, as printed; entries of W1 and W2 independent, mean 0, of the variances "
        "that torch.nn.Linear has; hidden width 4 d; X fixed",
    .proof = "for equal tokens and for products; the paper measured xi1/xi2 near 1.",
    .sharp =
        "For wide layers E xi_i follows from the arc-cosine kernel: about 2 for independent "
        "tokens, falling to 1 as t_sim tends to 1, where the kernel has slope 1.",
    .n = 32,
    .d = 64,
    .trials = 200,
    .least_n = 2,
    .chance = true,
    .check = check_feed_forward,
    .tight = attain_feed_forward,
    .violate = violate_feed_forward};

extern const Claim tse_sec23_ln = {
    .name = "tse.sec2.3-ln",
    .statement =
        "Layer normalisation does not impact token similarity: equal tokens stay equal, "
        "and t_sim is unchanged for tokens of independent entries, or for any tokens.",
    .words =
        "if the elements of X are independently random with a fixed variance, then the "
        "corresponding D-matrix will also be close to a multiple of identity",
    .source = "[TSE] section 2.3, on layer normalisation",
    .assumes =
        "LN(X) = D X (I - 1 1^T/d), D the diagonal of inverse row deviations, none of which is 0",
    .proof = "for equal tokens: D is a multiple of I.",
    .sharp =
        "True for entries of mean 0 at large width, whose rows have equal norms and mean 0; in "
        "general LN removes the all-ones direction, and t_sim with it.",
    .n = 32,
    .d = 256,
    .trials = 400,
    .least_n = 2,
    .least_d = 2,
    .chance = true,
    .check = check_layer_norm,
    .tight = attain_layer_norm,
    .violate = violate_layer_norm};

}  // namespace tsdiag::claim
