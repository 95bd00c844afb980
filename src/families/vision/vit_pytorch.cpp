#include <fmt/format.h>

#include <cmath>

#include "images.hpp"

/// ViT and SimpleViT of lucidrains/vit-pytorch: four generations, distinguished by names and ranks.
namespace tsdiag::families::vit_pytorch {
namespace {

/// The naming scheme of a file.
struct Layout {
    bool simple = false;       ///< SimpleViT: positions computed, no cls
    bool nested = false;       ///< until 2023-07: layers sit under `fn`
    bool patch_norms = false;  ///< since 2023-02
    bool flat_tokens = false;  ///< since 2025-11: cls and positions have two dimensions
};

Layout read_layout(const Reader& r) {
    Layout out;
    out.simple = !r.has("pos_embedding");
    out.nested = r.has("transformer.layers.0.0.fn.to_qkv.weight");
    out.patch_norms = r.has("to_patch_embedding.2.weight");
    out.flat_tokens = !out.simple && r.rank("pos_embedding") == 2;
    return out;
}

std::vector<NamePair> pairs(const Layout& l, bool wrapped_output) {
    const Form token = l.flat_tokens ? Form::matrix : Form::leading_one;
    std::vector<NamePair> out{
        {"embed.prefix", "cls_token", token},
        {"embed.position", "pos_embedding", token},
        {"embed.patch", l.patch_norms ? "to_patch_embedding.2" : "to_patch_embedding.1"},
        {"embed.patch.norm1", "to_patch_embedding.1"},
        {"embed.patch.norm2", "to_patch_embedding.3"},
        {"layer.*.norm1", "transformer.layers.*.0.norm"},
        {"final_norm", "transformer.norm"},
    };
    const std::string_view qkv =
        l.nested ? "transformer.layers.*.0.fn.to_qkv" : "transformer.layers.*.0.to_qkv";
    out.push_back({"layer.*.attn.q", qkv, Form::matrix, 0});
    out.push_back({"layer.*.attn.k", qkv, Form::matrix, 1});
    out.push_back({"layer.*.attn.v", qkv, Form::matrix, 2});
    if (l.nested) {
        out.push_back({"layer.*.attn.o", "transformer.layers.*.0.fn.to_out.0"});
        out.push_back({"layer.*.norm2", "transformer.layers.*.1.norm"});
        out.push_back({"layer.*.ffn.up", "transformer.layers.*.1.fn.net.0"});
        out.push_back({"layer.*.ffn.down", "transformer.layers.*.1.fn.net.3"});
    } else {
        out.push_back({"layer.*.attn.o", wrapped_output ? "transformer.layers.*.0.to_out.0"
                                                        : "transformer.layers.*.0.to_out"});
        out.push_back({"layer.*.norm2", "transformer.layers.*.1.net.0"});
        out.push_back({"layer.*.ffn.up", "transformer.layers.*.1.net.1"});
        out.push_back({"layer.*.ffn.down",
                       l.simple ? "transformer.layers.*.1.net.3" : "transformer.layers.*.1.net.4"});
    }
    return out;
}

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"vit_pytorch", "simple_vit"}))
        return *declared;
    const auto prefix = prefix_of(file, "to_patch_embedding.1.weight");
    return prefix && (file.has(*prefix + "transformer.layers.0.0.fn.to_qkv.weight") ||
                      file.has(*prefix + "transformer.layers.0.0.to_qkv.weight"));
}

/// A patch is p x p x channels: three channels where that is possible, else one.
void read_patch(Reader& r, const std::string& weight) {
    ModelSpec& s = r.spec;
    s.width = s.embedding.width = r.agreed({"dim"}, r.extent(weight, 0), weight);
    const Index length = r.extent(weight, 1);
    for (const Index channels : {3, 1}) {
        const auto side = Index(std::llround(std::sqrt(double(length) / double(channels))));
        if (side * side * channels != length) continue;
        s.embedding.image.channels = r.agreed({"channels"}, channels, weight);
        s.embedding.image.patch_height = s.embedding.image.patch_width =
            r.agreed({"patch_size"}, side, weight);
        r.took(fmt::format("patches of {} x {} pixels, {} channels: from {} columns of '{}'", side,
                           side, channels, length, weight));
        return;
    }
    r.refuse(fmt::format("a patch of {} numbers is not a square of 3 or 1 channels", length));
}

void read_embedding(Reader& r, const Layout& l) {
    ModelSpec& s = r.spec;
    read_patch(r, l.patch_norms ? "to_patch_embedding.2.weight" : "to_patch_embedding.1.weight");
    s.embedding.image.channels_last = true;
    s.embedding.image.norms = l.patch_norms;
    s.embedding.image.bias = true;
    if (l.simple) {
        s.embedding.positions = Positions::sincos_2d;
        const Index side = r.count(
            {"image_size"}, 224 / s.embedding.image.patch_height * s.embedding.image.patch_height);
        if (side < s.embedding.image.patch_height || side % s.embedding.image.patch_height != 0)
            r.refuse(fmt::format("patches of {} pixels do not divide image_size {}",
                                 s.embedding.image.patch_height, side));
        s.embedding.image.height = s.embedding.image.width = side;
    } else {
        s.embedding.positions = Positions::learned;
        if (r.has("cls_token") && (!l.flat_tokens || !r.empty("cls_token")))
            s.embedding.prefix_tokens = r.extent("cls_token", -2);
        read_grid(r, r.extent("pos_embedding", -2));
    }
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "vit_pytorch");
    r.find_prefix("to_patch_embedding.1.weight");
    const Layout l = read_layout(r);
    ModelSpec& s = r.spec;
    if (l.simple) s.family = "simple_vit";
    read_embedding(r, l);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    const std::string attention =
        l.nested ? "transformer.layers.0.0.fn." : "transformer.layers.0.0.";
    const Index inner = r.extent(attention + "to_qkv.weight", 0) / 3;
    a.heads = a.kv_heads = r.heads({"heads"}, inner, attention + "to_qkv.weight");
    a.head_dim = r.agreed({"dim_head"}, inner / a.heads, attention + "to_qkv.weight");
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const bool wrapped = r.has(attention + "to_out.0.weight");
    a.value_projection_only = !wrapped && !r.has(attention + "to_out.weight");
    if (a.value_projection_only && inner != s.width)
        r.refuse(
            "there is no output projection, and the concatenated heads do not have the model's "
            "width");
    a.qkv_bias = false;
    a.out_bias = r.has(attention + "to_out.0.bias");
    const std::string mlp =
        l.nested ? "transformer.layers.0.1.fn.net.0.weight" : "transformer.layers.0.1.net.1.weight";
    b.ffn.width = r.agreed({"mlp_dim"}, r.extent(mlp, 0), mlp);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    s.final_norm = r.has("transformer.norm.weight");
    if (!s.final_norm)
        r.took("no final norm over tokens: the head normalises only the pooled token");
    const std::string layers = "transformer.layers.";
    s.blocks.assign(std::size_t(r.agreed({"depth"}, r.layers(layers), layers + "*")), b);
    return r.finish(translate(s, pairs(l, wrapped)), {"mlp_head.*", "mlp_head", "linear_head.*"});
}

}  // namespace

extern const ArchitectureEntry vit_pytorch = {
    .name = "vit_pytorch",
    .title = "ViT (vit-pytorch)",
    .description = "ViT and SimpleViT of vit-pytorch, four generations of names",
    .matches = matches,
    .read = read,
    .other_name = "simple_vit",
    .other_title = "SimpleViT (vit-pytorch)"};

}  // namespace tsdiag::families::vit_pytorch
