#include <fmt/format.h>

#include <array>
#include <cmath>

#include "decoder.hpp"
#include "engine/rope.hpp"

/// DeepSeek V2 and V3: latent keys and values, experts of which some are shared.
namespace tsdiag::families::deepseek {
namespace {

constexpr std::array pairs = both(
    std::array{
        NamePair{"layer.*.attn.q_low", "layers.*.self_attn.q_a_proj"},
        NamePair{"layer.*.attn.q_low_norm", "layers.*.self_attn.q_a_layernorm"},
        NamePair{"layer.*.attn.q", "layers.*.self_attn.q_b_proj"},
        NamePair{"layer.*.attn.kv_low", "layers.*.self_attn.kv_a_proj_with_mqa"},
        NamePair{"layer.*.attn.kv_low_norm", "layers.*.self_attn.kv_a_layernorm"},
        NamePair{"layer.*.attn.k", "layers.*.self_attn.kv_b_proj"},
        NamePair{"layer.*.attn.v", "layers.*.self_attn.kv_b_proj"},
        NamePair{"layer.*.ffn.router", "layers.*.mlp.gate"},
        NamePair{"layer.*.ffn.router.correction", "layers.*.mlp.gate.e_score_correction_bias"},
        NamePair{"layer.*.ffn.expert.*.gate", "layers.*.mlp.experts.*.gate_proj"},
        NamePair{"layer.*.ffn.expert.*.up", "layers.*.mlp.experts.*.up_proj"},
        NamePair{"layer.*.ffn.expert.*.down", "layers.*.mlp.experts.*.down_proj"},
        NamePair{"layer.*.ffn.shared.gate", "layers.*.mlp.shared_experts.gate_proj"},
        NamePair{"layer.*.ffn.shared.up", "layers.*.mlp.shared_experts.up_proj"},
        NamePair{"layer.*.ffn.shared.down", "layers.*.mlp.shared_experts.down_proj"}},
    llama_pairs);

/// One tensor has the keys and the values of each head in turn; queries without a low rank have a
/// name of their own.
Names names(const ModelSpec& s) {
    Names out = translate(s, pairs);
    const AttentionSpec& a = s.blocks.front().attention;
    const Index keys = a.head_dim - a.rotary.columns, values = a.value_columns();
    constexpr std::string_view low = "q_b_proj";
    for (auto& [canonical, source] : out) {
        const bool key = canonical.ends_with(".attn.k.weight");
        if (key || canonical.ends_with(".attn.v.weight")) {
            source.groups = a.heads;
            source.stride = keys + values;
            source.first = key ? 0 : keys;
            source.length = key ? keys : values;
            source.total = a.heads * (keys + values);
        }
        if (a.latent.query_rank == 0 && canonical.ends_with(".attn.q.weight"))
            source.file_name.replace(source.file_name.find(low), low.size(), "q_proj");
    }
    return out;
}

double temperature(double factor, double m) {
    return factor > 1 ? 0.1 * m * std::log(factor) + 1 : 1;
}

double scaled(const AttentionSpec& a, double m) {
    const double t = temperature(a.rotary.factor, m);
    return t * t / std::sqrt(double(a.head_dim));
}

/// `mscale_all_dim` of a scale; 0: none.
double scale_by(const AttentionSpec& a) {
    if (a.rotary.scaling != "yarn" || a.rotary.factor <= 1) return 0;
    const double t = std::sqrt(a.scale * std::sqrt(double(a.head_dim))),
                 m = (t - 1) / (0.1 * std::log(a.rotary.factor)), few = std::round(m * 1e6) / 1e6;
    return scaled(a, few) == a.scale ? few : m;
}

/// The logits' scale has the square of YaRN's temperature, by `mscale_all_dim`.
double read_scale(Reader& r, const AttentionSpec& a) {
    const double plain = 1 / std::sqrt(double(a.head_dim));
    const Json& newer = r.value({"rope_parameters"});
    const Json& rope = newer.is_null() ? r.value({"rope_scaling"}) : newer;
    const Json& all = rope.is_object() ? rope["mscale_all_dim"] : newer;
    if (a.rotary.scaling != "yarn" || !all.is_number() || all.number() == 0) return plain;
    return scaled(a, all.number());
}

void read_attention(Reader& r, AttentionSpec& a) {
    const std::string at = "layers.0.self_attn.";
    a.causal = true;
    a.qkv_bias = a.out_bias = false;
    r.only({"attention_bias"}, false);
    a.heads = a.kv_heads = r.count({"num_attention_heads"}, 0);
    const Index rows = r.extent(at + "kv_b_proj.weight", 0);
    if (a.heads < 1 || rows % a.heads != 0)
        r.refuse(fmt::format("num_attention_heads is {}, but '{}{}kv_b_proj.weight' has {} rows",
                             a.heads, r.prefix(), at, rows));
    r.agreed({"num_key_value_heads"}, a.heads, at + "kv_b_proj.weight");
    LatentSpec& l = a.latent;
    l.rank = r.agreed({"kv_lora_rank"}, r.extent(at + "kv_a_layernorm.weight", 0),
                      at + "kv_a_layernorm.weight");
    const std::string both = at + "kv_a_proj_with_mqa.weight";
    a.rotary.columns = r.agreed({"qk_rope_head_dim"}, r.extent(both, 0) - l.rank, both);
    const bool low = r.has(at + "q_a_layernorm.weight");
    if (low)
        l.query_rank = r.agreed({"q_lora_rank"}, r.extent(at + "q_a_layernorm.weight", 0),
                                at + "q_a_layernorm.weight");
    else
        r.only({"q_lora_rank"}, Json());
    const std::string query = at + (low ? "q_b_proj.weight" : "q_proj.weight");
    a.head_dim = r.extent(query, 0) / a.heads;
    if (a.rotary.columns < 2 || a.rotary.columns % 2 != 0 || a.head_dim <= a.rotary.columns)
        r.refuse(fmt::format("{} of {} columns of a head cannot rotate in pairs beside others",
                             a.rotary.columns, a.head_dim));
    r.agreed({"qk_nope_head_dim"}, a.head_dim - a.rotary.columns, query);
    r.agreed({"qk_head_dim"}, a.head_dim, query);
    r.agreed({"head_dim"}, a.rotary.columns, both);  // so the library calls what rotates
    a.value_dim = r.agreed({"v_head_dim"}, rows / a.heads - (a.head_dim - a.rotary.columns),
                           at + "kv_b_proj.weight");
    if (a.value_dim < 1)
        r.refuse(fmt::format("'{}{}kv_b_proj.weight' has no rows for values", r.prefix(), at));
    a.rotary = read_rotary(r, a.rotary.columns, {"rope_theta"});
    const bool third = r.spec.family == "deepseek_v3";
    a.rotary.interleaved = !third || r.flag({"rope_interleave"}, true);
    if (!third && !r.switch_said({"rope_interleave"}).value_or(true))
        r.saw("rope_interleave is not read, as in Transformers: DeepSeek V2 rotates neighbours");
    a.scale = read_scale(r, a);
}

/// How experts are chosen, which of the two generations tells.
void read_choice(Reader& r, bool third, const std::string& at, ExpertsSpec& e) {
    r.only({"scoring_func"}, third ? "sigmoid" : "softmax");
    const std::string method = r.word({"topk_method"}, third ? "noaux_tc" : "greedy");
    const bool grouped = third || method == "group_limited_greedy";
    if (third ? method != "noaux_tc" : method != "greedy" && !grouped)
        r.refuse(fmt::format("topk_method is '{}', which is not supported in {}", method,
                             r.spec.family));
    e.sigmoid = e.corrected = third;
    e.renormalised = third && r.flag({"norm_topk_prob"}, true);
    if (!third) r.only({"norm_topk_prob"}, false);
    e.scale = r.number({"routed_scaling_factor"}, third ? 2.5 : 1);
    r.value({"n_group"});
    r.value({"topk_group"});
    if (!grouped) return;
    e.groups = r.count({"n_group"}, third ? 8 : 1);
    e.chosen_groups = r.count({"topk_group"}, third ? 4 : 1);
    if (e.groups < 1 || e.count % e.groups != 0 || e.chosen_groups < 1 ||
        e.chosen_groups > e.groups || e.chosen_groups * (e.count / e.groups) < e.chosen)
        r.refuse(fmt::format("{} experts of {} cannot be chosen from {} of {} groups ({})",
                             e.chosen, e.count, e.chosen_groups, e.groups, at));
}

void read_feed_forward(Reader& r, bool third) {
    ModelSpec& s = r.spec;
    const auto layers = Index(s.blocks.size());
    const Index dense = std::min(layers, r.count({"first_k_dense_replace"}, third ? 3 : 0));
    r.only({"moe_layer_freq"}, 1);
    const Unary activation = r.activation({"hidden_act"}, "silu");
    for (BlockSpec& b : s.blocks) {
        b.ffn.gated = true;
        b.ffn.bias = false;
        b.ffn.activation = activation;
    }
    r.only({"mlp_bias"}, false);
    for (const char* training :
         {"aux_loss_alpha", "seq_aux", "ep_size", "router_aux_loss_coef", "output_router_logits"})
        r.value({training});
    const std::string up = "layers.0.mlp.up_proj.weight";
    r.value({"intermediate_size"});
    for (Index l = 0; l < dense; ++l)
        s.blocks[std::size_t(l)].ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    if (dense == layers) {
        for (const char* unused :
             {"n_routed_experts", "num_local_experts", "num_experts_per_tok", "n_shared_experts",
              "moe_intermediate_size", "topk_method", "scoring_func", "norm_topk_prob",
              "routed_scaling_factor", "n_group", "topk_group"})
            r.value({unused});
        return;
    }
    const std::string at = fmt::format("layers.{}.mlp.", dense);
    ExpertsSpec e;
    e.count = r.agreed({"n_routed_experts", "num_local_experts"}, r.extent(at + "gate.weight", 0),
                       at + "gate.weight");
    e.chosen = r.count({"num_experts_per_tok"}, third ? 8 : 6);
    if (e.chosen < 1 || e.chosen > e.count)
        r.refuse(
            fmt::format("num_experts_per_tok is {}, but there are {} experts", e.chosen, e.count));
    read_choice(r, third, at, e);
    const std::string one = at + "experts.0.up_proj.weight",
                      shared = at + "shared_experts.up_proj.weight";
    const Index width = r.agreed({"moe_intermediate_size"}, r.extent(one, 0), one);
    if (r.has(shared)) {
        e.shared = r.extent(shared, 0);
        if (e.shared % width == 0) r.agreed({"n_shared_experts"}, e.shared / width, shared);
    } else {
        r.only({"n_shared_experts"}, Json());
    }
    for (Index l = dense; l < layers; ++l) {
        s.blocks[std::size_t(l)].ffn.width = width;
        s.blocks[std::size_t(l)].ffn.experts = e;
    }
    if (dense > 0) r.saw(fmt::format("no experts in the first {} layers", dense));
}

Architecture read(const Checkpoint& file, const DetectOptions& options, bool third) {
    Reader r(file, options, third ? "deepseek_v3" : "deepseek_v2");
    r.find_prefix("layers.0.self_attn.kv_a_proj_with_mqa.weight");
    accept_code(r, "deepseek");
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    ModelSpec& s = r.spec;
    const std::string tokens = "embed_tokens.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(tokens, 0), tokens);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(tokens, 1), tokens);
    s.embedding.max_tokens = r.count({"max_position_embeddings"}, third ? 4096 : 2048);
    s.final_norm = true;
    // Layers behind the last one predict further tokens in training.
    const Json& predicts = r.value({"num_nextn_predict_layers"});
    const Index more = predicts.is_integer() ? predicts.integer() : 0, all = r.layers("layers.");
    const Index declared_layers = r.count({"num_hidden_layers"}, all);
    if (more < 0 || more > 1 || (declared_layers != all && declared_layers + more != all))
        r.refuse(
            fmt::format("num_hidden_layers is {} and num_nextn_predict_layers {}, but the "
                        "file has {} layers",
                        declared_layers, more, all));
    BlockSpec b;
    b.placement = NormPlacement::pre;
    b.norm.kind = NormKind::rms;
    b.norm.bias = false;
    b.norm.eps = r.number({"rms_norm_eps"}, 1e-6);
    read_attention(r, b.attention);
    s.blocks.assign(std::size_t(declared_layers), b);
    read_feed_forward(r, third);
    const std::string further_layer = fmt::format("layers.{}.*", declared_layers);
    if (declared_layers != all)
        r.saw(
            fmt::format("layer {} predicts a further token in training; not run", declared_layers));
    return r.finish(names(s),
                    {"*lm_head.*", "score.*", declared_layers != all ? further_layer : "score.*"});
}

struct Preset {
    std::string_view name;
    bool third = false, low = false;
    Sizes sizes;
    double moe = 0;  ///< width of an expert, of that of a layer without
    ExpertsSpec experts;
    Index dense = 0;
};
const std::vector<Preset>& presets() {
    static const std::vector<Preset> all{
        {"deepseek-v2-lite",
         false,
         false,
         decoder_sizes(27, 2048, 16, 16, 10944, 163840, 102400, 1e-6, 128),
         1408.0 / 10944,
         {.count = 64, .chosen = 6, .shared = 2},
         1},
        {"deepseek-v2",
         false,
         true,
         decoder_sizes(60, 5120, 128, 128, 12288, 163840, 102400, 1e-6, 128),
         1536.0 / 12288,
         {.count = 160, .chosen = 6, .groups = 8, .chosen_groups = 3, .scale = 16, .shared = 2},
         1},
        {"deepseek-v3",
         true,
         true,
         decoder_sizes(61, 7168, 128, 128, 18432, 163840, 129280, 1e-6, 128),
         2048.0 / 18432,
         {.count = 256,
          .chosen = 8,
          .renormalised = true,
          .sigmoid = true,
          .corrected = true,
          .groups = 8,
          .chosen_groups = 4,
          .scale = 2.5,
          .shared = 1},
         3}};
    return all;
}

RandomModel draw(std::string_view name, const Keys& keys) {
    const Preset& preset = *std::ranges::find(presets(), name, &Preset::name);
    KeyReader k(name, keys);
    const Sizes sizes = read_sizes(k, preset.sizes);
    k.finish();
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    b.norm.kind = NormKind::rms;
    b.norm.bias = b.ffn.bias = false;
    b.ffn.gated = true;
    AttentionSpec& a = b.attention;
    a.causal = true;
    a.qkv_bias = a.out_bias = false;
    if (sizes.kv_heads != sizes.heads) k.refuse("every head has its own keys; omit kv_heads");
    // As in all released models: half as many columns beside those of a head rotate.
    const Index still = a.head_dim;
    a.rotary.columns = std::max<Index>(still / 4 * 2, 2);
    a.rotary.interleaved = true;
    a.rotary.scaling = "yarn";
    a.rotary.factor = 40;
    a.rotary.original_length = 4096;
    a.value_dim = still;
    a.head_dim = still + a.rotary.columns;
    a.latent.rank = 4 * still;
    a.latent.query_rank = preset.low ? 12 * still : 0;
    a.scale = scaled(a, preset.third ? 1 : 0.707);
    ModelSpec s = token_model(preset.third ? "deepseek_v3" : "deepseek_v2", sizes, b);
    s.final_norm = true;
    const Index width = std::max<Index>(std::llround(preset.moe * double(sizes.ffn)), 1);
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        if (Index(l) < std::min(preset.dense, Index(s.blocks.size()) - 1)) continue;
        FeedForwardSpec& f = s.blocks[l].ffn;
        f.width = width;
        f.experts = preset.experts;
        f.experts.shared = preset.experts.shared * width;
    }
    return drawn(
        std::move(s),
        [](const Parameter& p) {
            if (p.name.ends_with(".correction")) return Draw{Draw::Law::zero, 0, -1};
            return normal_law(p, 0.02);
        },
        "weights N(0, 0.02^2), corrections of the router 0, norms 1");
}

std::vector<std::string_view> random_names(bool third) {
    std::vector<std::string_view> out;
    for (const Preset& preset : presets())
        if (preset.third == third) out.push_back(preset.name);
    return out;
}

Json config(const ModelSpec& s) {
    const bool third = s.family == "deepseek_v3";
    const AttentionSpec& a = s.blocks.front().attention;
    const BlockSpec& last = s.blocks.back();
    const ExpertsSpec& e = last.ffn.experts;
    Index dense = 0, width = 0;
    for (const BlockSpec& b : s.blocks)
        if (b.ffn.experts.count == 0) ++dense, width = b.ffn.width;
    Json out;
    out.set("architectures", Json::Array{third ? "DeepseekV3Model" : "DeepseekV2Model"});
    out.set("model_type", s.family).set("hidden_size", s.width);
    out.set("num_hidden_layers", Index(s.blocks.size())).set("num_attention_heads", a.heads);
    out.set("num_key_value_heads", a.heads).set("kv_lora_rank", a.latent.rank);
    out.set("q_lora_rank", a.latent.query_rank > 0 ? Json(a.latent.query_rank) : Json());
    out.set("qk_rope_head_dim", a.rotary.columns).set("v_head_dim", a.value_columns());
    out.set("qk_nope_head_dim", a.head_dim - a.rotary.columns).set("attention_bias", false);
    out.set("rms_norm_eps", last.norm.eps).set("max_position_embeddings", s.embedding.max_tokens);
    out.set("vocab_size", s.embedding.vocabulary)
        .set("hidden_act", hf_activation(last.ffn.activation));
    out.set("rope_theta", a.rotary.theta).set("rope_interleave", a.rotary.interleaved);
    write_rope_scaling(a.rotary, out);
    if (const double m = scale_by(a); m > 0) {
        Json rope = out["rope_scaling"];
        out.set("rope_scaling", rope.set("mscale_all_dim", m));
    }
    out.set("first_k_dense_replace", dense).set("intermediate_size", width);
    if (e.count > 0) {
        out.set("n_routed_experts", e.count).set("num_experts_per_tok", e.chosen);
        out.set("moe_intermediate_size", last.ffn.width).set("norm_topk_prob", e.renormalised);
        out.set("n_shared_experts", e.shared > 0 ? Json(e.shared / last.ffn.width) : Json());
        out.set("routed_scaling_factor", e.scale).set("n_group", e.groups);
        out.set("topk_group", e.chosen_groups);
        out.set("scoring_func", third ? "sigmoid" : "softmax");
        out.set("topk_method", third          ? "noaux_tc"
                               : e.groups > 1 ? "group_limited_greedy"
                                              : "greedy");
    }
    return out.set("initializer_range", 0.02).set("tie_word_embeddings", true);
}

template <bool third>
constexpr ArchitectureEntry entry(std::string_view title, std::string_view description) {
    constexpr std::string_view name = third ? "deepseek_v3" : "deepseek_v2";
    return {name,
            title,
            description,
            [](const Checkpoint&, const Json& c) {
                return by_model_type(c, {third ? "deepseek_v3" : "deepseek_v2"}).value_or(false);
            },
            [](const Checkpoint& file, const DetectOptions& o) { return read(file, o, third); },
            draw,
            [] { return random_names(third); },
            names,
            config};
}

}  // namespace

extern const ArchitectureEntry deepseek_v2 = entry<false>(
    "DeepSeek V2",
    "DeepSeek V2: latent keys and values, a part of each head rotates, experts of which some are "
    "shared");
extern const ArchitectureEntry deepseek_v3 = entry<true>(
    "DeepSeek V3",
    "DeepSeek V3, R1: V2 with sigmoid scores, and experts chosen by corrected ones from groups");

}  // namespace tsdiag::families::deepseek
