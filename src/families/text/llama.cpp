#include <fmt/format.h>

#include "decoder.hpp"

/// LLaMA, Mistral, Qwen2, Qwen3, SmolLM3: pre-norm decoders with RMS norms, gated feed-forward,
/// rotary positions and grouped queries.
namespace tsdiag::families::llama {
namespace {

constexpr std::string_view anchor = "layers.0.self_attn.q_proj.weight";
const std::string attention0 = "layers.0.self_attn.";

/// The family by names and shapes where no config tells: qwen3 normalises q and k, qwen2 has biases
/// on q, k, v only; mistral is indistinguishable from llama.
std::string_view family_by_names(const Checkpoint& file) {
    const auto prefix = prefix_of(file, anchor);
    if (!prefix || !file.has(*prefix + "layers.0.mlp.gate_proj.weight")) return "";
    if (file.has(*prefix + attention0 + "q_norm.weight")) return "qwen3";
    const bool q = file.has(*prefix + attention0 + "q_proj.bias");
    return q && !file.has(*prefix + attention0 + "o_proj.bias") ? "qwen2" : "llama";
}

template <const char* family>
bool owns(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {family})) return *declared;
    return family_by_names(file) == family;
}

/// The tensors of LLaMA are also those of Mistral, and of Gemma and Granite, which compute
/// differently.
void ask_for_family(const Reader& r) {
    if (r.has_model_type()) return;
    r.ask(
        "its tensor names are shared by LLaMA, Mistral, Gemma and others, which compute different "
        "things; put its config.json next to it or pass --config FILE, at least {\"model_type\": "
        "\"llama\"}");
}

/// Biases on all four projections or on none.
void read_biases(Reader& r) {
    read_attention_bias(r);
    r.part({"mlp_bias"}, "layers.0.mlp.gate_proj.bias", true);
}

/// LLaMA has no sliding windows.
void read_llama(Reader& r) {
    read_biases(r);
    r.value({"max_window_layers"});  // no effect where nothing slides
    r.only({"sliding_window"}, 0);
    r.only({"use_sliding_window"}, false);
    set_windows(
        r, 0, [](Index) { return false; }, false);
}

/// Mistral's windows are in all layers.
void read_mistral(Reader& r) {
    // Transformers has no biases in Mistral, whatever the key says.
    r.only({"attention_bias"}, false);
    r.only({"mlp_bias"}, false);
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj"})
        if (const std::string bias = fmt::format("layers.0.{}.bias", part); r.has(bias))
            r.refuse(
                fmt::format("has the tensor '{}', which Transformers does not read in a Mistral; "
                            "pass --ignore '*_proj.bias' to do as it does",
                            r.prefix() + bias));
    for (BlockSpec& b : r.spec.blocks) b.attention.out_bias = false;
    r.value({"max_window_layers"});
    const std::optional<bool> use = r.switch_said({"use_sliding_window"});
    const bool off = r.config().contains("sliding_window") && r.value({"sliding_window"}).is_null();
    const bool on = !off && use.value_or(true);
    set_windows(
        r, on ? r.count({"sliding_window"}, 4096) : 0, [](Index) { return true; }, false);
}

/// Qwen's windows only where `use_sliding_window`, by `layer_types` where listed, else from layer
/// `max_window_layers` on.
void read_qwen_windows(Reader& r) {
    const std::optional<bool> use = r.switch_said({"use_sliding_window"});
    const bool off = r.config().contains("sliding_window") && r.value({"sliding_window"}).is_null();
    const bool on = !off && use.value_or(false);
    const Index window = on ? r.count({"sliding_window"}, 4096) : 0;
    const bool told = !r.value({"max_window_layers"}).is_null(),
               listed = !r.value({"layer_types"}).is_null();
    const Index first = window > 0 && (told || !listed) ? r.count({"max_window_layers"}, 28) : 0;
    set_windows(
        r, window, [first](Index l) { return l >= first; }, true);
}

/// Qwen2 has biases on q, k, v and no key for them.
void read_qwen2(Reader& r) {
    r.value({"attention_bias"});
    r.part({"mlp_bias"}, "layers.0.mlp.gate_proj.bias", true);
    for (BlockSpec& b : r.spec.blocks) {
        b.attention.qkv_bias = true;
        b.attention.out_bias = false;
    }
    read_qwen_windows(r);
}
void read_qwen3(Reader& r) {
    read_biases(r);
    read_qwen_windows(r);
}

/// Layers whose `no_rope_layers` is 0, by default every fourth, have no positions.
void read_smollm3(Reader& r) {
    read_biases(r);
    read_qwen_windows(r);
    const Json& rotates = r.value({"no_rope_layers"});
    const Index each = r.count({"no_rope_layer_interval"}, 4);
    auto& blocks = r.spec.blocks;
    if (!rotates.is_null() && (!rotates.is_array() || rotates.array().size() != blocks.size()))
        r.refuse(fmt::format("no_rope_layers is not a list of {} numbers", blocks.size()));
    Index without = 0;
    for (std::size_t l = 0; l < blocks.size(); ++l) {
        const bool none = rotates.is_null() ? each > 0 && Index(l + 1) % each == 0
                                            : equal(rotates.array()[l], Json(0));
        if (none) blocks[l].attention.rotary.columns = 0;
        without += none;
    }
    r.saw(fmt::format("{} layers without positions", without));
}

