#pragma once
#include <array>

#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// Decoders of today's libraries as data: what all have in common is read, drawn and written here.
namespace tsdiag::families {

/// The names of a decoder's sizes in config.json.  Empty: it has no such key.
struct DecoderKeys {
    std::string_view tokens = "max_position_embeddings", vocabulary = "vocab_size",
                     width = "hidden_size", layers = "num_hidden_layers",
                     heads = "num_attention_heads", kv_heads = "num_key_value_heads",
                     head_dim = "head_dim", ffn = "intermediate_size", eps = "rms_norm_eps",
                     activation = "hidden_act",
                     older_tokens = "",  ///< of the first files, in place of `tokens`
        other_width = "",                ///< synonyms
        other_layers = "", other_heads = "";
};

/// Those of GPT-2.
inline constexpr DecoderKeys gpt2_keys = {.tokens = "n_positions",
                                          .width = "n_embd",
                                          .layers = "n_layer",
                                          .heads = "n_head",
                                          .kv_heads = "",
                                          .head_dim = "",
                                          .ffn = "n_inner",
                                          .eps = "layer_norm_epsilon",
                                          .activation = "activation_function"};

/// The names of GPT-2's tensors, which other families share.
inline constexpr std::array gpt2_pairs{
    NamePair{"embed.token", "wte.weight"},
    NamePair{"embed.position", "wpe.weight"},
    NamePair{"layer.*.norm1", "h.*.ln_1"},
    NamePair{"layer.*.attn.q", "h.*.attn.c_attn", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "h.*.attn.c_attn", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "h.*.attn.c_attn", Form::matrix, 2},
    NamePair{"layer.*.attn.o", "h.*.attn.c_proj"},
    NamePair{"layer.*.norm2", "h.*.ln_2"},
    NamePair{"layer.*.ffn.up", "h.*.mlp.c_fc"},
    NamePair{"layer.*.ffn.down", "h.*.mlp.c_proj"},
    NamePair{"final_norm", "ln_f"},
};

/// The names of LLaMA's tensors, which other families share; a file may lack the norms of q and k.
inline constexpr std::array llama_attention_pairs{
    NamePair{"embed.token", "embed_tokens.weight"},
    NamePair{"layer.*.norm1", "layers.*.input_layernorm"},
    NamePair{"layer.*.attn.q", "layers.*.self_attn.q_proj"},
    NamePair{"layer.*.attn.k", "layers.*.self_attn.k_proj"},
    NamePair{"layer.*.attn.v", "layers.*.self_attn.v_proj"},
    NamePair{"layer.*.attn.q_norm", "layers.*.self_attn.q_norm"},
    NamePair{"layer.*.attn.k_norm", "layers.*.self_attn.k_norm"},
    NamePair{"layer.*.attn.o", "layers.*.self_attn.o_proj"},
    NamePair{"layer.*.norm2", "layers.*.post_attention_layernorm"},
    NamePair{"final_norm", "norm"},
};
inline constexpr std::array llama_pairs =
    both(llama_attention_pairs, std::array{NamePair{"layer.*.ffn.gate", "layers.*.mlp.gate_proj"},
                                           NamePair{"layer.*.ffn.up", "layers.*.mlp.up_proj"},
                                           NamePair{"layer.*.ffn.down", "layers.*.mlp.down_proj"}});

/// Rotary positions of a family.
struct RotaryRule {
    double share = 1;  ///< of a head's columns, where `share_key` is missing; 0: none rotate
    std::string_view share_key = "partial_rotary_factor";
    bool interleaved = false;
    double theta = 10000;  ///< where `rope_theta` is missing
};

/// A released model: its sizes, and what it has beyond the family's defaults.
struct DecoderPreset {
    std::string_view name;
    Sizes sizes;
    void (*change)(ModelSpec& spec) = nullptr;
};

/// A family of decoders.
struct Decoder {
    std::string_view name, title, description;
    std::string_view model_class;         ///< in `architectures` of a config.json
    std::span<const NamePair> pairs;      ///< has `embed.token` and `layer.*.attn.q`
    std::string_view layers = "layers.";  ///< what stands before a layer's number
    std::string_view other_type = {};     ///< a second `model_type`
    DecoderKeys keys = {};
    double eps = 1e-6;  ///< defaults of the family's own code where the config lacks a key
    std::string_view activation = "silu";
    Index tokens = 2048;
    RotaryRule rotary = {};
    bool head_norms = false;  ///< norms of q and k of each head, where the file has them
    /// What is alike in all models of the family; the blocks are there, with their sizes.
    void (*fix)(ModelSpec& spec) = nullptr;
    /// Reads the keys of its own; sizes, norms, activation, biases and rotation were read.
    void (*read)(Reader& r) = nullptr;
    /// Writes the keys that `read` asks for.
    void (*write)(const ModelSpec& spec, Json& config) = nullptr;
    std::vector<DecoderPreset> (*presets)() = nullptr;
    /// Whether it owns a file, where `model_type` is not all that tells.
    bool (*matches)(const Checkpoint& file, const Json& config) = nullptr;
    /// Before anything is read: may refuse or ask.
    void (*begin)(const Reader& r) = nullptr;
    /// The table of names, where it depends on the spec.
    std::span<const NamePair> (*table)(const ModelSpec& spec) = nullptr;
    /// The only attention of its models, where that is no softmax.
    std::string_view attention = {};
    /// Of a family that stacks the experts of a layer, which the table names one by one; a file may
    /// have either.  The stack of layer 0 with gates and ups, (experts, d, 2 widths), and what
    /// gives all of them their places in the stacks.
    std::string_view stacked = {};
    void (*stack)(const ModelSpec& spec, Names& names) = nullptr;
    /// How weights are drawn, and that in words.
    Draw (*law)(const Parameter& parameter) = nullptr;
    std::string_view law_in_words = {};
};

bool matches(const Decoder& family, const Checkpoint& file, const Json& config);
Architecture read(const Decoder& family, const Checkpoint& file, const DetectOptions& options);
RandomModel draw(const Decoder& family, std::string_view name, const Keys& keys);
Json config(const Decoder& family, const ModelSpec& spec);
Names names(const Decoder& family, const ModelSpec& spec);

/// The line of the list for a family.
template <const Decoder& family>
constexpr ArchitectureEntry entry_of() {
    return {family.name,
            family.title,
            family.description,
            [](const Checkpoint& file, const Json& c) { return matches(family, file, c); },
            [](const Checkpoint& file, const DetectOptions& o) { return read(family, file, o); },
            [](std::string_view name, const Keys& keys) { return draw(family, name, keys); },
            [] {
                std::vector<std::string_view> out;
                for (const DecoderPreset& p : family.presets()) out.push_back(p.name);
                return out;
            },
            [](const ModelSpec& spec) { return names(family, spec); },
            [](const ModelSpec& spec) { return config(family, spec); }};
}

/// Sizes of a preset; `kv` heads of keys and values.
Sizes decoder_sizes(Index layers, Index d, Index heads, Index kv, Index ffn, Index tokens,
                    Index vocab, double eps, Index head_dim = 0, Unary act = Unary::silu);

/// Experts and how many of them a token has; keys of their training have no effect.
void read_experts(Reader& r, std::string_view count_key, const std::string& router,
                  Index default_chosen);
/// `attention_bias`: biases on all four projections of LLaMA's names, or on none.
void read_attention_bias(Reader& r, bool left_out = true);
/// The sliding layers by `layer_types`; nullopt where it is absent.
std::optional<std::vector<bool>> listed_windows(Reader& r);
/// Gives layer L the window `window` where `slides(L)`; 0: none has one.  Refuses `layer_types`
/// that say otherwise; `obeys`: they decide, unless the config has `by`, the key of `slides`.
void set_windows(Reader& r, Index window, const std::function<bool(Index)>& slides, bool obeys,
                 Words by = {});
/// `layer_types` of a config.json, where layers differ.
void write_layer_types(const ModelSpec& spec, Json& config);
/// Refuses code of the file's own (`auto_map`), unless it is the family's, modeling_NAME.
void accept_code(Reader& r, std::string_view name);

}  // namespace tsdiag::families
