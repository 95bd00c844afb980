#include <algorithm>
#include <cmath>
#include <numbers>

#include "expectation.hpp"
#include "similarity.hpp"

/// What feed-forward steps and layer norms do to token similarity.  [TSE] section 2.3
namespace tsdiag::claim {
namespace {

/// Rows around one common row: t_sim = strength^2/(strength^2 + 1), about.
Matrix alike(const Rng& rng, const Check& how, double strength) {
    const Matrix v = draw(rng, "v", 1, how.d, how.distribution);
    return strength * v.replicate(how.n, 1) + draw(rng, "X", how.n, how.d, how.distribution);
}

// --- feed-forward step

/// X + relu(X W1 + b1) W2 + b2 as torch.nn.Linear draws it, the hidden width 4 d.
Matrix feed_forward(const Matrix& X, const Rng& rng) {
    const Index d = X.cols(), q = 4 * d;
    const auto draw_part = [&](const char* name, Index rows, Index cols, Index fan_in) {
        return draw(rng, name, rows, cols, Distribution::uniform, 1 / (3 * double(fan_in)));
    };
    Matrix H = X * draw_part("W1", d, q, d);
    H.rowwise() += draw_part("b1", 1, q, d).row(0);
    Matrix Y = X + H.cwiseMax(0) * draw_part("W2", q, d, q);
    Y.rowwise() += draw_part("b2", 1, d, q).row(0);
    return Y;
}

/// E[relu(u) relu(v)] of centred normal u, v with the given second moments: the arc-cosine kernel.
double arc_cosine(double uu, double vv, double uv) {
    const double size = std::sqrt(uu * vv), rho = std::clamp(uv / size, -1.0, 1.0);
    return size * (std::sqrt(1 - rho * rho) + rho * (std::numbers::pi - std::acos(rho))) /
           (2 * std::numbers::pi);
}

/// E xi1/E xi2 of the feed-forward step for wide layers: E[F F^T]_ij = d k_ij/3 + d/(3 q).
double wide_ratio(const Matrix& X) {
    const double d = double(X.cols()), q = 4 * d, n = double(X.rows());
    const Matrix gram = (X * X.transpose()).array() / (3 * d) + 1 / (3 * d);
    double all = 0, trace = 0;
    for (Index i = 0; i < X.rows(); ++i)
        for (Index j = 0; j < X.rows(); ++j) {
            const double f = d / 3 * arc_cosine(gram(i, i), gram(j, j), gram(i, j)) + d / (3 * q);
            all += f;
            trace += i == j ? f : 0;
        }
    const double similar = mean_part(X).squaredNorm(), diverse = centred(X).squaredNorm();
    return (1 + all / n / similar) / (1 + (trace - all / n) / diverse);
}

Mean feed_forward_ratio(const Matrix& X, std::string reading) {
    return {.reading = std::move(reading),
            .formula = "E xi1/E xi2 = 1, to 5 %",
            .within = 0.05,
            .claimed = 1,
            .exact = wide_ratio(X),
            .ratio = [&X](const Rng& rng) -> std::array<double, 2> {
                const Gains g = gains_of(X, feed_forward(X, rng));
                return {g.xi1, g.xi2};
            },
            .fixed = X.size() <= 64 ? std::vector{named("X", X)} : std::vector<NamedMatrix>{}};
}

std::vector<Reading> check_feed_forward(const Check& how) {
    const Matrix diverse = alike(how.rng.fork("diverse"), how, 0);
    const Matrix similar = alike(how.rng.fork("similar"), how, 20);
    Mean kernel = feed_forward_ratio(diverse, "arc-cosine kernel");
    kernel.formula = "E xi1/E xi2 as of wide layers, to 5 %";
    kernel.role = Role::sharper;
    kernel.claimed = wide_ratio(diverse);
    return {examine_mean(feed_forward_ratio(diverse, "independent tokens"), how),
            examine_mean(feed_forward_ratio(similar, "tokens alike"), how),
            examine_mean(kernel, how)};
}

/// One token repeated stays one token repeated.
Attained attain_feed_forward() {
    const Matrix X = Matrix{{1.0, -2, 0.5}}.replicate(4, 1);
    return {t_sim(feed_forward(X, Rng(0).fork("tight"))), 1, 1e-14};
}

/// Hidden units that are always on add one and the same row to every token.
std::vector<Reading> violate_feed_forward(const Check& how) {
    const Matrix X = alike(how.rng.fork("diverse"), how, 0);
    Mean broken = feed_forward_ratio(X, "a large shared bias");
    broken.exact.reset();
    broken.ratio = [&X](const Rng& rng) -> std::array<double, 2> {
        Matrix Y = feed_forward(X, rng);
        Y.array() += 1;
        const Gains g = gains_of(X, Y);
        return {g.xi1, g.xi2};
    };
    return {examine_mean(broken, how)};
}

// --- layer norm

Matrix layer_norm(const Matrix& x) {
    constexpr double epsilon = 1e-5;
    Matrix y = x.colwise() - x.rowwise().mean();
    for (Index i = 0; i < y.rows(); ++i)
        y.row(i) /= std::sqrt(y.row(i).squaredNorm() / double(y.cols()) + epsilon);
    return y;
}

Mean norm_ratio(const Check& how) {
    return {.reading = "random tokens",
            .formula = "E xi1/E xi2 = 1, to 5 %",
            .within = 0.05,
            .claimed = 1,
            .ratio = [&how](const Rng& rng) -> std::array<double, 2> {
                const Matrix X = alike(rng, how, 1);
                const Gains g = gains_of(X, layer_norm(X));
                return {g.xi1, g.xi2};
            }};
}

Bound any_tokens(std::string reading, bool with_norm) {
    return {.reading = std::move(reading),
            .formula = "|t_sim(LN(X)) - t_sim(X)| <= 0.05",
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v;
                    v.set("X", draw(rng, "X", at.n, at.d, distribution));
                    return v;
                },
            .sides = [with_norm](const Variables& v) -> std::optional<Sides> {
                const Matrix& X = v("X");
                const Matrix Y = with_norm ? layer_norm(X) : Matrix(X.rowwise().normalized());
                if (X.squaredNorm() == 0 || !(Y.squaredNorm() > 1e-3)) return {};
                return Sides{std::abs(t_sim(Y) - t_sim(X)), 0.05};
            },
            .search = {{2, 2}, {3, 3}}};
}

std::vector<Reading> check_norm(const Check& how) {
    return {examine_mean(norm_ratio(how), how), examine_bound(any_tokens("any tokens", true), how)};
}

/// One token repeated, with entries that differ.
Attained attain_norm() {
    return {t_sim(layer_norm(Matrix{{1.0, -2, 0.5}}.replicate(4, 1))), 1, 1e-14};
}

/// Rows of very different length.
std::vector<Reading> violate_norm(const Check& how) {
    return {examine_bound(any_tokens("rows scaled to length 1", false), how)};
}

}  // namespace

extern const Claim tse_sec23_ffn = {
    .name = "tse.sec2.3-ffn",
    .statement =
        "Feed-forward steps do not impact token similarity: xi1/xi2 of X + relu(X W1 + "
        "b1) W2 + b2 is 1 on average.",
    .source = "[TSE] section 2.3, on feed-forward networks",
    .assumes = "weights and biases as torch.nn.Linear draws them, hidden width 4 d",
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
    .statement = "Layer normalisation does not impact token similarity.",
    .source = "[TSE] section 2.3, on layer normalisation",
    .assumes = "eps = 1e-5, no weight, no bias",
    .sharp =
        "True of random tokens of large width, whose rows have equal norms and no mean; in "
        "general LN removes the direction of all ones, and t_sim with it.",
    .n = 32,
    .d = 256,
    .trials = 400,
    .least_n = 2,
    .least_d = 2,
    .chance = true,
    .check = check_norm,
    .tight = attain_norm,
    .violate = violate_norm};

}  // namespace tsdiag::claim
