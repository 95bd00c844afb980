#include <fmt/format.h>

#include <array>
#include <cmath>

#include "decoder.hpp"

/// gpt-oss: a mixture of experts on layers whose attention has sinks.  [GPT-OSS]
namespace tsdiag::families::gpt_oss {
namespace {

constexpr std::array pairs =
    both(std::array{NamePair{"layer.*.attn.sinks", "layers.*.self_attn.sinks"},
                    NamePair{"layer.*.ffn.router", "layers.*.mlp.router"},
                    NamePair{"layer.*.ffn.expert.*.gate", "layers.*.mlp.experts.*.gate_proj"},
                    NamePair{"layer.*.ffn.expert.*.up", "layers.*.mlp.experts.*.up_proj"},
                    NamePair{"layer.*.ffn.expert.*.down", "layers.*.mlp.experts.*.down_proj"}},
         llama_attention_pairs);

constexpr double clip = 7;

/// The library's parameters of a layer: gate_up_proj (experts, d, 2 width), a gate and an up in
/// turn, down_proj (experts, width, d), and their biases.
void stack_experts(const ModelSpec& spec, Names& names) {
    constexpr std::string_view before = ".mlp.experts.";
    const Index width = spec.blocks.front().ffn.width;
    for (auto& [canonical, source] : names) {
        const std::size_t found = source.file_name.find(before);
        if (found == std::string::npos) continue;
        const std::size_t number = found + before.size(), dot = source.file_name.find('.', number);
        source.slice = std::stoll(source.file_name.substr(number, dot - number));
        source.file_name.resize(number);
        const bool bias = canonical.ends_with(".bias");
        const bool down = canonical.find(".down.") != std::string::npos;
        source.file_name += down ? "down_proj" : "gate_up_proj";
        if (bias) source.file_name += "_bias";
        source.transposed = !bias;
        if (down) continue;
        source.groups = width;
        source.stride = 2;
        source.length = 1;
        source.first = canonical.find(".up.") != std::string::npos ? 1 : 0;
        source.total = 2 * width;
    }
}

void fix(ModelSpec& s) {
    for (BlockSpec& b : s.blocks) {
        b.attention.own = {{"sinks", {1, 1, b.attention.heads}, true}};
        b.attention.qkv_bias = b.attention.out_bias = b.ffn.bias = true;
        b.ffn.limit = clip;
    }
}
/// The softmax of the chosen experts' logits is their share of that of all.
void set_router(ModelSpec& s) {
    for (BlockSpec& b : s.blocks)
        b.ffn.experts.renormalised = b.ffn.experts.router_bias = b.ffn.bias = true;
}

void read(Reader& r) {
    read_experts(r, "num_local_experts", "layers.0.mlp.router.weight", 4);
    set_router(r.spec);
    const Json& older = r.value({"experts_per_token"});
    const Index chosen = r.spec.blocks.front().ffn.experts.chosen;
    if (!older.is_null() && !equal(older, Json(chosen)))
        r.refuse(fmt::format("num_experts_per_tok is {}, but experts_per_token is {}", chosen,
                             older.dump()));
    r.only({"hidden_act"}, "silu");  // though the code has x sigmoid(1.702 x)
    r.only({"swiglu_limit"}, clip);
    r.value({"initial_context_length"});  // the rotary scaling says it
    read_attention_bias(r, false);
    const bool none =
        r.config().contains("sliding_window") && r.value({"sliding_window"}).is_null();
    set_windows(
        r, none ? 0 : r.count({"sliding_window"}, 128), [](Index l) { return l % 2 == 0; }, true);
}
/// Without one the library takes that of the released models, so nothing is no statement here.
void require_scaling(const Reader& r) {
    if (r.value({"rope_scaling"}).is_null() && r.value({"rope_parameters"}).is_null())
        r.refuse(fmt::format("{} has neither rope_scaling nor rope_parameters, which gpt-oss needs",
                             r.config_source()));
}

void write(const ModelSpec& s, Json& out) {
    const ExpertsSpec& e = s.blocks.front().ffn.experts;
    Index window = 0;
    for (const BlockSpec& b : s.blocks) window = std::max(window, b.attention.window);
    out.set("num_local_experts", e.count).set("num_experts_per_tok", e.chosen);
    out.set("hidden_act", "silu").set("swiglu_limit", s.blocks.front().ffn.limit);
    out.set("attention_bias", s.blocks.front().attention.qkv_bias);
    out.set("sliding_window", window > 0 ? Json(window) : Json());
    if (!out.contains("rope_scaling"))
        out.set("rope_scaling", Json(Json::Object{{"rope_type", "default"}}));
    write_layer_types(s, out);
}

/// As the library draws: sinks and the router's bias as weights are.
Draw law(const Parameter& p) {
    constexpr double deviation = 0.02;
    if (p.name.ends_with(".sinks") || p.name.ends_with(".router.bias"))
        return {Draw::Law::normal, deviation, -1};
    return normal_law(p, deviation);
}

void release(ModelSpec& s, Index experts) {
    set_router(s);
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
        BlockSpec& b = s.blocks[l];
        b.ffn.experts.count = experts;
        b.ffn.experts.chosen = 4;
        if (l % 2 == 0) b.attention.window = 128;
        Rotary& r = b.attention.rotary;
        r.scaling = "yarn";
        r.factor = 32;
        r.original_length = 4096;
        r.truncate = false;
        r.magnitude = 0.1 * std::log(r.factor) + 1;
    }
}
std::vector<DecoderPreset> presets() {
    const auto sizes = [](Index layers) {
        return decoder_sizes(layers, 2880, 64, 8, 2880, 131072, 201088, 1e-5, 64,
                             Unary::gelu_quick);
    };
    return {{"gpt-oss-20b", sizes(24), [](ModelSpec& s) { release(s, 32); }},
            {"gpt-oss-120b", sizes(36), [](ModelSpec& s) { release(s, 128); }}};
}

constexpr Decoder family = {
    .name = "gpt_oss",
    .title = "gpt-oss",
    .description =
        "gpt-oss: a mixture of experts, clipped gates, a learned sink of each head, "
        "windows in every other layer",
    .model_class = "GptOssModel",
    .pairs = pairs,
    .keys = {.activation = ""},
    .eps = 1e-5,
    .activation = "quick_gelu",
    .tokens = 131072,
    .rotary = {.theta = 150000},
    .fix = fix,
    .read = read,
    .write = write,
    .presets = presets,
    .begin = require_scaling,
    .attention = "sink",
    .stacked = "layers.0.mlp.experts.gate_up_proj",
    .stack = stack_experts,
    .law = law,
    .law_in_words = "weights, sinks and the router's biases N(0, 0.02^2), other biases 0, norms 1"};

}  // namespace

extern const ArchitectureEntry gpt_oss = entry_of<family>();

}  // namespace tsdiag::families::gpt_oss
