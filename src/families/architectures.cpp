#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/names.hpp"
#include "gguf/gguf.hpp"
#include "ignored.hpp"
#include "layouts/meta.hpp"
#include "part_of_llava.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// The list of families.  The first that matches a file owns it: a family whose names extend
/// another's comes before it.
// clang-format off
#define TSDIAG_ARCHITECTURES(X)         \
    X(nystromformer, nystromformer)     \
    X(bert, bert)                       \
    X(bert, roberta)                    \
    X(bert, electra)                    \
    X(bert, ernie)                      \
    X(bert, megatron)                   \
    X(bert, big_bird)                   \
    X(bert, distilbert)                 \
    X(mpnet, mpnet)                     \
    X(modernbert, modernbert)           \
    X(deberta, deberta)                 \
    X(deberta, deberta_v2)              \
    X(albert, albert)                   \
    X(gpt2, gpt2)                       \
    X(transformer_lens, transformer_lens) \
    X(gpt_neo, gpt_neo)                 \
    X(neox, gpt_neox)                   \
    X(transformer_xl, transformer_xl)   \
    X(performer, performer)             \
    X(linformer, linformer)             \
    X(flash, flash)                     \
    X(flash, gau)                       \
    X(transnormer, transnormer)         \
    X(llama, llama)                     \
    X(llama, mistral)                   \
    X(llama, qwen2)                     \
    X(llama, qwen3)                     \
    X(llama, smollm3)                   \
    X(gemma, gemma)                     \
    X(gemma, gemma2)                    \
    X(gemma, gemma3_text)               \
    X(phi, phi)                         \
    X(phi, phi3)                        \
    X(opt, opt)                         \
    X(opt, gpt_bigcode)                 \
    X(falcon, gptj)                     \
    X(falcon, falcon)                   \
    X(falcon, internlm2)                \
    X(bloom, bloom)                     \
    X(bloom, mpt)                       \
    X(olmo, olmo)                       \
    X(olmo, olmo2)                      \
    X(granite, granite)                 \
    X(granite, minicpm)                 \
    X(granite, stablelm)                \
    X(granite, cohere)                  \
    X(granite, cohere2)                 \
    X(granite, glm)                     \
    X(granite, glm4)                    \
    X(mixtures, mixtral)                \
    X(mixtures, qwen2_moe)              \
    X(mixtures, qwen3_moe)              \
    X(mixtures, olmoe)                  \
    X(gpt_oss, gpt_oss)                 \
    X(deepseek, deepseek_v2)            \
    X(deepseek, deepseek_v3)            \
    X(llama4, llama4)                   \
    X(vit, vit)                         \
    X(vit, deit)                        \
    X(clip_tower, clip_vision_model)    \
    X(xcit, xcit)                       \
    X(swin, swin)                       \
    X(timm_vit, timm_vit)               \
    X(torchvision_vit, torchvision_vit) \
    X(vit_pytorch, vit_pytorch)         \
    X(nystromformer, nystrom_attention) \
    X(encoder, encoder)                 \
    X(torch_encoder, torch_encoder)     \
    X(torch_encoder, lightning_encoder)
// clang-format on

