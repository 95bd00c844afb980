#pragma once
#include <string>
#include <string_view>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// Least number of pixels of an image along its longer side, so that viewers which smooth small
/// images do not blur it.
constexpr Index image_pixels = 768;

/// A PNG of the grid's values in its palette (255 colours, and one that is transparent for cells
/// without a number), a square of pixels a cell, of
/// side ceil(image_pixels / longer side).
std::string grid_png(const Grid& grid);

/// `png` with the size at which it is meant to be seen, which TeX reads: so many pixels an inch.
std::string with_resolution(std::string_view png, int pixels_an_inch);

}  // namespace tsdiag::reports
