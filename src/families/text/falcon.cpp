#include <fmt/format.h>

#include <array>

#include "decoder.hpp"

/// GPT-J, Falcon and InternLM2: rotary decoders with names of their own.
namespace tsdiag::families::falcon {
namespace {

constexpr std::array gptj_pairs{
    NamePair{"embed.token", "wte.weight"},
    NamePair{"layer.*.norm1", "h.*.ln_1"},
    NamePair{"layer.*.attn.q", "h.*.attn.q_proj"},
    NamePair{"layer.*.attn.k", "h.*.attn.k_proj"},
    NamePair{"layer.*.attn.v", "h.*.attn.v_proj"},
    NamePair{"layer.*.attn.o", "h.*.attn.out_proj"},
    NamePair{"layer.*.ffn.up", "h.*.mlp.fc_in"},
    NamePair{"layer.*.ffn.down", "h.*.mlp.fc_out"},
    NamePair{"final_norm", "ln_f"},
};
/// One norm a layer, or two: `input_layernorm`, or `ln_attn` and `ln_mlp`.
template <bool two>
constexpr std::array falcon_pairs{
    NamePair{"embed.token", "word_embeddings.weight"},
    NamePair{"layer.*.norm1", two ? "h.*.ln_attn" : "h.*.input_layernorm"},
    NamePair{"layer.*.attn.q", "h.*.self_attention.query_key_value", Form::matrix, 0, true},
    NamePair{"layer.*.attn.k", "h.*.self_attention.query_key_value", Form::matrix, 1, true},
    NamePair{"layer.*.attn.v", "h.*.self_attention.query_key_value", Form::matrix, 2, true},
    NamePair{"layer.*.attn.o", "h.*.self_attention.dense"},
    NamePair{"layer.*.norm2", "h.*.ln_mlp"},
    NamePair{"layer.*.ffn.up", "h.*.mlp.dense_h_to_4h"},
    NamePair{"layer.*.ffn.down", "h.*.mlp.dense_4h_to_h"},
    NamePair{"final_norm", "ln_f"},
};
constexpr std::array internlm2_pairs{
    NamePair{"embed.token", "tok_embeddings.weight"},
    NamePair{"layer.*.norm1", "layers.*.attention_norm"},
    NamePair{"layer.*.attn.q", "layers.*.attention.wqkv", Form::matrix, 0, true},
    NamePair{"layer.*.attn.k", "layers.*.attention.wqkv", Form::matrix, 1, true},
    NamePair{"layer.*.attn.v", "layers.*.attention.wqkv", Form::matrix, 2, true},
    NamePair{"layer.*.attn.o", "layers.*.attention.wo"},
    NamePair{"layer.*.norm2", "layers.*.ffn_norm"},
    NamePair{"layer.*.ffn.gate", "layers.*.feed_forward.w1"},
    NamePair{"layer.*.ffn.up", "layers.*.feed_forward.w3"},
    NamePair{"layer.*.ffn.down", "layers.*.feed_forward.w2"},
    NamePair{"final_norm", "norm"},
};

void fix_parallel(ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.placement = NormPlacement::parallel;
        b.one_norm = true;
        b.norm.kind = NormKind::layer;
        b.norm.bias = true;
        b.ffn.gated = false;
    }
}
void fix_gptj(ModelSpec& s) {
    fix_parallel(s);
    for (BlockSpec& b : s.blocks) b.ffn.bias = true;
}

void read_gptj(Reader& r) {
    const Index columns = r.count({"rotary_dim"}, 64);
    for (BlockSpec& b : r.spec.blocks) {
        AttentionSpec& a = b.attention;
        if (columns % 2 != 0 || columns < 1 || columns > a.head_dim)
            r.refuse(fmt::format("rotary_dim is {}, expected an even number up to {}", columns,
                                 a.head_dim));
        a.rotary.columns = columns;
    }
    for (const char* one : {"scale_attn_weights", "rotary"}) r.only({one}, true);
}
void write_gptj(const ModelSpec& s, Json& out) {
    out.set("rotary_dim", s.blocks.front().attention.rotary.columns);
}

void read_falcon(Reader& r) {
    const bool grouped = r.flag({"new_decoder_architecture"}, false);
    r.only({"alibi"}, false);
    r.only({"parallel_attn"}, true);
    r.part({"bias"}, "h.0.self_attention.query_key_value.bias");
    const Index kv = r.spec.blocks.front().attention.kv_heads;
    if (!grouped) r.only({"multi_query"}, kv == 1);
    r.value({"multi_query"});
    const Json& declared = r.value({"num_kv_heads"});
    if (grouped && declared.is_number() && declared.number() != double(kv))
        r.refuse(fmt::format("num_kv_heads is {}, but the file has {}", declared.dump(), kv));
    const Json& norms = r.value({"num_ln_in_parallel_attn"});
    const bool two = r.has("h.0.ln_mlp.weight");
    if (grouped && norms.is_number() ? norms.number() != (two ? 2 : 1) : two != grouped)
        r.refuse(fmt::format("num_ln_in_parallel_attn is {}, but a layer has {}", norms.dump(),
                             two ? "two norms" : "one norm"));
    for (BlockSpec& b : r.spec.blocks) b.one_norm = !two;
    r.only({"ffn_hidden_size"}, r.spec.blocks.front().ffn.width);
    accept_code(r, "falcon");
    r.only({"apply_residual_connection_post_layernorm"}, false);
}
void write_falcon(const ModelSpec& s, Json& out) {
    const BlockSpec& b = s.blocks.front();
    const bool grouped = b.attention.kv_heads > 1;
    out.set("new_decoder_architecture", grouped).set("multi_query", !grouped);
    out.set("num_kv_heads", b.attention.kv_heads).set("parallel_attn", true).set("alibi", false);
    out.set("bias", b.attention.qkv_bias).set("ffn_hidden_size", b.ffn.width);
    out.set("num_ln_in_parallel_attn", b.one_norm ? 1 : 2);
}
std::span<const NamePair> falcon_table(const ModelSpec& s) {
    if (s.blocks.front().one_norm) return falcon_pairs<false>;
    return falcon_pairs<true>;
}

/// Its code is its own, known by what it reads.
void read_internlm2(Reader& r) {
    accept_code(r, "internlm2");
    const bool there = r.part({"bias"}, "layers.0.attention.wqkv.bias");
    for (BlockSpec& b : r.spec.blocks) b.attention.out_bias = there;
}
void write_internlm2(const ModelSpec& s, Json& out) {
    out.set("bias", s.blocks.front().attention.qkv_bias);
}

std::vector<DecoderPreset> gptj_presets() {
    return {{"gpt-j-6b",
             decoder_sizes(28, 4096, 16, 16, 16384, 2048, 50400, 1e-5, 0, Unary::gelu_tanh),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks)
                     b.attention.rotary.columns = std::min<Index>(64, b.attention.head_dim);
             }}};
}
std::vector<DecoderPreset> falcon_presets() {
    return {
        {"falcon-7b", decoder_sizes(32, 4544, 71, 1, 18176, 2048, 65024, 1e-5, 0, Unary::gelu)},
        {"falcon-40b", decoder_sizes(60, 8192, 128, 8, 32768, 2048, 65024, 1e-5, 0, Unary::gelu),
         [](ModelSpec& s) {
             for (BlockSpec& b : s.blocks) b.one_norm = false;
         }}};
}
std::vector<DecoderPreset> internlm2_presets() {
    return {{"internlm2-7b", decoder_sizes(32, 4096, 32, 8, 14336, 32768, 92544, 1e-5),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks) b.attention.rotary.theta = 1e6;
             }}};
}

