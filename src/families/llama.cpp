#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "draw.hpp"
#include "rope.hpp"

/// LLaMA, Mistral, Qwen2, Qwen3: pre-norm decoders with RMS norms, gated feed-forward, rotary
/// positions and grouped queries.
namespace tsdiag::families::llama {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embed_tokens.weight"},
    NamePair{"layer.*.norm1", "layers.*.input_layernorm"},
    NamePair{"layer.*.attn.q", "layers.*.self_attn.q_proj"},
    NamePair{"layer.*.attn.k", "layers.*.self_attn.k_proj"},
    NamePair{"layer.*.attn.v", "layers.*.self_attn.v_proj"},
    NamePair{"layer.*.attn.q_norm", "layers.*.self_attn.q_norm"},
    NamePair{"layer.*.attn.k_norm", "layers.*.self_attn.k_norm"},
    NamePair{"layer.*.attn.o", "layers.*.self_attn.o_proj"},
    NamePair{"layer.*.norm2", "layers.*.post_attention_layernorm"},
    NamePair{"layer.*.ffn.gate", "layers.*.mlp.gate_proj"},
    NamePair{"layer.*.ffn.up", "layers.*.mlp.up_proj"},
    NamePair{"layer.*.ffn.down", "layers.*.mlp.down_proj"},
    NamePair{"final_norm", "norm"},
};
constexpr std::string_view anchor = "layers.0.self_attn.q_proj.weight";
const std::string attention0 = "layers.0.self_attn.";

Names llama_names(const ModelSpec& spec) { return translate(spec, pairs); }

/// The family by names and shapes where no config tells: qwen3 normalises q and k, qwen2 has biases
/// on q, k, v only; mistral is indistinguishable from llama.
std::string_view family_by_names(const Checkpoint& file) {
    const auto prefix = prefix_of(file, anchor);
    if (!prefix || !file.has(*prefix + "layers.0.mlp.gate_proj.weight")) return "";
    if (file.has(*prefix + attention0 + "q_norm.weight")) return "qwen3";
    const bool q = file.has(*prefix + attention0 + "q_proj.bias");
    return q && !file.has(*prefix + attention0 + "o_proj.bias") ? "qwen2" : "llama";
}

template <const char* family>
bool matches(const Checkpoint& file, const Json& config) {
    if (const auto told = by_model_type(config, {family})) return *told;
    return family_by_names(file) == family;
}

BlockSpec read_attention(Reader& r) {
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    b.norm.kind = NormKind::rms;
    a.causal = b.ffn.gated = true;
    a.qk_norm = r.has(attention0 + "q_norm.weight");
    const std::string query = attention0 + "q_proj.weight", key = attention0 + "k_proj.weight";
    const Index inner = r.extent(query, 0);
    const Json& told = r.value({"head_dim"});
    if (a.qk_norm)  // the norm's length is the width of a head
        a.head_dim = r.agreed({"head_dim"}, r.extent(attention0 + "q_norm.weight", 0),
                              attention0 + "q_norm.weight");
    else if (told.is_number())
        a.head_dim = r.count({"head_dim"}, 0);
    if (a.head_dim > 0 && inner % a.head_dim == 0)
        a.heads = r.agreed({"num_attention_heads"}, inner / a.head_dim, query);
    else if (a.head_dim > 0)
        r.refuse(fmt::format("heads of {} columns do not match queries of {}", a.head_dim, inner));
    else
        a.heads = r.heads({"num_attention_heads"}, inner, query);
    a.head_dim = inner / a.heads;
    const Index columns = r.extent(key, 0);
    if (columns % a.head_dim != 0 || a.heads % (columns / a.head_dim) != 0)
        r.refuse(fmt::format("keys of width {} cannot be shared by {} query heads of {} columns",
                             columns, a.heads, a.head_dim));
    a.kv_heads = r.agreed({"num_key_value_heads"}, columns / a.head_dim, key);
    a.scale = 1 / std::sqrt(double(a.head_dim));
    return b;
}

/// Qwen2 has biases on q, k, v and no key for them; the others on all four or on none.
void read_biases(Reader& r, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const bool qwen2 = r.spec.family == "qwen2";
    if (qwen2) r.value({"attention_bias"});
    a.qkv_bias = qwen2 || r.part({"attention_bias"}, attention0 + "q_proj.bias");
    a.out_bias = !qwen2 && a.qkv_bias;
    b.ffn.bias = r.part({"mlp_bias"}, "layers.0.mlp.gate_proj.bias");
}

