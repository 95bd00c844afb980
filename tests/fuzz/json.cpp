#include "tsdiag/json.hpp"

#include "fuzz.hpp"

/// A JSON text: its serialisation must parse to the same value.

using namespace tsdiag;

void examine(std::string_view input) {
    Json value;
    std::string text;
    const bool written = fuzz::accepts([&] {
        value = Json::parse(input, "text");
        text = value.dump(2);
    });
    if (!written) return;
    fuzz::accepts([&] {
        if (Json::parse(text, "its copy").dump() != value.dump()) std::abort();
    });
    if (!value.is_object()) return;
    Json copy{Json::Object{}};
    for (const auto& [key, member] : value.object()) copy.set(key, member);
    if (copy.dump() != value.dump()) std::abort();
}
