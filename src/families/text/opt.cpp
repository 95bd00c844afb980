#include <array>

#include "decoder.hpp"

/// OPT and GPT-BigCode (StarCoder, SantaCoder): decoders with learned positions.
namespace tsdiag::families::opt {
namespace {

constexpr std::array pairs{
    NamePair{"embed.token", "embed_tokens.weight"},
    NamePair{"embed.position", "embed_positions.weight"},
    NamePair{"layer.*.norm1", "layers.*.self_attn_layer_norm"},
    NamePair{"layer.*.attn.q", "layers.*.self_attn.q_proj"},
    NamePair{"layer.*.attn.k", "layers.*.self_attn.k_proj"},
    NamePair{"layer.*.attn.v", "layers.*.self_attn.v_proj"},
    NamePair{"layer.*.attn.o", "layers.*.self_attn.out_proj"},
    NamePair{"layer.*.norm2", "layers.*.final_layer_norm"},
    NamePair{"layer.*.ffn.up", "layers.*.fc1"},
    NamePair{"layer.*.ffn.down", "layers.*.fc2"},
    NamePair{"final_norm", "final_layer_norm"},
};

void fix_layers(ModelSpec& s) {
    s.embedding.positions = Positions::learned;
    for (BlockSpec& b : s.blocks) {
        b.norm.kind = NormKind::layer;
        b.norm.bias = b.attention.qkv_bias = b.attention.out_bias = b.ffn.bias = true;
        b.ffn.gated = false;
    }
}
/// Positions begin at row 2 of the table.
void fix_opt(ModelSpec& s) {
    fix_layers(s);
    s.embedding.position_offset = 2;
}
void read_opt(Reader& r) {
    ModelSpec& s = r.spec;
    const std::string table = "embed_positions.weight";
    s.embedding.max_tokens = r.agreed({"max_position_embeddings"}, r.extent(table, 0) - 2, table);
    r.only({"word_embed_proj_dim"}, s.width);
    r.only({"do_layer_norm_before"}, true);
    r.only({"layer_norm_elementwise_affine"}, true);
    r.only({"_remove_final_layer_norm"}, false);
    r.part({"enable_bias"}, "layers.0.self_attn.q_proj.bias");
    r.value({"layerdrop"});  // of training
}
void write_opt(const ModelSpec& s, Json& out) {
    out.set("word_embed_proj_dim", s.width).set("do_layer_norm_before", true);
    out.set("enable_bias", s.blocks.front().attention.qkv_bias);
}

/// How the library runs it, which changes no number but by rounding.
void read_bigcode(Reader& r) {
    const std::string table = "wpe.weight";
    r.spec.embedding.max_tokens = r.agreed({"n_positions"}, r.extent(table, 0), table);
    r.only({"multi_query"}, true);
    r.only({"scale_attn_weights"}, true);
    r.only({"add_cross_attention"}, false);
    for (const char* how :
         {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
          "validate_runner_input", "pre_allocate_kv_cache", "max_sequence_length", "max_batch_size",
          "pad_key_length", "fused_softmax"})
        r.value({how});
}
void write_bigcode(const ModelSpec&, Json& out) { out.set("multi_query", true); }

std::vector<DecoderPreset> opt_presets() {
    const Unary act = Unary::relu;
    return {{"opt-125m", decoder_sizes(12, 768, 12, 12, 3072, 2048, 50272, 1e-5, 0, act)},
            {"opt-1.3b", decoder_sizes(24, 2048, 32, 32, 8192, 2048, 50272, 1e-5, 0, act)}};
}
std::vector<DecoderPreset> bigcode_presets() {
    const Unary act = Unary::gelu_tanh;
    return {{"santacoder", decoder_sizes(24, 2048, 16, 1, 8192, 2048, 49280, 1e-5, 0, act)},
            {"starcoder", decoder_sizes(40, 6144, 48, 1, 24576, 8192, 49152, 1e-5, 0, act)}};
}

constexpr Decoder opt_family = {
    .name = "opt",
    .title = "OPT",
    .description = "OPT: pre-norm decoder, ReLU, learned positions from row 2 on",
    .model_class = "OPTModel",
    .pairs = pairs,
    .keys = {.kv_heads = "",
             .head_dim = "",
             .ffn = "ffn_dim",
             .eps = "",
             .activation = "activation_function"},
    .eps = 1e-5,
    .activation = "relu",
    .rotary = {.share = 0},
    .fix = fix_opt,
    .read = read_opt,
    .write = write_opt,
    .presets = opt_presets};
constexpr Decoder bigcode_family = {
    .name = "gpt_bigcode",
    .title = "GPT-BigCode",
    .description = "GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one head of keys and values",
    .model_class = "GPTBigCodeModel",
    .pairs = gpt2_pairs,
    .layers = "h.",
    .keys = gpt2_keys,
    .eps = 1e-5,
    .activation = "gelu_pytorch_tanh",
    .tokens = 1024,
    .rotary = {.share = 0},
    .fix = fix_layers,
    .read = read_bigcode,
    .write = write_bigcode,
    .presets = bigcode_presets};

}  // namespace

extern const ArchitectureEntry opt = entry_of<opt_family>();
extern const ArchitectureEntry gpt_bigcode = entry_of<bigcode_family>();

}  // namespace tsdiag::families::opt
