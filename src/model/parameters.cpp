#include "parameters.hpp"

#include <fmt/format.h>

#include <utility>

#include "class_attention.hpp"
#include "steps/step.hpp"

/// What a spec implies: the parameters, and the cost of the products.
namespace tsdiag {
namespace {

using model::ListedParameters;

/// What only lists has no use for the tensors.
struct Unused {
    Tensor tensor;
    model::Linear linear;
    model::Norm norm;
    model::BatchNorm batch_norm;
};

void patch_convolutions(const ModelSpec& s, ListedParameters& list) {
    Unused unused;
    Index in = s.embedding.image.channels;
    for (Index k = 0; k < s.embedding.image.convolutions; ++k) {
        const Index out = s.width >> (s.embedding.image.convolutions - 1 - k);
        const std::string at = fmt::format("embed.patch.{}", k);
        list.matrix(at + ".weight", unused.tensor, out, 9 * in);
        list.batch_norm(at + ".norm", unused.batch_norm, out);
        in = out;
    }
}

void embedding(const ModelSpec& s, ListedParameters& list) {
    Unused unused;
    const Index e = s.embedding.width;
    const bool bias = s.blocks.empty() || s.blocks.front().norm.bias;
    if (s.embedding.vocabulary > 0 && !s.embedding.clusters.there())
        list.matrix("embed.token", unused.tensor, s.embedding.vocabulary, e);
    for (std::size_t i = 0; i < s.embedding.clusters.ends.size(); ++i) {
        const std::string name = fmt::format("embed.cluster.{}", i);
        list.matrix(name, unused.tensor, s.embedding.clusters.size(i),
                    s.embedding.clusters.columns(i));
        list.matrix(name + ".map", unused.tensor, s.width, s.embedding.clusters.columns(i));
    }
    if (s.embedding.image.channels > 0) {
        const Index p = s.embedding.image.channels * s.embedding.image.patch_height *
                        s.embedding.image.patch_width;
        if (s.embedding.image.norms)
            list.norm("embed.patch.norm1", unused.norm, NormKind::layer, p);
        if (s.embedding.image.convolutions > 0)
            patch_convolutions(s, list);
        else
            list.linear("embed.patch", unused.linear, s.width, p, s.embedding.image.bias);
        if (s.embedding.image.norms)
            list.norm("embed.patch.norm2", unused.norm, NormKind::layer, s.width);
        if (s.embedding.prefix_tokens > 0)
            list.matrix("embed.prefix", unused.tensor, s.embedding.prefix_tokens, s.width);
    }
    if (s.embedding.positions == Positions::learned)
        list.matrix("embed.position", unused.tensor, s.embedding.position_rows(), e);
    if (s.embedding.positions == Positions::fourier)
        list.linear("embed.position_map", unused.linear, s.width, 64, true);
    if (s.embedding.positions == Positions::sin_cos)
        list.vector("embed.position_scale", unused.tensor, 1);
    if (s.embedding.token_types) list.matrix("embed.type", unused.tensor, s.embedding.type_rows, e);
    if (s.embedding.task_rows > 0)
        list.matrix("embed.task", unused.tensor, s.embedding.task_rows, e);
    if (s.embedding.norm) list.norm("embed.norm", unused.norm, s.embedding.norm_kind, e, bias);
    if (s.embedding.map) list.linear("embed.map", unused.linear, s.width, e, true);
    if (s.embedding.norm_before_layers)
        list.norm("embed.pre_norm", unused.norm, s.blocks.front().norm.kind, s.width, bias);
}

}  // namespace

std::vector<Parameter> parameters(const ModelSpec& spec) {
    std::vector<Parameter> out;
    ListedParameters list(out);
    embedding(spec, list);
    Index width = spec.width;
    for (Index l = 0; l < std::ssize(spec.blocks); ++l) {
        const BlockSpec& block = spec.blocks[std::size_t(l)];
        const Index own = std::exchange(width, block.merge.width_behind(width));
        if (block.shares >= 0 && block.shares != l) continue;
        ListedParameters of_layer(out, fmt::format("layer.{}.", l));
        model::LayerSteps(block).declare(own, of_layer);
    }
    if (spec.class_attention.layers > 0) model::declare_class_attention(spec, list);
    if (Unused unused; spec.final_norm && !spec.blocks.empty())
        list.norm("final_norm", unused.norm, spec.last_norm(), spec.last_width(),
                  spec.blocks.front().norm.bias);
    return out;
}

std::vector<Parameter> head_parameters(const ModelSpec& spec) {
    std::vector<Parameter> out;
    ListedParameters list(out);
    Unused unused;
    const Index e = spec.embedding.width;
    if (spec.head.transform) {
        list.linear("head.transform", unused.linear, e, spec.width, spec.head.transform_bias);
        list.norm("head.norm", unused.norm, NormKind::layer, e, spec.head.transform_bias);
    }
    if (spec.head.matrix) list.matrix("head.weight", unused.tensor, spec.embedding.vocabulary, e);
    if (spec.head.bias) list.vector("head.bias", unused.tensor, spec.embedding.vocabulary);
    const Clusters of{spec.head.cluster_ends};
    if (!of.there()) return out;
    const Index columns = spec.embedding.clusters.there() ? spec.embedding.clusters.width : e;
    if (spec.head.first_map) list.matrix("head.map", unused.tensor, spec.width, columns);
    if (of.ends.size() > 1)
        list.linear("head.cluster", unused.linear, std::ssize(of.ends) - 1, columns, true);
    for (std::size_t i = 0; i < of.ends.size(); ++i)
        list.vector(fmt::format("head.bias.{}", i), unused.tensor, of.size(i));
    return out;
}

double forward_flops(const ModelSpec& spec, Index n) {
    auto tokens = double(n), d = double(spec.width);
    double flops = 0;
    if (spec.embedding.image.channels > 0 && spec.embedding.image.convolutions == 0)
        flops += 2.0 * tokens * d *
                 double(spec.embedding.image.channels * spec.embedding.image.patch_height *
                        spec.embedding.image.patch_width);
    Index in = spec.embedding.image.channels;
    for (Index left = spec.embedding.image.convolutions; left > 0; --left) {
        const Index out = spec.width >> (left - 1);
        flops += 2.0 * 9 * tokens * double(Index{1} << 2 * (left - 1)) * double(in * out);
        in = out;
    }
    flops += model::class_attention_flops(spec.class_attention, d, tokens);
    if (spec.embedding.map) flops += 2.0 * tokens * d * double(spec.embedding.width);
    for (const BlockSpec& b : spec.blocks) {
        const model::LayerSteps steps(b);
        for (const auto& step : steps.all()) flops += step->flops(d, tokens);
        tokens = b.merge.tokens_behind(tokens);
        d = double(b.merge.width_behind(Index(d)));
    }
    return flops;
}

HeldNumbers held_numbers(const BlockSpec& block, Index width) {
    HeldNumbers sum;
    const model::LayerSteps steps(block);
    for (const auto& step : steps.all()) {
        const HeldNumbers held = step->held(double(width));
        sum.of_token += held.of_token;
        sum.of_pair += held.of_pair;
    }
    return sum;
}

}  // namespace tsdiag
