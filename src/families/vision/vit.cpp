#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "images.hpp"

/// ViT and DeiT as HF stores them: pre-norm encoders of image patches.
namespace tsdiag::families::vit {
namespace {

constexpr std::array pairs{
    NamePair{"embed.prefix", "embeddings.cls_token", Form::leading_one},
    NamePair{"embed.position", "embeddings.position_embeddings", Form::leading_one},
    NamePair{"embed.patch", "embeddings.patch_embeddings.projection", Form::conv},
    NamePair{"layer.*.norm1", "encoder.layer.*.layernorm_before"},
    NamePair{"layer.*.attn.q", "encoder.layer.*.attention.attention.query"},
    NamePair{"layer.*.attn.k", "encoder.layer.*.attention.attention.key"},
    NamePair{"layer.*.attn.v", "encoder.layer.*.attention.attention.value"},
    NamePair{"layer.*.attn.o", "encoder.layer.*.attention.output.dense"},
    NamePair{"layer.*.norm2", "encoder.layer.*.layernorm_after"},
    NamePair{"layer.*.ffn.up", "encoder.layer.*.intermediate.dense"},
    NamePair{"layer.*.ffn.down", "encoder.layer.*.output.dense"},
    NamePair{"layer.*.deesc.tau", "encoder.layer.*.deesc.tau"},
    NamePair{"final_norm", "layernorm"},
};
constexpr std::string_view anchor = "encoder.layer.0.attention.attention.query.weight";

/// cls, then DeiT's distillation token.
Names vit_names(const ModelSpec& spec) {
    Names names = translate(spec, pairs);
    if (spec.embedding.prefix_tokens == 2)
        for (auto& [canonical, source] : names)
            if (canonical == "embed.prefix") source.concat = {"embeddings.distillation_token"};
    return names;
}

bool distilled(const Checkpoint& file) {
    const auto prefix = prefix_of(file, anchor);
    return prefix && file.has(*prefix + "embeddings.distillation_token");
}
bool matches_vit(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"vit"})) return *declared;
    return prefix_of(file, anchor) && !distilled(file);
}
bool matches_deit(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"deit"})) return *declared;
    return distilled(file);
}

Architecture read_family(const Checkpoint& file, const DetectOptions& options,
                         std::string_view family, Index prefix_tokens) {
    Reader r(file, options, family);
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    r.only({"is_decoder"}, false);
    read_patch_kernel(r, "embeddings.patch_embeddings.projection.weight");
    s.embedding.prefix_tokens = prefix_tokens;
    s.embedding.positions = Positions::learned;
    read_grid(r, r.extent("embeddings.position_embeddings", -2));
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
    s.final_norm = true;
    BlockSpec b;
    b.placement = NormPlacement::pre;
    const Index inner = r.extent(std::string(anchor), 0);
    b.attention.heads = b.attention.kv_heads = r.heads({"num_attention_heads"}, inner, anchor);
    b.attention.head_dim = inner / b.attention.heads;
    b.attention.scale = 1 / std::sqrt(double(b.attention.head_dim));
    const std::string up = "encoder.layer.0.intermediate.dense.weight";
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-12);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    b.attention.qkv_bias = r.part({"qkv_bias"}, "encoder.layer.0.attention.attention.query.bias");
    b.deesc.learned = r.has("encoder.layer.0.deesc.tau");
    const Index layers = r.layers("encoder.layer.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layer.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(vit_names(s),
                    {"*classifier.*", "pooler.*", "embeddings.mask_token", "*decoder.*"});
}

/// A model without a class token has a table of positions for its patches alone.
Architecture read_vit(const Checkpoint& file, const DetectOptions& options) {
    const auto prefix = prefix_of(file, anchor);
    const bool has = !prefix || file.has(*prefix + "embeddings.cls_token");
    return read_family(file, options, "vit", has ? 1 : 0);
}
Architecture read_deit(const Checkpoint& file, const DetectOptions& options) {
    return read_family(file, options, "deit", 2);
}

