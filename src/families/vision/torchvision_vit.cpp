#include <fmt/format.h>

#include <cmath>

#include "images.hpp"

/// ViT as torchvision stores it: attention by torch.nn.MultiheadAttention.
namespace tsdiag::families::torchvision_vit {
namespace {

/// The feed-forward network is `mlp.0` and `mlp.3`; until torchvision 0.13 `mlp.linear_1` and
/// `mlp.linear_2`.
std::vector<NamePair> pairs(bool older) {
    return {
        {"embed.prefix", "class_token", Form::leading_one},
        {"embed.position", "encoder.pos_embedding", Form::leading_one},
        {"embed.patch", "conv_proj", Form::conv},
        {"layer.*.norm1", "encoder.layers.encoder_layer_*.ln_1"},
        {"layer.*.attn.q", "encoder.layers.encoder_layer_*.self_attention.in_proj", Form::matrix,
         0},
        {"layer.*.attn.k", "encoder.layers.encoder_layer_*.self_attention.in_proj", Form::matrix,
         1},
        {"layer.*.attn.v", "encoder.layers.encoder_layer_*.self_attention.in_proj", Form::matrix,
         2},
        {"layer.*.attn.o", "encoder.layers.encoder_layer_*.self_attention.out_proj"},
        {"layer.*.norm2", "encoder.layers.encoder_layer_*.ln_2"},
        {"layer.*.ffn.up", older ? "encoder.layers.encoder_layer_*.mlp.linear_1"
                                 : "encoder.layers.encoder_layer_*.mlp.0"},
        {"layer.*.ffn.down", older ? "encoder.layers.encoder_layer_*.mlp.linear_2"
                                   : "encoder.layers.encoder_layer_*.mlp.3"},
        {"final_norm", "encoder.ln"},
    };
}
constexpr std::string_view anchor = "encoder.layers.encoder_layer_0.self_attention.in_proj_weight";

Names names_of(const ModelSpec& spec, bool older) {
    return torch_fused(translate(spec, pairs(older)));
}

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"torchvision_vit"})) return *declared;
    const auto prefix = prefix_of(file, anchor);
    return prefix && file.has(*prefix + "conv_proj.weight");
}

/// Those of vit_b_*, vit_l_* and vit_h_*, which no tensor tells: one per 64 or 80 columns.
Index heads_of_released(Index width, Index layers) {
    if (width == 768 && layers == 12) return 12;
    if (width == 1024 && layers == 24) return 16;
    if (width == 1280 && layers == 32) return 16;
    return 0;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "torchvision_vit");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    const std::string fused(anchor), layer = "encoder.layers.encoder_layer_";
    const bool older = r.has(layer + "0.mlp.linear_1.weight");
    read_patch_kernel(r, "conv_proj.weight");
    r.agreed({"hidden_dim"}, s.width, "conv_proj.weight");
    s.embedding.image.bias = true;
    s.embedding.prefix_tokens = r.extent("class_token", -2);
    s.embedding.positions = Positions::learned;
    read_grid(r, r.extent("encoder.pos_embedding", -2));
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
    s.final_norm = true;
    const Index layers = r.agreed({"num_layers"}, r.layers(layer), layer + "*");
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    const Index inner = r.extent(fused, 0) / 3;
    const Index released = heads_of_released(s.width, layers);
    const bool declared = options.heads || !r.value({"num_heads"}).is_null();
    a.heads = a.kv_heads =
        declared || released == 0 ? r.heads({"num_heads"}, inner, fused) : released;
    if (!declared && released > 0) r.assume(fmt::format("num_heads = {}", released));
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = layer + (older ? "0.mlp.linear_1.weight" : "0.mlp.0.weight");
    b.ffn.width = r.agreed({"mlp_dim"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-6);
    b.ffn.activation = r.activation({"hidden_act"}, "gelu");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(names_of(s, older), {"heads.*"});
}

}  // namespace

extern const ArchitectureEntry torchvision_vit = {"torchvision_vit", "ViT (torchvision)",
                                                  "ViT of torchvision: vit_b_16 to vit_h_14",
                                                  matches, read};

}  // namespace tsdiag::families::torchvision_vit
