#include <fmt/format.h>

#include "tsdiag/model.hpp"

/// What parameters a spec implies, and what its products cost.
namespace tsdiag {
namespace {

class Listing {
  public:
    void tensor(std::string name, Index rows, Index cols) {
        out.push_back({std::move(name), {1, rows, cols}});
    }
    void vector(std::string name, Index length) {
        out.push_back({std::move(name), {1, 1, length}, true});
    }
    void linear(const std::string& stem, Index rows, Index cols, bool bias) {
        tensor(stem + ".weight", rows, cols);
        if (bias) vector(stem + ".bias", rows);
    }
    void norm(const std::string& stem, Index width, bool bias) {
        vector(stem + ".weight", width);
        if (bias) vector(stem + ".bias", width);
    }
    std::vector<Parameter> out;
};

bool norm_has_bias(const BlockSpec& b) { return b.norm == NormKind::layer && b.norm_bias; }

void embedding(const ModelSpec& s, Listing& list) {
    const Index e = s.embedding_width;
    const bool bias = s.blocks.empty() || norm_has_bias(s.blocks.front());
    if (s.vocabulary > 0) list.tensor("embed.token", s.vocabulary, e);
    if (s.channels > 0) {
        const Index p = s.channels * s.patch_height * s.patch_width;
        if (s.patch_norms) list.norm("embed.patch.norm1", p, true);
        list.linear("embed.patch", s.width, p, s.patch_bias);
        if (s.patch_norms) list.norm("embed.patch.norm2", s.width, true);
        if (s.prefix_tokens > 0) list.tensor("embed.prefix", s.prefix_tokens, s.width);
    }
    if (s.positions == Positions::learned) list.tensor("embed.position", s.position_rows(), e);
    if (s.token_types) list.tensor("embed.type", s.type_rows, e);
    if (s.embedding_norm) list.norm("embed.norm", e, bias);
    if (s.embedding_map) list.linear("embed.map", s.width, e, true);
    if (s.norm_before_layers) list.norm("embed.pre_norm", s.width, bias);
}

void layer(const ModelSpec& s, const BlockSpec& b, const std::string& at, Listing& list) {
    const Index d = s.width, inner = b.heads * b.head_dim, kv = b.kv_heads * b.head_dim;
    const bool bias = norm_has_bias(b);
    const bool norms = b.norm != NormKind::none;
    if (norms) list.norm(at + "norm1", d, bias);
    list.linear(at + "attn.q", inner, d, b.qkv_bias);
    list.linear(at + "attn.k", kv, d, b.qkv_bias);
    list.linear(at + "attn.v", kv, d, b.qkv_bias);
    if (b.qk_norm) {
        list.norm(at + "attn.q_norm", b.head_dim, b.qk_norm_layer);
        list.norm(at + "attn.k_norm", b.head_dim, b.qk_norm_layer);
    }
    if (!b.value_projection_only) list.linear(at + "attn.o", d, inner, b.out_bias);
    if (b.layer_scale) list.vector(at + "scale1", d);
    if (b.ffn == 0) return;
    if (norms) list.norm(at + "norm2", d, bias);
    if (b.gated) list.linear(at + "ffn.gate", b.ffn, d, b.ffn_bias);
    list.linear(at + "ffn.up", b.ffn, d, b.ffn_bias);
    list.linear(at + "ffn.down", d, b.ffn, b.ffn_bias);
    if (b.layer_scale) list.vector(at + "scale2", d);
}

}  // namespace

std::vector<Parameter> parameters(const ModelSpec& spec) {
    Listing list;
    embedding(spec, list);
    for (std::size_t l = 0; l < spec.blocks.size(); ++l)
        if (spec.blocks[l].shares < 0 || spec.blocks[l].shares == static_cast<Index>(l))
            layer(spec, spec.blocks[l], fmt::format("layer.{}.", l), list);
    if (spec.final_norm && !spec.blocks.empty())
        list.norm("final_norm", spec.width, norm_has_bias(spec.blocks.front()));
    return std::move(list.out);
}

double forward_flops(const ModelSpec& spec, Index n) {
    const auto tokens = static_cast<double>(n), d = static_cast<double>(spec.width);
    double flops = 0;
    if (spec.channels > 0)
        flops += 2.0 * tokens * d *
                 static_cast<double>(spec.channels * spec.patch_height * spec.patch_width);
    if (spec.embedding_map) flops += 2.0 * tokens * d * static_cast<double>(spec.embedding_width);
    for (const BlockSpec& b : spec.blocks) {
        const auto inner = static_cast<double>(b.heads * b.head_dim);
        const auto kv = static_cast<double>(b.kv_heads * b.head_dim);
        const auto ffn = static_cast<double>(b.ffn);
        flops += 2 * tokens * d * (inner + 2 * kv);
        flops += 4 * tokens * tokens * inner;
        if (!b.value_projection_only) flops += 2 * tokens * d * inner;
        flops += (b.gated ? 6 : 4) * tokens * d * ffn;
    }
    return flops;
}

}  // namespace tsdiag
