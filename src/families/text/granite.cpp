#include <fmt/format.h>

#include <array>
#include <cmath>

#include "decoder.hpp"

/// Decoders with the tensors of LLaMA that compute something else: Granite (multipliers), StableLM
/// (layer norms, a part of each head rotates), Cohere (in parallel behind one norm), GLM.
namespace tsdiag::families::granite {
namespace {

constexpr std::array glm_pairs = both(
    std::array{NamePair{"layer.*.branch1", "layers.*.post_self_attn_layernorm"},
               NamePair{"layer.*.ffn.gate", "layers.*.mlp.gate_up_proj", Form::matrix, 0, false, 2},
               NamePair{"layer.*.ffn.up", "layers.*.mlp.gate_up_proj", Form::matrix, 1, false, 2},
               NamePair{"layer.*.branch2", "layers.*.post_mlp_layernorm"}},
    llama_pairs);
const std::string query_bias = "layers.0.self_attn.q_proj.bias";

double factor(Reader& r, std::string_view key) {
    const double value = r.number({key}, 1);
    if (!(value > 0)) r.refuse(fmt::format("{} is {}, expected a positive number", key, value));
    return value;
}

void read_granite(Reader& r) {
    read_attention_bias(r);
    r.part({"mlp_bias"}, "layers.0.mlp.gate_proj.bias", true);
    r.spec.embedding.scale = factor(r, "embedding_multiplier");
    r.spec.head.scale = 1 / factor(r, "logits_scaling");
    const double scale = factor(r, "attention_multiplier");
    const double residual = factor(r, "residual_multiplier");
    for (BlockSpec& b : r.spec.blocks) {
        b.attention.scale = scale;
        b.alpha = b.ffn_alpha = residual;
    }
}
void write_granite(const ModelSpec& s, Json& out) {
    const BlockSpec& b = s.blocks.front();
    out.set("attention_bias", b.attention.qkv_bias).set("mlp_bias", b.ffn.bias);
    out.set("embedding_multiplier", s.embedding.scale).set("logits_scaling", 1 / s.head.scale);
    out.set("attention_multiplier", b.attention.scale).set("residual_multiplier", b.alpha);
}

/// Its code is its own, known by what it reads.  The logits are those of the state over
/// hidden_size / dim_model_base.
void read_minicpm(Reader& r) {
    accept_code(r, "minicpm");
    read_attention_bias(r);
    r.spec.embedding.scale = factor(r, "scale_emb");
    r.spec.head.scale = factor(r, "dim_model_base") / double(r.spec.width);
    const double residual = factor(r, "scale_depth") / std::sqrt(double(r.spec.blocks.size()));
    for (BlockSpec& b : r.spec.blocks) b.alpha = b.ffn_alpha = residual;
}
void write_minicpm(const ModelSpec& s, Json& out) {
    const BlockSpec& b = s.blocks.front();
    out.set("attention_bias", b.attention.qkv_bias).set("scale_emb", s.embedding.scale);
    out.set("dim_model_base", s.head.scale * double(s.width));
    out.set("scale_depth", b.alpha * std::sqrt(double(s.blocks.size())));
}

/// Biases of q, k and v only.
void read_stablelm(Reader& r) {
    r.part({"use_qkv_bias"}, query_bias);
    r.only({"qk_layernorm"}, false);
    const bool parallel = r.flag({"use_parallel_residual"}, false);
    for (BlockSpec& b : r.spec.blocks) {
        b.attention.out_bias = false;
        b.one_norm = parallel;
        if (parallel) b.placement = NormPlacement::parallel;
    }
}
void write_stablelm(const ModelSpec& s, Json& out) {
    const BlockSpec& b = s.blocks.front();
    out.set("use_qkv_bias", b.attention.qkv_bias);
    out.set("use_parallel_residual", b.placement == NormPlacement::parallel);
}

void fix_cohere(ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.placement = NormPlacement::parallel;
        b.one_norm = true;
        b.norm.kind = NormKind::layer;
    }
}
void read_cohere(Reader& r) {
    read_attention_bias(r);
    r.only({"use_qk_norm"}, false);
    r.value({"model_max_length"});  // of its tokenizer
    r.spec.head.scale = r.number({"logit_scale"}, 0.0625);
}
void write_cohere(const ModelSpec& s, Json& out) {
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
    out.set("logit_scale", s.head.scale);
}
/// Cohere 2: layers without a window have no positions.
void read_cohere2(Reader& r) {
    read_cohere(r);
    for (const char* always : {"use_embedding_sharing", "use_gated_activation",
                               "use_parallel_block", "use_parallel_embedding"})
        r.only({always}, true);
    r.only({"rotary_pct"}, 1);
    r.only({"position_embedding_type"}, "rope_gptj");
    r.only({"order_of_interleaved_layers"}, "local_attn_first");
    const Index pattern = r.count({"sliding_window_pattern", "_sliding_window_pattern"}, 4);
    set_windows(r, r.count({"sliding_window"}, 4096),
                [pattern](Index l) { return pattern > 0 && (l + 1) % pattern != 0; }, true,
                {"sliding_window_pattern"});
    for (BlockSpec& b : r.spec.blocks)
        if (b.attention.window == 0) b.attention.rotary.columns = 0;
}
void write_cohere2(const ModelSpec& s, Json& out) {
    write_cohere(s, out);
    Index window = 0;
    for (const BlockSpec& b : s.blocks) window = std::max(window, b.attention.window);
    out.set("sliding_window", window);
    write_layer_types(s, out);
}

/// Biases of q, k and v only.
void read_glm(Reader& r) {
    r.part({"attention_bias"}, query_bias, true);
    for (BlockSpec& b : r.spec.blocks) b.attention.out_bias = false;
}
void write_glm(const ModelSpec& s, Json& out) {
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
}

std::vector<DecoderPreset> granite_presets() {
    return {{"granite-3.1-2b", decoder_sizes(40, 2048, 32, 8, 8192, 131072, 49155, 1e-5),
             [](ModelSpec& s) {
                 s.embedding.scale = 12;
                 s.head.scale = 1.0 / 8;
                 for (BlockSpec& b : s.blocks) {
                     b.attention.scale = 0.015625;
                     b.alpha = b.ffn_alpha = 0.22;
                     b.attention.rotary.theta = 5e6;
                 }
             }}};
}
std::vector<DecoderPreset> minicpm_presets() {
    return {
        {"minicpm-2b", decoder_sizes(40, 2304, 36, 36, 5760, 4096, 122753, 1e-5), [](ModelSpec& s) {
             s.embedding.scale = 12;
             s.head.scale = 256 / double(s.width);
             for (BlockSpec& b : s.blocks)
                 b.alpha = b.ffn_alpha = 1.4 / std::sqrt(double(s.blocks.size()));
         }}};
}
std::vector<DecoderPreset> stablelm_presets() {
    return {{"stablelm-3b", decoder_sizes(32, 2560, 32, 32, 6912, 4096, 50304, 1e-5)},
            {"stablelm-2-1.6b", decoder_sizes(24, 2048, 32, 32, 5632, 4096, 100352, 1e-5),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks) b.attention.qkv_bias = true;
             }}};
}
std::vector<DecoderPreset> cohere_presets() {
    return {{"command-r", decoder_sizes(40, 8192, 64, 64, 22528, 131072, 256000, 1e-5),
             [](ModelSpec& s) {
                 s.head.scale = 0.0625;
                 for (BlockSpec& b : s.blocks) b.attention.rotary.theta = 8e6;
             }}};
}
std::vector<DecoderPreset> cohere2_presets() {
    return {{"command-r7b", decoder_sizes(32, 4096, 32, 8, 14336, 132096, 256000, 1e-5),
             [](ModelSpec& s) {
                 s.head.scale = 0.25;
                 for (std::size_t l = 0; l < s.blocks.size(); ++l) {
                     AttentionSpec& a = s.blocks[l].attention;
                     a.rotary.theta = 50000;
                     (l + 1) % 4 != 0 ? a.window = 4096 : a.rotary.columns = 0;
                 }
             }}};
}
std::vector<DecoderPreset> glm_presets() {
    return {{"glm-4-9b", decoder_sizes(40, 4096, 32, 2, 13696, 131072, 151552, 1.5625e-7),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks) b.attention.qkv_bias = true;
             }}};
}
std::vector<DecoderPreset> glm4_presets() {
    return {{"glm-4-0414-9b", decoder_sizes(40, 4096, 32, 2, 13696, 32768, 151552, 1e-5),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks) b.attention.qkv_bias = true;
             }}};
}

