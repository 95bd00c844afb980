#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "images.hpp"
#include "tsdiag/error.hpp"

/// XCiT [XCIT] as its authors' code and timm store it: cross-covariance attention, local patch
/// interaction, class attention.
namespace tsdiag::families::xcit {
namespace {

/// `split`: class attention has q, k and v of its own, as in timm; else one qkv.
std::vector<NamePair> pairs(bool split, bool timm) {
    std::vector<NamePair> out{
        {"embed.patch.0", "patch_embed.proj.0.0", Form::kernel3},
        {"embed.patch.0.norm", "patch_embed.proj.0.1"},
        {"embed.patch.0.norm.mean", "patch_embed.proj.0.1.running_mean"},
        {"embed.patch.0.norm.variance", "patch_embed.proj.0.1.running_var"},
        {"embed.patch.1", "patch_embed.proj.2.0", Form::kernel3},
        {"embed.patch.1.norm", "patch_embed.proj.2.1"},
        {"embed.patch.1.norm.mean", "patch_embed.proj.2.1.running_mean"},
        {"embed.patch.1.norm.variance", "patch_embed.proj.2.1.running_var"},
        {"embed.patch.2", "patch_embed.proj.4.0", Form::kernel3},
        {"embed.patch.2.norm", "patch_embed.proj.4.1"},
        {"embed.patch.2.norm.mean", "patch_embed.proj.4.1.running_mean"},
        {"embed.patch.2.norm.variance", "patch_embed.proj.4.1.running_var"},
        {"embed.patch.3", "patch_embed.proj.6.0", Form::kernel3},
        {"embed.patch.3.norm", "patch_embed.proj.6.1"},
        {"embed.patch.3.norm.mean", "patch_embed.proj.6.1.running_mean"},
        {"embed.patch.3.norm.variance", "patch_embed.proj.6.1.running_var"},
        {"embed.position_map", timm ? "pos_embed.token_projection" : "pos_embeder.token_projection",
         Form::kernel1},
        {"layer.*.norm1", "blocks.*.norm1"},
        {"layer.*.attn.q", "blocks.*.attn.qkv", Form::matrix, 0},
        {"layer.*.attn.k", "blocks.*.attn.qkv", Form::matrix, 1},
        {"layer.*.attn.v", "blocks.*.attn.qkv", Form::matrix, 2},
        {"layer.*.attn.temperature", "blocks.*.attn.temperature", Form::of_heads},
        {"layer.*.attn.o", "blocks.*.attn.proj"},
        {"layer.*.scale1", "blocks.*.gamma1"},
        {"layer.*.norm3", "blocks.*.norm3"},
        {"layer.*.local.conv1", "blocks.*.local_mp.conv1", Form::kernel3},
        {"layer.*.local.norm", "blocks.*.local_mp.bn"},
        {"layer.*.local.norm.mean", "blocks.*.local_mp.bn.running_mean"},
        {"layer.*.local.norm.variance", "blocks.*.local_mp.bn.running_var"},
        {"layer.*.local.conv2", "blocks.*.local_mp.conv2", Form::kernel3},
        {"layer.*.local.scale", "blocks.*.gamma3"},
        {"layer.*.norm2", "blocks.*.norm2"},
        {"layer.*.ffn.up", "blocks.*.mlp.fc1"},
        {"layer.*.ffn.down", "blocks.*.mlp.fc2"},
        {"layer.*.scale2", "blocks.*.gamma2"},
        {"layer.*.deesc.tau", "blocks.*.deesc.tau"},
        {"class.token", "cls_token", Form::leading_one},
        {"class.*.norm1", "cls_attn_blocks.*.norm1"},
        {"class.*.attn.o", "cls_attn_blocks.*.attn.proj"},
        {"class.*.scale1", "cls_attn_blocks.*.gamma1"},
        {"class.*.norm2", "cls_attn_blocks.*.norm2"},
        {"class.*.ffn.up", "cls_attn_blocks.*.mlp.fc1"},
        {"class.*.ffn.down", "cls_attn_blocks.*.mlp.fc2"},
        {"class.*.scale2", "cls_attn_blocks.*.gamma2"},
        {"final_norm", "norm"},
    };
    if (split) {
        out.push_back({"class.*.attn.q", "cls_attn_blocks.*.attn.q"});
        out.push_back({"class.*.attn.k", "cls_attn_blocks.*.attn.k"});
        out.push_back({"class.*.attn.v", "cls_attn_blocks.*.attn.v"});
    } else {
        out.push_back({"class.*.attn.q", "cls_attn_blocks.*.attn.qkv", Form::matrix, 0});
        out.push_back({"class.*.attn.k", "cls_attn_blocks.*.attn.qkv", Form::matrix, 1});
        out.push_back({"class.*.attn.v", "cls_attn_blocks.*.attn.qkv", Form::matrix, 2});
    }
    return out;
}
constexpr std::string_view anchor = "blocks.0.attn.temperature";
constexpr Index most_convolutions = 4;

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"xcit"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

/// The published models, [XCIT] Table 1.
struct Published {
    std::string_view name, size;
    Index layers, width, heads;
};
constexpr std::array published{
    Published{"xcit-nano", "nano", 12, 128, 4},      Published{"xcit-tiny", "tiny", 12, 192, 4},
    Published{"xcit-tiny-24", "tiny", 24, 192, 4},   Published{"xcit-small", "small", 12, 384, 8},
    Published{"xcit-small-24", "small", 24, 384, 8}, Published{"xcit-medium", "medium", 24, 512, 8},
    Published{"xcit-large", "large", 24, 768, 16},
};

/// In the published models the class attention of the smallest norms its class token alone.
bool usually_all_normed(std::string_view size) { return size != "nano"; }

void read_patches(Reader& r) {
    ModelSpec& s = r.spec;
    const auto weight = [](Index k) { return fmt::format("patch_embed.proj.{}.0.weight", 2 * k); };
    while (r.has(weight(s.embedding.image.convolutions))) ++s.embedding.image.convolutions;
    const Index count = s.embedding.image.convolutions;
    if (count < 1 || count > most_convolutions)
        r.refuse(fmt::format("it has {} convolutions '{}patch_embed.proj.*.0', expected 1 to {}",
                             count, r.prefix(), most_convolutions));
    s.width = s.embedding.width =
        r.agreed({"num_features", "embed_dim"}, r.extent(weight(count - 1), 0), weight(count - 1));
    s.embedding.image.channels =
        r.agreed({"num_channels", "in_chans"}, r.extent(weight(0), 1), weight(0));
    if (s.width < 1 || s.embedding.image.channels < 1)
        r.refuse(fmt::format("its convolutions '{}patch_embed.proj.*.0' are empty", r.prefix()));
    if (s.width % (Index{1} << (count - 1)) != 0)
        r.refuse(fmt::format(
            "its width {} is not a multiple of {}, but {} convolutions double their channels",
            s.width, Index{1} << (count - 1), count));
    s.embedding.image.patch_height = s.embedding.image.patch_width =
        r.agreed({"patch_size"}, Index{1} << count, weight(0));
    constexpr Index usual_image = 224;
    read_image_size(r, usual_image);
    const bool timm =
        r.has("pos_embed.token_projection.weight") || r.has("pos_embed.token_projection.bias");
    if (timm || r.has("pos_embeder.token_projection.weight") ||
        r.has("pos_embeder.token_projection.bias"))
        s.embedding.positions = Positions::fourier;
}

/// Whether the class attention norms all tokens, which no tensor shows.
bool read_all_normed(Reader& r) {
    const Json& said = r.value({"architecture"});
    if (r.has_model_type() || !r.value({"tokens_norm"}).is_null())
        return r.flag({"tokens_norm"}, true);
    if (said.is_string())
        return usually_all_normed(said.string().find("_nano_") == std::string::npos ? "" : "nano");
    for (const Published& p : published)
        if (p.width == r.spec.width) {
            const bool all = usually_all_normed(p.size);
            r.took(fmt::format(
                "architecture: XCiT {} by its width, whose class attention normalises {}", p.size,
                all ? "all tokens" : "the class token only"));
            return all;
        }
    r.assume("architecture, tokens_norm = true (class attention normalises all tokens)");
    return true;
}

void read_class_attention(Reader& r, const BlockSpec& b) {
    const std::string up = "cls_attn_blocks.0.mlp.fc1.weight";
    if (!r.has("cls_token") && !r.has(up)) {
        r.took("no class attention: the file has none");
        return;
    }
    ClassSpec& c = r.spec.class_attention;
    c.layers = r.layers("cls_attn_blocks.");
    c.heads = b.attention.heads;
    c.ffn = r.extent(up, 0);
    c.activation = b.ffn.activation;
    c.eps = b.norm.eps;
    c.qkv_bias = r.has("cls_attn_blocks.0.attn.qkv.bias") || r.has("cls_attn_blocks.0.attn.q.bias");
    c.layer_scale = r.has("cls_attn_blocks.0.gamma1");
    c.all_normed = read_all_normed(r);
}

Index kernel_side(const Reader& r, const std::string& weight) {
    const Index side = r.extent(weight, 2);
    if (side != r.extent(weight, 3) || side != 3)
        r.refuse(fmt::format("its convolution '{}{}' is {} x {}, expected 3 x 3", r.prefix(),
                             weight, side, r.extent(weight, 3)));
    return side;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "xcit");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    check_timm_arguments(r);
    read_patches(r);
    BlockSpec b;
    b.placement = NormPlacement::pre;
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-6);
    AttentionSpec& a = b.attention;
    a.channels = true;
    const std::string temperature(anchor);
    a.heads = a.kv_heads = r.agreed({"num_heads"}, r.extent(temperature, 0), temperature);
    if (a.heads < 1 || s.width % a.heads != 0)
        r.refuse(fmt::format("tensor '{}{}' has {} heads, which do not divide the width {}",
                             r.prefix(), temperature, a.heads, s.width));
    a.head_dim = s.width / a.heads;
    a.qkv_bias = r.has("blocks.0.attn.qkv.bias");
    b.local.kernel = kernel_side(r, "blocks.0.local_mp.conv1.weight");
    b.ffn.width = r.extent("blocks.0.mlp.fc1.weight", 0);
    b.ffn.activation = b.local.activation = r.activation({"hidden_act"}, "gelu");
    b.layer_scale = r.has("blocks.0.gamma1");
    b.deesc.learned = r.has("blocks.0.deesc.tau");
    s.blocks.assign(std::size_t(r.layers("blocks.")), b);
    s.embedding.max_tokens = s.embedding.image.patches();
    s.final_norm = r.has("norm.weight");
    read_class_attention(r, b);
    const bool split = r.has("cls_attn_blocks.0.attn.q.weight");
    const bool timm = !r.has("pos_embeder.token_projection.weight");
    return r.finish(translate(s, pairs(split, timm)), {"head.*", "head_dist.*"});
}

