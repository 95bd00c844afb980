#include "attention.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

void projections(const AttentionSpec& a, Index d, AttentionWeights& w, Parameters& to) {
    to.linear("attn.q", w.q, a.heads * a.head_dim, d, a.qkv_bias);
    to.linear("attn.k", w.k, a.kv_heads * a.head_dim, d, a.qkv_bias && a.k_bias);
    to.linear("attn.v", w.v, a.kv_heads * a.value_columns(), d, a.qkv_bias);
    if (a.qk_norm && a.qk_norm_weight) {
        const NormKind kind = a.qk_norm_layer ? NormKind::layer : NormKind::rms;
        to.norm("attn.q_norm", w.q_norm, kind, a.head_dim * (a.qk_norm_whole ? a.heads : 1));
        to.norm("attn.k_norm", w.k_norm, kind, a.head_dim * (a.qk_norm_whole ? a.kv_heads : 1));
    }
    if (a.channels) to.vector("attn.temperature", w.temperature, a.heads);
    if (const Index side = a.windows.side; side > 0)
        to.matrix("attn.relative", w.relative, (2 * side - 1) * (2 * side - 1), a.heads);
    if (a.rotary.learned) to.vector("attn.lrpe.theta", w.theta, a.rotary.columns / 2);
    if (a.rotary.reflected) to.vector("attn.lrpe.v", w.mirror, a.head_dim);
}

void latent_projections(const AttentionSpec& a, Index d, AttentionWeights& w, Parameters& to) {
    const LatentSpec& l = a.latent;
    if (l.query_rank > 0) {
        to.linear("attn.q_low", w.q_low, l.query_rank, d, false);
        to.norm("attn.q_low_norm", w.q_low_norm, NormKind::rms, l.query_rank);
    }
    to.linear("attn.q", w.q, a.heads * a.head_dim, l.query_rank > 0 ? l.query_rank : d, a.qkv_bias);
    to.linear("attn.kv_low", w.kv_low, l.rank + a.rotary.columns, d, false);
    to.norm("attn.kv_low_norm", w.kv_low_norm, NormKind::rms, l.rank);
    to.linear("attn.k", w.k, a.heads * (a.head_dim - a.rotary.columns), l.rank, a.qkv_bias);
    to.linear("attn.v", w.v, a.heads * a.value_columns(), l.rank, a.qkv_bias);
}

void gated_unit(const AttentionSpec& a, Index d, AttentionWeights& w, Parameters& to) {
    const Index rows = attention(a.variant).second_pair ? 4 : 2;
    to.linear("attn.z", w.z, a.head_dim, d, a.qkv_bias);
    to.matrix("attn.offset.gamma", w.gamma, rows, a.head_dim);
    to.matrix("attn.offset.beta", w.beta, rows, a.head_dim);
    to.linear("attn.v", w.v, a.value_columns(), d, a.qkv_bias);
    to.linear("attn.gate", w.gate, a.value_columns(), d, a.qkv_bias);
}

/// On a device q, k and v lie one behind another, to be one product: linear_heads.
void make_adjacent(AttentionWeights& w) {
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
}

Json rotary_json(const Rotary& r) {
    Json out;
    out.set("columns", r.columns).set("theta", r.theta).set("interleaved", r.interleaved);
    if (r.learned) out.set("learned", true);
    if (r.reflected) out.set("reflected", true);
    if (r.scaling.empty()) return out;
    out.set("scaling", r.scaling).set("factor", r.factor).set("original_length", r.original_length);
    if (r.scaling == "llama3")
        out.set("low_freq_factor", r.low_freq_factor).set("high_freq_factor", r.high_freq_factor);
    if (r.scaling == "yarn")
        out.set("beta_fast", r.beta_fast).set("beta_slow", r.beta_slow).set("truncate", r.truncate);
    if (r.scaling == "longrope") {
        Json::Array near, far;
        for (const double factor : r.short_factors) near.emplace_back(factor);
        for (const double factor : r.long_factors) far.emplace_back(factor);
        out.set("short_factors", std::move(near)).set("long_factors", std::move(far));
    }
    if (r.magnitude != 1) out.set("magnitude", r.magnitude);
    return out;
}

