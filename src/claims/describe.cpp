#include <fmt/format.h>

#include "tsdiag/claim.hpp"

namespace tsdiag {
namespace {

std::string section(const Claim& c) {
    std::string out = fmt::format("## {}\n\n{}\n\nSource: {}.\n", c.name, c.statement, c.source);
    const auto add = [&](std::string_view head, std::string_view text) {
        if (!text.empty()) out += fmt::format("{}: {}\n", head, text);
    };
    add("\nAssumes", c.assumes);
    add("\nSharp form", c.sharp);
    add("\nNot attained", c.loose);
    return out + "\n";
}

}  // namespace

std::string statements_markdown() {
    std::string out =
        "# Statements\n\n"
        "Written by `statements_markdown()` from the list in `src/claims/claims.cpp`; a test "
        "compares the two.\n"
        "`tsdiag check NAME` examines a statement by measurement and says what it finds; no "
        "verdict is written here.\n"
        "Sources are keys of [references.md](references.md).\n\n";
    for (const Claim* c : claims()) out += section(*c);
    out.pop_back();
    return out;
}

}  // namespace tsdiag
