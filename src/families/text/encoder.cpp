#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// The encoders of [TSE]: post-norm (Algorithm 1) and pre-norm (19), without embeddings.  Their
/// files hold the canonical names themselves, and config.json has `model_type` "tsdiag_encoder".
namespace tsdiag::families::encoder {
namespace {

/// Names are those of the parameters.
constexpr auto pairs = [] {
    std::array<NamePair, 11> out;
    std::size_t i = 0;
    for (const std::string_view name :
         {"layer.*.norm1", "layer.*.attn.q", "layer.*.attn.k", "layer.*.attn.v", "layer.*.attn.o",
          "layer.*.norm2", "layer.*.ffn.gate", "layer.*.ffn.up", "layer.*.ffn.down",
          "layer.*.deesc.tau", "final_norm"})
        out[i++] = {name, name};
    return out;
}();
constexpr std::string_view anchor = "layer.0.attn.q.weight";

Names names(const ModelSpec& spec) { return translate(spec, pairs); }

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"tsdiag_encoder", "encoder"}))
        return *declared;
    return prefix_of(file, anchor).has_value();
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "encoder");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    const std::string query(anchor), key = "layer.0.attn.k.weight";
    s.width = s.embedding.width = r.agreed({"width"}, r.extent(query, 1), query);
    const Index layers = r.layers("layer.");
    r.agreed({"layers"}, layers, "layer.*");
    s.final_norm = r.has("final_norm.weight");
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const std::string placement = r.word({"placement"}, "post");
    if (placement != "post" && placement != "pre")
        r.refuse(fmt::format("placement '{}' is neither post nor pre", placement));
    b.placement = placement == "pre" ? NormPlacement::pre : NormPlacement::post;
    const Index inner = r.extent(query, 0);
    a.heads = r.heads({"heads"}, inner, query);
    a.head_dim = inner / a.heads;
    const Index columns = r.extent(key, 0);
    if (columns % a.head_dim != 0 || a.heads % (columns / a.head_dim) != 0)
        r.refuse(fmt::format("keys of width {} cannot be shared by {} query heads of {} columns",
                             columns, a.heads, a.head_dim));
    a.kv_heads = columns / a.head_dim;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    b.ffn.width = r.extent("layer.0.ffn.up.weight", 0);
    b.norm.eps = r.number({"eps"}, 1e-5);
    b.ffn.activation = r.activation({"activation"}, "relu");
    b.ffn.gated = r.part({"glu"}, "layer.0.ffn.gate.weight");
    b.alpha = r.number({"alpha"}, 1);
    b.deesc = {.tau = r.number({"deesc"}, 0),
               .before_ffn = deescalates_before_ffn(r.word({"deesc_at"}, "end")),
               .learned = r.has("layer.0.deesc.tau")};
    a.qkv_bias = r.has("layer.0.attn.q.bias");
    a.value_projection_only = !r.part({"out_proj"}, "layer.0.attn.o.weight");
    a.out_bias = r.has("layer.0.attn.o.bias");
    b.ffn.bias = r.has("layer.0.ffn.up.bias");
    b.norm.bias = r.has("layer.0.norm1.bias");
    if (a.value_projection_only && inner != s.width)
        r.refuse(
            "there is no output projection, and the concatenated heads do not have the model's "
            "width");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(names(s), {});
}

/// The variance of W_V selected by `var_v`.
double value_variance(KeyReader& keys, const Sizes& s) {
    const auto d = double(s.d), h = double(s.heads);
    const std::string said = keys.text("var_v").value_or("1/d");
    if (said == "1/d") return 1 / d;
    if (said == "h/d") return h / d;
    if (said == "xavier") return 2 / (d + d / h);
    if (said == "torch") return 1 / (3 * d);
    double value = 0;
    const char* last = said.data() + said.size();
    const auto [end, error] = std::from_chars(said.data(), last, value);
    if (error != std::errc{} || end != last || !(value > 0) || !std::isfinite(value))
        keys.refuse(fmt::format(
            "unknown var_v={}; expected a positive number, 1/d, h/d, xavier or torch", said));
    return value;
}

