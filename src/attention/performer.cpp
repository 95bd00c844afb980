#include <algorithm>
#include <array>
#include <cmath>

#include "factored.hpp"
#include "features.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {

extern const AttentionEntry performer;

namespace {

constexpr std::array performer_options{
    or_word("auto",
            whole_option("features", "auto",
                         "m, the number of random features; auto: d ln d, d the width of a head", 1,
                         1e6)),
    word_option("kernel", "softmax", "softmax relu", "relu: phi(x) = relu(W x) + epsilon"),
    or_word("auto",
            real_option("epsilon", "auto",
                        "added to each feature; auto: 1e-4 (relu: 1e-3), as in the "
                        "released code; the text adds none. Max is that of all keys, so that a "
                        "causal model sees later tokens through it, by about epsilon",
                        0, 1)),
    real_option("floor", "0",
                "added to the sum of key features in each denominator; "
                "performer-pytorch has 1e-6 if causal",
                0, 1),
    whole_option(redraw_option, "1000",
                 "updates of a training after which W is drawn again, "
                 "0: never; 1000 in performer-pytorch"),
    seed_option("seed of W, which the heads of a layer share")};

/// W, (1, m, d), and the scale of the logits; x is multiplied by its root.
struct Projection {
    Tensor w;
    double scale, epsilon;
    Tensor apply(const Tensor& x) const {
        return matmul(x, w, Transpose::second, std::sqrt(scale));
    }
};

/// exp(u - |x|^2/2 - top) + epsilon over sqrt(m), u = W x, x scaled.
Tensor exponential(const Tensor& u, const Tensor& x, const Tensor& top, const Projection& f) {
    const Tensor half_square = affine(row_sum(map(Unary::square, x)), f.scale / 2);
    const double root = std::sqrt(double(u.cols()));
    return affine(map(Unary::exp, subtract(subtract(u, half_square), top)), 1 / root,
                  f.epsilon / root);
}

Tensor query_features(const Tensor& q, const Projection& f) {
    const Tensor u = f.apply(q);
    return exponential(u, q, row_max(u), f);
}

/// The subtracted maximum is over features and tokens: a factor of the head, which cancels.
Tensor key_features(const Tensor& k, const Projection& f) {
    const Tensor u = f.apply(k);
    return exponential(u, k, row_max(row_max(u).reshape({k.batch(), 1, k.rows()})), f);
}

Tensor relu_features(const Tensor& x, const Projection& f) {
    return affine(map(Unary::relu, f.apply(x)), 1, f.epsilon);
}

Index features_of(const Options& options, Index w) {
    const double d = double(w);
    return options.is("features", "auto") ? std::max<Index>(1, Index(d * std::log(d)))
                                          : options.count("features");
}

/// W q and W k, and the products of features.
AttentionCost cost_of_features(const AttentionOptions& given, const AttentionSizes& s) {
    const Index drawn = s.shape_of("projection_matrix").rows;
    const Index m = drawn > 0 ? drawn : features_of(Options(performer, given), s.head_dim);
    return {.flops =
                double(s.heads + s.kv_heads) * product_flops(s.tokens, s.head_dim, m) + s.pairs(m)};
}

Projection projection(const Options& options, const AttentionInput& in) {
    const Index w = in.q.cols();
    Tensor drawn = parameter(in, "projection_matrix");
    if (drawn.defined() && drawn.cols() != w)
        throw ShapeError("attention 'performer': the projection has " +
                         std::to_string(drawn.cols()) + " columns, expected " + std::to_string(w));
    if (!drawn.defined()) {
        const Index m = features_of(options, w);
        drawn = orthogonal_features(options.rng(in), m, w, in.q.backend(), in.q.type());
    }
    const double epsilon =
        options.number("epsilon").value_or(options.is("kernel", "relu") ? 1e-3 : 1e-4);
    return {drawn, in.scale, epsilon};
}

}  // namespace

const AttentionEntry performer = {
    .name = "performer",
    .description =
        "P = phi(Q) phi(K)^T / row sums, phi(x) = (exp(W x - |x|^2/2 - max) + epsilon) / "
        "sqrt(m), x times the root of the logits' scale, W orthogonal in groups of d rows",
    .source = "[PERFORMER]",
    .options = performer_options,
    .facts = {.row_stochastic = Holds::sometimes, .factors = Holds::always, .window = false},
    .cost = cost_of_features,
    .make = [](AttentionInput in) {
        const Options options(performer, in.options);
        admit(performer, in);
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
