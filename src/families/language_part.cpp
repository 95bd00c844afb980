#include "language_part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/names.hpp"

namespace tsdiag::families {
namespace {

/// Names of Transformers before and since its version 4.52, and of LLaVA's authors.
constexpr std::array of_images{"vision_tower.*",          "model.vision_tower.*",
                               "multi_modal_projector.*", "model.multi_modal_projector.*",
                               "model.mm_projector.*",    "image_newline",
                               "model.image_newline"};
/// Keys of the authors' configuration, which has those of the language model beside them.
constexpr std::array keys_of_images{"mm_*",
                                    "*_mm_*",
                                    "image_aspect_ratio",
                                    "image_crop_resolution",
                                    "image_grid_pinpoints",
                                    "image_split_resolution",
                                    "tokenizer_model_max_length",
                                    "tokenizer_padding_side"};
/// Heads of LLaMA and Mistral in Transformers, where a `text_config` leaves them out.
constexpr Index usual_heads = 32;

bool one_matches(const auto& patterns, std::string_view name) {
    return std::ranges::any_of(patterns, [&](const char* p) { return glob(p, name); });
}

/// Of files that have no text_config, whose model_type names both parts.
std::string_view language_model_of(const Json& config) {
    if (by_model_type(config, {"llava_mistral"}).value_or(false)) return "mistral";
    return by_model_type(config, {"llava", "llava_llama"}).value_or(false) ? "llama" : "";
}

}  // namespace

bool LanguagePart::there(const Checkpoint& file, const DetectOptions& options) {
    if (options.config["text_config"].is_object() &&
        !by_model_type(options.config, {"llava", "llava_next"}).value_or(false))
        return false;
    constexpr std::array towers{"*vision_tower.*", "*mm_projector.*"};
    bool images = false, language = false;
    for (const std::string& name : file.names()) {
        const bool image = one_matches(of_images, name);
        images = images || (image && one_matches(towers, name));
        language = language || (!image && name.ends_with("embed_tokens.weight"));
    }
    return images && language;
}

LanguagePart::LanguagePart(const Checkpoint& file, const DetectOptions& options)
    : file_(file), options_(options) {
    for (const std::string& name : file.names())
        (one_matches(of_images, name) ? left_out_ : names_).push_back(name);
    kept_.insert(names_.begin(), names_.end());
    if (options.config["text_config"].is_object())
        use_text_config();
    else
        use_flat_config();
}

void LanguagePart::use_text_config() {
    const Json whole = options_.config;
    Json& own = options_.config = whole["text_config"];
    if (!own["model_type"].is_string()) own.set("model_type", "llama");  // as in Transformers
    if (own["tie_word_embeddings"].is_null() && whole.contains("tie_word_embeddings"))
        own.set("tie_word_embeddings", whole["tie_word_embeddings"]);
    if (own["num_attention_heads"].is_null() && !options_.heads &&
        by_model_type(own, {"llama", "mistral"}).value_or(false)) {
        own.set("num_attention_heads", usual_heads);
        lines_.push_back(
            fmt::format("num_attention_heads = {}: default of Transformers, where text_config "
                        "leaves it out",
                        usual_heads));
    }
    options_.config_name = fmt::format("text_config of {}", options_.config_name);
}

void LanguagePart::use_flat_config() {
    const std::string_view language = language_model_of(options_.config);
    if (language.empty()) return;
    Json own = Json::Object();
    for (const auto& [key, said] : options_.config.object())
        if (!one_matches(keys_of_images, key)) own.set(key, said);
    options_.config = own.set("model_type", language);
}

Architecture LanguagePart::described(Architecture found) const {
    auto& lines = found.spec.provenance.recognised;
    lines.push_back(
        fmt::format("a language model beside a tower of images: {} tensors of images are not read "
                    "(such as '{}'), the language model is run on text alone",
                    left_out_.size(), left_out_.front()));
    lines.insert(lines.end(), lines_.begin(), lines_.end());
    return found;
}

}  // namespace tsdiag::families
