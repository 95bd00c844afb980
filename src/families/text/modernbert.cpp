#include <fmt/format.h>

#include <array>
#include <cmath>

#include "decoder.hpp"
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// ModernBERT: a pre-norm encoder with rotary positions, windows in two of three layers, gated
/// feed-forward, no biases, and no norm before the first attention.  [MODERNBERT]
namespace tsdiag::families::modernbert {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embeddings.tok_embeddings.weight"},
    NamePair{"embed.norm", "embeddings.norm"},
    NamePair{"layer.*.norm1", "layers.*.attn_norm"},
    NamePair{"layer.*.attn.q", "layers.*.attn.Wqkv", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "layers.*.attn.Wqkv", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "layers.*.attn.Wqkv", Form::matrix, 2},
    NamePair{"layer.*.attn.o", "layers.*.attn.Wo"},
    NamePair{"layer.*.norm2", "layers.*.mlp_norm"},
    NamePair{"layer.*.ffn.gate", "layers.*.mlp.Wi", Form::matrix, 0, false, 2},
    NamePair{"layer.*.ffn.up", "layers.*.mlp.Wi", Form::matrix, 1, false, 2},
    NamePair{"layer.*.ffn.down", "layers.*.mlp.Wo"},
    NamePair{"final_norm", "final_norm"},
};
constexpr std::string_view anchor = "embeddings.tok_embeddings.weight";

Names names(const ModelSpec& spec) { return translate(spec, pairs); }

bool matches(const Checkpoint& file, const Json& config) {
    return by_model_type(config, {"modernbert"}).value_or(prefix_of(file, anchor).has_value());
}

/// The base of one kind of layers: `rope_parameters` of transformers 5, else `key`.
double base_of(Reader& r, std::string_view kind, std::string_view key, double fallback) {
    const Json& newer = r.value({"rope_parameters"});
    if (newer.is_null()) {
        const double base = r.number({key}, fallback);
        if (!(base > 0)) r.refuse(fmt::format("{} is {}, expected a positive number", key, base));
        return base;
    }
    r.value({key});
    const Json& own = newer[kind];
    if (!own["rope_theta"].is_number() || !(own["rope_theta"].number() > 0))
        r.refuse(fmt::format("{} says rope_parameters = {}, expected a rope_theta of {}",
                             r.config_source(), newer.dump(), kind));
    for (const auto& [word, said] : own.object())
        if (word != "rope_theta" && !(word == "rope_type" && equal(said, "default")))
            r.refuse(fmt::format("rope_parameters has {} = {}, which is not supported", word,
                                 said.dump()));
    return own["rope_theta"].number();
}

