#include <array>

#include "decoder.hpp"

/// OLMo: LLaMA whose norms have no weights.  OLMo 2: norms behind the branches, and of q and k.
/// [OLMO2]
namespace tsdiag::families::olmo {
namespace {

constexpr std::array pairs =
    both(std::array{NamePair{"layer.*.norm1", "layers.*.post_attention_layernorm"},
                    NamePair{"layer.*.norm2", "layers.*.post_feedforward_layernorm"}},
         llama_pairs);

void read_olmo(Reader& r) {
    r.only({"clip_qkv"}, Json());
    read_attention_bias(r);
}
void write_olmo(const ModelSpec& s, Json& out) {
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
}

std::vector<DecoderPreset> olmo_presets() {
    return {{"olmo-1b", decoder_sizes(16, 2048, 16, 16, 8192, 2048, 50304, 1e-5)},
            {"olmo-7b", decoder_sizes(32, 4096, 32, 32, 11008, 2048, 50304, 1e-5)}};
}
std::vector<DecoderPreset> olmo2_presets() {
    return {
        {"olmo-2-1b", decoder_sizes(16, 2048, 16, 16, 8192, 4096, 100352, 1e-6), [](ModelSpec& s) {
             for (BlockSpec& b : s.blocks) b.attention.rotary.theta = 5e5;
         }}};
}

constexpr Decoder olmo_family = {.name = "olmo",
                                 .title = "OLMo",
                                 .description = "OLMo: LLaMA with layer norms without weights",
                                 .model_class = "OlmoModel",
                                 .pairs = pairs,
                                 .keys = {.head_dim = "", .eps = ""},
                                 .eps = 1e-5,
                                 .fix =
                                     [](ModelSpec& s) {
                                         for (BlockSpec& b : s.blocks)
                                             b.norm.kind = NormKind::plain_layer;
                                     },
                                 .read = read_olmo,
                                 .write = write_olmo,
                                 .presets = olmo_presets};
constexpr Decoder olmo2_family = {
    .name = "olmo2",
    .title = "OLMo 2",
    .description =
        "OLMo 2: norms behind the branches instead of before them, and of all of q and k",
    .model_class = "Olmo2Model",
    .pairs = pairs,
    .keys = {.head_dim = ""},
    .eps = 1e-5,
    .fix =
        [](ModelSpec& s) {
            for (BlockSpec& b : s.blocks) {
                b.placement = NormPlacement::branch;
                b.attention.qk_norm = b.attention.qk_norm_whole = true;
            }
        },
    .read = read_olmo,
    .write = write_olmo,
    .presets = olmo2_presets};

}  // namespace

extern const ArchitectureEntry olmo = entry_of<olmo_family>();
extern const ArchitectureEntry olmo2 = entry_of<olmo2_family>();

}  // namespace tsdiag::families::olmo
