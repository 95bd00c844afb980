#include "class_attention.hpp"

#include <fmt/format.h>

#include <cmath>

#include "parameters.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

struct ClassWeights {
    Norm norm1, norm2;
    Linear q, k, v, o, up, down;
    Tensor scale1, scale2;
};

void declare_token(Index d, Tensor& token, Parameters& to) {
    to.matrix("class.token", token, 1, d);
}

void declare(const ClassSpec& c, Index d, Index layer, ClassWeights& w, Parameters& to) {
    const std::string at = fmt::format("class.{}.", layer);
    to.norm(at + "norm1", w.norm1, NormKind::layer, d);
    to.linear(at + "attn.q", w.q, d, d, c.qkv_bias);
    to.linear(at + "attn.k", w.k, d, d, c.qkv_bias);
    to.linear(at + "attn.v", w.v, d, d, c.qkv_bias);
    to.linear(at + "attn.o", w.o, d, d, true);
    if (c.layer_scale) to.vector(at + "scale1", w.scale1, d);
    to.norm(at + "norm2", w.norm2, NormKind::layer, d);
    to.linear(at + "ffn.up", w.up, c.ffn, d, true);
    to.linear(at + "ffn.down", w.down, d, c.ffn, true);
    if (c.layer_scale) to.vector(at + "scale2", w.scale2, d);
}

Tensor class_row(const Tensor& x) { return x.row_range(0, 1); }
Tensor other_rows(const Tensor& x) { return x.row_range(1, x.rows() - 1); }

Tensor scaled(const Tensor& x, const Tensor& scale) {
    return scale.defined() ? multiply(x, scale) : x;
}

/// The class token's row of softmax(q k^T / sqrt w) V, projected: (s, 1, d).
Tensor attended(const ClassSpec& c, const ClassWeights& w, const Tensor& x) {
    const Tensor q = split_heads(w.q(class_row(x)), c.heads), k = split_heads(w.k(x), c.heads),
                 v = split_heads(w.v(x), c.heads);
    const Tensor logits = matmul(q, k, Transpose::second, 1 / std::sqrt(double(q.cols())));
    return w.o(merge_heads(matmul(softmax_rows(logits, {}), v), x.batch()));
}

Tensor applied(const ClassSpec& c, const ClassWeights& w, Tensor x) {
    const auto norm = [&](const Norm& parameters, const Tensor& of) {
        return normed(NormKind::layer, of, parameters, c.eps);
    };
    const Tensor normed1 = norm(w.norm1, x);
    const Tensor branch = concat_rows({attended(c, w, normed1), other_rows(normed1)});
    x = add(x, scaled(branch, w.scale1));
    x = c.all_normed ? norm(w.norm2, x) : concat_rows({norm(w.norm2, class_row(x)), other_rows(x)});
    const Tensor ffn = scaled(w.down(map(c.activation, w.up(class_row(x)))), w.scale2);
    return add(x, concat_rows({ffn, other_rows(x)}));
}

}  // namespace

void declare_class_attention(const ModelSpec& spec, Parameters& to) {
    Tensor token;
    declare_token(spec.width, token, to);
    for (Index l = 0; l < spec.class_attention.layers; ++l) {
        ClassWeights weights;
        declare(spec.class_attention, spec.width, l, weights, to);
    }
}

double class_attention_flops(const ClassSpec& c, double d, double tokens) {
    return double(c.layers) * (4 * tokens * d * d + 4 * tokens * d + 4 * d * (d + double(c.ffn)));
}

Tensor class_attention(const ModelSpec& spec, const Weights& weights, const Tensor& x) {
    LoadedParameters loaded(weights, "");
    Tensor token;
    declare_token(spec.width, token, loaded);
    Tensor y = concat_rows({repeat_batches(token, x.batch()), x});
    for (Index l = 0; l < spec.class_attention.layers; ++l) {
        ClassWeights of_layer;
        declare(spec.class_attention, spec.width, l, of_layer, loaded);
        y = applied(spec.class_attention, of_layer, std::move(y));
    }
    return y;
}

}  // namespace tsdiag::model
