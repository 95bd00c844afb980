#include "class_attention.hpp"

#include <fmt/format.h>

#include <cmath>

#include "linear.hpp"
#include "norm.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

Tensor class_row(const Tensor& x) { return x.row_range(0, 1); }
Tensor other_rows(const Tensor& x) { return x.row_range(1, x.rows() - 1); }

Tensor scaled(const Tensor& x, const Tensor& scale) {
    return scale.defined() ? multiply(x, scale) : x;
}

/// The class token's row of softmax(q k^T / sqrt w) V, projected: (s, 1, d).
Tensor attended(const ClassSpec& c, const Weights& weights, const std::string& at,
                const Tensor& x) {
    const auto part = [&](const char* name, const Tensor& from) {
        return split_heads(load_linear(weights, at + "attn." + name)(from), c.heads);
    };
    const Tensor q = part("q", class_row(x)), k = part("k", x), v = part("v", x);
    const Tensor logits = matmul(q, k, Transpose::second, 1 / std::sqrt(double(q.cols())));
    const Tensor mixed = merge_heads(matmul(softmax_rows(logits, {}), v), x.batch());
    return load_linear(weights, at + "attn.o")(mixed);
}

Tensor applied(const ClassSpec& c, const Weights& weights, const std::string& at, Tensor x) {
    const auto norm = [&](const char* name, const Tensor& of) {
        return normed(NormKind::layer, of, load_norm(weights, at + name), c.eps);
    };
    const Tensor normed1 = norm("norm1", x);
    const Tensor branch = concat_rows({attended(c, weights, at, normed1), other_rows(normed1)});
    x = add(x, scaled(branch, get_or_empty(weights, at + "scale1")));
    x = c.all_normed ? norm("norm2", x) : concat_rows({norm("norm2", class_row(x)), other_rows(x)});
    const Tensor inner = map(c.activation, load_linear(weights, at + "ffn.up")(class_row(x)));
    const Tensor ffn =
        scaled(load_linear(weights, at + "ffn.down")(inner), get_or_empty(weights, at + "scale2"));
    return add(x, concat_rows({ffn, other_rows(x)}));
}

}  // namespace

Tensor class_attention(const ModelSpec& spec, const Weights& weights, const Tensor& x) {
    Tensor y = concat_rows({repeat_batches(weights.get("class.token"), x.batch()), x});
    for (Index l = 0; l < spec.class_attention.layers; ++l)
        y = applied(spec.class_attention, weights, fmt::format("class.{}.", l), std::move(y));
    return y;
}

}  // namespace tsdiag::model
