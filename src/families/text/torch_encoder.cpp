#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>

#include "engine/reader.hpp"
#include "tsdiag/error.hpp"

/// torch.nn.TransformerEncoder, and the encoder of the PyTorch Lightning tutorial.
namespace tsdiag::families::torch_encoder {
namespace {

constexpr std::array torch_pairs{
    NamePair{"layer.*.norm1", "layers.*.norm1"},
    NamePair{"layer.*.attn.o", "layers.*.self_attn.out_proj"},
    NamePair{"layer.*.norm2", "layers.*.norm2"},
    NamePair{"layer.*.ffn.up", "layers.*.linear1"},
    NamePair{"layer.*.ffn.down", "layers.*.linear2"},
    NamePair{"layer.*.attn.q", "layers.*.self_attn.in_proj", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "layers.*.self_attn.in_proj", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "layers.*.self_attn.in_proj", Form::matrix, 2},
    NamePair{"final_norm", "norm"},
};
constexpr std::string_view torch_anchor = "layers.0.self_attn.in_proj_weight";

constexpr std::array lightning_pairs{
    NamePair{"embed.map", "input_net.1"},
    NamePair{"layer.*.attn.q", "transformer.layers.*.self_attn.qkv_proj", Form::matrix, 0, true},
    NamePair{"layer.*.attn.k", "transformer.layers.*.self_attn.qkv_proj", Form::matrix, 1, true},
    NamePair{"layer.*.attn.v", "transformer.layers.*.self_attn.qkv_proj", Form::matrix, 2, true},
    NamePair{"layer.*.attn.o", "transformer.layers.*.self_attn.o_proj"},
    NamePair{"layer.*.norm1", "transformer.layers.*.norm1"},
    NamePair{"layer.*.ffn.up", "transformer.layers.*.linear_net.0"},
    NamePair{"layer.*.ffn.down", "transformer.layers.*.linear_net.3"},
    NamePair{"layer.*.norm2", "transformer.layers.*.norm2"},
};
constexpr std::string_view lightning_anchor = "transformer.layers.0.self_attn.qkv_proj.weight";

bool matches_torch(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"torch_encoder"})) return *declared;
    const auto prefix = prefix_of(file, torch_anchor);
    return prefix && file.has(*prefix + "layers.0.linear1.weight") &&
           !file.has(*prefix + "layers.0.multihead_attn.in_proj_weight");  // a decoder's
}
bool matches_lightning(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"lightning_encoder"})) return *declared;
    const auto prefix = prefix_of(file, lightning_anchor);
    return prefix && file.has(*prefix + "transformer.layers.0.linear_net.0.weight");
}

void use_hyper_parameters(Reader& r, const Json& metadata) {
    if (r.config().is_null() && metadata["hyper_parameters"].is_object())
        r.use_config(metadata["hyper_parameters"], "hyper_parameters", true);
}

/// The name of an activation: a function, or a module with its settings; a text that no activation
/// has where it is neither.
std::string activation_of(const Json& said) {
    const bool module = said.is_object();
    const std::string full = module             ? said["__class__"].string()
                             : said.is_string() ? said.string()
                                                : std::string();
    std::string name = full.substr(full.rfind('.') + 1);
    for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
    if (name == "swish") name = "silu";
    if (name == "identity") name = "linear";
    if (module && name == "gelu" && said["approximate"].is_string() &&
        said["approximate"].string() == "tanh")
        return "gelu_new";
    return name.empty() ? "of an unknown kind" : name;
}

/// Adds the pickled modules in `at` that have layers with attention, whatever they are wrapped in.
void find_encoders(const Json& at, int depth, std::vector<const Json*>& found) {
    constexpr int deepest = 8;
    if (depth > deepest) return;
    if (at.is_object()) {
        if (const Json& first = at["layers"]["0"];
            first["__class__"].is_string() && first["self_attn"].is_object())
            found.push_back(&at);
        for (const auto& [name, part] : at.object()) find_encoders(part, depth + 1, found);
    } else if (at.is_array()) {
        for (const Json& part : at.array()) find_encoders(part, depth + 1, found);
    }
}

