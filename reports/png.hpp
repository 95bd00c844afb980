#pragma once
#include <string>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// An image has at least this many pixels along its longer side: viewers that smooth small images
/// then have nothing to smooth.
constexpr Index image_pixels = 768;

/// A PNG of the grid's values in its palette (256 colours), a square of pixels a cell, of
/// side ceil(image_pixels / longer side).
std::string grid_png(const Grid& grid);

}  // namespace tsdiag::reports
