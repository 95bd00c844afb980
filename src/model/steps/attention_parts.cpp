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
        const bool whole = a_.qk_norm && a_.qk_norm_whole;
        if (whole) {
            p.q_raw = split_heads(head_norm(w_.q(x), w_.q_norm), a_.heads);       // (s h, n, w)
            p.k_raw = split_heads(head_norm(w_.k(all), w_.k_norm), a_.kv_heads);  // (s h', m+n, w)
            out.v = w_.v.heads(all, a_.kv_heads);
        } else if (memory.defined()) {
            p.q_raw = w_.q.heads(x, a_.heads);
            p.k_raw = w_.k.heads(all, a_.kv_heads);
            out.v = w_.v.heads(all, a_.kv_heads);
        } else {
            const std::vector<Tensor> each =
                linear_heads(x, std::vector<HeadsMap>{{w_.q.weight, w_.q.bias, a_.heads},
                                                      {w_.k.weight, w_.k.bias, a_.kv_heads},
                                                      {w_.v.weight, w_.v.bias, a_.kv_heads}});
            p.q_raw = each[0], p.k_raw = each[1], out.v = each[2];
        }
        p.q_raw = reflection(p.q_raw);
        p.k_raw = reflection(p.k_raw);
        p.q = p.q_raw;
        p.k = p.k_raw;
        p.scale = a_.scale;
        p.norm_of_all_heads = whole;
        if (a_.qk_norm && !whole) {
            p.q = head_norm(p.q, w_.q_norm);
            p.k = head_norm(p.k, w_.k_norm);
            p.q_norm = weight_of(w_.q_norm, p.q);
            p.k_norm = weight_of(w_.k_norm, p.k);
            p.norm_is_layer = a_.qk_norm_layer;
            p.norm_eps = a_.qk_eps;
        }
        p.position = batch_.position;
        p.frequency = frequency_;
        p.interleaved = a_.rotary.interleaved;
        p.magnitude = a_.rotary.magnitude;
        out.input.q = p.q = grown(rotated(p.q), p.growth);
        out.input.k = p.k = rotated(p.k);
        return out;
    }

    AttentionParts gated(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        const Tensor z = w_.z.mapped(x, Unary::silu);
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
        out.v = w_.v.mapped(x, Unary::silu);
        out.gate = w_.gate.mapped(x, Unary::silu);
        return out;
    }

    /// Of a LatentSpec; the columns that rotate come first.
    AttentionParts latent(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        const double eps = a_.latent.eps;
        const Index turning = a_.rotary.columns, still = a_.head_dim - turning;
        const Tensor low =
            a_.latent.query_rank > 0 ? rms_norm(w_.q_low(x), w_.q_low_norm.weight, eps) : x;
        const Tensor q = w_.q.heads(low, a_.heads);  // (s h, n, w)
        out.input.q = concat_cols(std::vector<Tensor>{
            rotated(contiguous(q.col_range(still, turning))), q.col_range(0, still)});
        const Tensor both = w_.kv_low(x);  // (s, n, rank + turning)
        const Tensor c =
            rms_norm(contiguous(both.col_range(0, a_.latent.rank)), w_.kv_low_norm.weight, eps);
        const Tensor shared = rotated(contiguous(both.col_range(a_.latent.rank, turning)));
        out.input.k = concat_cols(
            std::vector<Tensor>{repeat_batches(shared, a_.heads), w_.k.heads(c, a_.heads)});
        out.v = w_.v.heads(c, a_.heads);
        out.projections.q = out.input.q;
        out.projections.k = out.input.k;
        out.projections.scale = a_.scale;
        return out;
    }

    /// Q^T, K^T and V^T of each head, rows of Q^T of length t and rows of K^T of length 1.
    AttentionParts over_channels(const Tensor& x) const {
        AttentionParts out;
        out.x = x;
        Projections& p = out.projections;
        p.q_raw = transpose(w_.q.heads(x, a_.heads));     // (s h, w, n)
        p.k_raw = transpose(w_.k.heads(x, a_.kv_heads));  // (s h', w, n)
        const Tensor t = contiguous(w_.temperature).reshape({a_.heads, 1, 1});
        out.input.q = p.q = multiply(
            unit_rows(p.q_raw), concat_batches(std::vector<Tensor>(std::size_t(x.batch()), t)));
        out.input.k = p.k = unit_rows(p.k_raw);
        out.v = transpose(w_.v.heads(x, a_.kv_heads));
        p.scale = a_.scale;
        return out;
    }

  private:
    /// phi, then the reflection of LRPE.
    Tensor reflection(Tensor x) const {
        if (a_.qk_activation) x = map(*a_.qk_activation, x);
        return a_.rotary.reflected ? reflected(x, w_.mirror) : x;
    }
    Tensor rotated(const Tensor& x) const {
        if (frequency_.empty()) return x;
        Tensor turned = rotate(x, batch_.position, frequency_, a_.rotary.interleaved);
        if (a_.rotary.magnitude == 1) return turned;
        std::vector<double> length(std::size_t(x.cols()), 1.0);
        std::fill_n(length.begin(), 2 * frequency_.size(), a_.rotary.magnitude);
        return multiply(turned, Tensor::from_host(x.backend(), {1, 1, x.cols()},
                                                  std::span<const double>(length), x.type()));
    }
    /// The queries of `x` by their positions; `factors` receives what each is multiplied by.
    Tensor grown(const Tensor& x, std::vector<double>& factors) const {
        if (a_.growth.scale == 0) return x;
        for (auto at = batch_.position.end() - x.rows(); at != batch_.position.end(); ++at)
            factors.push_back(a_.growth.at(*at));
        return multiply(x, Tensor::from_host(x.backend(), {1, x.rows(), 1},
                                             std::span<const double>(factors), x.type()));
    }
    /// Of a norm without weights, ones.
    static Tensor weight_of(const Norm& norm, const Tensor& x) {
        if (norm.weight.defined()) return norm.weight;
        Tensor ones = Tensor::empty(x.backend(), {1, 1, x.cols()}, x.type());
        x.backend().fill(ones.view(), 1);
        return ones;
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
    AttentionParts out = a.gated_unit        ? parts.gated(in)
                         : a.channels        ? parts.over_channels(in)
                         : a.latent.rank > 0 ? parts.latent(in)
                                             : parts.projected(in, memory);
    AttentionInput& input = out.input;
    input.scale = a.scale;
    input.causal = a.causal;
    input.window = a.window;
    if (!a.channels) input.position = batch.position;
    input.samples = batch.x.batch();
    input.x = out.x;
    input.options = a.options;
    input.parameter = [own = w.own, q = w.q, k = w.k](std::string_view name) {
        if (const auto at = own.find(name); at != own.end()) return at->second();
        // Distances may have the layer's own maps [DEBERTA-V3].
        return name == "q.weight"   ? q.weight
               : name == "q.bias"   ? q.bias
               : name == "k.weight" ? k.weight
               : name == "k.bias"   ? k.bias
                                    : Tensor();
    };
    return out;
}

}  // namespace tsdiag::model