/// The bound of PyTorch's Linear default: 1/sqrt(inputs), of the weight and of its bias.
double linear_bound(const Parameter& p, const Sizes& s) {
    const Index inputs = p.name.find("ffn.down") != std::string::npos ? s.ffn
                         : p.vector                                   ? s.d
                                                                      : p.shape.cols;
    return 1 / std::sqrt(double(inputs));
}

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    for (const char* key : {"tokens", "vocab"})
        if (k.has(key))
            k.refuse(
                fmt::format("unknown key '{}': the model has no embedding, takes any number of "
                            "tokens and cannot "
                            "be trained on token ids; random:bert-base and random:gpt2 can",
                            key));
    Sizes preset;
    preset.layers = 20;
    preset.d = 512;
    preset.heads = 8;
    preset.ffn = 2048;
    preset.act = Unary::relu;
    const Sizes sizes = read_sizes(k, preset);
    BlockSpec b = block(sizes);
    AttentionSpec& a = b.attention;
    b.placement = name == "pre-norm" ? NormPlacement::pre : NormPlacement::post;
    b.alpha = k.number("alpha", 1);
    b.deesc = read_deescalation(k);
    a.value_projection_only = !k.flag("out_proj", false);
    b.ffn.gated = k.flag("glu", false);
    if (k.has("window")) {
        for (const BlockSpec& layer : token_model("encoder", sizes, b).blocks)
            for (const std::string& variant :
                 {layer.attention.variant, layer.attention.second ? layer.attention.second->variant
                                                                  : layer.attention.variant})
                if (!attention(variant).facts.window)
                    k.refuse(fmt::format("attention={} has no sliding window", variant));
        a.window = k.count("window", 1);
    }
    const double value_deviation = std::sqrt(value_variance(k, sizes));
    k.finish();
    if (a.value_projection_only && sizes.heads * sizes.head_dim != sizes.d)
        k.refuse(fmt::format("{} heads of {} columns do not concatenate to d={}; pass out_proj=1",
                             sizes.heads, sizes.head_dim, sizes.d));
    a.qkv_bias = a.out_bias = false;
    ModelSpec s = token_model("encoder", sizes, b);
    for (const BlockSpec& layer : s.blocks)
        if (layer.attention.second && layer.attention.value_projection_only)
            k.refuse("two attentions side by side do not concatenate to d; pass out_proj=1");
    s.embedding.vocabulary = s.embedding.max_tokens = 0;
    return drawn(
        std::move(s),
        [=](const Parameter& p) -> Draw {
            if (p.name.find(".norm") != std::string::npos) return normal_law(p, 0);
            if (p.name.ends_with("attn.v.weight")) return {Draw::Law::normal, value_deviation, -1};
            return {Draw::Law::uniform, linear_bound(p, sizes), -1};
        },
        fmt::format(
            "W_V ~ N(0, {:.6g}), all others U(-1/sqrt(inputs), 1/sqrt(inputs)), norms 1 and 0",
            value_deviation * value_deviation));
}

std::vector<std::string_view> random_names() { return {"post-norm", "pre-norm"}; }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("model_type", "tsdiag_encoder").set("placement", tsdiag::name(b.placement));
    out.set("layers", Index(s.blocks.size())).set("width", s.width);
    out.set("heads", b.attention.heads)
        .set("eps", b.norm.eps)
        .set("activation", hf_activation(b.ffn.activation));
    out.set("out_proj", !b.attention.value_projection_only).set("glu", b.ffn.gated);
    out.set("deesc_at", b.deesc.before_ffn ? "ffn" : "end");
    return out.set("alpha", b.alpha).set("deesc", b.deesc.tau);
}

}  // namespace

extern const ArchitectureEntry encoder = {
    "encoder",    "encoder", "the encoders of [TSE]: post-norm and pre-norm, no embedding",
    matches,      read,      draw,
    random_names, names,     config};

}  // namespace tsdiag::families::encoder