namespace tsdiag {
namespace families {
#define TSDIAG_DECLARE(source, name)     \
    namespace source {                   \
    extern const ArchitectureEntry name; \
    }
TSDIAG_ARCHITECTURES(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace families

std::span<const ArchitectureEntry* const> architectures() {
#define TSDIAG_ADDRESS(source, name) &families::source::name,
    static constexpr std::array all{TSDIAG_ARCHITECTURES(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return all;
}

namespace {

/// The family by tensor names alone, ignoring the configuration.
std::string_view by_names(const Checkpoint& file) {
    for (const ArchitectureEntry* entry : architectures())
        if (entry->matches(file, Json())) return entry->name;
    return "";
}

[[noreturn]] void unknown_layout(const Checkpoint& file, const Json& config) {
    if (config["model_type"].is_string()) {
        const std::string_view like = by_names(file);
        throw FormatError(fmt::format(
            "{}: unknown model_type '{}' in the configuration (known ones: tsdiag list "
            "architectures){}",
            file.source(), config["model_type"].string(),
            like.empty() ? std::string()
                         : fmt::format(". Its tensors have the names of {0}; if it is one, pass a "
                                       "--config with \"model_type\": \"{0}\"",
                                       like)));
    }
    const auto& names = file.names();
    if (names.empty())
        throw FormatError(fmt::format("{}: the file contains no tensor", file.source()));
    constexpr std::size_t shown = 4;
    const std::vector<std::string> first(names.begin(),
                                         names.begin() + std::min(shown, names.size()));
    throw FormatError(fmt::format(
        "{}: unknown layout of its {} tensors ('{}'{}). {}", file.source(), names.size(),
        fmt::join(first, "', '"), names.size() > shown ? ", ..." : "",
        config.is_null()
            ? "A configuration with a model_type may identify the family (--config FILE); a map "
              "gives tensors the names of one (--map FILE, of which tsdiag inspect prints a draft)"
            : "The configuration has no model_type to identify the family; a map gives tensors the "
              "names of one (--map FILE, of which tsdiag inspect prints a draft)"));
}

Architecture detect_family(const Checkpoint& file, const DetectOptions& options) {
    for (const ArchitectureEntry* entry : architectures())
        if (entry->matches(file, options.config)) return entry->read(file, options);
    unknown_layout(file, options.config);
}

/// Letters and digits of a name, in small letters: "gptneox" of gpt_neox and of GPTNeoX.
std::string letters_of(std::string_view name) {
    std::string out;
    for (const char c : name) {
        if (c >= 'A' && c <= 'Z')
            out += char(c - 'A' + 'a');
        else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            out += c;
    }
    return out;
}

/// What the names of the classes of a model_type begin with, as `class_letters` has them.
std::string stem_of(std::string_view type) {
    if (type == "RefinedWebModel") return "falcon";
    // Gemma3ForCausalLM is one of gemma3_text, CLIPVisionModel of clip_vision_model.
    for (const std::string_view end : {"_text", "_model"})
        if (type.ends_with(end)) type.remove_suffix(end.size());
    return letters_of(type);
}

/// Those of a class, without what PyTorch's FSDP 2 puts before it, and by Transformers' name where
/// Falcon's authors have another.
std::string class_letters(std::string_view named) {
    std::string own = letters_of(named);
    if (own.starts_with("fsdp")) own.erase(0, 4);
    if (own.starts_with("rwfor")) own.replace(0, 2, "falcon");
    return own;
}

/// Says of a class in `architectures` that it is none of the model_type, as LlamaBiModel or
/// RobertaPreLayerNormModel: Transformers opens the class of the model_type; the weights may have
/// been trained in the other.  Empty: it is one, or none is named.
std::string said_of_class(const Json& config) {
    constexpr std::array<std::string_view, 13> kinds = {"for",        "model",       "lmhead",
                                                        "pretrained", "doubleheads", "withlmhead",
                                                        "text",       "vision",      "encoder",
                                                        "decoder",    "backbone",    "adapter",
                                                        "epoch"};  // StableLMEpoch of its authors
    if (!config.is_object() || !config["model_type"].is_string() ||
        !config["architectures"].is_array() || config["architectures"].array().empty() ||
        !config["architectures"].array().front().is_string())
        return {};
    const std::string &type = config["model_type"].string(),
                      &named = config["architectures"].array().front().string(),
                      own = class_letters(named), stem = stem_of(type);
    if (named.empty()) return {};
    const bool same = own.starts_with(stem);
    const std::string_view rest = same ? std::string_view(own).substr(stem.size()) : own;
    if (same && std::ranges::any_of(kinds, [&](auto kind) { return rest.starts_with(kind); }))
        return {};
    return fmt::format(
        "architectures names {}, which is no class of model_type {}: the latter is run, as "
        "Transformers does; where the weights were trained as the former, its mask, norms or "
        "positions may be others",
        shortened(named, 60), type);
}

}  // namespace

Architecture detect(const Checkpoint& whole, const DetectOptions& all) {
    const families::Ignoring file(whole, all);
    const DetectOptions& options = file.options();
    families::refuse_quantised(file, options);
    const auto found_in = [&] {
        const auto read_as = [](const auto& model) {
            return model.restored(detect_family(model.file(), model.options()));
        };
        if (families::is_gguf(file)) return read_as(families::GgufModel(file, options));
        if (families::is_meta(file)) return read_as(families::MetaModel(file, options));
        if (families::PartOfLlava::there(file, options)) {
            const families::PartOfLlava part(file, options);
            return part.described(detect_family(part, part.options()));
        }
        Architecture found = detect_family(file, options);
        if (std::string said = said_of_class(options.config); !said.empty())
            found.spec.provenance.warnings.push_back(std::move(said));
        return found;
    };
    Architecture found = found_in();
    if (const std::string warning = file.warning(); !warning.empty())
        found.spec.provenance.warnings.push_back(warning);
    return found;
}

}  // namespace tsdiag
