#include <algorithm>
#include <cmath>

#include "engine/names.hpp"
#include "gguf_dialects.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {

const Json& GgufKeys::said(std::string_view key) {
    used_.push_back(full(key));
    const Json& value = file_.metadata()[used_.back()];
    if (!key.starts_with("attention.head_count") || !value.is_array()) return value;
    // A number for each layer, which is one where all are equal.
    const Json::Array& layers = value.array();
    for (const Json& own : layers)
        if (!equal(own, layers.front()))
            refuse(
                fmt::format("'{}' of its metadata is {}, other numbers of heads in other layers, "
                            "which is not supported",
                            full(key), value.dump()));
    return layers.empty() ? value : layers.front();
}
double GgufKeys::number(std::string_view key) {
    const Json& value = said(key);
    if (!value.is_number() || !(value.number() > 0) || !std::isfinite(value.number()))
        refuse(fmt::format("'{}' of its metadata is {}, expected a positive number", full(key),
                           value.dump()));
    return value.number();
}
void GgufKeys::only(std::string_view key, const Json& expected) {
    const Json& value = said(key);
    if (!value.is_null() && !equal(value, expected))
        refuse(fmt::format("its metadata say {} = {}, which is not supported ({} is)", full(key),
                           value.dump(), expected.dump()));
}
Index GgufKeys::head_columns() {
    const double columns = said("attention.key_length").is_null()
                               ? number("embedding_length") / number("attention.head_count")
                               : number("attention.key_length");
    constexpr double most = 1 << 20;
    if (columns != std::floor(columns) || columns > most)
        refuse(fmt::format("its heads have {} columns by its metadata", columns));
    return Index(columns);
}
bool GgufKeys::was_read(std::string_view full) const {
    return std::ranges::find(used_, full) != used_.end();
}
void GgufKeys::refuse(const std::string& what) const {
    throw FormatError(fmt::format("{}: {}", file_.source(), what));
}

}  // namespace tsdiag::families
