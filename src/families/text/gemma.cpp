#include <fmt/format.h>

#include <array>
#include <cmath>

#include "decoder.hpp"
#include "engine/rope.hpp"

/// Gemma 1, 2 and 3 (text): norms that multiply by 1 + w, embeddings times sqrt(d); 2 and 3 with a
/// norm at both ends of each branch and windows in most layers, 2 with capped logits.  [GEMMA2]
namespace tsdiag::families::gemma {
namespace {

constexpr NamePair plus_one(std::string_view canonical, std::string_view file) {
    return {canonical, file, Form::matrix, -1, false, 3, 1};
}

constexpr std::array pairs =
    both(std::array{plus_one("layer.*.norm1", "layers.*.input_layernorm"),
                    plus_one("layer.*.norm2", "layers.*.post_attention_layernorm"),
                    plus_one("final_norm", "norm")},
         llama_pairs);
constexpr std::array branch_pairs =
    both(std::array{plus_one("layer.*.norm1", "layers.*.input_layernorm"),
                    plus_one("layer.*.attn.q_norm", "layers.*.self_attn.q_norm"),
                    plus_one("layer.*.attn.k_norm", "layers.*.self_attn.k_norm"),
                    plus_one("layer.*.branch1", "layers.*.post_attention_layernorm"),
                    plus_one("layer.*.norm2", "layers.*.pre_feedforward_layernorm"),
                    plus_one("layer.*.branch2", "layers.*.post_feedforward_layernorm"),
                    plus_one("final_norm", "norm")},
         llama_pairs);

void fix_scale(ModelSpec& s) { s.embedding.scale = std::sqrt(double(s.width)); }
void fix_branches(ModelSpec& s) {
    fix_scale(s);
    for (BlockSpec& b : s.blocks) b.branch_norms = true;
}

/// Versions of Transformers differ on whether `hidden_act` or `hidden_activation` is read.  The
/// first files call the activation gelu and mean gelu_pytorch_tanh, as `hidden_activation` says
/// since.
void read_gemma(Reader& r) {
    read_attention_bias(r);
    constexpr std::string_view usual = "gelu_pytorch_tanh";
    const Json &older = r.value({"hidden_act"}), &newer = r.value({"hidden_activation"});
    const Unary said = r.activation({"hidden_activation"}, usual);
    if (said == Unary::gelu_tanh && equal(older, "gelu"))
        r.saw("hidden_act = gelu is gelu_pytorch_tanh, as in the first files");
    else if (!older.is_null() && r.activation({"hidden_act"}, usual) != said)
        r.refuse(fmt::format(
            "{} says hidden_act = {} and {}, of which versions of Transformers read the one or the "
            "other; write the same in both",
            r.config_source(), older.dump(),
            newer.is_null() ? fmt::format("no hidden_activation, which is then {}", usual)
                            : fmt::format("hidden_activation = {}", newer.dump())));
    for (BlockSpec& b : r.spec.blocks) b.ffn.activation = said;
}

void read_scalar(Reader& r) {
    const double scalar = r.number({"query_pre_attn_scalar"}, 256);
    if (!(scalar > 0)) r.refuse(fmt::format("query_pre_attn_scalar is {}", scalar));
    for (BlockSpec& b : r.spec.blocks) b.attention.scale = 1 / std::sqrt(scalar);
}

/// A cap of logits; 0: none.
double read_cap(Reader& r, std::string_view key, double fallback) {
    const bool off = r.value({key}).is_null() && (fallback == 0 || r.config().contains(key));
    const double cap = off ? 0 : r.number({key}, fallback);
    if (!(cap > 0) && !off) r.refuse(fmt::format("{} is {}, expected a positive number", key, cap));
    return cap;
}

void set_cap(ModelSpec& s, double cap) {
    for (BlockSpec& b : s.blocks)
        if (cap > 0 && b.attention.variant == "softmax")
            b.attention.options["cap"] = fmt::format("{}", cap);
}

void read_gemma2(Reader& r) {
    read_attention_bias(r);
    read_scalar(r);
    set_cap(r.spec, read_cap(r, "attn_logit_softcapping", 50));
    r.spec.head.cap = read_cap(r, "final_logit_softcapping", 30);
    r.only({"use_bidirectional_attention"}, false);
    set_windows(
        r, r.count({"sliding_window", "sliding_window_size"}, 4096),
        [](Index l) { return l % 2 == 0; }, true);
    const Json& older = r.value({"hidden_act"});  // beside the key that counts
    if (!older.is_null()) r.saw("hidden_act is not read: hidden_activation is");
}

/// Layers with a window rotate by a base of their own, without scaling.
void read_gemma3(Reader& r) {
    read_attention_bias(r);
    read_scalar(r);
    set_cap(r.spec, read_cap(r, "attn_logit_softcapping", 0));
    r.spec.head.cap = read_cap(r, "final_logit_softcapping", 0);
    const Index pattern = r.count({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
    set_windows(r, r.count({"sliding_window"}, 4096),
                [pattern](Index l) { return pattern > 0 && (l + 1) % pattern != 0; }, true,
                {"sliding_window_pattern"});
    const double base = r.number({"rope_local_base_freq"}, 10000);
    if (!(base > 0)) r.refuse(fmt::format("rope_local_base_freq is {}", base));
    for (BlockSpec& b : r.spec.blocks)
        if (b.attention.window > 0) {
            const Index columns = b.attention.rotary.columns;
            b.attention.rotary = {};
            b.attention.rotary.columns = columns;
            b.attention.rotary.theta = base;
        }
}

void write_gemma(const ModelSpec& s, Json& out) {
    out.set("hidden_activation", hf_activation(s.blocks.front().ffn.activation));
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
}
Json cap_of(const ModelSpec& s) {
    const auto& options = s.blocks.front().attention.options;
    const auto cap = options.find("cap");
    return cap == options.end() ? Json() : Json::parse(cap->second, "a cap");
}
void write_caps(const ModelSpec& s, Json& out) {
    const double scale = s.blocks.front().attention.scale;
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
    out.set("query_pre_attn_scalar", 1 / (scale * scale));
    out.set("attn_logit_softcapping", cap_of(s));
    out.set("final_logit_softcapping", s.head.cap > 0 ? Json(s.head.cap) : Json());
    Index window = 0;
    for (const BlockSpec& b : s.blocks) window = std::max(window, b.attention.window);
    out.set("sliding_window", window);
    write_layer_types(s, out);
}
void write_gemma3(const ModelSpec& s, Json& out) {
    write_caps(s, out);
    for (const BlockSpec& b : s.blocks)
        out.set(b.attention.window > 0 ? "rope_local_base_freq" : "rope_theta",
                b.attention.rotary.theta);
}

std::vector<DecoderPreset> gemma_presets() {
    const Unary act = Unary::gelu_tanh;
    return {{"gemma-2b", decoder_sizes(18, 2048, 8, 1, 16384, 8192, 256000, 1e-6, 256, act)},
            {"gemma-7b", decoder_sizes(28, 3072, 16, 16, 24576, 8192, 256000, 1e-6, 256, act)}};
}
void change_gemma2(ModelSpec& s) {
    set_cap(s, 50);
    s.head.cap = 30;
    for (std::size_t l = 0; l < s.blocks.size(); l += 2) s.blocks[l].attention.window = 4096;
}
std::vector<DecoderPreset> gemma2_presets() {
    const Unary act = Unary::gelu_tanh;
    return {{"gemma-2-2b", decoder_sizes(26, 2304, 8, 4, 9216, 8192, 256000, 1e-6, 256, act),
             change_gemma2},
            {"gemma-2-9b", decoder_sizes(42, 3584, 16, 8, 14336, 8192, 256000, 1e-6, 256, act),
             change_gemma2}};
}
std::vector<DecoderPreset> gemma3_presets() {
    return {{"gemma-3-1b",
             decoder_sizes(26, 1152, 4, 1, 6912, 32768, 262144, 1e-6, 256, Unary::gelu_tanh),
             [](ModelSpec& s) {
                 for (std::size_t l = 0; l < s.blocks.size(); ++l) {
                     AttentionSpec& a = s.blocks[l].attention;
                     const bool slides = (l + 1) % 6 != 0;
                     a.window = slides ? 512 : 0;
                     a.rotary.theta = slides ? 10000 : 1e6;
                 }
             }}};
}

constexpr DecoderKeys keys = {.activation = "hidden_activation"};

constexpr Decoder gemma_family = {
    .name = "gemma",
    .title = "Gemma",
    .description = "Gemma: gated GELU, norms that multiply by 1 + w, embeddings times sqrt(d)",
    .model_class = "GemmaModel",
    .pairs = pairs,
    .keys = {.activation = ""},
    .activation = "gelu_pytorch_tanh",
    .tokens = 8192,
    .fix = fix_scale,
    .read = read_gemma,
    .write = write_gemma,
    .presets = gemma_presets};
constexpr Decoder gemma2_family = {
    .name = "gemma2",
    .title = "Gemma 2",
    .description =
        "Gemma 2: a norm before and behind each branch, capped logits, windows in every "
        "other layer",
    .model_class = "Gemma2Model",
    .pairs = branch_pairs,
    .keys = keys,
    .activation = "gelu_pytorch_tanh",
    .tokens = 8192,
    .fix = fix_branches,
    .read = read_gemma2,
    .write = write_caps,
    .presets = gemma2_presets};
constexpr Decoder gemma3_family = {
    .name = "gemma3_text",
    .title = "Gemma 3",
    .description =
        "Gemma 3 (text): norms of q and k, windows in five of six layers, which rotate "
        "by a base of their own",
    .model_class = "Gemma3TextModel",
    .pairs = branch_pairs,
    .keys = keys,
    .activation = "gelu_pytorch_tanh",
    .tokens = 131072,
    .rotary = {.theta = 1e6},
    .head_norms = true,
    .fix =
        [](ModelSpec& s) {
            fix_branches(s);
            for (BlockSpec& b : s.blocks) b.attention.qk_norm = true;
        },
    .read = read_gemma3,
    .write = write_gemma3,
    .presets = gemma3_presets};

}  // namespace

extern const ArchitectureEntry gemma = entry_of<gemma_family>();
extern const ArchitectureEntry gemma2 = entry_of<gemma2_family>();
extern const ArchitectureEntry gemma3_text = entry_of<gemma3_family>();

}  // namespace tsdiag::families::gemma