constexpr DecoderKeys layer_norms = {.eps = "layer_norm_eps"};

constexpr Decoder granite_family = {
    .name = "granite",
    .title = "Granite",
    .description = "Granite: LLaMA with multipliers of embedding, attention, residuals and logits",
    .model_class = "GraniteModel",
    .pairs = llama_pairs,
    .read = read_granite,
    .write = write_granite,
    .presets = granite_presets};
constexpr Decoder minicpm_family = {
    .name = "minicpm",
    .title = "MiniCPM",
    .description = "MiniCPM 1, 2, 4: LLaMA with multipliers of embedding, residuals and logits",
    .model_class = "MiniCPMModel",
    .pairs = llama_pairs,
    .keys = {.head_dim = ""},
    .read = read_minicpm,
    .write = write_minicpm,
    .presets = minicpm_presets};
constexpr Decoder stablelm_family = {
    .name = "stablelm",
    .title = "StableLM",
    .description = "StableLM: LLaMA with layer norms; a quarter of each head rotates",
    .model_class = "StableLmModel",
    .pairs = llama_pairs,
    .keys = layer_norms,
    .eps = 1e-5,
    .tokens = 4096,
    .rotary = {.share = 0.25},
    .fix =
        [](ModelSpec& s) {
            for (BlockSpec& b : s.blocks) {
                b.norm.kind = NormKind::layer;
                b.norm.bias = true;
            }
        },
    .read = read_stablelm,
    .write = write_stablelm,
    .presets = stablelm_presets};