/// What a pickled torch.nn.TransformerEncoder says of itself beside its tensors, by the keys of its
/// constructor; null where the file holds tensors alone.  Throws `FormatError` where layers differ,
/// or are of a class of another forward pass.
Json attributes(const Checkpoint& file) {
    std::vector<const Json*> encoders;
    find_encoders(file.metadata(), 0, encoders);
    Json common;
    if (encoders.size() > 1)
        throw FormatError(
            fmt::format("{}: has {} pickled encoders, of which the attributes cannot be told "
                        "apart; save the one to measure by itself",
                        file.source(), encoders.size()));
    if (encoders.empty()) return common;
    const Json* at = encoders.front();
    for (const auto& [name, layer] : (*at)["layers"].object()) {
        const Json& kind = layer["__class__"];
        if (!kind.is_string()) continue;
        if (kind.string() != "torch.nn.modules.transformer.TransformerEncoderLayer")
            throw FormatError(fmt::format(
                "{}: layer {} is of the class {}, whose forward pass is not in the file; "
                "if it is that of torch.nn.TransformerEncoderLayer, save its state_dict",
                file.source(), name, kind.string()));
        Json own;
        own.set("norm_first", layer["norm_first"].is_null() ? Json(false) : layer["norm_first"]);
        own.set("nhead", layer["self_attn"]["num_heads"]);
        own.set("layer_norm_eps", layer["norm1"]["eps"]);
        own.set("activation", activation_of(layer["activation"]));
        const Json& zero = layer["self_attn"]["add_zero_attn"];
        if (!zero.is_null() && !equal(zero, false))
            throw FormatError(fmt::format(
                "{}: layer {} attends to a token of zeros (add_zero_attn), which is not supported",
                file.source(), name));
        for (const Json* eps : {&layer["norm2"]["eps"], &(*at)["norm"]["eps"]})
            if (eps->is_number() && !equal(*eps, own["layer_norm_eps"]))
                throw FormatError(
                    fmt::format("{}: has norms with eps = {} and {}, expected the same in all",
                                file.source(), own["layer_norm_eps"].dump(), eps->dump()));
        if (common.is_null()) common = own;
        for (const auto& [key, value] : own.object())
            if (!equal(value, common[key]))
                throw FormatError(
                    fmt::format("{}: layers 0 and {} have {} = {} and {}, expected the same "
                                "in all layers",
                                file.source(), name, key, common[key].dump(), value.dump()));
    }
    return common;
}

Names torch_names(const ModelSpec& spec) { return torch_fused(translate(spec, torch_pairs)); }

Architecture read_torch(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "torch_encoder");
    r.find_prefix(torch_anchor);
    if (Json said = attributes(file); said.is_object()) {
        if (r.config().is_null())
            r.use_config(std::move(said), "the pickled module", true);
        else
            r.also_said(std::move(said), "the pickled module");
    }
    use_hyper_parameters(r, file.metadata());
    ModelSpec& s = r.spec;
    const std::string fused(torch_anchor);
    s.width = s.embedding.width = r.agreed({"d_model"}, r.extent(fused, 1), fused);
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = r.flag({"norm_first"}, false) ? NormPlacement::pre : NormPlacement::post;
    a.heads = a.kv_heads = r.heads({"nhead", "num_heads", "n_heads"}, s.width, fused);
    a.head_dim = s.width / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = "layers.0.linear1.weight";
    b.ffn.width = r.agreed({"dim_feedforward"}, r.extent(up, 0), up);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"activation"}, "relu");
    a.qkv_bias = a.out_bias = b.ffn.bias = b.norm.bias =
        r.part({"bias"}, "layers.0.self_attn.in_proj_bias");
    s.final_norm = r.has("norm.weight");
    const Index layers = r.agreed({"num_layers"}, r.layers("layers."), "layers.*");
    s.blocks.assign(std::size_t(layers), b);
    r.took(
        "no embedding: the input is that of layer 0, whatever the surrounding model does before "
        "it");
    return r.finish(torch_names(s), {}, {"layers.", "norm."});
}

/// Features enter by a Linear, then sinusoidal positions are added; ReLU; q, k, v per head.
Architecture read_lightning(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "lightning_encoder");
    r.find_prefix(lightning_anchor);
    use_hyper_parameters(r, file.metadata());
    ModelSpec& s = r.spec;
    const std::string fused(lightning_anchor),
        output = "transformer.layers.0.self_attn.o_proj.weight";
    s.width = s.embedding.width = r.agreed({"model_dim"}, r.extent(fused, 1), fused);
    if (r.has("input_net.1.weight")) {
        s.embedding.map = true;
        s.embedding.width =
            r.agreed({"input_dim"}, r.extent("input_net.1.weight", 1), "input_net.1.weight");
        s.embedding.positions = Positions::sinusoidal;
        r.took(fmt::format("input: features of width {}, mapped to {}, then sinusoidal positions",
                           s.embedding.width, s.width));
    }
    BlockSpec b;
    AttentionSpec& a = b.attention;
    const Index inner = r.extent(output, 1);
    a.heads = a.kv_heads = r.heads({"num_heads"}, inner, output);
    a.head_dim = inner / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    b.ffn.width = r.extent("transformer.layers.0.linear_net.0.weight", 0);
    b.norm.eps = r.number({"layer_norm_eps"}, 1e-5);
    b.ffn.activation = r.activation({"activation"}, "relu");
    a.qkv_bias = a.out_bias = r.has("transformer.layers.0.self_attn.qkv_proj.bias");
    const Index layers = r.layers("transformer.layers.");
    r.agreed({"num_layers"}, layers, "transformer.layers.*");
    s.blocks.assign(std::size_t(layers), b);
    return r.finish(translate(s, lightning_pairs), {"output_net.*", "positional_encoding.pe"});
}

}  // namespace

extern const ArchitectureEntry torch_encoder = {"torch_encoder", "torch.nn.TransformerEncoder",
                                                "torch.nn.TransformerEncoder", matches_torch,
                                                read_torch};
extern const ArchitectureEntry lightning_encoder = {
    "lightning_encoder", "encoder (Lightning tutorial)",
    "the encoder of the PyTorch Lightning tutorial", matches_lightning, read_lightning};

}  // namespace tsdiag::families::torch_encoder