Json options_json(const std::map<std::string, std::string>& options) {
    Json out;
    for (const auto& [key, value] : options) out.set(key, value);
    return out;
}

/// Tokens that a token is compared with, or channels that a channel is.
double compared(const AttentionSpec& a, double tokens) {
    return a.channels           ? double(a.head_dim)
           : a.windows.side > 0 ? double(a.windows.side * a.windows.side)
                                : tokens;
}

}  // namespace

std::vector<AttentionSpec> attentions_of(const AttentionSpec& a) {
    if (!a.second) return {a};
    AttentionSpec first = a;
    first.second.reset();
    first.heads /= 2;
    first.kv_heads /= 2;
    AttentionSpec other = first;
    other.variant = a.second->variant;
    other.options = a.second->options;
    other.output_norm = a.second->output_norm;
    other.qk_activation = a.second->qk_activation;
    return {std::move(first), std::move(other)};
}

void AttentionStep::describe(Json& out) const {
    const AttentionSpec& a = spec();
    out.set("attention", a.variant);
    if (!a.options.empty()) out.set("attention_options", options_json(a.options));
    out.set("heads", a.heads).set("kv_heads", a.kv_heads).set("head_dim", a.head_dim);
    if (a.value_dim > 0) out.set("value_dim", a.value_dim);
    if (const LatentSpec& l = a.latent; l.rank > 0)
        out.set("latent_rank", l.rank)
            .set("latent_query_rank", l.query_rank)
            .set("latent_eps", l.eps);
    if (a.qk_activation) out.set("qk_activation", name(*a.qk_activation));
    if (a.second) {
        Json second;
        second.set("attention", a.second->variant);
        if (!a.second->options.empty())
            second.set("attention_options", options_json(a.second->options));
        second.set("output_norm", name(a.second->output_norm));
        if (a.second->qk_activation) second.set("qk_activation", name(*a.second->qk_activation));
        out.set("second", std::move(second));
    }
    if (a.gated_unit) out.set("gated_unit", true).set("token_shift", a.token_shift);
    if (a.output_norm != OutputNorm::none) out.set("output_norm", name(a.output_norm));
    out.set("scale", a.scale).set("causal", a.causal).set("window", a.window);
    if (a.windows.side > 0)
        out.set("window_side", a.windows.side).set("window_shift", a.windows.shift);
    if (a.rotary.columns > 0) out.set("rotary", rotary_json(a.rotary));
    out.set("qk_norm", a.qk_norm);
    if (a.qk_norm) out.set("qk_norm_layer", a.qk_norm_layer).set("qk_eps", a.qk_eps);
    if (a.qk_norm_whole) out.set("qk_norm_whole", true);
    if (a.qk_norm && !a.qk_norm_weight) out.set("qk_norm_weight", false);
    if (const QueryGrowth& q = a.growth; q.scale != 0)
        out.set("query_growth", q.scale).set("query_growth_length", q.length);
    out.set("value_projection_only", a.value_projection_only);
    if (a.channels) out.set("over", "channels");
    out.set("qkv_bias", a.qkv_bias).set("out_bias", a.out_bias);
    if (!a.k_bias) out.set("k_bias", false);
    if (a.own_of >= 0) out.set("own_of", a.own_of);
    Json own;
    for (const Parameter& p : a.own)
        own.set(p.name, Json(Json::Array{p.shape.batch, p.shape.rows, p.shape.cols}));
    if (!own.is_null()) out.set("own", std::move(own));
    out.set("alpha", block().alpha);
    if (!block().attention_norm) out.set("attention_norm", false);
}

void AttentionStep::stages(StageList& list) const {
    const BlockSpec& b = block();
    const bool norms = b.norm.kind != NormKind::none;
    const bool before = b.placement == NormPlacement::pre || b.placement == NormPlacement::parallel;
    if (before && norms && b.attention_norm) list.aside("norm1");
    list.aside("sa");
    if (b.placement == NormPlacement::parallel) return;  // the sum is that of both steps
    list.state("attn");
    if (b.placement == NormPlacement::post && norms) list.state("norm1");
}

