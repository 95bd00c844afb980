#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "names.hpp"
#include "tsdiag/error.hpp"

/// The list of families.  The first that matches a file owns it: those that have another's names
/// and more stand before it.
// clang-format off
#define TSDIAG_ARCHITECTURES(X)   \
    X(nystromformer)              \
    X(bert)                       \
    X(roberta)                    \
    X(distilbert)                 \
    X(albert)                     \
    X(gpt2)                       \
    X(gpt_neo)                    \
    X(gpt_neox)                   \
    X(performer)                  \
    X(linformer)                  \
    X(flash)                      \
    X(gau)                        \
    X(transnormer)                \
    X(llama)                      \
    X(mistral)                    \
    X(qwen2)                      \
    X(qwen3)                      \
    X(vit)                        \
    X(deit)                       \
    X(timm_vit)                   \
    X(vit_pytorch)                \
    X(nystrom_attention)          \
    X(encoder)                    \
    X(torch_encoder)              \
    X(lightning_encoder)
// clang-format on

namespace tsdiag {
namespace model {
#define TSDIAG_DECLARE(name) extern const ArchitectureEntry name;
TSDIAG_ARCHITECTURES(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace model

std::span<const ArchitectureEntry* const> architectures() {
#define TSDIAG_ADDRESS(name) &model::name,
    static constexpr std::array all{TSDIAG_ARCHITECTURES(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return all;
}

namespace {

std::string known_families() {
    std::string out;
    for (const ArchitectureEntry* entry : architectures())
        out += (out.empty() ? "" : ", ") + std::string(entry->name);
    return out;
}

[[noreturn]] void unknown_layout(const Checkpoint& file, const Json& config) {
    if (config["model_type"].is_string())
        throw FormatError(
            fmt::format("{}: model_type '{}' of the configuration is not known; known "
                        "families are {}",
                        file.source(), config["model_type"].string(), known_families()));
    const auto& names = file.names();
    if (names.empty())
        throw FormatError(fmt::format("{}: the file holds no tensor", file.source()));
    constexpr std::size_t shown = 4;
    const std::vector<std::string> first(names.begin(),
                                         names.begin() + std::min(shown, names.size()));
    throw FormatError(fmt::format(
        "{}: the layout of its {} tensors ('{}'{}) is none that is known; known families are {}. "
        "A config.json beside the file, or --config FILE, may tell the family",
        file.source(), names.size(), fmt::join(first, "', '"), names.size() > shown ? ", ..." : "",
        known_families()));
}

}  // namespace

Architecture detect(const Checkpoint& file, const DetectOptions& options) {
    for (const ArchitectureEntry* entry : architectures())
        if (entry->matches(file, options.config)) return entry->read(file, options);
    unknown_layout(file, options.config);
}

}  // namespace tsdiag