std::vector<DecoderPreset> llama_presets() {
    return {{"llama-7b", decoder_sizes(32, 4096, 32, 32, 11008, 4096, 32000, 1e-5)},
            {"llama-3.2-1b", decoder_sizes(16, 2048, 32, 8, 8192, 131072, 128256, 1e-5),
             [](ModelSpec& s) {
                 for (BlockSpec& b : s.blocks) {
                     Rotary& r = b.attention.rotary;
                     r.theta = 5e5;
                     r.scaling = "llama3";
                     r.factor = 32;
                     r.original_length = 8192;
                 }
             }}};
}
void set_theta(ModelSpec& s, double theta) {
    for (BlockSpec& b : s.blocks) b.attention.rotary.theta = theta;
}
std::vector<DecoderPreset> mistral_presets() {
    return {
        {"mistral-7b", decoder_sizes(32, 4096, 32, 8, 14336, 32768, 32000, 1e-5), [](ModelSpec& s) {
             for (BlockSpec& b : s.blocks) b.attention.window = 4096;
         }}};
}
std::vector<DecoderPreset> qwen2_presets() {
    return {{"qwen2-0.5b", decoder_sizes(24, 896, 14, 2, 4864, 32768, 151936, 1e-6),
             [](ModelSpec& s) { set_theta(s, 1e6); }}};
}
std::vector<DecoderPreset> qwen3_presets() {
    return {{"qwen3-0.6b", decoder_sizes(28, 1024, 16, 8, 3072, 40960, 151936, 1e-6, 128),
             [](ModelSpec& s) { set_theta(s, 1e6); }}};
}
std::vector<DecoderPreset> smollm3_presets() {
    return {{"smollm3-3b", decoder_sizes(36, 2048, 16, 4, 11008, 65536, 128256, 1e-6),
             [](ModelSpec& s) {
                 set_theta(s, 5e6);
                 for (std::size_t l = 3; l < s.blocks.size(); l += 4)
                     s.blocks[l].attention.rotary.columns = 0;
             }}};
}

void write_biases(const ModelSpec& s, Json& out) {
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
}
void write_window(const ModelSpec& s, Json& out) {
    const Index window = s.blocks.front().attention.window;
    if (s.family != "qwen2") write_biases(s, out);
    if (window > 0)
        out.set("sliding_window", window);
    else
        out.set("sliding_window", nullptr);
}
void write_smollm3(const ModelSpec& s, Json& out) {
    write_biases(s, out);
    Json::Array rotates;
    for (const BlockSpec& b : s.blocks) rotates.emplace_back(b.attention.rotary.columns > 0);
    for (Json& one : rotates) one = Json(one.boolean() ? 1 : 0);
    out.set("no_rope_layers", std::move(rotates));
}

constexpr char llama_name[] = "llama", mistral_name[] = "mistral", qwen2_name[] = "qwen2",
               qwen3_name[] = "qwen3";

constexpr Decoder llama_family = {
    .name = llama_name,
    .title = "LLaMA",
    .description = "LLaMA: pre-norm decoder, RMS norms, rotary positions, gated feed-forward",
    .model_class = "LlamaModel",
    .pairs = llama_pairs,
    .keys = {.older_tokens = "max_sequence_length"},
    .head_norms = true,
    .read = read_llama,
    .write = write_window,
    .presets = llama_presets,
    .matches = owns<llama_name>,
    .begin = ask_for_family};
constexpr Decoder mistral_family = {
    .name = mistral_name,
    .title = "Mistral",
    .description = "Mistral: LLaMA with grouped queries and a sliding window",
    .model_class = "MistralModel",
    .pairs = llama_pairs,
    .tokens = 131072,
    .head_norms = true,
    .read = read_mistral,
    .write = write_window,
    .presets = mistral_presets,
    .matches = owns<mistral_name>};
constexpr Decoder qwen2_family = {.name = qwen2_name,
                                  .title = "Qwen2",
                                  .description = "Qwen2: LLaMA with biases on q, k, v",
                                  .model_class = "Qwen2Model",
                                  .pairs = llama_pairs,
                                  .tokens = 32768,
                                  .head_norms = true,
                                  .fix =
                                      [](ModelSpec& s) {
                                          for (BlockSpec& b : s.blocks) b.attention.qkv_bias = true;
                                      },
                                  .read = read_qwen2,
                                  .write = write_window,
                                  .presets = qwen2_presets,
                                  .matches = owns<qwen2_name>};
constexpr Decoder qwen3_family = {.name = qwen3_name,
                                  .title = "Qwen3",
                                  .description = "Qwen3: LLaMA with norms of q and k",
                                  .model_class = "Qwen3Model",
                                  .pairs = llama_pairs,
                                  .tokens = 32768,
                                  .head_norms = true,
                                  .fix =
                                      [](ModelSpec& s) {
                                          for (BlockSpec& b : s.blocks) b.attention.qk_norm = true;
                                      },
                                  .read = read_qwen3,
                                  .write = write_window,
                                  .presets = qwen3_presets,
                                  .matches = owns<qwen3_name>};
constexpr Decoder smollm3_family = {.name = "smollm3",
                                    .title = "SmolLM3",
                                    .description = "SmolLM3: LLaMA with layers without positions",
                                    .model_class = "SmolLM3Model",
                                    .pairs = llama_pairs,
                                    .tokens = 32768,
                                    .rotary = {.theta = 2e6},
                                    .read = read_smollm3,
                                    .write = write_smollm3,
                                    .presets = smollm3_presets};

}  // namespace

extern const ArchitectureEntry llama = entry_of<llama_family>();
extern const ArchitectureEntry mistral = entry_of<mistral_family>();
extern const ArchitectureEntry qwen2 = entry_of<qwen2_family>();
extern const ArchitectureEntry qwen3 = entry_of<qwen3_family>();
extern const ArchitectureEntry smollm3 = entry_of<smollm3_family>();

}  // namespace tsdiag::families::llama
