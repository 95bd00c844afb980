#pragma once
#include <string>
#include <string_view>

#include "rows.hpp"

namespace tsdiag::reports {

/// Layers downwards, heads to the right.
Grid head_grid(const Heads& heads, std::string_view metric);
/// Means over blocks of k x k cells with a value; blocks without any have none.
Grid block_means(const Grid& grid, Index k);
/// Where colours begin for values that are not negative: at 0, or, where all lie far from it, with
/// the least.
double colours_begin(double least, double greatest);
/// "METRIC: least 0.1 in layer 0 head 3, greatest 0.9 in layer 5 head 1."; empty without a number.
std::string grid_in_words(std::string_view metric, const Grid& grid);

}  // namespace tsdiag::reports
