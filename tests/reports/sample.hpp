#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tsdiag/table.hpp"

/// Synthetic tables with the shape of a run's.
namespace tsdiag::test {

/// A pseudo-random number in [0, 1) that depends on its arguments only.
inline double noise(int a, int b = 0, int c = 0) {
    const double v = std::sin(12.9898 * a + 78.233 * b + 37.719 * c + 1) * 43758.5453;
    return v - std::floor(v);
}

struct Shape {
    int layers = 12, heads = 12, tokens = 64, samples = 3;
    double ratio = 2;  ///< xi_ratio of the attention step
    bool post_norm = true;
    bool curves = true, gradients = true, experts = true;
    int maps = 0;
};

inline Shape small(int maps) {
    return {.layers = 4, .heads = 3, .tokens = 8, .samples = 2, .maps = maps};
}

inline void add_states(Table& t, const Shape& shape, int sample) {
    double odds = 1.0 / (shape.tokens - 1) * (1 + 0.05 * noise(sample));
    const auto state = [&](int layer, const char* stage, double fro) {
        const Place at{.layer = layer, .stage = stage};
        const double sim = odds / (1 + odds);
        t.scalar(at, "t_sim", sim);
        t.scalar(at, "t_div", 1 / (1 + odds));
        t.scalar(at, "t_cos", std::clamp(sim * 1.01 - 0.01, -1.0, 1.0));
        t.scalar(at, "fro", fro * (1 + 0.01 * noise(layer, sample)));
    };
    const auto step = [&](int layer, const char* stage, double ratio, double fro) {
        const double before = 1 / (1 + odds);
        odds *= ratio;
        state(layer, stage, fro);
        const Place at{.layer = layer, .stage = stage};
        t.scalar(at, "xi2", 1.0);
        t.scalar(at, "xi1", ratio);
        t.scalar(at, "xi_ratio", ratio);
        t.scalar(at, "r", before * (1 + odds));
    };
    for (int l = 0; l < shape.layers; ++l) {
        const double before = odds, wobble = 1 + 0.03 * (noise(l, sample, 7) - 0.5);
        state(l, "in", 181);
        if (!shape.post_norm) state(l, "norm1", 181);
        t.scalar({.layer = l, .stage = "sa"}, "fro", 24 + 6.0 * l);
        step(l, "attn", shape.ratio * wobble, 200 + 10.0 * l);
        if (shape.post_norm) step(l, "norm1", 0.999, 181);
        step(l, "ffn", 1 + 0.5 * std::exp(-l / 1.5), 190 + 10.0 * l);
        if (shape.post_norm) step(l, "norm2", 1.0005, 181);
        state(l, "out", 181);
        t.scalar({.layer = l, .stage = "out"}, "r_layer", (1 + odds) / (1 + before));
    }
}

/// Head 1 of layer 1 is the identity, head 0 of layer 2 a sink, heads of layer 0 nearly uniform.
inline void add_head(Table& t, const Shape& shape, int l, int h, int sample) {
    const Place at{.layer = l, .stage = "attn", .head = h};
    const double n = shape.tokens, u = noise(l, h, sample);
    double lambda = 0.04 + 0.03 * l * u, delta = 0.1 + 0.05 * l * u, fro = 1.02 + 0.3 * l * u;
    double top = 0.05 + 0.02 * l * u, entropy = std::log(n) * (1 - 0.04 * l * u), auc = 0.51;
    if (l == 1 && h == 1)
        lambda = delta = 1, fro = std::sqrt(n), top = 0.99, entropy = 0.05, auc = 0.98;
    if (l == 2 && h == 0) lambda = 0.2, delta = 2.5, fro = 6, top = 0.8, entropy = 0.9, auc = 0.27;
    t.scalar(at, "lambda2_abs", lambda);
    t.scalar(at, "delta", delta);
    if (h == 3 && l == 3)
        t.scalar(at, "omega", undefined("e^T X = 0"));
    else
        t.scalar(at, "omega", 0.05 + 0.1 * u);
    t.scalar(at, "attn_fro", fro);
    t.scalar(at, "jac_fro", std::sqrt(n) / 2 * (1 - entropy / std::log(n)) + 0.2);
    t.scalar(at, "entropy", entropy);
    t.scalar(at, "row_max", top);
    t.scalar(at, "neg_mass", 0.01);
    t.scalar(at, "local_auc", auc + 0.1 * u);
}

/// Gradients that double with each layer on the way back.
inline void add_gradients(Table& t, const Shape& shape, int sample) {
    for (int l = shape.layers - 1; l >= 0; --l) {
        const double size = std::exp2(shape.layers - l) * (1 + 0.1 * noise(l, sample, 3));
        for (const char* stage : {"in", "sa", "attn", "out"})
            t.scalar({.layer = l, .stage = stage}, "grad_norm",
                     size * (1 + noise(l, int(stage[0]))));
        for (const char* tensor : {"attn.q.weight", "attn.v.weight", "norm1.bias"})
            t.scalar({.layer = l, .tensor = tensor}, "grad_norm", size * noise(l, int(tensor[5])));
        t.scalar({.layer = l}, "grad_norm", size);
        for (int h = 0; h < shape.heads; ++h) {
            const Place at{.layer = l, .stage = "attn", .head = h};
            t.scalar(at, "ds_max", 0.01 * size * (1 + noise(l, h)));
            t.scalar(at, "ds_sharp", size);
            t.scalar(at, "ds_bound", std::sqrt(double(shape.tokens)) / 2 * size);
        }
    }
}

/// Experts that collapse with depth.
inline void add_routing(Table& t, const Shape& shape, int sample) {
    for (int l = 0; l < shape.layers; ++l) {
        const Place at{.layer = l, .stage = "out"};
        const double even = std::exp2(-l) * (1 - 0.01 * noise(l, sample));
        t.scalar(at, "expert_load", 8 - 7 * even);
        t.scalar(at, "expert_unused", 0.875 * (1 - even));
        t.scalar(at, "expert_entropy", even);
        t.scalar(at, "routing_entropy", 0.9 * even);
        t.scalar(at, "routing_dropped", 0.75 * even);
    }
}

inline void add_attention(Table& t, const Shape& shape, int sample) {
    for (int l = 0; l < shape.layers; ++l) {
        for (int h = 0; h < shape.heads; ++h) add_head(t, shape, l, h, sample);
        const Place at{.layer = l, .stage = "attn"};
        if (shape.post_norm) {
            t.scalar(at, "est1", shape.ratio - 1.11);
            t.scalar(at, "est2", shape.ratio - 1.005);
        } else {
            t.scalar(at, "est1", undefined("pre-norm layer"));
            t.scalar(at, "est2", undefined("pre-norm layer"));
        }
        t.scalar(at, "est_mu", shape.ratio - 1.004);
        if (!shape.curves) continue;
        for (int k = 1; k <= shape.tokens; ++k) {
            const double x = double(k) / shape.tokens;
            t.point(at, "local_acc", x, std::pow(x, 1.0 / (1 + 0.2 * l)));
        }
    }
}

/// A causal attention map with a sink at token 0.
inline Map causal_map(int layer, int head, int n) {
    Map map{
        .at = {.layer = layer, .stage = "attn", .head = head}, .name = "P", .rows = n, .cols = n};
    map.values.assign(std::size_t(n) * std::size_t(n), 0.0);
    for (int i = 0; i < n; ++i) {
        double sum = 0;
        const auto entry = [&](int j) -> double& { return map.values[std::size_t(i * n + j)]; };
        for (int j = 0; j <= i; ++j) {
            const double away = double(i - j) / (4.0 + 3 * head);
            entry(j) = std::exp(-away) + 0.02 * noise(i, j, layer) + (j == 0 ? 2.0 : 0.0);
            sum += entry(j);
        }
        for (int j = 0; j <= i; ++j) entry(j) /= sum;
    }
    return map;
}

inline Table sample_table(const Shape& shape = {}, const std::string& model = "random:post-norm") {
    Table t(model);
    for (int s = 0; s < shape.samples; ++s) {
        add_states(t, shape, s);
        add_attention(t, shape, s);
        if (shape.experts) add_routing(t, shape, s);
        if (shape.gradients) add_gradients(t, shape, s);
    }
    for (int m = 0; m < shape.maps; ++m) t.matrix(causal_map(m, m % shape.heads, shape.tokens));
    return t;
}

}  // namespace tsdiag::test