/// The sliding layers by `layer_types`; nullopt where it is absent.
std::optional<std::vector<bool>> listed_windows(Reader& r, std::size_t layers) {
    const Json& types = r.value({"layer_types"});
    if (types.is_null()) return std::nullopt;
    std::vector<bool> out;
    for (const Json& type : types.array()) {
        if (type.string() != "sliding_attention" && type.string() != "full_attention")
            r.refuse(
                fmt::format("layer_types has '{}', which is not supported (full_attention and "
                            "sliding_attention are)",
                            type.string()));
        out.push_back(type.string() == "sliding_attention");
    }
    if (out.size() != layers)
        r.refuse(fmt::format("layer_types has {} layers, but the file has {}", out.size(), layers));
    return out;
}

/// Sliding windows: Qwen's only where `use_sliding_window`, by `layer_types` where listed, else
/// from layer `max_window_layers` on; Mistral's in all layers.  LLaMA has none.
void read_windows(Reader& r, std::vector<BlockSpec>& blocks) {
    const bool mistral = r.spec.family == "mistral", qwen = r.spec.family.starts_with("qwen");
    const auto listed = listed_windows(r, blocks.size());
    r.value({"max_window_layers"});  // no effect where nothing slides
    const Json& use = r.value({"use_sliding_window"});
    const bool off = r.config().contains("sliding_window") && r.value({"sliding_window"}).is_null();
    if (!mistral && !qwen) {
        r.only({"sliding_window"}, 0);
        r.only({"use_sliding_window"}, false);
    }
    const bool on = mistral || qwen ? use.is_bool() ? use.boolean() : mistral : false;
    const Index window = on && !off ? r.count({"sliding_window"}, 4096) : 0;
    const Index first = window < 1        ? std::ssize(blocks)
                        : qwen && !listed ? r.count({"max_window_layers"}, 28)
                                          : 0;
    for (std::size_t l = 0; l < blocks.size(); ++l) {
        const bool slides = Index(l) >= first && (!qwen || !listed || (*listed)[l]);
        if (listed && (*listed)[l] != slides)
            r.refuse(fmt::format(
                "layer_types says that layer {} {}, but sliding_window or the family disagrees", l,
                (*listed)[l] ? "has a sliding window" : "has full attention"));
        if (slides) blocks[l].attention.window = window;
    }
    if (window > 0) r.saw(fmt::format("sliding window of {} tokens", window));
}

/// The library's default where nothing is given.
Index default_length(std::string_view family) {
    if (family == "mistral") return 131072;
    return family == "llama" ? 2048 : 32768;
}

/// The tensors of LLaMA are also those of Mistral, and of Gemma and Granite, which compute
/// differently.
void ask_for_family(const Reader& r) {
    if (r.told() || r.spec.family != "llama") return;
    r.ask(
        "its tensor names are shared by LLaMA, Mistral, Gemma and others, which compute different "
        "things; put its config.json next to it or pass --config FILE, at least {\"model_type\": "
        "\"llama\"}");
}

