#include <array>

#include "decoder.hpp"

/// Phi 1, 1.5 and 2: attention and feed-forward in parallel behind one norm, biases everywhere.
/// Phi 3 and 4: LLaMA with q, k, v in one matrix, gate and up in another.
namespace tsdiag::families::phi {
namespace {

constexpr std::array pairs = both(std::array{NamePair{"layer.*.attn.o", "layers.*.self_attn.dense"},
                                             NamePair{"layer.*.ffn.up", "layers.*.mlp.fc1"},
                                             NamePair{"layer.*.ffn.down", "layers.*.mlp.fc2"},
                                             NamePair{"final_norm", "final_layernorm"}},
                                  llama_attention_pairs);
constexpr std::array fused_pairs = both(
    std::array{NamePair{"layer.*.attn.q", "layers.*.self_attn.qkv_proj", Form::matrix, 0},
               NamePair{"layer.*.attn.k", "layers.*.self_attn.qkv_proj", Form::matrix, 1},
               NamePair{"layer.*.attn.v", "layers.*.self_attn.qkv_proj", Form::matrix, 2},
               NamePair{"layer.*.ffn.gate", "layers.*.mlp.gate_up_proj", Form::matrix, 0, false, 2},
               NamePair{"layer.*.ffn.up", "layers.*.mlp.gate_up_proj", Form::matrix, 1, false, 2}},
    llama_pairs);

void fix_phi(ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.placement = NormPlacement::parallel;
        b.one_norm = true;
        b.norm.kind = NormKind::layer;
        b.norm.bias = b.attention.qkv_bias = b.attention.out_bias = b.ffn.bias = true;
        b.ffn.gated = false;
    }
}
void read_phi(Reader& r) { r.only({"qk_layernorm"}, false); }

/// `original_max_position_embeddings` only counts where positions are scaled.
void read_phi3(Reader& r) {
    accept_code(r, "phi3");
    r.value({"original_max_position_embeddings"});
    r.only({"attention_bias"}, false);
    const bool off = r.value({"sliding_window"}).is_null();
    if (!r.config().contains("sliding_window")) r.assume("sliding_window = none");
    set_windows(
        r, off ? 0 : r.count({"sliding_window"}, 0), [](Index) { return true; }, false);
}
void write_phi3(const ModelSpec& s, Json& out) {
    const AttentionSpec& a = s.blocks.front().attention;
    out.set("sliding_window", a.window > 0 ? Json(a.window) : Json());
    if (a.rotary.scaling == "longrope")
        out.set("original_max_position_embeddings", a.rotary.original_length);
}

std::vector<DecoderPreset> phi_presets() {
    const Unary act = Unary::gelu_tanh;
    const auto turned = [](ModelSpec& s) {  // 0.4 of 80 columns
        for (BlockSpec& b : s.blocks)
            b.attention.rotary.columns = Index(0.4 * double(b.attention.head_dim)) / 2 * 2;
    };
    return {{"phi-1.5", decoder_sizes(24, 2048, 32, 32, 8192, 2048, 51200, 1e-5, 0, act)},
            {"phi-2", decoder_sizes(32, 2560, 32, 32, 10240, 2048, 51200, 1e-5, 0, act), turned}};
}
std::vector<DecoderPreset> phi3_presets() {
    return {
        {"phi-3-mini", decoder_sizes(32, 3072, 32, 32, 8192, 4096, 32064, 1e-5),
         [](ModelSpec& s) {
             for (BlockSpec& b : s.blocks) b.attention.window = 2047;
         }},
        {"phi-4", decoder_sizes(40, 5120, 40, 10, 17920, 16384, 100352, 1e-5), [](ModelSpec& s) {
             for (BlockSpec& b : s.blocks) b.attention.rotary.theta = 250000;
         }}};
}

constexpr Decoder phi_family = {
    .name = "phi",
    .title = "Phi",
    .description =
        "Phi 1, 1.5, 2: attention and feed-forward in parallel behind one norm, half of "
        "each head rotates",
    .model_class = "PhiModel",
    .pairs = pairs,
    .keys = {.head_dim = "", .eps = "layer_norm_eps"},
    .eps = 1e-5,
    .activation = "gelu_new",
    .rotary = {.share = 0.5},
    .fix = fix_phi,
    .read = read_phi,
    .presets = phi_presets};
constexpr Decoder phi3_family = {
    .name = "phi3",
    .title = "Phi-3",
    .description = "Phi 3, 4: LLaMA with q, k, v in one matrix, gate and up in another",
    .model_class = "Phi3Model",
    .pairs = fused_pairs,
    .keys = {.head_dim = ""},
    .eps = 1e-5,
    .tokens = 4096,
    .read = read_phi3,
    .write = write_phi3,
    .presets = phi3_presets};

}  // namespace

extern const ArchitectureEntry phi = entry_of<phi_family>();
extern const ArchitectureEntry phi3 = entry_of<phi3_family>();

}  // namespace tsdiag::families::phi
