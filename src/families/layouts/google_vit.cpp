#include <fmt/format.h>

#include <array>
#include <optional>

#include "layouts.hpp"
#include "tsdiag/error.hpp"

/// The ViT of its authors, google-research/vision_transformer: .npz files under Flax's names, whose
/// heads are an axis of their own.
namespace tsdiag::families {
namespace {

constexpr std::string_view google_block = "Transformer/encoderblock_";
constexpr std::string_view google_query =
    "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel";

/// A stem in the file and in Hugging Face's ViT; '*' is the layer.
struct GooglePair {
    std::string_view here, there;
};
constexpr std::array google_pairs{
    GooglePair{"embedding", "embeddings.patch_embeddings.projection"},
    GooglePair{"Transformer/encoder_norm", "layernorm"},
    GooglePair{"pre_logits", "pooler.dense"},
    GooglePair{"head", "classifier"},
    GooglePair{"Transformer/encoderblock_*/LayerNorm_0", "encoder.layer.*.layernorm_before"},
    GooglePair{"Transformer/encoderblock_*/LayerNorm_2", "encoder.layer.*.layernorm_after"},
    GooglePair{"Transformer/encoderblock_*/MultiHeadDotProductAttention_1/query",
               "encoder.layer.*.attention.attention.query"},
    GooglePair{"Transformer/encoderblock_*/MultiHeadDotProductAttention_1/key",
               "encoder.layer.*.attention.attention.key"},
    GooglePair{"Transformer/encoderblock_*/MultiHeadDotProductAttention_1/value",
               "encoder.layer.*.attention.attention.value"},
    GooglePair{"Transformer/encoderblock_*/MultiHeadDotProductAttention_1/out",
               "encoder.layer.*.attention.output.dense"},
    GooglePair{"Transformer/encoderblock_*/MlpBlock_3/Dense_0",
               "encoder.layer.*.intermediate.dense"},
    GooglePair{"Transformer/encoderblock_*/MlpBlock_3/Dense_1", "encoder.layer.*.output.dense"},
};

/// The prefix of all names: none, or that of a training state.
std::optional<std::string_view> google_prefix(const Checkpoint& file) {
    for (const std::string_view prefix : {"", "opt/target/", "params/"})
        if (file.has(std::string(prefix).append(google_query))) return prefix;
    return std::nullopt;
}

bool is_google_vit(const Checkpoint& file) {
    return google_prefix(file) &&
           file.has(std::string(*google_prefix(file)) + "Transformer/posembed_input/pos_embedding");
}

/// Hugging Face's name of a stem; empty: it has none.
std::string google_stem(std::string_view stem) {
    std::string pattern(stem), layer;
    if (stem.starts_with(google_block)) {
        const std::size_t slash = stem.find('/', google_block.size());
        if (slash == stem.npos) return "";
        layer = stem.substr(google_block.size(), slash - google_block.size());
        pattern.replace(google_block.size(), layer.size(), "*");
    }
    for (const auto& [here, there] : google_pairs) {
        if (here != pattern) continue;
        std::string out(there);
        if (const std::size_t star = out.find('*'); star != out.npos) out.replace(star, 1, layer);
        return out;
    }
    return "";
}

/// A kernel as (out, in, ...): the axes of its heads are merged.
View google_kernel(const RawTensor& raw, bool onto_width) {
    const std::vector<Index>& n = raw.shape;
    if (n.size() == 4) return {.axes = {3, 2, 0, 1}};
    if (n.size() != 3) return {.axes = {1, 0}};
    return onto_width
               ? View{.axes = {2, 0, 1}, .shape = {n[2], merged(n[0], n[1])}}   // (heads, h, d)
               : View{.axes = {1, 2, 0}, .shape = {merged(n[1], n[2]), n[0]}};  // (d, heads, h)
}

void add_google_tensor(const Checkpoint& file, const std::string& name, std::string_view rest,
                       Relabelled& out) {
    const std::size_t slash = rest.rfind('/');
    const std::string_view last = rest.substr(slash == rest.npos ? 0 : slash + 1);
    const std::string stem = google_stem(rest.substr(0, slash == rest.npos ? 0 : slash));
    if (rest == "cls") return out.add("embeddings.cls_token", name);
    if (rest == "Transformer/posembed_input/pos_embedding")
        return out.add("embeddings.position_embeddings", name);
    const RawTensor raw = file.tensor(name);
    if (stem.empty()) return out.add(std::string(rest), name);  // refused by the family
    if (last == "kernel")
        return out.add(stem + ".weight", name, google_kernel(raw, rest.ends_with("/out/kernel")));
    if (last == "scale") return out.add(stem + ".weight", name);
    View view;
    if (last == "bias" && raw.shape.size() == 2) view.shape = {merged(raw.shape[0], raw.shape[1])};
    out.add(fmt::format("{}.{}", stem, last), name, std::move(view));
}

std::string rename_google_vit(const Checkpoint& file, Relabelled& out, Json& config) {
    const std::string_view prefix = google_prefix(file).value_or("");
    std::size_t left_out = 0;
    for (const std::string& name : file.names()) {
        if (name.starts_with(prefix))
            add_google_tensor(file, name, std::string_view(name).substr(prefix.size()), out);
        else
            ++left_out;
    }
    const RawTensor query = file.tensor(std::string(prefix).append(google_query));
    constexpr std::size_t with_heads = 3;
    if (query.shape.size() != with_heads)
        throw FormatError(fmt::format("{}: tensor '{}{}' is {}, expected (width, heads, columns)",
                                      file.source(), prefix, google_query, text(query.shape)));
    const auto tell = [&](const char* key, Json value) {
        if (config[key].is_null()) config.set(key, std::move(value));
    };
    tell("model_type", "vit");
    tell("num_attention_heads", query.shape[1]);
    tell("layer_norm_eps", 1e-6);  // of flax.linen
    tell("hidden_act", "gelu_new");
    std::string note =
        "names and layouts of Google's ViT, read as those of Hugging Face; GELU by its "
        "approximation with tanh and norms with eps 1e-6, as its code computes";
    if (left_out > 0) note += fmt::format("; skipped {} arrays beside '{}'", left_out, prefix);
    return note;
}

}  // namespace

const Layout google_vit = {"ViT of Google's own code", is_google_vit, rename_google_vit};

}  // namespace tsdiag::families
