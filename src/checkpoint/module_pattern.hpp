#pragma once
#include <optional>
#include <string_view>

namespace tsdiag::checkpoint {

/// Does a regular expression of Python match all of `text`?  Understood are characters, `.`, `\d`,
/// `\w`, `\s`, escaped signs, sets, groups, `|`, `^`, `$`, `?`, and `*` and `+` of what holds
/// neither.  nullopt: it has something else, or the text is longer than 1024.
/// Cost: O(expression text^2), whatever they are.
std::optional<bool> matches_whole(std::string_view expression, std::string_view text);

}  // namespace tsdiag::checkpoint
