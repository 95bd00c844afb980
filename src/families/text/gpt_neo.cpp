#include <fmt/format.h>

#include <array>

#include "decoder.hpp"

/// GPT-Neo: GPT-2 with nn.Linear, sliding windows in every second layer, and unscaled logits.
namespace tsdiag::families::gpt_neo {
namespace {

constexpr std::array pairs =
    both(std::array{NamePair{"layer.*.attn.q", "h.*.attn.attention.q_proj"},
                    NamePair{"layer.*.attn.k", "h.*.attn.attention.k_proj"},
                    NamePair{"layer.*.attn.v", "h.*.attn.attention.v_proj"},
                    NamePair{"layer.*.attn.o", "h.*.attn.attention.out_proj"}},
         gpt2_pairs);
constexpr std::string_view anchor = "h.0.attn.attention.q_proj.weight";

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"gpt_neo"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

bool is_local(const Reader& r, const Json& kind) {
    if (kind.string() != "local" && kind.string() != "global")
        r.refuse(
            fmt::format("attention '{}' of a layer is neither global nor local", kind.string()));
    return kind.string() == "local";
}

/// [[kinds, repeats], ...] expanded.
std::vector<bool> repeated(const Reader& r, const Json& types, Index layers) {
    std::vector<bool> out;
    for (const Json& group : types.array()) {
        if (!group.is_array() || group.array().size() != 2)
            r.refuse("attention_types is not a list of [kinds, repeats]");
        const Json::Array& kinds = group.array()[0].array();
        const Index repeats = kinds.empty() ? 0 : group.array()[1].integer();
        for (Index i = 0; i < repeats && std::ssize(out) <= layers; ++i)
            for (const Json& kind : kinds) out.push_back(is_local(r, kind));
    }
    return out;
}

/// Which layers are local: `attention_layers`, and `attention_types`, which must agree; without
/// either every second one.
std::vector<bool> local_layers(Reader& r, Index layers) {
    std::vector<bool> out;
    const Json& listed = r.value({"attention_layers"});
    const Json& types = r.value({"attention_types"});
    if (listed.is_array())
        for (const Json& kind : listed.array()) out.push_back(is_local(r, kind));
    if (types.is_array()) {
        const std::vector<bool> same = repeated(r, types, layers);
        if (listed.is_array() && same != out)
            r.refuse("attention_layers and attention_types contradict each other");
        out = same;
    }
    if (!listed.is_array() && !types.is_array()) {
        r.assume("attention_types = alternating global and local layers");
        for (Index l = 0; l < layers; ++l) out.push_back(l % 2 == 1);
    }
    if (std::ssize(out) != layers)
        r.refuse(fmt::format(
            "the configuration has attention types for {} layers, but the file has {} layers",
            out.size(), layers));
    return out;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "gpt_neo");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent("wte.weight", 0), "wte.weight");
    s.width = s.embedding.width =
        r.agreed({"hidden_size"}, r.extent("wte.weight", 1), "wte.weight");
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens =
        r.agreed({"max_position_embeddings"}, r.extent("wpe.weight", 0), "wpe.weight");
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});
    s.final_norm = true;
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    a.causal = true;
    const Index inner = r.extent(std::string(anchor), 0);
    a.heads = a.kv_heads = r.heads({"num_heads", "num_attention_heads"}, inner, anchor);
    a.head_dim = inner / a.heads;
    a.scale = 1;
    const std::string up = "h.0.mlp.c_fc.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_epsilon"}, 1e-5);
    b.ffn.activation = r.activation({"activation_function"}, "gelu_new");
    a.qkv_bias = false;
    const Index layers = r.layers("h.");
    r.agreed({"num_layers", "num_hidden_layers"}, layers, "h.*");
    s.blocks.assign(std::size_t(layers), b);
    const std::vector<bool> local = local_layers(r, layers);
    const Index window = r.count({"window_size"}, 256);
    Index windows = 0;
    for (std::size_t l = 0; l < s.blocks.size(); ++l)
        if (local[l]) s.blocks[l].attention.window = window, ++windows;
    r.saw(
        fmt::format("{} of {} layers attend only to the last {} tokens", windows, layers, window));
    return r.finish(translate(s, pairs), {"*lm_head.*", "score.*"});
}

}  // namespace

extern const ArchitectureEntry gpt_neo = {
    "gpt_neo", "GPT-Neo", "GPT-Neo: pre-norm decoder with local layers", matches, read};

}  // namespace tsdiag::families::gpt_neo