double AttentionStep::flops(double d, double tokens) const {
    const AttentionSpec& a = spec();
    const auto keys = double(a.heads * a.head_dim), values = double(a.heads * a.value_columns());
    const double share = double(a.kv_heads) / double(a.heads);
    const LatentSpec& low = a.latent;
    const auto rank = double(low.rank), query_rank = double(low.query_rank),
               turning = double(a.rotary.columns);
    const double projections = a.gated_unit ? keys + 2 * values : keys + share * (keys + values);
    double sum =
        rank == 0
            ? 2 * tokens * d * projections
            : 2 * tokens * (query_rank > 0 ? query_rank * (d + keys) : d * keys) +
                  2 * tokens *
                      (d * (rank + turning) + rank * (keys - double(a.heads) * turning + values));
    sum += attention_cost(a, Index(d), Index(tokens), Type::f32).flops +
           2 * tokens * compared(a, tokens) * values;
    return a.value_projection_only ? sum : sum + 2 * tokens * d * values;
}

void AttentionStep::declare_maps(Index d, Parameters& to) {
    const AttentionSpec& a = spec();
    a.gated_unit        ? gated_unit(a, d, w_, to)
    : a.latent.rank > 0 ? latent_projections(a, d, w_, to)
                        : projections(a, d, w_, to);
    make_adjacent(w_);
    declare_own(a.own, to);
    if (!a.value_projection_only)
        to.linear("attn.o", w_.o, d, a.heads * a.value_columns(), a.out_bias);
}

void AttentionStep::declare_own(std::span<const Parameter> own, Parameters& to) {
    for (const Parameter& each : own) {
        std::function<Tensor()> found =
            to.on_demand<Tensor>([each](Tensor& into, Parameters& later) {
                Parameter named = each;
                named.name.insert(0, "attn.");
                later.declare(std::move(named), into);
            });
        w_.own.emplace(each.name, std::move(found));
    }
}

double AttentionStep::gain() const {
    const BlockSpec& b = block();
    const AttentionSpec& a = b.attention;
    if (a.gated_unit || a.channels || a.latent.rank > 0 || b.branch_norms ||
        b.placement == NormPlacement::branch)
        return std::numeric_limits<double>::quiet_NaN();
    Tensor v = w_.v.weight, o = w_.o.weight;
    const double d = double(v.cols());
    if (const Tensor& by = layer_scale(); by.defined()) {
        Tensor& last = o.defined() ? o : v;
        last = multiply(last, by.reshape({1, by.cols(), 1}));
    }
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

namespace tsdiag {

AttentionCost attention_cost(const AttentionSpec& spec, Index width, Index tokens, Type type) {
    if (spec.channels || spec.windows.side > 0)
        return {.flops = 2 * double(tokens) * model::compared(spec, double(tokens)) *
                         double(spec.heads * spec.head_dim)};
    AttentionCost sum;
    for (const AttentionSpec& a : model::attentions_of(spec)) {
        const AttentionEntry& entry = attention(a.variant);
        const auto shape_of = [&a](std::string_view name) {
            const auto found = std::ranges::find(a.own, name, &Parameter::name);
            return found == a.own.end() ? Shape{} : found->shape;
        };
        const AttentionCost one = cost_of(entry, a.options,
                                          {.tokens = tokens,
                                           .width = width,
                                           .heads = a.heads,
                                           .kv_heads = a.kv_heads,
                                           .head_dim = a.head_dim,
                                           .causal = a.causal,
                                           .second_pair = a.gated_unit && entry.second_pair,
                                           .type = type,
                                           .parameter = shape_of,
                                           .parameters_of_another = a.own_of >= 0});
        sum.flops += one.flops;
        sum.bytes_of_entry = std::max(sum.bytes_of_entry, one.bytes_of_entry);
    }
    return sum;
}

}  // namespace tsdiag
