#include <fmt/format.h>

#include <algorithm>

#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"

/// The parameters implied by a spec, the cost of its products, and rows of weights.
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
    void norm(NormKind kind, const std::string& stem, Index width, bool bias = true) {
        if (kind == NormKind::scale) vector(stem + ".g", 1);
        if (kind != NormKind::layer && kind != NormKind::rms) return;
        vector(stem + ".weight", width);
        if (bias && kind == NormKind::layer) vector(stem + ".bias", width);
    }
    void batch_norm(const std::string& stem, Index width) {
        for (const char* part : {".weight", ".bias", ".mean", ".variance"})
            vector(stem + part, width);
    }
    std::vector<Parameter> out;
};

void patch_convolutions(const ModelSpec& s, Listing& list) {
    Index in = s.channels;
    for (Index k = 0; k < s.patch_convolutions; ++k) {
        const Index out = s.width >> (s.patch_convolutions - 1 - k);
        const std::string at = fmt::format("embed.patch.{}", k);
        list.tensor(at + ".weight", out, 9 * in);
        list.batch_norm(at + ".norm", out);
        in = out;
    }
}

void embedding(const ModelSpec& s, Listing& list) {
    const Index e = s.embedding_width;
    const bool bias = s.blocks.empty() || s.blocks.front().norm.bias;
    if (s.vocabulary > 0 && !s.clusters.there()) list.tensor("embed.token", s.vocabulary, e);
    for (std::size_t i = 0; i < s.clusters.ends.size(); ++i) {
        const std::string name = fmt::format("embed.cluster.{}", i);
        list.tensor(name, s.clusters.size(i), s.clusters.columns(i));
        list.tensor(name + ".map", s.width, s.clusters.columns(i));
    }
    if (s.channels > 0) {
        const Index p = s.channels * s.patch_height * s.patch_width;
        if (s.patch_norms) list.norm(NormKind::layer, "embed.patch.norm1", p);
        if (s.patch_convolutions > 0)
            patch_convolutions(s, list);
        else
            list.linear("embed.patch", s.width, p, s.patch_bias);
        if (s.patch_norms) list.norm(NormKind::layer, "embed.patch.norm2", s.width);
        if (s.prefix_tokens > 0) list.tensor("embed.prefix", s.prefix_tokens, s.width);
    }
    if (s.positions == Positions::learned) list.tensor("embed.position", s.position_rows(), e);
    if (s.positions == Positions::fourier) list.linear("embed.position_map", s.width, 64, true);
    if (s.positions == Positions::sin_cos) list.vector("embed.position_scale", 1);
    if (s.token_types) list.tensor("embed.type", s.type_rows, e);
    if (s.task_rows > 0) list.tensor("embed.task", s.task_rows, e);
    if (s.embedding_norm) list.norm(s.embedding_norm_kind, "embed.norm", e, bias);
    if (s.embedding_map) list.linear("embed.map", s.width, e, true);
    if (s.norm_before_layers)
        list.norm(s.blocks.front().norm.kind, "embed.pre_norm", s.width, bias);
}

void attention(Index d, const AttentionSpec& a, const std::string& at, Listing& list) {
    list.linear(at + "q", a.heads * a.head_dim, d, a.qkv_bias);
    list.linear(at + "k", a.kv_heads * a.head_dim, d, a.qkv_bias && a.k_bias);
    list.linear(at + "v", a.kv_heads * a.value_columns(), d, a.qkv_bias);
    if (a.qk_norm && a.qk_norm_weight)
        for (const char* norm : {"q_norm", "k_norm"})
            list.norm(a.qk_norm_layer ? NormKind::layer : NormKind::rms, at + norm,
                      a.head_dim * (!a.qk_norm_whole ? 1
                                    : *norm == 'q'   ? a.heads
                                                     : a.kv_heads));
    if (a.channels) list.vector(at + "temperature", a.heads);
    if (const Index side = a.windows.side; side > 0)
        list.tensor(at + "relative", (2 * side - 1) * (2 * side - 1), a.heads);
    if (a.rotary.learned) list.vector(at + "lrpe.theta", a.rotary.columns / 2);
    if (a.rotary.reflected) list.vector(at + "lrpe.v", a.head_dim);
}

void latent_attention(Index d, const AttentionSpec& a, const std::string& at, Listing& list) {
    const LatentSpec& l = a.latent;
    const auto low = [&](const std::string& name, Index rows, Index normed) {
        list.tensor(at + name + ".weight", rows, d);
        list.norm(NormKind::rms, at + name + "_norm", normed);
    };
    if (l.query_rank > 0) low("q_low", l.query_rank, l.query_rank);
    list.linear(at + "q", a.heads * a.head_dim, l.query_rank > 0 ? l.query_rank : d, a.qkv_bias);
    low("kv_low", l.rank + a.rotary.columns, l.rank);
    list.linear(at + "k", a.heads * (a.head_dim - a.rotary.columns), l.rank, a.qkv_bias);
    list.linear(at + "v", a.heads * a.value_columns(), l.rank, a.qkv_bias);
}