Architecture read_family(const Checkpoint& file, const DetectOptions& options,
                         std::string_view family) {
    Reader r(file, options, family);
    r.find_prefix(anchor);
    ask_for_family(r);
    ModelSpec& s = r.spec;
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    const std::string tokens = "embed_tokens.weight";
    s.vocabulary = r.agreed({"vocab_size"}, r.extent(tokens, 0), tokens);
    s.width = s.embedding_width = r.agreed({"hidden_size"}, r.extent(tokens, 1), tokens);
    const Json& longest = r.value({"max_sequence_length"});  // of the first LLaMA
    s.max_tokens = r.count({"max_position_embeddings"},
                           longest.is_integer() ? longest.integer() : default_length(family));
    s.final_norm = true;
    BlockSpec b = read_attention(r);
    read_biases(r, b);
    const std::string gate = "layers.0.mlp.gate_proj.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(gate, 0), gate);
    b.norm.eps = b.attention.qk_eps = r.number({"rms_norm_eps"}, 1e-6);
    b.ffn.activation = r.activation({"hidden_act"}, "silu");
    const double share = read_share(r, {"partial_rotary_factor"}, 1);
    const auto columns = Index(double(b.attention.head_dim) * share);
    if (columns % 2 != 0)
        r.refuse(fmt::format("{} columns of a head cannot rotate in pairs", columns));
    b.attention.rotary = read_rotary(r, columns, {"rope_theta"});
    const Index layers = r.layers("layers.");
    r.agreed({"num_hidden_layers"}, layers, "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    read_windows(r, s.blocks);
    return r.finish(llama_names(s), {"*lm_head.*", "score.*"});
}

template <const char* family>
Architecture read(const Checkpoint& file, const DetectOptions& options) {
    return read_family(file, options, family);
}

/// Fields of a released model beyond `Sizes`.
struct Preset {
    std::string_view name, family;
    Sizes sizes;
    double theta = 10000;
    Rotary scaling = {};
    bool qkv_bias = false, qk_norm = false;
    Index window = 0;
};

Sizes decoder(Index layers, Index d, Index heads, Index kv, Index ffn, Index tokens, Index vocab,
              double eps) {
    Sizes s;
    s.layers = layers;
    s.d = d;
    s.heads = heads;
    s.kv_heads = kv;
    s.ffn = ffn;
    s.tokens = tokens;
    s.vocab = vocab;
    s.eps = eps;
    s.act = Unary::silu;
    s.causal = true;
    return s;
}

std::vector<Preset> presets() {
    Rotary llama3;
    llama3.scaling = "llama3";
    llama3.factor = 32;
    llama3.original_length = 8192;
    Sizes qwen3 = decoder(28, 1024, 16, 8, 3072, 40960, 151936, 1e-6);
    qwen3.head_dim = 128;
    return {
        {"llama-7b", "llama", decoder(32, 4096, 32, 32, 11008, 4096, 32000, 1e-5)},
        {"llama-3.2-1b", "llama", decoder(16, 2048, 32, 8, 8192, 131072, 128256, 1e-5), 5e5,
         llama3},
        {"mistral-7b",
         "mistral",
         decoder(32, 4096, 32, 8, 14336, 32768, 32000, 1e-5),
         10000,
         {},
         false,
         false,
         4096},
        {"qwen2-0.5b", "qwen2", decoder(24, 896, 14, 2, 4864, 32768, 151936, 1e-6), 1e6, {}, true},
        {"qwen3-0.6b", "qwen3", qwen3, 1e6, {}, false, true},
    };
}

template <const char* family>
std::vector<std::string_view> random_names() {
    std::vector<std::string_view> out;
    for (const Preset& p : presets())
        if (p.family == family) out.push_back(p.name);
    return out;
}

RandomModel draw(std::string_view name, const Keys& keys) {
    for (const Preset& p : presets()) {
        if (p.name != name) continue;
        KeyReader k(name, keys);
        const Sizes sizes = read_sizes(k, p.sizes);
        k.finish();
        BlockSpec b = block(sizes);
        if (b.attention.head_dim % 2 != 0)
            k.refuse(
                fmt::format("a head of {} columns cannot rotate in pairs", b.attention.head_dim));
        b.placement = NormPlacement::pre;
        b.norm.kind = NormKind::rms;
        b.ffn.gated = true;
        b.attention.qkv_bias = p.qkv_bias;
        b.attention.out_bias = b.ffn.bias = false;
        b.attention.qk_norm = p.qk_norm;
        b.attention.qk_eps = b.norm.eps;
        b.attention.window = p.window;
        b.attention.rotary = p.scaling;
        b.attention.rotary.columns = b.attention.head_dim;
        b.attention.rotary.theta = p.theta;
        ModelSpec s = token_model(p.family, sizes, b);
        s.final_norm = true;
        return drawn(
            std::move(s), [](const Parameter& q) { return normal_law(q, 0.02); },
            "weights N(0, 0.02^2), biases 0, norms 1 and 0");
    }
    return {};
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    const AttentionSpec& a = b.attention;
    const std::string family = s.family == "llama"     ? "Llama"
                               : s.family == "mistral" ? "Mistral"
                               : s.family == "qwen2"   ? "Qwen2"
                                                       : "Qwen3";
    Json out;
    out.set("architectures", Json::Array{family + "Model"}).set("model_type", s.family);
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", a.heads).set("num_key_value_heads", a.kv_heads);
    out.set("head_dim", a.head_dim).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("rms_norm_eps", b.norm.eps);
    out.set("rope_theta", a.rotary.theta).set("max_position_embeddings", s.max_tokens);
    out.set("vocab_size", s.vocabulary).set("tie_word_embeddings", true);
    if (s.family != "qwen2") out.set("attention_bias", a.qkv_bias);
    out.set("initializer_range", 0.02);
    if (a.window > 0)
        out.set("sliding_window", a.window);
    else
        out.set("sliding_window", nullptr);
    write_rope_scaling(a.rotary, out);
    return out;
}

constexpr char llama_name[] = "llama", mistral_name[] = "mistral", qwen2_name[] = "qwen2",
               qwen3_name[] = "qwen3";

template <const char* family>
constexpr ArchitectureEntry entry(std::string_view title, std::string_view description) {
    return {family,       title, description,          matches<family>,
            read<family>, draw,  random_names<family>, llama_names,
            config};
}

}  // namespace

extern const ArchitectureEntry llama = entry<llama_name>(
    "LLaMA", "LLaMA: pre-norm decoder, RMS norms, rotary positions, gated feed-forward");
extern const ArchitectureEntry mistral =
    entry<mistral_name>("Mistral", "Mistral: LLaMA with grouped queries and a sliding window");
extern const ArchitectureEntry qwen2 =
    entry<qwen2_name>("Qwen2", "Qwen2: LLaMA with biases on q, k, v");
extern const ArchitectureEntry qwen3 =
    entry<qwen3_name>("Qwen3", "Qwen3: LLaMA with norms of q and k");

}  // namespace tsdiag::families::llama
