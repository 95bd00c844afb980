#include <fmt/format.h>

#include <array>

#include "decoder.hpp"

/// Mixtures of experts on LLaMA's layers: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE.  [MIXTRAL]
namespace tsdiag::families::mixtures {
namespace {

constexpr std::array mixtral_pairs = both(
    std::array{NamePair{"layer.*.ffn.router", "layers.*.block_sparse_moe.gate"},
               NamePair{"layer.*.ffn.expert.*.gate", "layers.*.block_sparse_moe.experts.*.w1"},
               NamePair{"layer.*.ffn.expert.*.up", "layers.*.block_sparse_moe.experts.*.w3"},
               NamePair{"layer.*.ffn.expert.*.down", "layers.*.block_sparse_moe.experts.*.w2"}},
    llama_attention_pairs);
constexpr std::array pairs =
    both(std::array{NamePair{"layer.*.ffn.router", "layers.*.mlp.gate"},
                    NamePair{"layer.*.ffn.expert.*.gate", "layers.*.mlp.experts.*.gate_proj"},
                    NamePair{"layer.*.ffn.expert.*.up", "layers.*.mlp.experts.*.up_proj"},
                    NamePair{"layer.*.ffn.expert.*.down", "layers.*.mlp.experts.*.down_proj"},
                    NamePair{"layer.*.ffn.shared.gate", "layers.*.mlp.shared_expert.gate_proj"},
                    NamePair{"layer.*.ffn.shared.up", "layers.*.mlp.shared_expert.up_proj"},
                    NamePair{"layer.*.ffn.shared.down", "layers.*.mlp.shared_expert.down_proj"},
                    NamePair{"layer.*.ffn.shared_gate", "layers.*.mlp.shared_expert_gate"}},
         llama_attention_pairs);

void set_renormalised(ModelSpec& s, bool on) {
    for (BlockSpec& b : s.blocks) b.ffn.experts.renormalised = on;
}
/// Qwen may have layers without experts.
void refuse_dense_layers(Reader& r) {
    r.only({"decoder_sparse_step"}, 1);
    r.only({"mlp_only_layers"}, Json::Array());
    r.value({"intermediate_size"});  // of layers without experts
}
/// Versions of Transformers slide in other layers: `now` are those of the later ones, in words.
void read_qwen_window(Reader& r, std::string_view now) {
    const bool on = r.switch_said({"use_sliding_window"}).value_or(false) &&
                    !r.value({"sliding_window"}).is_null();
    r.value({"sliding_window"});
    const bool told = !r.value({"max_window_layers"}).is_null(),
               listed = !r.value({"layer_types"}).is_null();
    const Index first = on && (told || !listed) ? r.count({"max_window_layers"}, 28) : 0;
    if (on && !listed)
        r.refuse(fmt::format(
            "use_sliding_window is true without layer_types: versions of Transformers slide in the "
            "layers from max_window_layers = {} on, or {}; list layer_types, or set "
            "use_sliding_window to false for samples of no more than sliding_window tokens",
            first, now));
    set_windows(
        r, on ? r.count({"sliding_window"}, 4096) : 0, [first](Index l) { return l >= first; },
        true);
}

void read_mixtral(Reader& r) {
    read_experts(r, "num_local_experts", "layers.0.block_sparse_moe.gate.weight", 2);
    set_renormalised(r.spec, true);
    const bool off = r.value({"sliding_window"}).is_null();
    if (!r.config().contains("sliding_window")) r.assume("sliding_window = none");
    set_windows(
        r, off ? 0 : r.count({"sliding_window"}, 0), [](Index) { return true; }, false);
}
void read_qwen2(Reader& r) {
    read_experts(r, "num_experts", "layers.0.mlp.gate.weight", 4);
    set_renormalised(r.spec, r.flag({"norm_topk_prob"}, false));
    refuse_dense_layers(r);
    r.part({"qkv_bias"}, "layers.0.self_attn.q_proj.bias");
    const std::string shared = "layers.0.mlp.shared_expert.up_proj.weight";
    const Index width = r.agreed({"shared_expert_intermediate_size"}, r.extent(shared, 0), shared);
    for (BlockSpec& b : r.spec.blocks) {
        b.attention.out_bias = false;
        b.ffn.experts.shared = width;
        b.ffn.experts.shared_gate = true;
    }
    read_qwen_window(r, "in those below it with even numbers");
}
void read_qwen3(Reader& r) {
    read_experts(r, "num_experts", "layers.0.mlp.gate.weight", 8);
    set_renormalised(r.spec, r.flag({"norm_topk_prob"}, false));
    refuse_dense_layers(r);
    read_attention_bias(r);
    read_qwen_window(r, "in all");
}
void read_olmoe(Reader& r) {
    read_experts(r, "num_experts", "layers.0.mlp.gate.weight", 8);
    set_renormalised(r.spec, r.flag({"norm_topk_prob"}, false));
    read_attention_bias(r);
    r.only({"clip_qkv"}, Json());
}

void write_common(const ModelSpec& s, Json& out, const char* count_key) {
    const ExpertsSpec& e = s.blocks.front().ffn.experts;
    out.set(count_key, e.count).set("num_experts_per_tok", e.chosen);
    if (s.family != "mixtral") out.set("norm_topk_prob", e.renormalised);
}
void write_mixtral(const ModelSpec& s, Json& out) {
    write_common(s, out, "num_local_experts");
    const Index window = s.blocks.front().attention.window;
    out.set("sliding_window", window > 0 ? Json(window) : Json());
}
void write_qwen2(const ModelSpec& s, Json& out) {
    write_common(s, out, "num_experts");
    out.set("shared_expert_intermediate_size", s.blocks.front().ffn.experts.shared);
    out.set("qkv_bias", s.blocks.front().attention.qkv_bias).set("decoder_sparse_step", 1);
}
void write_biased(const ModelSpec& s, Json& out) {
    write_common(s, out, "num_experts");
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
}

void set_experts(ModelSpec& s, Index count, Index chosen, double theta) {
    for (BlockSpec& b : s.blocks) {
        b.ffn.experts.count = count;
        b.ffn.experts.chosen = chosen;
        b.attention.rotary.theta = theta;
    }
}
std::vector<DecoderPreset> mixtral_presets() {
    return {{"mixtral-8x7b", decoder_sizes(32, 4096, 32, 8, 14336, 32768, 32000, 1e-5),
             [](ModelSpec& s) {
                 set_experts(s, 8, 2, 1e6);
                 set_renormalised(s, true);
             }}};
}
std::vector<DecoderPreset> qwen2_presets() {
    return {{"qwen1.5-moe-a2.7b", decoder_sizes(24, 2048, 16, 16, 1408, 8192, 151936, 1e-6),
             [](ModelSpec& s) {
                 set_experts(s, 60, 4, 1e6);
                 for (BlockSpec& b : s.blocks) {
                     b.ffn.experts.shared = 4 * b.ffn.width;
                     b.ffn.experts.shared_gate = true;
                 }
             }}};
}
std::vector<DecoderPreset> qwen3_presets() {
    return {{"qwen3-30b-a3b", decoder_sizes(48, 2048, 32, 4, 768, 40960, 151936, 1e-6, 128),
             [](ModelSpec& s) {
                 set_experts(s, 128, 8, 1e6);
                 set_renormalised(s, true);
             }}};
}
std::vector<DecoderPreset> olmoe_presets() {
    return {{"olmoe-1b-7b", decoder_sizes(16, 2048, 16, 16, 1024, 4096, 50304, 1e-5),
             [](ModelSpec& s) { set_experts(s, 64, 8, 10000); }}};
}

constexpr Decoder mixtral_family = {
    .name = "mixtral",
    .title = "Mixtral",
    .description = "Mixtral: Mistral with a mixture of experts, whose shares sum to 1",
    .model_class = "MixtralModel",
    .pairs = mixtral_pairs,
    .eps = 1e-5,
    .tokens = 131072,
    .rotary = {.theta = 1e6},
    .read = read_mixtral,
    .write = write_mixtral,
    .presets = mixtral_presets};
constexpr Decoder qwen2_family = {
    .name = "qwen2_moe",
    .title = "Qwen2-MoE",
    .description =
        "Qwen2-MoE: Qwen2 with a mixture of experts and a gated one that all tokens have",
    .model_class = "Qwen2MoeModel",
    .pairs = pairs,
    .keys = {.head_dim = "", .ffn = "moe_intermediate_size"},
    .tokens = 32768,
    .fix =
        [](ModelSpec& s) {
            for (BlockSpec& b : s.blocks) b.attention.qkv_bias = true;
        },
    .read = read_qwen2,
    .write = write_qwen2,
    .presets = qwen2_presets};
constexpr Decoder qwen3_family = {.name = "qwen3_moe",
                                  .title = "Qwen3-MoE",
                                  .description = "Qwen3-MoE: Qwen3 with a mixture of experts",
                                  .model_class = "Qwen3MoeModel",
                                  .pairs = pairs,
                                  .keys = {.ffn = "moe_intermediate_size"},
                                  .tokens = 32768,
                                  .head_norms = true,
                                  .fix =
                                      [](ModelSpec& s) {
                                          for (BlockSpec& b : s.blocks) b.attention.qk_norm = true;
                                      },
                                  .read = read_qwen3,
                                  .write = write_biased,
                                  .presets = qwen3_presets};
constexpr Decoder olmoe_family = {
    .name = "olmoe",
    .title = "OLMoE",
    .description = "OLMoE: LLaMA with norms of all of q and k and a mixture of experts",
    .model_class = "OlmoeModel",
    .pairs = pairs,
    .keys = {.head_dim = ""},
    .eps = 1e-5,
    .tokens = 4096,
    .fix =
        [](ModelSpec& s) {
            for (BlockSpec& b : s.blocks) b.attention.qk_norm = b.attention.qk_norm_whole = true;
        },
    .read = read_olmoe,
    .write = write_biased,
    .presets = olmoe_presets};

}  // namespace

extern const ArchitectureEntry mixtral = entry_of<mixtral_family>();
extern const ArchitectureEntry qwen2_moe = entry_of<qwen2_family>();
extern const ArchitectureEntry qwen3_moe = entry_of<qwen3_family>();
extern const ArchitectureEntry olmoe = entry_of<olmoe_family>();

}  // namespace tsdiag::families::mixtures