/// "16", or "32x16": rows and columns of a patch.
std::pair<Index, Index> patch_sides(KeyReader& k, Index image) {
    const std::string said = k.text("patch").value_or("16");
    const std::size_t cross = said.find('x');
    const auto side = [&](const std::string& text) {
        Index value = 0;
        const char* end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        if (read.ec != std::errc() || read.ptr != end || value < 1)
            k.refuse(fmt::format(
                "patch={} must be a size such as 16, or rows x columns such as 32x16", said));
        if (image % value != 0) k.refuse("patch does not divide image");
        return value;
    };
    const Index height = side(said.substr(0, cross));
    return {height, cross == std::string::npos ? height : side(said.substr(cross + 1))};
}

/// U(-b, b), b = 1/sqrt(in), of weights and biases; positions and prefix tokens N(0, 1).
Draw linear_law(const Parameter& p, const ModelSpec& s) {
    const Draw normal = normal_law(p, 1);
    if (p.name.find("norm") != std::string::npos) return normal;
    if (p.name.starts_with("embed.") && p.name.find("patch") == std::string::npos) return normal;
    const Index patch =
        s.embedding.image.channels * s.embedding.image.patch_height * s.embedding.image.patch_width;
    const Index in = p.name.starts_with("embed.")                   ? patch
                     : p.name.find("ffn.down") != std::string::npos ? s.blocks.front().ffn.width
                                                                    : s.width;
    return {Draw::Law::uniform, 1 / std::sqrt(double(in)), -1};
}

/// The released DeiT models without distillation are plain ViTs of other sizes.
RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.eps = 1e-12;
    const auto size = [&](Index d, Index heads) {
        preset.d = d;
        preset.heads = heads;
        preset.ffn = 4 * d;
    };
    if (name == "deit-tiny") size(192, 3);
    if (name == "deit-small") size(384, 6);
    const Index image = k.count("image", 224);
    const auto [patch_height, patch_width] = patch_sides(k, image);
    const Index channels = k.count("channels", 3);
    const bool class_token = k.flag("class_token", true);
    k.keep("init");
    const Sizes sizes = read_sizes(k, preset);
    const NormPlacement placement = placement_named(k.text("placement").value_or("pre"));
    const Deescalation deesc = read_deescalation(k);
    const std::string init = k.text("init").value_or("normal");
    if (init != "normal" && init != "torch")
        k.refuse(fmt::format("init={} is not normal or torch", init));
    k.finish();
    if (k.has("vocab") || k.has("tokens")) k.refuse("an image model needs image= and patch=");
    BlockSpec b = block(sizes);
    b.placement = placement;
    b.deesc = deesc;
    ModelSpec s = token_model("vit", sizes, b);
    s.embedding.vocabulary = 0;
    s.embedding.image.channels = channels;
    s.embedding.image.height = s.embedding.image.width = image;
    s.embedding.image.patch_height = patch_height;
    s.embedding.image.patch_width = patch_width;
    s.embedding.prefix_tokens = class_token ? 1 : 0;
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
    s.final_norm = true;
    if (init == "torch")
        return drawn(
            s, [s](const Parameter& p) { return linear_law(p, s); },
            "weights and biases U(-1/sqrt(in), 1/sqrt(in)) as PyTorch's Linear, positions and "
            "prefix tokens N(0, 1), norms 1 and 0");
    return drawn_normal(std::move(s));
}

std::vector<std::string_view> random_names() {
    return {"vit-base", "deit-tiny", "deit-small", "deit-base"};
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"ViTModel"}).set("model_type", "vit");
    out.set("hidden_size", s.width).set("num_hidden_layers", Index(s.blocks.size()));
    out.set("num_attention_heads", b.attention.heads).set("intermediate_size", b.ffn.width);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    out.set("image_size", s.embedding.image.height);
    if (s.embedding.image.patch_height == s.embedding.image.patch_width)
        out.set("patch_size", s.embedding.image.patch_height);
    else
        out.set("patch_size", Json::Array{Json(s.embedding.image.patch_height),
                                          Json(s.embedding.image.patch_width)});
    out.set("num_channels", s.embedding.image.channels).set("qkv_bias", b.attention.qkv_bias);
    return out.set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry vit = {
    "vit",        "ViT",     "ViT (HF): pre-norm encoder of image patches",
    matches_vit,  read_vit,  draw,
    random_names, vit_names, config};
extern const ArchitectureEntry deit = {"deit", "DeiT", "DeiT (HF): ViT with a distillation token",
                                       matches_deit, read_deit};

}  // namespace tsdiag::families::vit