constexpr Decoder gptj_family = {
    .name = "gptj",
    .title = "GPT-J",
    .description =
        "GPT-J: attention and feed-forward in parallel behind one norm, neighbouring "
        "columns rotate",
    .model_class = "GPTJModel",
    .pairs = gptj_pairs,
    .layers = "h.",
    .keys = gpt2_keys,
    .eps = 1e-5,
    .activation = "gelu_new",
    .rotary = {.share_key = "", .interleaved = true},
    .fix = fix_gptj,
    .read = read_gptj,
    .write = write_gptj,
    .presets = gptj_presets};
constexpr Decoder falcon_family = {
    .name = "falcon",
    .title = "Falcon",
    .description = "Falcon: attention and feed-forward in parallel, few heads of keys and values",
    .model_class = "FalconModel",
    .pairs = falcon_pairs<false>,
    .layers = "h.",
    .other_type = "RefinedWebModel",
    .keys = {.tokens = "max_position_embeddings",
             .kv_heads = "",
             .head_dim = "",
             .ffn = "",
             .eps = "layer_norm_epsilon",
             .activation = "activation",
             .other_layers = "n_layer",
             .other_heads = "n_head"},
    .eps = 1e-5,
    .activation = "gelu",
    .rotary = {.share_key = ""},
    .fix = fix_parallel,
    .read = read_falcon,
    .write = write_falcon,
    .presets = falcon_presets,
    .table = falcon_table};
constexpr Decoder internlm2_family = {
    .name = "internlm2",
    .title = "InternLM2",
    .description = "InternLM2: LLaMA with q, k, v of each group of heads in one matrix",
    .model_class = "InternLM2Model",
    .pairs = internlm2_pairs,
    .keys = {.head_dim = ""},
    .read = read_internlm2,
    .write = write_internlm2,
    .presets = internlm2_presets};

}  // namespace

extern const ArchitectureEntry gptj = entry_of<gptj_family>();
extern const ArchitectureEntry falcon = entry_of<falcon_family>();
extern const ArchitectureEntry internlm2 = entry_of<internlm2_family>();

}  // namespace tsdiag::families::falcon