/// A token sees `local_attention` / 2 tokens on either side in every layer but each n-th.
void read_windows(Reader& r) {
    r.only({"rope_scaling"}, Json());
    const Index every = r.count({"global_attn_every_n_layers"}, 3);
    if (every < 1) r.refuse("global_attn_every_n_layers is 0");
    const Index window = r.count({"local_attention"}, 128) / 2 + 1;
    set_windows(
        r, window, [every](Index l) { return l % every != 0; }, false);
    const double full = base_of(r, "full_attention", "global_rope_theta", 160000);
    const double sliding = base_of(r, "sliding_attention", "local_rope_theta", 10000);
    for (BlockSpec& b : r.spec.blocks) {
        AttentionSpec& a = b.attention;
        a.rotary.columns = a.head_dim;
        a.rotary.theta = a.window > 0 ? sliding : full;
    }
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "modernbert");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    const std::string words(anchor), fused = "layers.0.attn.Wqkv.weight",
                                     up = "layers.0.mlp.Wi.weight", down = "layers.0.mlp.Wo.weight";
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent(words, 0), words);
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(words, 1), words);
    s.embedding.max_tokens = r.count({"max_position_embeddings"}, 8192);
    s.embedding.norm = s.final_norm = true;
    r.only({"position_embedding_type"}, "absolute");  // a word of its parents, which nothing reads
    BlockSpec b;
    b.placement = NormPlacement::pre;
    b.norm.eps = r.number({"norm_eps"}, 1e-5);
    r.value({"layer_norm_eps"});  // likewise
    b.norm.bias = r.part({"norm_bias"}, "final_norm.bias", true);
    AttentionSpec& a = b.attention;
    const Index inner = r.extent(fused, 0) / 3;
    a.heads = a.kv_heads = r.heads({"num_attention_heads"}, inner, fused);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    a.qkv_bias = a.out_bias = r.part({"attention_bias"}, "layers.0.attn.Wqkv.bias", true);
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(down, 1), down);
    b.ffn.activation = r.activation({"hidden_activation"}, "gelu");
    b.ffn.gated = true;
    b.ffn.bias = r.part({"mlp_bias"}, "layers.0.mlp.Wi.bias", true);
    const Index layers = r.layers("layers.");
    r.agreed({"num_hidden_layers"}, layers, "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    s.blocks.front().attention_norm = false;
    read_windows(r);
    // Of heads, and of how they are run.
    for (const char* other :
         {"decoder_bias", "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad",
          "sparse_prediction", "sparse_pred_ignore_index"})
        r.value({other});
    return r.finish(names(s), {"head.*", "decoder.*", "classifier*"});
}

constexpr NamedSizes named[] = {{"modernbert-base", 22, 768, 12},
                                {"modernbert-large", 28, 1024, 16}};

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.tokens = 8192;
    preset.vocab = 50368;
    preset = sizes_of(name, named, preset);
    preset.ffn = name == "modernbert-base" ? 1152 : 2624;
    const Sizes sizes = read_sizes(k, preset);
    k.finish();
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    b.norm.bias = b.ffn.bias = b.attention.qkv_bias = b.attention.out_bias = false;
    b.ffn.gated = true;
    ModelSpec s = token_model("modernbert", sizes, b);
    s.embedding.norm = s.final_norm = true;
    s.blocks.front().attention_norm = false;
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        AttentionSpec& a = s.blocks[l].attention;
        const bool slides = l % 3 != 0;
        a.window = slides ? 128 / 2 + 1 : 0;
        a.rotary.columns = a.head_dim;
        a.rotary.theta = slides ? 10000 : 160000;
    }
    const double last = 0.02 / std::sqrt(2 * double(sizes.layers));
    return drawn(
        std::move(s),
        [last](const Parameter& p) {
            Draw law = normal_law(p, 0.02);
            if (law.law != Draw::Law::normal) return law;
            const bool out = p.name.ends_with("attn.o.weight") || p.name.ends_with("down.weight");
            return Draw{Draw::Law::truncated, out ? last : 0.02, -1};
        },
        fmt::format("weights N(0, 0.02^2), those of the last maps of branches N(0, {:.6g}^2), all "
                    "within two deviations, norms 1",
                    last));
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"ModernBertModel"}).set("model_type", "modernbert");
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_activation", hf_activation(b.ffn.activation)).set("norm_eps", b.norm.eps);
    out.set("norm_bias", b.norm.bias).set("attention_bias", b.attention.qkv_bias);
    out.set("mlp_bias", b.ffn.bias).set("max_position_embeddings", s.embedding.max_tokens);
    out.set("vocab_size", s.embedding.vocabulary).set("global_attn_every_n_layers", Index{3});
    out.set("global_rope_theta", 160000.0).set("local_rope_theta", 10000.0);
    return out.set("local_attention", Index{128}).set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry modernbert = {
    "modernbert",
    "ModernBERT",
    "ModernBERT: pre-norm encoder, rotary positions, windows in two of three layers, no biases",
    matches,
    read,
    draw,
    [] { return names_of(named); },
    names,
    config};

}  // namespace tsdiag::families::modernbert
