#include "attention_parts.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

/// The first half of the columns comes from the token before; the first token's are 0.
Tensor shifted(const Tensor& x) {
    const Index n = x.rows(), half = (x.cols() + 1) / 2;
    const Tensor before = x.col_range(0, half).row_range(0, n - 1);
    const Tensor first = zeros(x.backend(), {x.batch(), 1, half}, x.type());
    return concat_cols(
        std::vector<Tensor>{concat_rows({first, before}), x.col_range(half, x.cols() - half)});
}

/// x - 2 v (v . x).
Tensor reflected(const Tensor& x, const Tensor& v) {
    return subtract(x, matmul(row_sum(multiply(x, v)), v, Transpose::none, 2));
}

class Parts {
  public:
    Parts(const BlockSpec& block, const LayerWeights& weights, const Batch& batch)
        : b_(block), w_(weights), batch_(batch) {
        if (b_.rotary.columns == 0) return;
        frequency_ =
            b_.rotary.learned ? w_.theta.to_host<double>() : b_.rotary.frequencies(batch.length);
    }

    AttentionParts projected(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        Projections& p = out.projections;
        p.q_raw = reflection(split_heads(linear(x, w_.q, w_.q_bias), b_.heads));     // (s h, n, w)
        p.k_raw = reflection(split_heads(linear(x, w_.k, w_.k_bias), b_.kv_heads));  // (s h', n, w)
        p.q = p.q_raw;
        p.k = p.k_raw;
        p.scale = b_.scale;
        if (b_.qk_norm) {
            p.q = head_norm(p.q, w_.q_norm, w_.q_norm_bias);
            p.k = head_norm(p.k, w_.k_norm, w_.k_norm_bias);
            p.q_norm = w_.q_norm;
            p.k_norm = w_.k_norm;
            p.norm_is_layer = b_.qk_norm_layer;
            p.norm_eps = b_.qk_eps;
        }
        p.position = batch_.position;
        p.frequency = frequency_;
        p.interleaved = b_.rotary.interleaved;
        out.input.q = p.q = rotated(p.q);
        out.input.k = p.k = rotated(p.k);
        out.v = split_heads(linear(x, w_.v, w_.v_bias), b_.kv_heads);
        return out;
    }

    AttentionParts gated(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        const Tensor z = map(Unary::silu, linear(x, w_.z, w_.z_bias));
        const auto offset = [&](Index row) {
            return rotated(add(multiply(z, w_.gamma.row_range(row, 1)), w_.beta.row_range(row, 1)));
        };
        const bool two_parts =
            w_.gamma.rows() == 4;  // quadratic q, linear q, quadratic k, linear k
        out.input.q = offset(0);
        out.input.k = offset(two_parts ? 2 : 1);
        if (two_parts) {
            out.input.q2 = offset(1);
            out.input.k2 = offset(3);
        }
        out.v = map(Unary::silu, linear(x, w_.v, w_.v_bias));
        out.gate = map(Unary::silu, linear(x, w_.attn_gate, w_.attn_gate_bias));
        return out;
    }

  private:
    /// phi, then the reflection of LRPE.
    Tensor reflection(Tensor x) const {
        if (b_.qk_activation) x = map(*b_.qk_activation, x);
        return b_.rotary.reflected ? reflected(x, w_.mirror) : x;
    }
    Tensor rotated(const Tensor& x) const {
        return frequency_.empty() ? x
                                  : rotate(x, batch_.position, frequency_, b_.rotary.interleaved);
    }
    Tensor head_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
        return b_.qk_norm_layer ? layer_norm(x, weight, bias, b_.qk_eps)
                                : rms_norm(x, weight, b_.qk_eps);
    }

    const BlockSpec& b_;
    const LayerWeights& w_;
    const Batch& batch_;
    std::vector<double> frequency_;
};

}  // namespace

AttentionParts attention_parts(const BlockSpec& b, const LayerWeights& w, const Batch& batch,
                               const Tensor& x) {
    if (b.gated_unit && x.rows() < batch.length)
        throw UsageError(fmt::format(
            "the mask hides {} of {} tokens, and a gated attention unit divides by the number of "
            "all tokens and takes columns from the token before, hidden or not; leave the mask "
            "out",
            batch.length - x.rows(), batch.length));
    const Parts parts(b, w, batch);
    const Tensor in = b.token_shift ? shifted(x) : x;
    AttentionParts out = b.gated_unit ? parts.gated(in) : parts.projected(in);
    AttentionInput& input = out.input;
    input.scale = b.scale;
    input.causal = b.causal;
    input.window = b.window;
    input.position = batch.position;
    input.samples = batch.x.batch();
    input.options = b.attention_options;
    input.parameter = w.own;
    return out;
}

}  // namespace tsdiag::model
