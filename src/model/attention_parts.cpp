#include "attention_parts.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

/// The first half of the columns is that of the previous token; 0 for the first token.
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
    Parts(const AttentionSpec& spec, const AttentionWeights& weights, const Batch& batch)
        : a_(spec), w_(weights), batch_(batch) {
        if (a_.rotary.columns == 0) return;
        frequency_ =
            a_.rotary.learned ? w_.theta.to_host<double>() : a_.rotary.frequencies(batch.length);
    }

    AttentionParts projected(const Tensor& x, const Tensor& memory) const {
        AttentionParts out;
        out.x = x;
        const Tensor all = memory.defined() ? concat_rows({memory, x}) : x;
        Projections& p = out.projections;
        p.q_raw = reflection(split_heads(w_.q(x), a_.heads));       // (s h, n, w)
        p.k_raw = reflection(split_heads(w_.k(all), a_.kv_heads));  // (s h', m + n, w)
        p.q = p.q_raw;
        p.k = p.k_raw;
        p.scale = a_.scale;
        if (a_.qk_norm) {
            p.q = head_norm(p.q, w_.q_norm);
            p.k = head_norm(p.k, w_.k_norm);
            p.q_norm = w_.q_norm.weight;
            p.k_norm = w_.k_norm.weight;
            p.norm_is_layer = a_.qk_norm_layer;
            p.norm_eps = a_.qk_eps;
        }
        p.position = batch_.position;
        p.frequency = frequency_;
        p.interleaved = a_.rotary.interleaved;
        out.input.q = p.q = rotated(p.q);
        out.input.k = p.k = rotated(p.k);
        out.v = split_heads(w_.v(all), a_.kv_heads);
        return out;
    }

    AttentionParts gated(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        const Tensor z = map(Unary::silu, w_.z(x));
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
        out.v = map(Unary::silu, w_.v(x));
        out.gate = map(Unary::silu, w_.gate(x));
        return out;
    }

    /// Q^T, K^T and V^T of each head, rows of Q^T of length t and rows of K^T of length 1.
    AttentionParts over_channels(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        Projections& p = out.projections;
        p.q_raw = transpose(split_heads(w_.q(x), a_.heads));     // (s h, w, n)
        p.k_raw = transpose(split_heads(w_.k(x), a_.kv_heads));  // (s h', w, n)
        const Tensor t = contiguous(w_.own("temperature")).reshape({a_.heads, 1, 1});
        out.input.q = p.q = multiply(
            unit_rows(p.q_raw), concat_batches(std::vector<Tensor>(std::size_t(x.batch()), t)));
        out.input.k = p.k = unit_rows(p.k_raw);
        out.v = transpose(split_heads(w_.v(x), a_.kv_heads));
        p.scale = a_.scale;
        return out;
    }

  private:
    /// x / max(|x|, 1e-12) of each row.
    static Tensor unit_rows(const Tensor& x) {
        constexpr double least = 1e-24;
        const Tensor floor =
            Tensor::from_host(x.backend(), {1, 1, 1}, std::span<const double>(&least, 1), x.type());
        const Tensor squares = zip(Binary::maximum, row_sum(multiply(x, x)), floor);
        return divide(x, map(Unary::sqrt, squares));
    }
    /// phi, then the reflection of LRPE.
    Tensor reflection(Tensor x) const {
        if (a_.qk_activation) x = map(*a_.qk_activation, x);
        return a_.rotary.reflected ? reflected(x, w_.mirror) : x;
    }
    Tensor rotated(const Tensor& x) const {
        return frequency_.empty() ? x
                                  : rotate(x, batch_.position, frequency_, a_.rotary.interleaved);
    }
    Tensor head_norm(const Tensor& x, const Norm& norm) const {
        return a_.qk_norm_layer ? layer_norm(x, norm.weight, norm.bias, a_.qk_eps)
                                : rms_norm(x, norm.weight, a_.qk_eps);
    }

    const AttentionSpec& a_;
    const AttentionWeights& w_;
    const Batch& batch_;
    std::vector<double> frequency_;
};

}  // namespace

AttentionParts attention_parts(const AttentionSpec& a, const AttentionWeights& w,
                               const Batch& batch, const Tensor& x, const Tensor& memory) {
    if (a.gated_unit && x.rows() < batch.length)
        throw UsageError(
            fmt::format("the mask hides {} of {} tokens, but a gated attention unit also uses "
                        "hidden tokens; omit the mask",
                        batch.length - x.rows(), batch.length));
    const Parts parts(a, w, batch);
    const Tensor in = a.token_shift ? shifted(x) : x;
    AttentionParts out = a.gated_unit ? parts.gated(in)
                         : a.channels ? parts.over_channels(in)
                                      : parts.projected(in, memory);
    AttentionInput& input = out.input;
    input.scale = a.scale;
    input.causal = a.causal;
    input.window = a.window;
    if (!a.channels) input.position = batch.position;
    input.samples = batch.x.batch();
    input.options = a.options;
    input.parameter = w.own;
    return out;
}

}  // namespace tsdiag::model
