#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tsdiag/report.hpp"

/// Shared by both writers: colours, dashes, axis ranges, ticks, sizes.
namespace tsdiag::reports {

struct Rgb {
    std::uint8_t r = 0, g = 0, b = 0;
};
std::string hex(Rgb colour);

constexpr int anchors = 11;  ///< colours of a palette, with linear interpolation
std::array<Rgb, anchors> ramp(Palette palette);
Rgb colour_at(Palette palette, double t);         ///< t in [0, 1]
inline constexpr Rgb no_value{0xff, 0xff, 0xff};  ///< a cell without a number: blank on paper

/// Contrast of two colours by WCAG 2.1, from 1 (equal) to 21 (black and white).
double contrast(Rgb a, Rgb b);
inline constexpr Rgb paper{0xff, 0xff, 0xff}, night{0x15, 0x18, 0x1c};  ///< grounds of a page
constexpr double least_contrast = 3;                                    ///< of a line to its ground

struct LineStyle {
    std::string name, colour;
    std::vector<int> dash = {};     ///< lengths on, off in pixels; empty: solid
    std::string night_colour = {};  ///< on the dark ground
};
/// One style per name among the figure's series, in the order of their appearance: Okabe-Ito
/// with a dash pattern each; along viridis where a panel is ordered.  Each colour has at least
/// `least_contrast` to its ground.  `on_paper`: told apart in grey, too; the first is black, and
/// lines in an order have dashes.  Of an overlay in an order, those of one place have a colour,
/// those of one result the same dashes.
std::vector<LineStyle> line_styles(const Figure& figure, bool on_paper = false);
/// Bubbles carry their names themselves.
bool needs_legend(const Figure& figure);
/// Columns of the legend: as many as fit `width` pixels.
int legend_columns(const Figure& figure, double width);

struct Extent {
    double low = 0, high = 1;
};
/// (v - low) / (high - low), without overflow of the difference.
double share_of(Extent extent, double v);
Extent x_extent(const Plot& plot);
Extent y_extent(const Plot& plot);
Extent value_extent(const Grid& grid);  ///< symmetric about 0 for the diverging palette

/// Round positions inside the extent, `about` in number.
std::vector<double> ticks(Extent extent, Scale scale, int about, bool whole = false);
std::string tick_label(double value);

/// The position of a tick within its axis, from 0 to 1, and its label.
struct Tick {
    double share;
    std::string label;
};
/// Whether the labels of columns are written upwards: as asked, or because neighbours would touch.
bool turns_labels(const Grid& grid, int pixels);
/// Ticks of the columns, or of the rows from the top, of a grid that `pixels` are there for.
std::vector<Tick> column_ticks(const Grid& grid, int pixels);
std::vector<Tick> row_ticks(const Grid& grid, int pixels);

/// Panels a row, and the inner size of one panel in pixels.
struct Layout {
    int columns = 1, rows = 1, width = 600, height = 280;
};
Layout layout(const Figure& figure);

/// The characters of the longest label of the left axis.
std::size_t label_width(const Plot& plot, const Layout& size);

/// A point of a series with areas.
struct Bubble {
    std::string name;
    double x = 0, y = 0, area = 0;
    double width = 0;                 ///< pixels; the area relative to the largest of the panel
    double label_x = 0, label_y = 0;  ///< centre of the name, in units of the axes
};
/// Those with a number, with their names in or beside them, where no other is as far as that is
/// possible.
std::vector<Bubble> bubbles(const Plot& plot, const Layout& size);

/// Black or white, whichever is seen on the colour of the value.
std::string ink_on(const Grid& grid, double value);

}  // namespace tsdiag::reports
