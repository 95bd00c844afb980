#pragma once
#include <string>
#include <string_view>

#include "rows.hpp"

namespace tsdiag::reports {

/// Layers downwards, heads to the right.
Grid head_grid(const Heads& heads, std::string_view metric);
/// "METRIC: least 0.1 in layer 0 head 3, greatest 0.9 in layer 5 head 1."; empty without a number.
std::string grid_in_words(std::string_view metric, const Grid& grid);

}  // namespace tsdiag::reports
