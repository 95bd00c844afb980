#include <array>
#include <cmath>

#include "engine/draw.hpp"
#include "engine/rope.hpp"

/// GPT-NeoX and Pythia: parallel attention and feed-forward, rotary on a part of each head.
namespace tsdiag::families::neox {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embed_in.weight"},
    NamePair{"layer.*.norm1", "layers.*.input_layernorm"},
    NamePair{"layer.*.attn.q", "layers.*.attention.query_key_value", Form::matrix, 0, true},
    NamePair{"layer.*.attn.k", "layers.*.attention.query_key_value", Form::matrix, 1, true},
    NamePair{"layer.*.attn.v", "layers.*.attention.query_key_value", Form::matrix, 2, true},
    NamePair{"layer.*.attn.o", "layers.*.attention.dense"},
    NamePair{"layer.*.norm2", "layers.*.post_attention_layernorm"},
    NamePair{"layer.*.ffn.up", "layers.*.mlp.dense_h_to_4h"},
    NamePair{"layer.*.ffn.down", "layers.*.mlp.dense_4h_to_h"},
    NamePair{"final_norm", "final_layer_norm"},
};
constexpr std::string_view anchor = "layers.0.attention.query_key_value.weight";

Names neox_names(const ModelSpec& spec) { return translate(spec, pairs); }

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"gpt_neox"})) return *declared;
    const auto prefix = prefix_of(file, anchor);
    return prefix && file.has(*prefix + "embed_in.weight");
}

/// Columns of a head that rotate.
Index rotary_columns(Index head_dim, double share) {
    return std::min(head_dim, Index(double(head_dim) * share)) / 2 * 2;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "gpt_neox");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    s.embedding.vocabulary =
        r.agreed({"vocab_size"}, r.extent("embed_in.weight", 0), "embed_in.weight");
    s.width = s.embedding.width =
        r.agreed({"hidden_size"}, r.extent("embed_in.weight", 1), "embed_in.weight");
    s.embedding.max_tokens = r.count({"max_position_embeddings"}, 2048);
    s.final_norm = true;
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement =
        r.flag({"use_parallel_residual"}, true) ? NormPlacement::parallel : NormPlacement::pre;
    a.causal = true;
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, s.width, anchor);
    a.head_dim = s.width / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = "layers.0.mlp.dense_h_to_4h.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    a.qkv_bias = a.out_bias = r.part({"attention_bias"}, "layers.0.attention.query_key_value.bias");
    const double share = read_share(r, {"rotary_pct", "partial_rotary_factor"}, 0.25);
    a.rotary = read_rotary(r, rotary_columns(a.head_dim, share), {"rotary_emb_base", "rope_theta"});
    const Index layers = r.layers("layers.");
    r.agreed({"num_hidden_layers"}, layers, "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(neox_names(s), {"embed_out.weight", "score.*"});
}

constexpr NamedSizes named[] = {{"pythia-70m", 6, 512, 8},
                                {"pythia-160m", 12, 768, 12},
                                {"pythia-410m", 24, 1024, 16},
                                {"pythia-1.4b", 24, 2048, 16}};

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.tokens = 2048;
    preset.vocab = 50304;
    preset.causal = true;
    const Sizes sizes = read_sizes(k, sizes_of(name, named, preset));
    k.finish();
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::parallel;
    b.attention.rotary.columns = rotary_columns(b.attention.head_dim, 0.25);
    ModelSpec s = token_model("gpt_neox", sizes, b);
    s.final_norm = true;
    return drawn_normal(std::move(s));
}

std::vector<std::string_view> random_names() { return names_of(named); }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    Json out;
    out.set("architectures", Json::Array{"GPTNeoXModel"}).set("model_type", "gpt_neox");
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", a.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("rotary_pct", double(a.rotary.columns) / double(a.head_dim));
    out.set("rotary_emb_base", a.rotary.theta).set("vocab_size", s.embedding.vocabulary);
    out.set("use_parallel_residual", b.placement == NormPlacement::parallel);
    out.set("max_position_embeddings", s.embedding.max_tokens).set("initializer_range", 0.02);
    write_rope_scaling(a.rotary, out);
    return out.set("tie_word_embeddings", false);
}

}  // namespace

extern const ArchitectureEntry gpt_neox = {
    "gpt_neox",   "GPT-NeoX", "GPT-NeoX, Pythia: parallel decoder, rotary positions",
    matches,      read,       draw,
    random_names, neox_names, config};

}  // namespace tsdiag::families::neox