Names names(const ModelSpec& spec) { return translate(spec, pairs(false, false)); }

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    for (const Published& p : published)
        if (p.width == s.width && p.layers == std::ssize(s.blocks) &&
            p.heads == b.attention.heads && b.ffn.width == 4 * s.width &&
            s.class_attention.layers == 2 &&
            s.class_attention.all_normed == usually_all_normed(p.size))
            out.set("architecture",
                    fmt::format("xcit_{}_{}_p{}_{}", p.size, p.layers,
                                s.embedding.image.patch_height, s.embedding.image.height));
    out.set("model_type", "xcit").set("num_features", s.width);
    out.set("num_heads", b.attention.heads).set("patch_size", s.embedding.image.patch_height);
    out.set("image_size", s.embedding.image.height).set("in_chans", s.embedding.image.channels);
    out.set("hidden_act", hf_activation(b.ffn.activation)).set("layer_norm_eps", b.norm.eps);
    return out.set("tokens_norm", s.class_attention.all_normed);
}

/// PyTorch's: convolutions U(-b, b), b = 1/sqrt(inputs of an entry), with their biases.
Draw law(const Parameter& p, double eta) {
    const auto convolution = [&](double inputs) {
        return Draw{Draw::Law::uniform, 1 / std::sqrt(inputs), -1};
    };
    const std::string_view name = p.name;
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (name.ends_with(".mean")) return {Draw::Law::zero, 0, -1};
    if (has("scale")) return {Draw::Law::constant, eta, -1};
    if (has("local.conv")) return convolution(9);
    if (has("position_map")) return convolution(64);
    if (has("embed.patch.") && !p.vector) return convolution(double(p.shape.cols));
    return normal_law(p, 0.02);
}

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.eps = 1e-6;
    std::string_view size;
    for (const Published& p : published) {
        if (p.name != name) continue;
        preset.layers = p.layers;
        preset.d = p.width;
        preset.heads = p.heads;
        preset.ffn = 4 * p.width;
        size = p.size;
    }
    const Index image = k.count("image", 224), patch = k.count("patch", 16);
    const Index channels = k.count("channels", 3);
    const bool has_class = k.flag("class_attention", true);
    const Index class_layers = k.count("class_layers", 2, 10'000);
    const bool all_normed = k.flag("tokens_norm", usually_all_normed(size));
    const double eta = k.number("eta", preset.layers > 12 ? 1e-5 : 1);
    const Sizes sizes = read_sizes(k, preset);
    const Deescalation deesc = read_deescalation(k);
    k.finish();
    if (k.has("vocab") || k.has("tokens")) k.refuse("an image model needs image= and patch=");
    if (sizes.kv_heads != sizes.heads || sizes.head_dim * sizes.heads != sizes.d)
        k.refuse(
            "unsupported kv_heads or head_dim; the heads divide d, each with its own keys and "
            "values");
    Index convolutions = 1;
    while (convolutions < most_convolutions && Index{1} << convolutions < patch) ++convolutions;
    if (Index{1} << convolutions != patch)
        k.refuse(
            fmt::format("patch={} is not 2, 4, 8 or 16: each convolution halves the image", patch));
    if (image % patch != 0) k.refuse("patch does not divide image");
    if (sizes.d % (Index{1} << (convolutions - 1)) != 0)
        k.refuse(fmt::format("d={} is not a multiple of {}: each convolution doubles the channels",
                             sizes.d, Index{1} << (convolutions - 1)));
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    b.deesc = deesc;
    b.attention.channels = true;
    b.attention.scale = 1;
    b.local = {.kernel = 3, .activation = sizes.act};
    b.layer_scale = true;
    ModelSpec s = token_model("xcit", sizes, b);
    s.embedding.vocabulary = 0;
    s.embedding.image.channels = channels;
    s.embedding.image.height = s.embedding.image.width = image;
    s.embedding.image.patch_height = s.embedding.image.patch_width = patch;
    s.embedding.image.convolutions = convolutions;
    s.embedding.positions = Positions::fourier;
    s.embedding.max_tokens = s.embedding.image.patches();
    s.final_norm = true;
    if (has_class)
        s.class_attention = {.layers = class_layers,
                             .heads = sizes.heads,
                             .ffn = sizes.ffn,
                             .activation = sizes.act,
                             .eps = sizes.eps,
                             .all_normed = all_normed};
    return drawn(
        std::move(s), [eta](const Parameter& p) { return law(p, eta); },
        fmt::format("weights N(0, 0.02^2) and biases 0, convolutions U(-1/sqrt(in), 1/sqrt(in)) as "
                    "PyTorch's, norms 1 and 0, batch norms with mean 0 and variance 1, "
                    "temperatures 1, layer scales {:.6g}",
                    eta));
}

}  // namespace

extern const ArchitectureEntry xcit = {
    "xcit",
    "XCiT",
    "XCiT of its authors and of timm: attention over channels, class attention",
    matches,
    read,
    draw,
    [] { return names_of(published); },
    names,
    config};

}  // namespace tsdiag::families::xcit
