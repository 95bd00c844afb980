#include <fmt/format.h>

#include <algorithm>

#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::tokenizer {

namespace {
constexpr std::string_view instead = "pass ids with --input ids:FILE";
}

void Growth::require(std::size_t bytes) const {
    if (bytes > most_)
        throw FormatError(fmt::format(
            "The text grows beyond {} bytes as the tokenizer rewrites it; {}.", most_, instead));
}

std::string_view Pieces::keep(std::string text) {
    bytes += text.size();
    limits->growth.require(bytes);
    made.push_back(std::move(text));
    return made.back();
}

std::string Component::type() const {
    if (!json_.is_object() || !json_["type"].is_string())
        throw FormatError(fmt::format("{}: has no type, expected an object with one.", where_));
    return json_["type"].string();
}

void Component::require_keys(std::initializer_list<std::string_view> keys) const {
    if (!json_.is_object()) throw FormatError(fmt::format("{}: expected an object.", where_));
    for (const auto& [key, value] : json_.object())
        if (key != "type" && std::ranges::find(keys, key) == keys.end())
            throw FormatError(fmt::format("{}: the key '{}' is not supported; {}.", where_,
                                          visible(key), instead));
}

bool Component::flag(std::string_view key, bool otherwise) const {
    const Json& value = json_[key];
    if (value.is_null()) return otherwise;
    if (!value.is_bool()) refuse_value(key);
    return value.boolean();
}

std::string Component::text(std::string_view key) const {
    if (!json_[key].is_string()) refuse_value(key);
    return json_[key].string();
}

std::string Component::text(std::string_view key, std::string_view otherwise) const {
    return json_[key].is_null() ? std::string(otherwise) : text(key);
}

Component Component::member(std::string_view key) const {
    return {json_[key], fmt::format("{}.{}", where_, key)};
}

std::vector<Component> Component::list(std::string_view key) const {
    if (!json_[key].is_array()) refuse_value(key);
    std::vector<Component> all;
    for (const Json& one : json_[key].array())
        all.emplace_back(one, fmt::format("{}.{}[{}]", where_, key, all.size()));
    return all;
}

void Component::refuse() const {
    throw FormatError(
        fmt::format("{}: '{}' is not supported; {}.", where_, visible(type()), instead));
}

void Component::refuse_value(std::string_view key) const {
    const std::string found = json_.is_object() && json_.contains(key)
                                  ? visible(shortened(json_[key].dump(), 60))
                                  : "absent";
    throw FormatError(
        fmt::format("{}: '{}' is {}, which is not supported; {}.", where_, key, found, instead));
}

Json json_beside(const std::filesystem::path& folder, const char* name) {
    const std::filesystem::path file = folder / name;
    std::error_code failed;
    if (!std::filesystem::exists(file, failed)) return {};
    return file_json(file, "a configuration");
}

}  // namespace tsdiag::tokenizer
