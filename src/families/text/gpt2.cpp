#include <fmt/format.h>

#include <cmath>

#include "decoder.hpp"
#include "engine/head.hpp"

/// GPT-2 as HF stores it (Conv1D, weights (in, out)) and as nanoGPT and minGPT do (nn.Linear,
/// (out, in)).
namespace tsdiag::families::gpt2 {
namespace {

Names linear_names(const ModelSpec& spec) { return translate(spec, gpt2_pairs); }
/// The matrices of layers are stored by inputs.
Names conv1d_names(const ModelSpec& spec) {
    auto pairs = gpt2_pairs;
    for (NamePair& pair : pairs)
        if (pair.canonical.starts_with("layer.")) pair.form = Form::transposed;
    return translate(spec, pairs);
}

constexpr std::string_view anchor = "h.0.attn.c_attn.weight";

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"gpt2", "nanogpt"})) return *declared;
    return prefix_of(file, anchor).has_value();
}

/// c_attn is (d, 3d) or (3d, d): the square matrices beside it are stored likewise.
bool stored_by_inputs(const Reader& r, Index d) {
    const std::string fused(anchor);
    const Index rows = r.extent(fused, 0), cols = r.extent(fused, 1);
    if (rows == d && cols == 3 * d) return true;
    if (rows == 3 * d && cols == d) return false;
    r.refuse(fmt::format("tensor '{}{}' is ({}, {}), expected ({}, {}) or ({}, {})", r.prefix(),
                         fused, rows, cols, d, 3 * d, 3 * d, d));
}

/// Hyper-parameters saved beside the weights by a training script.
void use_saved_sizes(Reader& r, const Json& metadata) {
    if (!r.config().is_null()) return;
    for (const std::string_view key : {"model_args", "hyper_parameters"})
        if (metadata[key].is_object())
            return r.use_config(metadata[key], std::string(key), key == "hyper_parameters");
}

/// What minGPT's code calls its models.
constexpr NamedSizes named_by_mingpt[] = {
    {"openai-gpt", 12, 768, 12},  {"gpt2", 12, 768, 12},     {"gpt2-medium", 24, 1024, 16},
    {"gpt2-large", 36, 1280, 20}, {"gpt2-xl", 48, 1600, 25}, {"gopher-44m", 8, 512, 16},
    {"gpt-mini", 6, 192, 6},      {"gpt-micro", 4, 128, 4},  {"gpt-nano", 3, 48, 3}};

/// The config.json that minGPT's scripts write beside model.pt: all arguments of the training,
/// those of the model apart, where sizes are null that its name tells.
void use_mingpt_config(Reader& r) {
    Json model = r.config()["model"];
    if (!model.is_object() || !r.config()["trainer"].is_object()) return;
    for (const NamedSizes& one : named_by_mingpt)
        if (equal(model["model_type"], Json(one.name)) && model["n_head"].is_null()) {
            model.set("n_layer", one.layers).set("n_embd", one.d).set("n_head", one.heads);
            r.saw(
                fmt::format("n_layer, n_embd and n_head are those that minGPT gives {}", one.name));
        }
    r.use_config(std::move(model), fmt::format("model of {}", r.config_source()), true);
}

/// minGPT has the names of nanoGPT, but keeps the mask of attention and has a head of its own,
/// where that of nanoGPT is the embedding; its GELU is that by tanh.
bool is_mingpt(const Checkpoint& file, const Reader& r) {
    constexpr std::string_view head = "lm_head.weight";
    const auto before = prefix_of(file, head);
    return before && r.has("h.0.attn.bias") &&
           !same_rows(file, *before + std::string(head), r.prefix() + "wte.weight");
}

