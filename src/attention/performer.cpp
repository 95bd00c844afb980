#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "factored.hpp"
#include "features.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array option_list{
    AttentionOption{.name = "features",
                    .fallback = "auto",
                    .words = "auto",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .most = 1e6,
                    .description = "m, how many are drawn; auto: d ln d of a head's width d"},
    AttentionOption{.name = "kernel",
                    .fallback = "softmax",
                    .words = "softmax relu",
                    .description = "relu: phi(x) = relu(W x) + epsilon"},
    AttentionOption{.name = "epsilon",
                    .fallback = "auto",
                    .words = "auto",
                    .numbers = true,
                    .most = 1,
                    .description = "added to each feature; auto: 1e-4 (relu: 1e-3), as in the "
                                   "released code; the text adds none"},
    AttentionOption{.name = "floor",
                    .fallback = "0",
                    .numbers = true,
                    .most = 1,
                    .description = "added to each sum of key features that a row is divided by; "
                                   "performer-pytorch has 1e-6 where it is causal"},
    AttentionOption{.name = "seed",
                    .fallback = "0",
                    .numbers = true,
                    .whole = true,
                    .description = "of W, which a layer's heads share"}};

using Row = std::span<const double>;

/// exp(u - |x|^2/2 - top) + epsilon over sqrt(m), u = W x, x scaled; top: of the row, or given.
void exponential(Row u, double half_square, const double* top, double epsilon,
                 std::span<double> out) {
    const double most = top ? *top : *std::ranges::max_element(u);
    const double root = std::sqrt(double(u.size()));
    for (std::size_t c = 0; c < u.size(); ++c)
        out[c] = (std::exp(u[c] - half_square - most) + epsilon) / root;
}

double half_square(Row x, double scale) {
    double s = 0;
    for (double e : x) s += e * e;
    return s * scale / 2;
}

double dot(Row a, Row b) {
    double s = 0;
    for (std::size_t c = 0; c < a.size(); ++c) s += a[c] * b[c];
    return s;
}

/// W x sqrt(scale) of each row, in double.
struct Projection {
    std::vector<double> w;
    Index m;
    double scale, epsilon;
    void apply(Row x, std::span<double> u) const {
        const double root = std::sqrt(scale);
        for (std::size_t c = 0; c < u.size(); ++c)
            u[c] = root * dot(x, Row(w).subspan(c * x.size(), x.size()));
    }
};

Tensor query_features(const Tensor& q, const Projection& f) {
    return map_rows(q, f.m, [&](Index, Index, Row in, std::span<double> out) {
        f.apply(in, out);
        exponential(out, half_square(in, f.scale), nullptr, f.epsilon, out);
    });
}

/// The subtracted maximum is that over features and tokens: a factor of the head, which cancels.
Tensor key_features(const Tensor& k, const Projection& f) {
    std::vector<double> top;
    for (Index b = 0; b < k.batch(); ++b) {
        const std::vector<double> rows =
            map_rows(k.batch_range(b, 1), 1, [&](Index, Index, Row in, std::span<double> out) {
                std::vector<double> u(static_cast<std::size_t>(f.m));
                f.apply(in, u);
                out[0] = *std::ranges::max_element(u);
            }).to_host<double>();
        top.push_back(*std::ranges::max_element(rows));
    }
    return map_rows(k, f.m, [&](Index b, Index, Row in, std::span<double> out) {
        f.apply(in, out);
        exponential(out, half_square(in, f.scale), &top[static_cast<std::size_t>(b)], f.epsilon,
                    out);
    });
}

Tensor relu_features(const Tensor& x, const Projection& f) {
    return map_rows(x, f.m, [&](Index, Index, Row in, std::span<double> out) {
        f.apply(in, out);
        for (double& e : out) e = std::max(0.0, e) + f.epsilon;
    });
}

Projection projection(const Options& options, const AttentionInput& in) {
    const Index w = in.q.cols();
    Tensor drawn = parameter(in, "projection_matrix");
    if (drawn.defined() && drawn.cols() != w)
        throw ShapeError("attention 'performer': the projection has " +
                         std::to_string(drawn.cols()) + " columns, expected " + std::to_string(w));
    if (!drawn.defined()) {
        const double d = double(w);
        const Index m = options.is("features", "auto") ? std::max<Index>(1, Index(d * std::log(d)))
                                                       : options.count("features");
        drawn = orthogonal_features(options.rng(in), m, w, cpu(), Type::f64);
    }
    const double epsilon =
        options.number("epsilon").value_or(options.is("kernel", "relu") ? 1e-3 : 1e-4);
    return {drawn.to_host<double>(), drawn.rows(), in.scale, epsilon};
}

}  // namespace

extern const AttentionEntry performer;
const AttentionEntry performer = {
    .name = "performer",
    .description =
        "P = phi(Q) phi(K)^T / row sums, phi(x) = (exp(W x - |x|^2/2 - max) + epsilon) / "
        "sqrt(m), x times the root of the logits' scale, W orthogonal in groups of d rows",
    .source = "[PERFORMER]",
    .options = option_list,
    .facts = {.row_stochastic = Holds::sometimes, .factors = Holds::always, .window = false},
    .make = [](AttentionInput in) {
        const Options options(performer, in.options);
        require_fit(in);
        refuse_window(performer, in);
        refuse_bias(performer, in);
        if (!(in.scale > 0))
            throw UsageError("attention 'performer': the scale of the logits is not positive");
        const Projection f = projection(options, in);
        const bool relu = options.is("kernel", "relu");
        return factored_attention(
            performer, relu ? relu_features(in.q, f) : query_features(in.q, f),
            relu ? relu_features(in.k, f) : key_features(in.k, f), in.causal,
            {.divide = true, .floor = options.number("floor").value_or(0), .nonnegative = true});
    }};

}  // namespace tsdiag::variants
