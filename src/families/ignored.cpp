#include "ignored.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/names.hpp"
#include "engine/sources.hpp"
#include "gguf/gguf.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {

namespace {

/// `object` without the keys matching `pattern`, which are added to `left_out`.
Json without(const Json& object, std::string_view pattern, std::vector<std::string>& left_out) {
    if (!object.is_object()) return object;
    Json::Object kept = object.object();
    std::erase_if(kept, [&](const auto& member) {
        if (!glob(pattern, member.first)) return false;
        left_out.push_back(fmt::format("key '{}'", member.first));
        return true;
    });
    return kept;
}

/// Metadata without matching keys in its training arguments.
Json without_saved(Json metadata, std::string_view pattern, std::vector<std::string>& left_out) {
    for (const std::string_view key : said_keys)
        if (metadata[key].is_object())
            metadata.set(std::string(key), without(metadata[key], pattern, left_out));
    for (const std::string_view key : said_holders)
        for (const std::string_view inner : said_keys)
            if (Json outer = metadata[key]; outer.is_object() && outer[inner].is_object())
                metadata.set(std::string(key), outer.set(std::string(inner),
                                                         without(outer[inner], pattern, left_out)));
    return metadata;
}

}  // namespace

Ignoring::Ignoring(const Checkpoint& file, const DetectOptions& options)
    : file_(file), options_(options), metadata_(file.metadata()), names_(file.names()) {
    for (const std::string& pattern : options.ignore) {
        const std::size_t before = left_out_.size();
        std::erase_if(names_, [&](const std::string& name) {
            if (!glob(pattern, name)) return false;
            left_out_.push_back(fmt::format("tensor '{}'", name));
            return true;
        });
        options_.config = without(options_.config, pattern, left_out_);
        for (const char* part : {"text_config", "vision_config"})
            if (const Json inner = options_.config[part]; inner.is_object())
                options_.config.set(part, without(inner, pattern, left_out_));
        metadata_ = is_gguf(file) ? without(metadata_, pattern, left_out_)
                                  : without_saved(std::move(metadata_), pattern, left_out_);
        if (left_out_.size() == before)
            throw UsageError(
                fmt::format("--ignore {}: matches no tensor of {} and no key of its configuration; "
                            "'*' matches any characters",
                            pattern, file.source()));
    }
    kept_.insert(names_.begin(), names_.end());
}

std::string Ignoring::warning() const {
    if (left_out_.empty()) return "";
    constexpr std::size_t shown = 3;
    std::string list;
    for (std::size_t i = 0; i < std::min(shown, left_out_.size()); ++i)
        list += (i > 0 ? ", " : "") + left_out_[i];
    if (left_out_.size() > shown) list += fmt::format(" and {} more", left_out_.size() - shown);
    return fmt::format("Ignored {} (--ignore); the numbers are those of a model without it", list);
}

namespace {

/// Tensors that accompany or replace quantised weights.
constexpr std::array beside_quantised{"*.weight_scale_inv",
                                      "*.weight_scale",
                                      "*.input_scale",
                                      "*.scale_weight",  // FP8
                                      "*.weight_packed",
                                      "*.weight_zero_point",  // compressed-tensors
                                      "*.qweight",
                                      "*.qzeros",  // GPTQ, AWQ
                                      "*.absmax",
                                      "*.quant_map",
                                      "*.quant_state.*",
                                      "*.SCB",  // bitsandbytes
                                      "*_proj_blocks",
                                      "*_proj_scales",  // MXFP4
                                      "*.W_q"};         // HQQ
constexpr std::array quantised_keys{"quantization_config", "quantization", "compression_config"};

}  // namespace

void refuse_quantised(const Checkpoint& file, const DetectOptions& options) {
    const bool plain = std::ranges::all_of(file.names(), [&](const std::string& name) {
        return rounding_of(file.tensor(name).dtype) > 0;
    });
    for (const char* key : quantised_keys) {
        const Json& said = options.config[key];
        if (said.is_null()) continue;
        const Json& method = said["quant_method"];
        throw FormatError(fmt::format(
            "{}: {} has a '{}'{} of which not everything is supported, so its "
            "quantised weights are not run; use the model in f32, f16 or bf16{}",
            file.source(), options.config_name, key,
            method.is_string() ? fmt::format(" ({})", method.string()) : "",
            plain ? fmt::format(". Its weights are numbers: if the key was left over, pass "
                                "--ignore {}",
                                key)
                  : std::string()));
    }
    for (const std::string& name : file.names())
        if (std::ranges::any_of(beside_quantised, [&](const char* p) { return glob(p, name); }))
            throw FormatError(fmt::format(
                "{}: tensor '{}' belongs to quantised weights, which nothing describes; pass the "
                "model's own config.json with --config, or use the model in f32, f16 or bf16",
                file.source(), name));
}

}  // namespace tsdiag::families