void gated_unit(Index d, const AttentionSpec& a, const std::string& at, Listing& list) {
    const Index rows = a.variant == "flash" ? 4 : 2;
    list.linear(at + "z", a.head_dim, d, a.qkv_bias);
    list.tensor(at + "offset.gamma", rows, a.head_dim);
    list.tensor(at + "offset.beta", rows, a.head_dim);
    list.linear(at + "v", a.value_columns(), d, a.qkv_bias);
    list.linear(at + "gate", a.value_columns(), d, a.qkv_bias);
}

void local(Index d, const BlockSpec& b, const std::string& at, Listing& list) {
    list.norm(b.norm.kind, at + "norm3", d, b.norm.bias);
    list.linear(at + "local.conv1", d, b.local.kernel * b.local.kernel, true);
    list.batch_norm(at + "local.norm", d);
    list.linear(at + "local.conv2", d, b.local.kernel * b.local.kernel, true);
    if (b.layer_scale) list.vector(at + "local.scale", d);
}

void class_attention(const ModelSpec& s, Listing& list) {
    const ClassSpec& c = s.class_attention;
    const Index d = s.width;
    list.tensor("class.token", 1, d);
    for (Index l = 0; l < c.layers; ++l) {
        const std::string at = fmt::format("class.{}.", l);
        list.norm(NormKind::layer, at + "norm1", d);
        for (const char* part : {"attn.q", "attn.k", "attn.v"})
            list.linear(at + part, d, d, c.qkv_bias);
        list.linear(at + "attn.o", d, d, true);
        if (c.layer_scale) list.vector(at + "scale1", d);
        list.norm(NormKind::layer, at + "norm2", d);
        list.linear(at + "ffn.up", c.ffn, d, true);
        list.linear(at + "ffn.down", d, c.ffn, true);
        if (c.layer_scale) list.vector(at + "scale2", d);
    }
}

void merge(Index d, const MergeSpec& merge, const std::string& at, Listing& list) {
    if (merge.width == 0) return;
    list.norm(NormKind::layer, at + "norm", 4 * d);
    list.linear(at + "map", merge.width, 4 * d, false);
}

void feed_forward(Index d, const FeedForwardSpec& f, Index width, const std::string& at,
                  Listing& list) {
    if (f.gated) list.linear(at + "gate", width, d, f.bias);
    list.linear(at + "up", width, d, f.bias);
    list.linear(at + "down", d, width, f.bias);
}

void experts(Index d, const FeedForwardSpec& f, const std::string& at, Listing& list) {
    const ExpertsSpec& e = f.experts;
    list.linear(at + "router", e.count, d, e.router_bias);
    if (e.corrected) list.vector(at + "router.correction", e.count);
    for (Index i = 0; i < e.count; ++i)
        feed_forward(d, f, f.width, fmt::format("{}expert.{}.", at, i), list);
    if (e.shared == 0) return;
    feed_forward(d, f, e.shared, at + "shared.", list);
    if (e.shared_gate) list.tensor(at + "shared_gate.weight", 1, d);
}

void layer(Index d, const BlockSpec& b, const std::string& at, Listing& list) {
    if (b.attention_norm) list.norm(b.norm.kind, at + "norm1", d, b.norm.bias);
    b.attention.gated_unit        ? gated_unit(d, b.attention, at + "attn.", list)
    : b.attention.latent.rank > 0 ? latent_attention(d, b.attention, at + "attn.", list)
                                  : attention(d, b.attention, at + "attn.", list);
    for (const Parameter& own : b.attention.own)
        list.out.push_back({at + "attn." + own.name, own.shape, own.vector});
    if (!b.attention.value_projection_only)
        list.linear(at + "attn.o", d, b.attention.heads * b.attention.value_columns(),
                    b.attention.out_bias);
    if (b.layer_scale) list.vector(at + "scale1", d);
    if (b.branch_norms) list.norm(b.norm.kind, at + "branch1", d, b.norm.bias);
    if (b.local.kernel > 0) local(d, b, at, list);
    if (b.deesc.learned) list.vector(at + "deesc.tau", 1);
    merge(d, b.merge, at + "merge.", list);
    if (b.ffn.width == 0) return;
    if (!b.one_norm) list.norm(b.norm.kind, at + "norm2", d, b.norm.bias);
    if (b.ffn.experts.count > 0)
        experts(d, b.ffn, at + "ffn.", list);
    else
        feed_forward(d, b.ffn, b.ffn.width, at + "ffn.", list);
    if (b.layer_scale) list.vector(at + "scale2", d);
    if (b.branch_norms) list.norm(b.norm.kind, at + "branch2", d, b.norm.bias);
}

}  // namespace

