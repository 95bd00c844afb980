#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/reader.hpp"

/// Decoders of TransformerLens with learned positions: GPT-2 as it loads it, and those it trains.
/// The layout of their matrices is that of layouts/transformer_lens_names.cpp.
namespace tsdiag::families::transformer_lens {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embed.W_E"},
    NamePair{"embed.position", "pos_embed.W_pos"},
    NamePair{"layer.*.norm1", "blocks.*.ln1"},
    NamePair{"layer.*.attn.q", "blocks.*.attn.Q"},
    NamePair{"layer.*.attn.k", "blocks.*.attn.K"},
    NamePair{"layer.*.attn.v", "blocks.*.attn.V"},
    NamePair{"layer.*.attn.o", "blocks.*.attn.O"},
    NamePair{"layer.*.norm2", "blocks.*.ln2"},
    NamePair{"layer.*.ffn.up", "blocks.*.mlp.in"},
    NamePair{"layer.*.ffn.down", "blocks.*.mlp.out"},
    NamePair{"final_norm", "ln_final"},
};
constexpr std::string_view anchor = "blocks.0.attn.Q.weight";

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"transformer_lens"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

/// Keys of its configuration that change no state, and those that must leave something out.
void read_keys(Reader& r) {
    for (const char* key : {"model_name", "original_architecture", "from_checkpoint",
                            "checkpoint_index", "checkpoint_label_type", "checkpoint_value",
                            "init_mode", "init_weights", "device", "n_devices", "seed", "n_params",
                            // What is recorded.
                            "use_hook_tokens", "use_hook_mlp_in", "use_attn_in", "use_attn_result",
                            "use_split_qkv_input",
                            // Others.
                            "default_prepend_bos", "d_vocab_out", "window_size", "attn_types",
                            "rotary_base", "rotary_adjacent_pairs", "load_in_4bit",
                            "ungroup_grouped_query_attention", "trust_remote_code"})
        r.value({key});
    for (const char* key :
         {"attn_only", "parallel_attn_mlp", "gated_mlp", "final_rms", "use_local_attn",
          "post_embedding_ln", "use_normalization_before_and_after", "use_NTK_by_parts_rope"})
        r.only({key}, false);
    for (const char* key : {"attn_scores_soft_cap", "output_logits_soft_cap"}) r.only({key}, -1);
    r.only({"positional_embedding_type"}, "standard");
    if (!r.has("pos_embed.W_pos"))
        r.refuse(
            "it has no table of positions, and only models with learned ones are supported in the "
            "layout of TransformerLens; use the checkpoint that it was loaded from");
}

/// Folding moves the weights of norms into the matrices behind them; whether norms without weights
/// are layer norms then, RMS norms or none at all, no tensor tells.
void read_norms(Reader& r, BlockSpec& b) {
    const bool weights = r.has("blocks.0.ln1.weight");
    const Json& said = r.value({"normalization_type"});
    if (weights) {
        r.only({"normalization_type"}, "LN");
        b.norm.bias = r.has("blocks.0.ln1.bias");
        if (!b.norm.bias)
            r.refuse(
                "its norms have no biases, so they are RMS norms, which are not "
                "supported in the layout of TransformerLens");
    } else {
        if (said.is_null())
            r.refuse(
                "its norms have no weights: folded away, or never there, and no tensor tells "
                "whether they are layer norms; say \"normalization_type\": \"LNPre\" with --config "
                "FILE if they are");
        r.only({"normalization_type"}, "LNPre");
        b.norm.kind = NormKind::plain_layer;
        r.saw(
            "norms without weights (LNPre): if they were folded, states are those of the folded "
            "model");
    }
    b.norm.eps = r.number({"eps"}, 1e-5);
}

void read_attention(Reader& r, AttentionSpec& a) {
    const Index inner = r.extent(std::string(anchor), 0);
    a.heads = a.kv_heads = r.heads({"n_heads"}, inner, anchor);
    a.head_dim = r.agreed({"d_head"}, inner / a.heads, anchor);
    const std::string direction = r.word({"attention_dir"}, "causal");
    if (direction != "causal" && direction != "bidirectional")
        r.refuse(fmt::format("attention_dir '{}' is neither causal nor bidirectional", direction));
    a.causal = direction == "causal";
    if (!r.flag({"use_attn_scale"}, true)) return;
    const Json& divisor = r.value({"attn_scale"});
    const bool declared = divisor.is_number() && divisor.number() > 0;  // -1: the usual one
    a.scale = 1 / (declared ? divisor.number() : std::sqrt(double(a.head_dim)));
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "transformer_lens");
    r.find_prefix(anchor);
    read_keys(r);
    ModelSpec& s = r.spec;
    s.embedding.vocabulary = r.agreed({"d_vocab"}, r.extent("embed.W_E", 0), "embed.W_E");
    s.width = s.embedding.width = r.agreed({"d_model"}, r.extent("embed.W_E", 1), "embed.W_E");
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens = r.agreed({"n_ctx"}, r.extent("pos_embed.W_pos", 0), "pos_embed.W_pos");
    s.final_norm = true;
    BlockSpec b;
    b.placement = NormPlacement::pre;
    read_norms(r, b);
    read_attention(r, b.attention);
    const std::string up = "blocks.0.mlp.in.weight";
    b.ffn.width = r.agreed({"d_mlp"}, r.extent(up, 0), up);
    b.ffn.activation = r.activation({"act_fn"}, "gelu_new");
    const Index layers = r.agreed({"n_layers"}, r.layers("blocks."), "blocks.*");
    s.blocks.assign(std::size_t(layers), b);
    if (r.flag({"scale_attn_by_inverse_layer_idx"}, false))
        for (std::size_t l = 0; l < s.blocks.size(); ++l)
            s.blocks[l].attention.scale /= double(l + 1);
    return r.finish(translate(s, pairs),
                    {"*lm_head.*", "blocks.*.attn.mask", "blocks.*.attn.IGNORE"});
}

}  // namespace

extern const ArchitectureEntry transformer_lens = {
    "transformer_lens", "TransformerLens",
    "decoders of TransformerLens with learned positions, folded or not", matches, read};

}  // namespace tsdiag::families::transformer_lens
