#include <fmt/format.h>

#include <array>
#include <cmath>

#include "images.hpp"

/// ViT and DeiT as timm and the DeiT repository store them.
namespace tsdiag::families::timm_vit {
namespace {

constexpr std::array pairs{
    NamePair{"embed.prefix", "cls_token", Form::leading_one},
    NamePair{"embed.position", "pos_embed", Form::leading_one},
    NamePair{"embed.patch", "patch_embed.proj", Form::conv},
    NamePair{"embed.pre_norm", "norm_pre"},
    NamePair{"layer.*.norm1", "blocks.*.norm1"},
    NamePair{"layer.*.attn.q", "blocks.*.attn.qkv", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "blocks.*.attn.qkv", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "blocks.*.attn.qkv", Form::matrix, 2},
    NamePair{"layer.*.attn.q_norm", "blocks.*.attn.q_norm"},
    NamePair{"layer.*.attn.k_norm", "blocks.*.attn.k_norm"},
    NamePair{"layer.*.attn.o", "blocks.*.attn.proj"},
    NamePair{"layer.*.scale1", "blocks.*.ls1.gamma"},
    NamePair{"layer.*.norm2", "blocks.*.norm2"},
    NamePair{"layer.*.ffn.up", "blocks.*.mlp.fc1"},
    NamePair{"layer.*.ffn.down", "blocks.*.mlp.fc2"},
    NamePair{"layer.*.scale2", "blocks.*.ls2.gamma"},
    NamePair{"final_norm", "norm"},
};
constexpr std::string_view anchor = "blocks.0.attn.qkv.weight";

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"timm_vit"}))
        return *declared;  // no HF family
    const auto prefix = prefix_of(file, anchor);
    return prefix && file.has(*prefix + "patch_embed.proj.weight");
}

/// cls, then distillation, then register tokens, as many as there are.
std::vector<std::string> prefix_names(const Reader& r) {
    std::vector<std::string> out;
    for (const char* name : {"cls_token", "dist_token", "reg_token"})
        if (r.has(name)) out.emplace_back(name);
    return out;
}

/// The name of a model in timm, such as vit_small_patch16_224 or vit_base_patch16_clip_224.openai.
struct TimmName {
    std::string text;
    bool has(std::string_view part) const { return text.find(part) != std::string::npos; }
};

TimmName timm_name(const Reader& r) {
    const Json& said = r.value({"architecture"});
    TimmName out;
    if (said.is_string()) out.text = "_" + said.string().substr(0, said.string().find('.')) + "_";
    if (out.has("_rpn_"))
        r.refuse(
            fmt::format("architecture '{}' has norms after its branches, which is not supported",
                        said.string()));
    return out;
}

/// timm's names determine the heads: vit_small_patch16_224 has 6.  Those with average pooling
/// ("gap") may have others.
Index heads_by_name(const TimmName& name, Index width) {
    constexpr std::array<std::tuple<std::string_view, Index, Index>, 5> known{{
        {"_tiny_", 192, 3},
        {"_small_", 384, 6},
        {"_base_", 768, 12},
        {"_large_", 1024, 16},
        {"_huge_", 1280, 16},
    }};
    for (const auto& [part, d, heads] : known)
        if (name.has(part) && d == width && !name.has("_gap_")) return heads;
    return 0;
}

void read_heads(Reader& r, const TimmName& name, BlockSpec& b) {
    AttentionSpec& a = b.attention;
    const Index width = r.spec.width;
    const Index inner = r.extent(std::string(anchor), 0) / 3;
    if (inner < 1) r.refuse("its qkv projections have fewer than three rows");
    a.qk_norm = a.qk_norm_layer = r.has("blocks.0.attn.q_norm.weight");
    if (a.qk_norm && !r.has("blocks.0.attn.q_norm.bias")) a.qk_norm_layer = false;
    const Index by_name = heads_by_name(name, width);
    r.value({"num_heads"});
    if (a.qk_norm && inner % r.extent("blocks.0.attn.q_norm.weight", 0) == 0)
        a.heads = inner / r.extent("blocks.0.attn.q_norm.weight", 0);
    else if (by_name > 0 && inner % by_name == 0)
        a.heads = by_name;
    else
        a.heads = r.heads({"num_heads"}, inner, anchor);
    a.kv_heads = a.heads;
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
}

void read_embedding(Reader& r) {
    ModelSpec& s = r.spec;
    read_patch_kernel(r, "patch_embed.proj.weight");
    s.embedding.norm_before_layers = r.has("norm_pre.weight");
    s.embedding.image.bias = !s.embedding.norm_before_layers || r.has("patch_embed.proj.bias");
    for (const std::string& name : prefix_names(r)) s.embedding.prefix_tokens += r.extent(name, -2);
    s.embedding.positions = Positions::learned;
    const Index rows = r.extent("pos_embed", -2);
    const auto side = Index(std::llround(std::sqrt(double(rows))));
    if (s.embedding.prefix_tokens > 0 &&
        side * side == rows) {  // the table has rows for patches only
        s.embedding.prefix_has_position = false;
        r.took("the position table is a square: the prefix tokens have no positions");
    }
    read_grid(r, rows);
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "timm_vit");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    const TimmName name = timm_name(r);
    check_timm_arguments(r);
    read_embedding(r);
    r.agreed({"num_features"}, s.width, "patch_embed.proj.weight");
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    read_heads(r, name, b);
    b.ffn.width = r.extent("blocks.0.mlp.fc1.weight", 0);
    // A norm before the layers indicates CLIP, whose norms have PyTorch's eps.
    b.norm.eps = a.qk_eps =
        r.number({"layer_norm_eps"}, s.embedding.norm_before_layers ? 1e-5 : 1e-6);
    b.ffn.activation =
        r.activation({"hidden_act"}, name.has("_quickgelu_") ? "quick_gelu" : "gelu");
    a.qkv_bias = r.has("blocks.0.attn.qkv.bias");
    a.out_bias = b.ffn.bias = r.has("blocks.0.attn.proj.bias");
    b.norm.bias = r.has("blocks.0.norm1.bias");
    b.layer_scale = r.has("blocks.0.ls1.gamma");
    s.final_norm = r.has("norm.weight");
    if (!s.final_norm) r.took("no final norm over tokens: the file has none (average pooling)");
    s.blocks.assign(std::size_t(r.layers("blocks.")), b);
    Names names = translate(s, pairs);
    const std::vector<std::string> prefix = prefix_names(r);
    for (auto& [canonical, source] : names) {
        if (canonical != "embed.prefix") continue;
        source.file_name = prefix.front();
        source.concat.assign(prefix.begin() + 1, prefix.end());
    }
    return r.finish(std::move(names),
                    {"head.*", "head_dist.*", "fc_norm.*", "attn_pool.*", "pre_logits.*"});
}

}  // namespace

extern const ArchitectureEntry timm_vit = {
    "timm_vit", "ViT (timm)", "ViT and DeiT of timm: one qkv projection, layer scale, registers",
    matches, read};

}  // namespace tsdiag::families::timm_vit