std::vector<Parameter> parameters(const ModelSpec& spec) {
    Listing list;
    embedding(spec, list);
    Index width = spec.width;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        const BlockSpec& block = spec.blocks[l];
        if (block.shares < 0 || block.shares == Index(l))
            layer(width, block, fmt::format("layer.{}.", l), list);
        if (block.merge.width > 0) width = block.merge.width;
    }
    if (spec.class_attention.layers > 0) class_attention(spec, list);
    if (spec.final_norm && !spec.blocks.empty())
        list.norm(spec.last_norm(), "final_norm", spec.last_width(), spec.blocks.front().norm.bias);
    return std::move(list.out);
}

std::vector<Parameter> head_parameters(const ModelSpec& spec) {
    Listing list;
    const Index e = spec.embedding_width;
    if (spec.head.transform) {
        list.linear("head.transform", e, spec.width, spec.head.transform_bias);
        list.norm(NormKind::layer, "head.norm", e, spec.head.transform_bias);
    }
    if (spec.head.matrix) list.tensor("head.weight", spec.vocabulary, e);
    if (spec.head.bias) list.vector("head.bias", spec.vocabulary);
    const Clusters of{spec.head.cluster_ends};
    if (!of.there()) return std::move(list.out);
    const Index columns = spec.clusters.there() ? spec.clusters.width : e;
    if (spec.head.first_map) list.tensor("head.map", spec.width, columns);
    if (of.ends.size() > 1) list.linear("head.cluster", std::ssize(of.ends) - 1, columns, true);
    for (std::size_t i = 0; i < of.ends.size(); ++i)
        list.vector(fmt::format("head.bias.{}", i), of.size(i));
    return std::move(list.out);
}

std::vector<std::string> applied_together(const Weights& weights, std::string_view name) {
    const std::string stem = ".attn.";
    const std::size_t at = name.rfind(stem);
    if (at == name.npos) return {std::string(name)};
    const std::string before(name.substr(0, at + stem.size()));
    const std::string_view map = name.substr(before.size());
    std::vector<std::string> all;
    for (const char* letter : {"q", "k", "v"})
        all.push_back(before + letter +
                      std::string(map.substr(std::min<std::size_t>(1, map.size()))));
    const bool one = std::ranges::find(all, name) != all.end() &&
                     !weights.has(before + "kv_low.weight") &&  // q is applied to something else
                     std::ranges::all_of(all, [&](const auto& n) { return weights.has(n); });
    return one ? all : std::vector{std::string(name)};
}

double forward_flops(const ModelSpec& spec, Index n) {
    auto tokens = double(n), d = double(spec.width);
    double flops = 0;
    if (spec.channels > 0 && spec.patch_convolutions == 0)
        flops += 2.0 * tokens * d * double(spec.channels * spec.patch_height * spec.patch_width);
    Index in = spec.channels;
    for (Index left = spec.patch_convolutions; left > 0; --left) {
        const Index out = spec.width >> (left - 1);
        flops += 2.0 * 9 * tokens * double(Index{1} << 2 * (left - 1)) * double(in * out);
        in = out;
    }
    const ClassSpec& c = spec.class_attention;
    flops += double(c.layers) * (4 * tokens * d * d + 4 * tokens * d + 4 * d * (d + double(c.ffn)));
    if (spec.embedding_map) flops += 2.0 * tokens * d * double(spec.embedding_width);
    for (const BlockSpec& b : spec.blocks) {
        const auto keys = double(b.attention.heads * b.attention.head_dim);
        const auto values = double(b.attention.heads * b.attention.value_columns());
        const double share = double(b.attention.kv_heads) / double(b.attention.heads);
        const ExpertsSpec& experts = b.ffn.experts;
        const auto ffn = experts.count == 0 ? double(b.ffn.width)
                                            : double(experts.chosen * b.ffn.width + experts.shared);
        flops += 2 * tokens * d * double(experts.count);
        const LatentSpec& low = b.attention.latent;
        const auto rank = double(low.rank), query_rank = double(low.query_rank),
                   turning = double(b.attention.rotary.columns);
        const double projections =
            b.attention.gated_unit ? keys + 2 * values : keys + share * (keys + values);
        flops += rank == 0 ? 2 * tokens * d * projections
                           : 2 * tokens * (query_rank > 0 ? query_rank * (d + keys) : d * keys) +
                                 2 * tokens *
                                     (d * (rank + turning) +
                                      rank * (keys - double(b.attention.heads) * turning + values));
        const Index window = b.attention.windows.side;
        const double side = b.attention.channels ? double(b.attention.head_dim)
                            : window > 0         ? double(window * window)
                                                 : tokens;
        flops += 2 * tokens * side * (keys + values);
        flops += 4 * tokens * d * double(b.local.kernel * b.local.kernel);
        if (!b.attention.value_projection_only) flops += 2 * tokens * d * values;
        flops += (b.ffn.gated ? 6 : 4) * tokens * d * ffn;
        if (b.merge.width == 0) continue;
        tokens /= 4;
        flops += 2 * tokens * 4 * d * double(b.merge.width);
        d = double(b.merge.width);
    }
    return flops;
}

Tensor Weights::rows(std::string_view name, std::span<const Index> rows) const {
    return gather_rows(get(name), rows);
}

}  // namespace tsdiag
