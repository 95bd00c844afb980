#include "skeleton.hpp"

#include <algorithm>

#include "assets.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::reports {
namespace {

/// The text from the line after its name to the next block.
std::string_view text_of(std::string_view block) {
    const std::string_view all = skeleton_html();
    const std::string head = "@@ " + std::string(block) + "\n";
    std::size_t at = all.starts_with(head) ? 0 : all.find("\n" + head);
    check(at != std::string_view::npos, "a block of skeleton.html");
    at += head.size() + (at > 0 ? 1 : 0);
    const std::size_t end = all.find("\n@@ ", at);
    return all.substr(at, end == std::string_view::npos ? end : end + 1 - at);
}

}  // namespace

std::string filled(std::string_view block,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
    std::string_view rest = text_of(block);
    std::string out;
    for (std::size_t open = rest.find("{{"); open != std::string_view::npos;
         open = rest.find("{{")) {
        const std::size_t close = rest.find("}}", open);
        const std::string_view name = rest.substr(open + 2, close - open - 2);
        const auto value =
            std::ranges::find(values, name, &std::pair<std::string_view, std::string_view>::first);
        check(value != values.end(), "a value for each name in a block of skeleton.html");
        out += rest.substr(0, open);
        out += value->second;
        rest.remove_prefix(close + 2);
    }
    return out += rest;
}

}  // namespace tsdiag::reports