std::vector<BlockSpec> blocks(Reader& r, BlockSpec b, Index layers) {
    const bool divide = r.flag({"scale_attn_by_inverse_layer_idx"}, false);
    std::vector<BlockSpec> out(std::size_t(layers), b);
    if (!divide) return out;
    for (std::size_t l = 0; l < out.size(); ++l)
        out[l].attention.scale = b.attention.scale / double(l + 1);
    r.saw("logits of layer L also divided by L + 1 (scale_attn_by_inverse_layer_idx)");
    return out;
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "gpt2");
    r.find_prefix(anchor);
    use_mingpt_config(r);
    use_saved_sizes(r, file.metadata());
    ModelSpec& s = r.spec;
    s.embedding.vocabulary = r.agreed({"vocab_size"}, r.extent("wte.weight", 0), "wte.weight");
    s.width = s.embedding.width =
        r.agreed({"n_embd", "dim_embedding"}, r.extent("wte.weight", 1), "wte.weight");
    s.embedding.positions = Positions::learned;
    s.embedding.max_tokens = r.agreed({"n_positions", "block_size", "seq_length"},
                                      r.extent("wpe.weight", 0), "wpe.weight");
    r.value({"n_ctx"});  // of the mask, a triangle at any size
    r.only({"is_causal"}, true);
    r.value({"is_decoder"});  // always a decoder, whatever this says
    s.final_norm = true;
    const bool conv1d = stored_by_inputs(r, s.width);
    if (!conv1d) s.family = "nanogpt";
    r.saw(conv1d ? "weights stored (in, out): Conv1D" : "weights stored (out, in): nn.Linear");
    const bool mingpt = !conv1d && is_mingpt(file, r);
    if (mingpt)
        r.saw("a mask, and a head that is not the embedding: minGPT, whose GELU is by tanh");
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.placement = NormPlacement::pre;
    a.causal = true;
    a.heads = a.kv_heads = r.heads({"n_head", "num_heads"}, s.width, anchor);
    a.head_dim = s.width / a.heads;
    if (r.flag({"scale_attn_weights"}, true)) a.scale = 1 / std::sqrt(double(a.head_dim));
    const std::string up = "h.0.mlp.c_fc.weight";
    b.ffn.width = r.agreed({"n_inner"}, r.extent(up, conv1d ? 1 : 0), up);
    b.norm.eps = r.number({"layer_norm_epsilon"}, 1e-5);
    b.ffn.activation =
        r.activation({"activation_function"}, conv1d || mingpt ? "gelu_new" : "gelu");
    // Conv1D always has biases; a model with nn.Linear may lack them.
    const bool biases = conv1d || r.part({"bias", "use_bias"}, "h.0.attn.c_attn.bias");
    a.qkv_bias = a.out_bias = b.ffn.bias = biases;
    b.norm.bias = conv1d || r.has("h.0.ln_1.bias") || r.has("h.0.ln_1.beta");
    const Index layers = r.layers("h.");
    r.agreed({"n_layer", "num_layers"}, layers, "h.*");
    s.blocks = blocks(r, b, layers);
    Names names = conv1d ? conv1d_names(s) : linear_names(s);
    r.accept_gamma_beta(names);
    return r.finish(std::move(names), {"*lm_head.*", "score.*", "*multiple_choice_head.*"});
}

constexpr NamedSizes named[] = {{"gpt2", 12, 768, 12},
                                {"gpt2-medium", 24, 1024, 16},
                                {"gpt2-large", 36, 1280, 20},
                                {"gpt2-xl", 48, 1600, 25}};

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    Sizes preset;
    preset.tokens = 1024;
    preset.vocab = 50257;
    preset.act = Unary::gelu_tanh;
    preset.causal = true;
    const Sizes sizes = read_sizes(k, sizes_of(name, named, preset));
    k.finish();
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    ModelSpec s = token_model("gpt2", sizes, b);
    s.embedding.positions = Positions::learned;
    s.final_norm = true;
    const double residual = 0.02 / std::sqrt(2.0 * double(sizes.layers));
    return drawn(
        std::move(s),
        [residual](const Parameter& p) {
            const bool onto_residual =
                p.name.ends_with("attn.o.weight") || p.name.ends_with("ffn.down.weight");
            return normal_law(p, onto_residual ? residual : 0.02);
        },
        fmt::format("weights N(0, 0.02^2), those of residual projections N(0, {:.6g}^2), biases 0, "
                    "norms 1 and 0",
                    residual));
}

Json config(const ModelSpec& s) {
    const BlockSpec& b = s.blocks.front();
    Json out;
    out.set("architectures", Json::Array{"GPT2Model"}).set("model_type", "gpt2");
    out.set("n_embd", s.width).set("n_layer", Index(s.blocks.size()));
    out.set("n_head", b.attention.heads)
        .set("n_inner", b.ffn.width)
        .set("n_positions", s.embedding.max_tokens);
    out.set("vocab_size", s.embedding.vocabulary).set("layer_norm_epsilon", b.norm.eps);
    out.set("activation_function", hf_activation(b.ffn.activation)).set("scale_attn_weights", true);
    return out.set("initializer_range", 0.02);
}

}  // namespace

extern const ArchitectureEntry gpt2 = {"gpt2",
                                       "GPT-2",
                                       "GPT-2 and nanoGPT: pre-norm decoder, learned positions",
                                       matches,
                                       read,
                                       draw,
                                       [] { return names_of(named); },
                                       conv1d_names,
                                       config,
                                       "nanogpt",
                                       "GPT-2 (nn.Linear layout)"};

}  // namespace tsdiag::families::gpt2
