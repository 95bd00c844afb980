#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>

#include "tsdiag/json.hpp"

/// What a `quantization_config` says.
namespace tsdiag::checkpoint {

inline constexpr std::string_view quantization_key = "quantization_config";

/// An object whose keys are all among `keys`; one that ends in '_' begins a group of them.
inline bool has_only(const Json& object, std::span<const std::string_view> keys) {
    return object.is_object() && std::ranges::all_of(object.object(), [&](const auto& member) {
               const std::string_view name = member.first;
               return std::ranges::any_of(keys, [&](std::string_view key) {
                   return name == key || (key.ends_with('_') && name.starts_with(key));
               });
           });
}

/// Absent, or one of these texts.
inline bool is_one_of(const Json& value, std::initializer_list<std::string_view> texts) {
    return value.is_null() ||
           (value.is_string() && std::ranges::find(texts, value.string()) != texts.end());
}

inline bool says(const Json& value, std::string_view text) {
    return value.is_string() && value.string() == text;
}

inline bool is_empty(const Json& value) {
    return value.is_null() || (value.is_object() && value.object().empty());
}

inline bool is_false(const Json& value) {
    return value.is_null() || (value.is_bool() && !value.boolean());
}

inline bool is_true(const Json& value) { return value.is_bool() && value.boolean(); }

/// 0: it is not a positive integer.
inline std::int64_t positive(const Json& number) {
    return number.is_integer() && number.integer() > 0 ? number.integer() : 0;
}

/// Whether a configuration of compressed-tensors is understood but for its weights, nothing rotated
/// or sparse, and `obeys(format, weights)` for those of each of its groups.
bool all_groups(const Json& said,
                const std::function<bool(const Json& format, const Json& weights)>& obeys);

/// `config` without its `quantization_config`, which has been obeyed.
inline void remove_quantization(Json& config) {
    Json::Object kept = config.object();
    std::erase_if(kept, [](const auto& member) { return member.first == quantization_key; });
    config = std::move(kept);
}

}  // namespace tsdiag::checkpoint
