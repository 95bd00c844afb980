#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "layer.hpp"
#include "tsdiag/ops.hpp"

/// The parameters of a layer.
namespace tsdiag::model {
namespace {

/// On a device q, k and v lie one behind another, to be one product: linear_heads.
AttentionWeights together(AttentionWeights w) {
    for (Tensor Linear::*part : {&Linear::weight, &Linear::bias}) {
        Linear* const maps[] = {&w.q, &w.k, &w.v};
        const auto ready = [&](const Linear* map) {
            const Tensor& t = map->*part;
            return t.defined() && !t.tracked() && t.backend().fuses();
        };
        if (!std::ranges::all_of(maps, ready) || w.kv_low.weight.defined()) continue;
        const std::vector<Tensor> found =
            adjacent(std::vector<Tensor>{w.q.*part, w.k.*part, w.v.*part});
        for (std::size_t i = 0; i < 3; ++i) maps[i]->*part = found[i];
    }
    return w;
}

}  // namespace

LayerWeights load_layer(const Weights& weights, const ModelSpec& spec, Index layer) {
    const BlockSpec& b = spec.blocks[std::size_t(layer)];
    const std::string at = fmt::format("layer.{}.", b.shares < 0 ? layer : b.shares);
    const auto one = [&](std::string_view name) {
        return get_or_empty(weights, at + std::string(name));
    };
    const auto map = [&](std::string_view name) {
        return load_linear(weights, at + std::string(name));
    };
    const auto norm = [&](std::string_view name) {
        return load_norm(weights, at + std::string(name));
    };
    const Index owner = b.attention.own_of;
    const auto own = [&weights, at, owner](std::string_view name) {
        const std::string end = "attn." + std::string(name);
        Tensor found = get_or_empty(weights, at + end);
        return found.defined() || owner < 0
                   ? found
                   : get_or_empty(weights, fmt::format("layer.{}.{}", owner, end));
    };
    return {.norm1 = norm("norm1"),
            .norm2 = norm("norm2"),
            .branch1 = norm("branch1"),
            .branch2 = norm("branch2"),
            .attention = together({.q = map("attn.q"),
                                   .k = map("attn.k"),
                                   .v = map("attn.v"),
                                   .o = map("attn.o"),
                                   .q_norm = norm("attn.q_norm"),
                                   .k_norm = norm("attn.k_norm"),
                                   .theta = one("attn.lrpe.theta"),
                                   .mirror = one("attn.lrpe.v"),
                                   .z = map("attn.z"),
                                   .gate = map("attn.gate"),
                                   .gamma = one("attn.offset.gamma"),
                                   .beta = one("attn.offset.beta"),
                                   .q_low = map("attn.q_low"),
                                   .kv_low = map("attn.kv_low"),
                                   .q_low_norm = norm("attn.q_low_norm"),
                                   .kv_low_norm = norm("attn.kv_low_norm"),
                                   .own = own}),
            .ffn = {.up = map("ffn.up"),
                    .gate = map("ffn.gate"),
                    .down = map("ffn.down"),
                    .part =
                        [&weights, at](const std::string& name) {
                            return load_linear(weights, at + "ffn." + name);
                        },
                    .correction = one("ffn.router.correction")},
            .local = b.local.kernel == 0
                         ? LocalWeights()
                         : LocalWeights{.before = norm("norm3"),
                                        .conv1 = map("local.conv1"),
                                        .conv2 = map("local.conv2"),
                                        .norm = load_batch_norm(weights, at + "local.norm"),
                                        .scale = one("local.scale")},
            .scale1 = one("scale1"),
            .scale2 = one("scale2"),
            .tau = one("deesc.tau"),
            .merge = {norm("merge.norm"), map("merge.map")}};
}

double branch_gain(const BlockSpec& b, const LayerWeights& w) {
    const AttentionSpec& a = b.attention;
    if (a.gated_unit || a.channels || a.latent.rank > 0 || b.branch_norms ||
        b.placement == NormPlacement::branch)
        return std::numeric_limits<double>::quiet_NaN();
    Tensor v = w.attention.v.weight, o = w.attention.o.weight;
    const double d = double(v.cols());
    if (w.scale1.defined() && o.defined())
        o = multiply(o, w.scale1.reshape({1, w.scale1.cols(), 1}));
    if (w.scale1.defined() && !o.defined())
        v = multiply(v, w.scale1.reshape({1, w.scale1.cols(), 1}));
    const Index group = a.heads / a.kv_heads;
    if (!o.defined()) return b.alpha * b.alpha * double(group) * squared_norm(v) / d;
    const Tensor vh = contiguous(v).reshape({a.kv_heads, a.value_columns(), v.cols()});
    const Tensor oh = o.split_heads(a.heads);  // (h, d, value_columns)
    const Tensor gram_v = matmul(vh, vh, Transpose::second);
    const Tensor gram_o = matmul(oh, oh, Transpose::first);
    double sum = 0;
    for (const double of_head : dots(gram_o, repeat_batches(gram_v, group))) sum += of_head;
    return b.alpha * b.alpha * sum / d;
}

}  // namespace tsdiag::model
