#pragma once
#include <optional>
#include <span>
#include <string>

#include "tsdiag/report.hpp"

/// The page's writer: SVG, whole without scripts, and the numbers with which page.js adds hovering,
/// zoom and the look at single cells.
namespace tsdiag::reports {

/// The panels of a figure and its legend; HTML.  Lengths along x are shares of the width, which the
/// page decides; text keeps its size.
std::string drawing_html(const Figure& figure);

/// To six digits, as page.js shows it.  Null: missing, or not finite after rounding.
Json rounded(const std::optional<double>& v);

/// The numbers of a figure for page.js, to six digits.
Json figure_data(const Figure& figure);

/// Rules for the classes of `drawing_html`: the colours of lines on both grounds, and the room on
/// the left of panels.
std::string drawing_css(std::span<const Figure> figures);

/// Ramps and hatching that the drawings of a page refer to; hidden.
std::string shared_definitions();

}  // namespace tsdiag::reports
