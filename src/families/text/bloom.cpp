#include <fmt/format.h>

#include <array>
#include <bit>

#include "decoder.hpp"

/// BLOOM and MPT: decoders whose positions are biases of the logits, ALiBi.  [ALIBI]
namespace tsdiag::families::bloom {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "word_embeddings.weight"},
    NamePair{"embed.norm", "word_embeddings_layernorm"},
    NamePair{"layer.*.norm1", "h.*.input_layernorm"},
    NamePair{"layer.*.attn.q", "h.*.self_attention.query_key_value", Form::matrix, 0, true},
    NamePair{"layer.*.attn.k", "h.*.self_attention.query_key_value", Form::matrix, 1, true},
    NamePair{"layer.*.attn.v", "h.*.self_attention.query_key_value", Form::matrix, 2, true},
    NamePair{"layer.*.attn.o", "h.*.self_attention.dense"},
    NamePair{"layer.*.norm2", "h.*.post_attention_layernorm"},
    NamePair{"layer.*.ffn.up", "h.*.mlp.dense_h_to_4h"},
    NamePair{"layer.*.ffn.down", "h.*.mlp.dense_4h_to_h"},
    NamePair{"final_norm", "ln_f"},
};
constexpr std::array mpt_pairs{
    NamePair{"embed.token", "wte.weight"},
    NamePair{"layer.*.norm1", "blocks.*.norm_1"},
    NamePair{"layer.*.attn.q", "blocks.*.attn.Wqkv", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "blocks.*.attn.Wqkv", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "blocks.*.attn.Wqkv", Form::matrix, 2},
    NamePair{"layer.*.attn.o", "blocks.*.attn.out_proj"},
    NamePair{"layer.*.norm2", "blocks.*.norm_2"},
    NamePair{"layer.*.ffn.up", "blocks.*.ffn.up_proj"},
    NamePair{"layer.*.ffn.down", "blocks.*.ffn.down_proj"},
    NamePair{"final_norm", "norm_f"},
};

void fix_alibi(ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.norm.kind = NormKind::layer;
        b.ffn.gated = false;
        if (b.attention.variant == "softmax") b.attention.options["alibi"] = "1";
    }
}
void fix_bloom(ModelSpec& s) {
    fix_alibi(s);
    s.embedding.norm = true;
    for (BlockSpec& b : s.blocks)
        b.norm.bias = b.attention.qkv_bias = b.attention.out_bias = b.ffn.bias = true;
}

void read_bloom(Reader& r) {
    r.only({"apply_residual_connection_post_layernorm"}, false);
    for (const char* how : {"slow_but_exact", "seq_length", "skip_bias_add", "skip_bias_add_qkv",
                            "masked_softmax_fusion", "bias_dropout_fusion",
                            "attention_softmax_in_fp32", "offset_alibi", "n_inner"})
        r.value({how});  // how it was trained and is run
}

/// The library's slopes are those of [ALIBI] for a power of two of heads, else in another order.
void read_mpt(Reader& r) {
    const auto heads = std::uint64_t(r.spec.blocks.front().attention.heads);
    if (!std::has_single_bit(heads))
        r.refuse(
            fmt::format("{} heads are no power of two, which is not supported for mpt", heads));
    r.only({"no_bias"}, true);
    r.only({"learned_pos_emb"}, true);  // of no effect beside alibi
    r.only({"logit_scale"}, Json());
    r.value({"expansion_ratio"});  // the tensors say it
    const Json& norm = r.value({"norm_type"});
    if (norm.is_string() && norm.string() != "low_precision_layernorm" &&
        norm.string() != "layernorm")
        r.refuse(fmt::format("norm_type is '{}', which is not supported", norm.string()));
    for (const char* how : {"embedding_fraction", "init_config", "init_device", "verbose",
                            "emb_pdrop", "fc_type", "ffn_config"})
        r.value({how});
    accept_code(r, "mpt");
    const Json& attention = r.value({"attn_config"});
    const auto only = [&](const char* key, const Json& expected) {
        if (const Json& said = attention[key]; !said.is_null() && !equal(said, expected))
            r.refuse(fmt::format("attn_config has {} = {}, which is not supported ({} is)", key,
                                 said.dump(), expected.dump()));
    };
    if (!equal(attention["alibi"], Json(true)) && !attention["alibi"].is_null())
        r.refuse("attn_config has alibi = false, which is not supported (true is)");
    only("alibi_bias_max", 8);
    only("attn_type", "multihead_attention");
    only("qk_ln", false);
    only("qk_gn", false);
    only("clip_qkv", Json());
    only("softmax_scale", Json());
    only("prefix_lm", false);
    only("attn_uses_sequence_id", false);
    only("sliding_window_size", -1);
    only("rope", false);
}
void write_mpt(const ModelSpec& s, Json& out) {
    const BlockSpec& b = s.blocks.front();
    out.set("attn_config", Json(Json::Object{{"alibi", true}, {"alibi_bias_max", 8}}));
    out.set("expansion_ratio", double(b.ffn.width) / double(s.width)).set("no_bias", true);
}

std::vector<DecoderPreset> bloom_presets() {
    const Unary act = Unary::gelu_tanh;
    return {{"bloom-560m", decoder_sizes(24, 1024, 16, 16, 4096, 2048, 250880, 1e-5, 0, act)},
            {"bloom-7b1", decoder_sizes(30, 4096, 32, 32, 16384, 2048, 250880, 1e-5, 0, act)}};
}
std::vector<DecoderPreset> mpt_presets() {
    return {{"mpt-7b", decoder_sizes(32, 4096, 32, 32, 16384, 2048, 50432, 1e-5, 0, Unary::gelu)}};
}

constexpr Decoder bloom_family = {
    .name = "bloom",
    .title = "BLOOM",
    .description = "BLOOM: pre-norm decoder with a norm of the embedding and ALiBi positions",
    .model_class = "BloomModel",
    .pairs = pairs,
    .layers = "h.",
    .keys = {.tokens = "",
             .width = "hidden_size",
             .layers = "n_layer",
             .heads = "n_head",
             .kv_heads = "",
             .head_dim = "",
             .ffn = "",
             .eps = "layer_norm_epsilon",
             .activation = "",
             .other_width = "n_embed",
             .other_layers = "num_hidden_layers",
             .other_heads = "num_attention_heads"},
    .eps = 1e-5,
    .activation = "gelu_pytorch_tanh",
    .rotary = {.share = 0},
    .fix = fix_bloom,
    .read = read_bloom,
    .presets = bloom_presets};
constexpr Decoder mpt_family = {
    .name = "mpt",
    .title = "MPT",
    .description = "MPT: pre-norm decoder without biases, ALiBi positions",
    .model_class = "MptModel",
    .pairs = mpt_pairs,
    .layers = "blocks.",
    .keys = {.tokens = "max_seq_len",
             .width = "d_model",
             .layers = "n_layers",
             .heads = "n_heads",
             .kv_heads = "",
             .head_dim = "",
             .ffn = "",
             .eps = "layer_norm_epsilon",
             .activation = ""},
    .eps = 1e-5,
    .activation = "gelu",
    .rotary = {.share = 0},
    .fix = fix_alibi,
    .read = read_mpt,
    .write = write_mpt,
    .presets = mpt_presets};

}  // namespace

extern const ArchitectureEntry bloom = entry_of<bloom_family>();
extern const ArchitectureEntry mpt = entry_of<mpt_family>();

}  // namespace tsdiag::families::bloom
