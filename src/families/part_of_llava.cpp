#include "part_of_llava.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/names.hpp"

namespace tsdiag::families {
namespace {

/// Names of Transformers before and since its version 4.52, and of LLaVA's authors.
constexpr std::array tower_names{"vision_tower.*", "model.vision_tower.*"};
constexpr std::array projector_names{"multi_modal_projector.*", "model.multi_modal_projector.*",
                                     "model.mm_projector.*", "image_newline",
                                     "model.image_newline"};
/// Keys of the authors' configuration, which has those of the language model beside them. Positions
/// are skipped while training alone.
constexpr std::array keys_of_images{"mm_*",
                                    "*_mm_*",
                                    "image_aspect_ratio",
                                    "image_crop_resolution",
                                    "image_grid_pinpoints",
                                    "image_split_resolution",
                                    "image_token_index",
                                    "sep_image_conv_front",
                                    "vision_tower_pretrained",
                                    "*pos_skipping*",
                                    "add_faster_video",
                                    "add_time_instruction",
                                    "faster_token_stride",
                                    "force_sample",
                                    "tokenizer_model_max_length",
                                    "tokenizer_padding_side"};

bool one_matches(const auto& patterns, std::string_view name) {
    return std::ranges::any_of(patterns, [&](const char* p) { return glob(p, name); });
}

bool has_any(const Checkpoint& file, const auto& patterns) {
    return std::ranges::any_of(
        file.names(), [&](const std::string& name) { return one_matches(patterns, name); });
}

bool has_language(const Checkpoint& file) {
    return std::ranges::any_of(file.names(), [](const std::string& name) {
        return name.ends_with("embed_tokens.weight");
    });
}

/// A CLIP whose tower of text is left out.
bool is_tower_of_clip(const Checkpoint& file, const Json& config) {
    constexpr std::array text{"text_model.*"};
    return by_model_type(config, {"clip"}).value_or(false) &&
           file.has("vision_model.pre_layrnorm.weight") && !has_any(file, text);
}

/// Where one pattern names the language model.
std::string way_to_tower(const std::vector<std::string>& names) {
    constexpr std::string_view part = "language_model.";
    for (const std::string& name : names)
        if (const std::size_t at = name.find(part); at != name.npos)
            return fmt::format("; pass --ignore '{}*' for the tower of images",
                               name.substr(0, at + part.size()));
    return "";
}

/// Of files that have no text_config, whose model_type names both parts, or "llava" the one of them
/// and the class the other; empty: none that is known.
std::string_view language_model_of(const Json& config) {
    struct Kind {
        std::string_view type, saved_class, language;
    };
    constexpr std::array kinds{Kind{"llava_llama", "LlavaLlamaForCausalLM", "llama"},
                               Kind{"llava_mistral", "LlavaMistralForCausalLM", "mistral"},
                               Kind{"llava_qwen", "LlavaQwenForCausalLM", "qwen2"}};
    for (const Kind& kind : kinds)
        if (by_model_type(config, {kind.type}).value_or(false)) return kind.language;
    if (!by_model_type(config, {"llava"}).value_or(false)) return "";
    const Json& classes = config["architectures"];
    if (!classes.is_array() || classes.array().empty() || !classes.array().front().is_string())
        return "llama";
    std::string_view named = classes.array().front().string();
    if (constexpr std::string_view wrapped = "FSDP"; named.starts_with(wrapped))
        named.remove_prefix(wrapped.size());
    for (const Kind& kind : kinds)
        if (named == kind.saved_class) return kind.language;
    return named.starts_with("Llava") && named.ends_with("ForCausalLM") ? "" : "llama";
}

}  // namespace

bool PartOfLlava::there(const Checkpoint& file, const DetectOptions& options) {
    if (is_tower_of_clip(file, options.config)) return true;
    if (options.config["text_config"].is_object()) {
        if (!by_model_type(options.config, {"llava", "llava_next"}).value_or(false)) return false;
        if (has_language(file)) return true;  // --ignore may leave the others out
    }
    constexpr std::array own_projector{"model.mm_projector.*"};  // Llama 4 has the other names
    return has_any(file, tower_names) || (has_any(file, own_projector) && has_language(file));
}

PartOfLlava::PartOfLlava(const Checkpoint& file, const DetectOptions& options)
    : file_(file), options_(options), language_(has_language(file)) {
    for (const std::string& name : file.names()) {
        const bool other =
            one_matches(projector_names, name) || (language_ && one_matches(tower_names, name));
        (other ? left_out_ : names_).push_back(name);
    }
    kept_.insert(names_.begin(), names_.end());
    if (!language_)
        use_vision_config();
    else if (options.config["text_config"].is_object())
        use_text_config();
    else
        use_flat_config();
}

void PartOfLlava::use_text_config() {
    const Json whole = options_.config;
    Json& own = options_.config = whole["text_config"];
    use_default("model_type", "llama", "text_config");
    if (own["tie_word_embeddings"].is_null() && whole.contains("tie_word_embeddings"))
        own.set("tie_word_embeddings", whole["tie_word_embeddings"]);
    if (!options_.heads && by_model_type(own, {"llama", "mistral"}).value_or(false))
        use_default("num_attention_heads", 32, "text_config");
    options_.config_name = fmt::format("text_config of {}", options_.config_name);
}

void PartOfLlava::use_default(const std::string& key, const Json& value, std::string_view part) {
    if (!options_.config[key].is_null()) return;
    options_.config.set(key, value);
    lines_.push_back(fmt::format("{} = {}: default of Transformers, where {} leaves it out", key,
                                 value.is_string() ? value.string() : value.dump(), part));
}

void PartOfLlava::use_flat_config() {
    const std::string_view language = language_model_of(options_.config);
    if (language.empty()) return;
    Json own = Json::Object();
    for (const auto& [key, said] : options_.config.object())
        if (!one_matches(keys_of_images, key)) own.set(key, said);
    options_.config = own.set("model_type", language);
}

void PartOfLlava::use_vision_config() {
    const Json whole = options_.config;
    Json& own = options_.config;
    const Json& said = whole["vision_config"];
    if (said.is_object() || by_model_type(whole, {"clip"}).value_or(false)) {
        own = said.is_object() ? said : Json(Json::Object());
        use_default("model_type", "clip_vision_model", "vision_config");
        if (!options_.heads && by_model_type(own, {"clip_vision_model"}).value_or(false))
            use_default("num_attention_heads", 12, "vision_config");
        options_.config_name = fmt::format("vision_config of {}", options_.config_name);
    } else if (!language_model_of(whole).empty()) {
        own = Json();
    }
}

Architecture PartOfLlava::described(Architecture found) const {
    auto& lines = found.spec.provenance.recognised;
    if (!language_)
        lines.emplace_back("the tower of images alone, without what its states are mapped to");
    else
        lines.push_back(fmt::format(
            "the language model of a LLaVA, run on text alone{}",
            left_out_.empty()
                ? ""
                : fmt::format(": {} tensors of images are not read (such as '{}'){}",
                              left_out_.size(), left_out_.front(), way_to_tower(names_))));
    lines.insert(lines.end(), lines_.begin(), lines_.end());
    return found;
}

}  // namespace tsdiag::families
