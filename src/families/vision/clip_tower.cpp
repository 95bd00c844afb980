#include <fmt/format.h>

#include <array>
#include <cmath>

#include "images.hpp"

/// The tower of images of CLIP as HF stores it, also inside LLaVA: a ViT with a norm before its
/// layers and patches without a bias.
namespace tsdiag::families::clip_tower {
namespace {

constexpr std::array pairs{
    NamePair{"embed.prefix", "embeddings.class_embedding"},
    NamePair{"embed.position", "embeddings.position_embedding.weight"},
    NamePair{"embed.patch", "embeddings.patch_embedding", Form::conv},
    NamePair{"embed.pre_norm", "pre_layrnorm"},
    NamePair{"layer.*.norm1", "encoder.layers.*.layer_norm1"},
    NamePair{"layer.*.attn.q", "encoder.layers.*.self_attn.q_proj"},
    NamePair{"layer.*.attn.k", "encoder.layers.*.self_attn.k_proj"},
    NamePair{"layer.*.attn.v", "encoder.layers.*.self_attn.v_proj"},
    NamePair{"layer.*.attn.o", "encoder.layers.*.self_attn.out_proj"},
    NamePair{"layer.*.norm2", "encoder.layers.*.layer_norm2"},
    NamePair{"layer.*.ffn.up", "encoder.layers.*.mlp.fc1"},
    NamePair{"layer.*.ffn.down", "encoder.layers.*.mlp.fc2"},
    NamePair{"final_norm", "post_layernorm"},
};
constexpr std::string_view anchor = "pre_layrnorm.weight";  // so the library spells it

/// The class token is a vector in the file.
Names clip_names(const ModelSpec& spec) {
    Names names = translate(spec, pairs);
    for (auto& [canonical, source] : names)
        if (canonical == "embed.prefix") source.shape = {spec.width};
    return names;
}

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"clip_vision_model"})) return *declared;
    const auto prefix = prefix_of(file, anchor);
    return prefix && file.has(*prefix + "embeddings.class_embedding");
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "clip_vision_model");
    r.find_prefix(anchor);
    ModelSpec& s = r.spec;
    read_patch_kernel(r, "embeddings.patch_embedding.weight");
    s.embedding.image.bias = false;
    s.embedding.prefix_tokens = 1;
    s.embedding.positions = Positions::learned;
    s.embedding.norm_before_layers = true;
    read_grid(r, r.extent("embeddings.position_embedding.weight", 0));
    s.embedding.max_tokens = s.embedding.image.patches() + s.embedding.prefix_tokens;
    s.final_norm = r.has("post_layernorm.weight");
    if (s.final_norm)
        r.saw("the final norm, which CLIP gives the class token alone, is of all tokens");
    r.only({"is_decoder"}, false);
    r.value({"projection_dim"});  // behind the class token
    r.value({"vocab_size"});      // of the text beside it
    BlockSpec b;
    b.placement = NormPlacement::pre;
    const std::string query = "encoder.layers.0.self_attn.q_proj.weight",
                      up = "encoder.layers.0.mlp.fc1.weight";
    const Index inner = r.extent(query, 0);
    b.attention.heads = b.attention.kv_heads = r.heads({"num_attention_heads"}, inner, query);
    b.attention.head_dim = inner / b.attention.heads;
    b.attention.scale = 1 / std::sqrt(double(b.attention.head_dim));
    b.ffn.width = r.agreed({"intermediate_size"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"hidden_act"}, "quick_gelu");
    const Index layers = r.layers("encoder.layers.");
    r.agreed({"num_hidden_layers"}, layers, "encoder.layers.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(clip_names(s), {"visual_projection.*"});
}

}  // namespace

extern const ArchitectureEntry clip_vision_model = {
    "clip_vision_model", "CLIP (images)",
    "the tower of images of CLIP (HF), also inside LLaVA: ViT with a norm before its layers",
    matches, read};

}  // namespace tsdiag::families::clip_tower