constexpr Decoder cohere_family = {
    .name = "cohere",
    .title = "Cohere",
    .description = "Cohere (Command R): attention and feed-forward in parallel behind one norm",
    .model_class = "CohereModel",
    .pairs = llama_pairs,
    .keys = layer_norms,
    .eps = 1e-5,
    .tokens = 8192,
    .rotary = {.interleaved = true},
    .fix = fix_cohere,
    .read = read_cohere,
    .write = write_cohere,
    .presets = cohere_presets};
constexpr Decoder cohere2_family = {
    .name = "cohere2",
    .title = "Cohere 2",
    .description =
        "Cohere 2 (Command R7B): windows in three of four layers, no positions in the fourth",
    .model_class = "Cohere2Model",
    .pairs = llama_pairs,
    .keys = layer_norms,
    .eps = 1e-5,
    .tokens = 8192,
    .rotary = {.interleaved = true},
    .fix = fix_cohere,
    .read = read_cohere2,
    .write = write_cohere2,
    .presets = cohere2_presets};
constexpr Decoder glm_family = {
    .name = "glm",
    .title = "GLM",
    .description = "GLM-4: half of each head rotates in neighbouring pairs, biases on q, k, v",
    .model_class = "GlmModel",
    .pairs = glm_pairs,
    .eps = 1.5625e-7,
    .tokens = 131072,
    .rotary = {.share = 0.5, .interleaved = true},
    .read = read_glm,
    .write = write_glm,
    .presets = glm_presets};
constexpr Decoder glm4_family = {
    .name = "glm4",
    .title = "GLM-4",
    .description = "GLM-4-0414: GLM with a norm before and behind each branch",
    .model_class = "Glm4Model",
    .pairs = glm_pairs,
    .eps = 1.5625e-7,
    .tokens = 131072,
    .rotary = {.share = 0.5, .interleaved = true},
    .fix =
        [](ModelSpec& s) {
            for (BlockSpec& b : s.blocks) b.branch_norms = true;
        },
    .read = read_glm,
    .write = write_glm,
    .presets = glm4_presets};

}  // namespace

extern const ArchitectureEntry granite = entry_of<granite_family>();
extern const ArchitectureEntry minicpm = entry_of<minicpm_family>();
extern const ArchitectureEntry stablelm = entry_of<stablelm_family>();
extern const ArchitectureEntry cohere = entry_of<cohere_family>();
extern const ArchitectureEntry cohere2 = entry_of<cohere2_family>();
extern const ArchitectureEntry glm = entry_of<glm_family>();
extern const ArchitectureEntry glm4 = entry_of<glm4_family>();

}  // namespace tsdiag::families::granite
