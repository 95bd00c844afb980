#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "cells.hpp"
#include "layout.hpp"
#include "png.hpp"
#include "process.hpp"
#include "text.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

/// The gnuplot writer: a script and its data for each figure, one process for all.
namespace tsdiag {
namespace {

using namespace reports;
namespace fs = std::filesystem;

// Margins around a panel and below all, in pixels.
constexpr double right_margin = 16, top_margin = 26, untitled_margin = 8, bottom_margin = 50,
                 colour_bar = 64, legend_line = 18;
constexpr int png_resolution = 300;      ///< pixels an inch
constexpr Index most_cells = 4096;       ///< beyond, gnuplot's `image` draws one bitmap
constexpr Index most_numbers = 1 << 16;  ///< of a panel drawn as an image, written as text

/// Endings of the files that gnuplot draws.
using Formats = std::vector<std::string_view>;

/// In points.
double text_size(const FigureStyle& look) {
    return look.font_size > 0 ? look.font_size : look.width > 0 ? 8 : 11;
}

std::string field(const std::optional<double>& v) {
    return v && std::isfinite(*v) ? shortest(*v) : "NaN";
}

std::string cells_of(const Grid& g) {
    std::string out = "# column row value\n";
    for (Index i = 0; i < g.rows; ++i)
        for (Index j = 0; j < g.cols; ++j)
            out += fmt::format("{} {} {}\n", j, i, field(g.values[std::size_t(i * g.cols + j)]));
    return out + "\n\n";
}

std::string image_of(const Figure& figure, std::size_t panel) {
    return fmt::format("{}_{}.png", figure.name, panel + 1);
}

/// Means over k x k cells, k the least that leaves `most_numbers`.
Grid thinned(const Grid& g) {
    Index k = 1;
    while (((g.rows + k - 1) / k) * ((g.cols + k - 1) / k) > most_numbers) ++k;
    return k == 1 ? g : block_means(g, k);
}

/// The values of the images, for readers: gnuplot draws the image.
std::string images_of(const Figure& figure) {
    std::string out;
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
        const Plot& plot = figure.panels[i];
        if (!plot.grid || !plot.grid->image) continue;
        const Grid g = thinned(*plot.grid);
        out += fmt::format("# {}: drawn from {}; a cell here is the mean of {} x {} entries\n{}",
                           gnuplot_string(plot.title), image_of(figure, i), g.step, g.step,
                           cells_of(g));
    }
    return out;
}

/// Blocks in the order of the panels and their series, separated by two empty lines for `index`;
/// then the values of the images.
std::string data_of(const Figure& figure) {
    std::string out;
    for (const Plot& plot : figure.panels) {
        for (const Series& s : plot.series) {
            out += fmt::format("# {}: {}\n# x y low high{}\n", gnuplot_string(plot.title),
                               gnuplot_string(s.name), s.areas.empty() ? "" : " area");
            for (std::size_t i = 0; i < s.x.size(); ++i)
                out += fmt::format("{} {} {} {}{}\n", shortest(s.x[i]), field(s.y[i]),
                                   s.low.empty() ? "NaN" : field(s.low[i]),
                                   s.high.empty() ? "NaN" : field(s.high[i]),
                                   s.areas.empty() ? "" : " " + shortest(s.areas[i]));
            out += "\n\n";
        }
        if (plot.grid && !plot.grid->image)
            out += fmt::format("# {}\n{}", gnuplot_string(plot.title), cells_of(*plot.grid));
    }
    return out + images_of(figure);
}

/// A label as an expression of the script: as it is and, where TeX reads it otherwise, for TeX.
std::string label_of(std::string_view text) {
    const std::string plain = gnuplot_string(text), tex = gnuplot_string(tex_words(text));
    return plain == tex ? plain : fmt::format("(tex ? {} : {})", tex, plain);
}

std::string dash_of(const LineStyle& style) {
    if (style.dash.empty()) return "solid";

    std::string parts;
    for (int length : style.dash) parts += fmt::format("{}{}", parts.empty() ? "" : ",", length);
    return "(" + parts + ")";
}

std::string tick_list(const std::vector<double>& positions) {
    std::string out;
    for (double v : positions)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", gnuplot_string(tick_label(v)),
                           shortest(v));
    return "(" + out + ")";
}

/// Ticks at shares of an axis from `low` to `high`.
std::string cell_tick_list(const std::vector<Tick>& all, double low, double high) {
    std::string out;
    for (const Tick& t : all)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", label_of(t.label),
                           shortest(std::lerp(low, high, t.share)));
    return "(" + out + ")";
}

std::string axis_lines(char name, const Axis& axis, Extent e, const std::vector<double>& marks) {
    std::string out;
    if (axis.scale == Scale::log) out += fmt::format("set logscale {}\n", name);
    out += fmt::format("set {}range [{}:{}]\n", name, shortest(e.low), shortest(e.high));
    out += fmt::format("set {}tics {}\n", name, tick_list(marks));
    return out;
}

std::size_t style_of(const std::vector<LineStyle>& styles, const std::string& name) {
    const auto same = [&](const LineStyle& s) { return s.name == name; };
    return std::size_t(std::find_if(styles.begin(), styles.end(), same) - styles.begin()) + 1;
}

/// Circles with their names.
std::string bubble_lines(const Plot& plot, const std::vector<LineStyle>& styles, const Layout& size,
                         double page_width) {
    std::string out;
    for (const Bubble& b : bubbles(plot, size))
        out += fmt::format(
            "set object circle at first {}, first {} size screen {:.5f} fillcolor rgb '{}' "
            "fillstyle transparent solid 0.5 noborder\n"
            "set label {} at first {}, first {} center font small front\n",
            shortest(b.x), shortest(b.y), b.width / 2 / page_width,
            styles[style_of(styles, b.name) - 1].colour, label_of(b.name), shortest(b.label_x),
            shortest(b.label_y));
    return out;
}

std::string lines_panel(const Plot& plot, const std::string& data, std::size_t& block,
                        const std::vector<LineStyle>& styles, const Layout& size,
                        double page_width) {
    const Extent xs = x_extent(plot), ys = y_extent(plot);
    std::string out =
        axis_lines('x', plot.x, xs, ticks(xs, plot.x.scale, size.width / 55, plot.x.whole)) +
        axis_lines('y', plot.y, ys, ticks(ys, plot.y.scale, 5, plot.y.whole)) +
        bubble_lines(plot, styles, size, page_width);
    std::string bands, lines;
    std::size_t points = 0;
    for (const Series& s : plot.series) points += s.x.size();
    for (const Series& s : plot.series) {
        const std::size_t style = style_of(styles, s.name);
        if (!s.areas.empty()) {
            lines += fmt::format("  {} index {} using 1:2 with dots linecolor rgb '{}', \\\n", data,
                                 block++, styles[style - 1].colour);
            continue;
        }
        if (!s.low.empty())
            bands += fmt::format(
                "  {} index {} using 1:3:4 with filledcurves fillcolor rgb '{}' fillstyle "
                "transparent solid 0.16 noborder, \\\n",
                data, block, styles[style - 1].colour);
        lines += fmt::format("  {} index {} using 1:2 with lines linestyle {}, \\\n", data, block,
                             style);
        if (points <= 400)
            lines += fmt::format(
                "  {} index {} using 1:2 with points pointtype 7 pointsize 0.3 linecolor rgb '{}', "
                "\\\n",
                data, block, styles[style - 1].colour);
        ++block;
    }
    std::string marks;
    for (const auto& [y, name] : plot.marks) {
        marks +=
            fmt::format("  {} with lines linecolor rgb '#666666' linewidth 1 dashtype (2,4), \\\n",
                        shortest(y));
        const double height = share_of(ys, y);
        if (!name.empty())
            out += fmt::format(
                "set label {} at graph 0.01, first {} offset 0,{} font small textcolor rgb "
                "'#555555'\n",
                label_of(name), shortest(y), height > 0.9 ? -0.6 : 0.5);
    }
    std::string plots = bands + marks + lines;
    plots.resize(plots.size() - 4);  // the last ", \"
    return out + "plot \\\n" + plots + "\n";
}

std::string palette_lines(const Grid& grid) {
    std::string colours;
    const auto anchor = ramp(grid.palette);
    for (int i = 0; i < anchors; ++i)
        colours += fmt::format("{}{} '{}'", i ? ", " : "", i, hex(anchor[std::size_t(i)]));
    const Extent e = value_extent(grid);
    return fmt::format("set palette defined ({})\nset cbrange [{}:{}]\nset cbtics {} scale 0.5\n",
                       colours, shortest(e.low), shortest(e.high),
                       tick_list(ticks(e, Scale::linear, 5)));
}

/// None where one is wider than its cell: colours are read more surely than numbers on each other.
std::string numbers_in_cells(const Grid& g, const Layout& size) {
    constexpr double character = 6;
    std::string out;
    std::size_t longest = 0;
    for (Index i = 0; i < g.rows && g.decimals >= 0; ++i)
        for (Index j = 0; j < g.cols; ++j) {
            const auto& v = g.values[std::size_t(i * g.cols + j)];
            if (!v || !std::isfinite(*v)) continue;
            const std::string number = fmt::format("{:.{}f}", *v, g.decimals);
            longest = std::max(longest, number.size());
            out += fmt::format(
                "set label '{}' at first {}, first {} center font small textcolor rgb '{}' front\n",
                number, j, i, ink_on(g, *v));
        }
    return character * double(longest) * double(g.cols) <= size.width ? out : "";
}

std::string cells_panel(const Grid& g, const std::string& data, std::size_t& block,
                        const Layout& size) {
    std::string out = palette_lines(g);
    out += fmt::format("set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset xtics {}\nset ytics {}\n",
                       double(g.cols) - 0.5, double(g.rows) - 0.5,
                       (turns_labels(g, size.width) ? "rotate by 90 right " : "norotate ") +
                           cell_tick_list(column_ticks(g, size.width), -0.5, double(g.cols) - 0.5),
                       cell_tick_list(row_ticks(g, size.height), -0.5, double(g.rows) - 0.5));
    out += fmt::format(
        "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '{}' "
        "fillstyle solid noborder\n",
        hex(no_value));
    out += numbers_in_cells(g, size);
    // `image` draws no single row or column
    const char* style = g.rows == 1 || g.cols == 1
                            ? "using 1:2:(0.5):(0.5):3 with boxxyerror fillcolor palette "
                              "fillstyle solid noborder"
                        : g.rows * g.cols <= most_cells ? "using 1:2:3 with image pixels"
                                                        : "using 1:2:3 with image";
    out += fmt::format("plot {} index {} {}\nunset object 1\n", data, block++, style);
    return out;
}

std::string image_panel(const Grid& g, const std::string& image, const Layout& size) {
    const Extent xs{0, double(g.cols * g.step)}, ys{0, double(g.rows * g.step)};
    std::string out = palette_lines(g);
    out += fmt::format("set xrange [0:{}]\nset yrange [{}:0]\nset xtics {}\nset ytics {}\n",
                       shortest(xs.high), shortest(ys.high),
                       cell_tick_list(column_ticks(g, size.width), xs.low, xs.high),
                       cell_tick_list(row_ticks(g, size.height), ys.low, ys.high));
    const Index scale = (image_pixels + std::max(g.rows, g.cols) - 1) / std::max(g.rows, g.cols);
    const double pixel = double(g.step) / double(scale);
    // TeX holds every pixel in memory: there a cell is one, unless there is a single row or column,
    // which gnuplot does not draw.
    const Index in_tex = std::min(g.rows, g.cols) > 1 ? scale : 1;
    // the invisible second plot makes gnuplot draw the colour bar
    out += fmt::format(
        "pixels = tex ? {} : 1\nmiddle = {} * pixels\n"
        "plot {} binary filetype=png origin=(middle,middle) dx={} dy={} flipy "
        "every pixels:pixels with rgbimage, \\\n"
        "  {} using (NaN):(NaN):(0) every ::0::0 with points palette\n",
        in_tex, shortest(pixel / 2), gnuplot_string(image), shortest(pixel), shortest(pixel),
        "'+'");
    return out;
}

struct Canvas {
    double width = 0, height = 0, legend = 0;
    double left = 0;    ///< of a panel: room for a title, and numbers or names
    double bottom = 0;  ///< the same below it
    double right = 0;   ///< the same on the right
    double top = 0;     ///< of a title above it
};

/// Room around the panels, whose labels have a height of 11.
Canvas margins_of(const Figure& figure, const Layout& size) {
    const bool bars =
        std::ranges::any_of(figure.panels, [](const Plot& p) { return p.grid.has_value(); });
    std::size_t longest = 1;
    Canvas canvas{.bottom = bottom_margin, .right = right_margin + (bars ? colour_bar : 0)};
    for (const Plot& plot : figure.panels) {
        longest = std::max(longest, label_width(plot, size));
        if (!plot.grid || !turns_labels(*plot.grid, size.width)) continue;
        for (const std::string& label : plot.grid->col_labels)
            canvas.bottom = std::max(canvas.bottom, bottom_margin - 10 + 7 * double(label.size()));
    }
    canvas.left = 34 + 7 * double(longest);
    const bool titled = std::ranges::any_of(figure.panels, [](const Plot& p) {
        return !p.title.empty() || (p.grid && p.grid->bar_named);
    });
    canvas.top = titled ? top_margin : untitled_margin;
    return canvas;
}

Canvas canvas_of(const Figure& figure, const Layout& size) {
    Canvas canvas = margins_of(figure, size);
    const std::vector<LineStyle> styles = line_styles(figure);
    canvas.width = size.columns * (canvas.left + size.width + canvas.right);
    if (needs_legend(figure)) {
        const int columns = legend_columns(figure, canvas.width);
        canvas.legend = legend_line * double((int(styles.size()) + columns - 1) / columns) + 12;
    }
    canvas.height = size.rows * (canvas.top + size.height + canvas.bottom) + canvas.legend;
    return canvas;
}

/// As many panels beside each other as `width` has room for, which they fill.
Layout filling(const Figure& figure, double width) {
    constexpr double narrowest = 130, flattest = 90;
    const Layout usual = layout(figure);
    const Canvas margins = margins_of(figure, usual);
    const double around = margins.left + margins.right;
    Layout size = usual;
    size.columns = std::clamp(int(width / (around + narrowest)), 1, usual.columns);
    size.rows = (int(figure.panels.size()) + size.columns - 1) / size.columns;
    size.width = std::max(int(std::lround(width / size.columns - around)), 40);
    // Each row of a table keeps the height of its name.
    const bool is_table = std::ranges::any_of(figure.panels, [](const Plot& p) {
        return p.grid && p.grid->decimals >= 0 && !p.grid->row_labels.empty();
    });
    const double shape = double(usual.height) / usual.width, flat = shape < 1 ? flattest : 0;
    const double least = is_table ? usual.height : flat;
    size.height = int(std::lround(std::max(shape * size.width, least)));
    return size;
}

/// The keys of all lines, in a strip below the panels.
std::string legend_panel(const Figure& figure, const std::vector<LineStyle>& styles,
                         const Canvas& canvas) {
    std::string keys;
    for (std::size_t i = 0; i < styles.size(); ++i)
        keys += fmt::format("{}  NaN with lines linestyle {} title {}", i ? ", \\\n" : "", i + 1,
                            label_of(styles[i].name));
    return fmt::format(
        "set lmargin at screen 0.01\nset rmargin at screen 0.99\nset bmargin at screen {:.5f}\n"
        "set tmargin at screen {:.5f}\nunset border\nunset tics\nunset grid\nunset title\n"
        "unset xlabel\nunset ylabel\nset xrange [0:1]\nset yrange [0:1]\n"
        "set key center center horizontal samplen 4 width 1 maxcols {}\nplot \\\n{}\n",
        8 / canvas.height, canvas.legend / canvas.height, legend_columns(figure, canvas.width),
        keys);
}

/// Titles of the panel and of its axes, as labels at fixed positions: terminals differ in line
/// height.
std::string titles_of(const Plot& plot, const Canvas& canvas, double x, double y,
                      const Layout& size) {
    const auto label = [&](const std::string& text, double at_x, double at_y, const char* how) {
        return text.empty()
                   ? std::string()
                   : fmt::format("set label {} at screen {:.5f}, screen {:.5f} {}\n",
                                 label_of(text), at_x / canvas.width, at_y / canvas.height, how);
    };
    const std::string& across = plot.grid ? plot.grid->col_title : plot.x.title;
    const std::string& up = plot.grid ? plot.grid->row_title : plot.y.title;
    // a title wider than the panel begins further left, as far as its place on the sheet reaches
    constexpr double title_character = 6.6;
    const auto characters = std::ranges::count_if(
        plot.title, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    const double too_wide = title_character * double(characters) - size.width - canvas.right;
    const double shift = std::clamp(too_wide, 0.0, canvas.left - 4);
    const std::string bar = plot.grid && plot.grid->bar_named ? plot.grid->value_title : "";
    return label(plot.title, x - shift, y + 13, "left font large") +
           label(bar, x + size.width + canvas.right - 8, y + 13, "right") +
           label(across, x + size.width / 2.0, y - size.height - canvas.bottom + 14, "center") +
           label(up, x - canvas.left + 14, y - size.height / 2.0, "center rotate by 90");
}

/// "small" and "large" of a terminal whose unit of text is so many points, and its font.
struct Fonts {
    std::string sizes, font;
    Fonts(const FigureStyle& look, double text, double unit) {
        const double large = text + 1, small = look.width > 0 ? text : text - 2;
        sizes = fmt::format("small = ',{:.4g}'\nlarge = ',{:.4g}'\n", small / unit, large / unit);
        font = gnuplot_string(fmt::format("{},{:.4g}", look.font, text / unit));
    }
};

/// The sheet that a script draws on: its terminals, each with the names of its fonts.
std::string terminals_of(const Canvas& canvas, const FigureStyle& look) {
    // lengths are laid out for text of size 11; `unit`: points a length
    const double text = text_size(look), unit = look.width > 0 ? text / 11 : 1;
    const double width = canvas.width * unit, height = canvas.height * unit;  // points
    const double pixels = look.width > 0 ? 96.0 / 72 : 1;                     // of SVG a point
    // Cairo's text has 96 units an inch, of which pdfcairo makes half points; its lines are half
    // points, too.
    const Fonts svg(look, text, 1 / pixels), pdf(look, text, 0.5 * 96 / 72),
        png(look, text, 96.0 / png_resolution), tex(look, text, 1);
    const double line = 1.6 * look.line_width * unit, png_point = png_resolution / 72.0;
    return fmt::format(
               "tex = format eq \"tex\"\n"
               "if (format eq \"svg\") {{\n{}"
               "set terminal svg noenhanced size {:.0f},{:.0f} font {} background rgb 'white' "
               "dashlength 1 linewidth {:.4g}\n}}\n",
               svg.sizes, width * pixels, height * pixels, svg.font, 0.75 * line) +
           fmt::format(
               "if (format eq \"pdf\") {{\n{}"
               "set terminal pdfcairo noenhanced size {:.3f}in,{:.3f}in font {} dashlength 2 "
               "linewidth {:.4g}\n}}\n",
               pdf.sizes, width / 72, height / 72, pdf.font, line) +
           fmt::format(
               "if (format eq \"png\") {{\n{}"
               "set terminal pngcairo noenhanced size {:.0f},{:.0f} font {} dashlength 2 "
               "linewidth {:.4g}\n}}\n",
               png.sizes, width * png_point, height * png_point, png.font, line * png_point / 2) +
           fmt::format(
               "if (tex) {{\n{}"
               "set terminal tikz size {:.3f}in,{:.3f}in font '\\fontsize{{{:.4g}}}{{{:.4g}}}"
               "\\selectfont' linewidth {:.4g}\n}}\n",
               tex.sizes, width / 72, height / 72, text, 1.2 * text, line);
}

std::vector<LineStyle> styles_of(const Figure& figure, const FigureStyle& look) {
    std::vector<LineStyle> styles = line_styles(figure, look.width > 0);
    const bool ordered = std::ranges::any_of(figure.panels, &Plot::ordered);
    for (std::size_t i = 0; i < styles.size() && !ordered && !look.colours.empty(); ++i)
        styles[i].colour = look.colours[i % look.colours.size()];
    return styles;
}

std::string script_of(const Figure& figure, const FigureStyle& look, const Formats& formats) {
    const double exact = look.width * 72 * 11 / text_size(look);
    const Layout size = look.width > 0 ? filling(figure, exact) : layout(figure);
    Canvas canvas = canvas_of(figure, size);
    if (look.width > 0) canvas.width = exact;
    const std::vector<LineStyle> styles = styles_of(figure, look);
    const std::string data = gnuplot_string(figure.name + ".dat");
    std::string out = fmt::format(
        "# {}\n# Draw again with: gnuplot {}.gp\nreset\nset encoding utf8\n"
        "do for [format in \"{}\"] {{\n{}set output '{}.'.format\n",
        gnuplot_string(figure.title), figure.name, fmt::join(formats, " "),
        terminals_of(canvas, look), figure.name);
    for (std::size_t i = 0; i < styles.size(); ++i)
        out += fmt::format("set style line {} linecolor rgb '{}' linewidth 1.6 dashtype {}\n",
                           i + 1, styles[i].colour, dash_of(styles[i]));
    out +=
        "set multiplot\nunset key\nset border 3 linecolor rgb '#888888'\n"
        "set tics nomirror out scale 0.6 textcolor rgb '#333333'\n";
    const double cell_width = canvas.width / size.columns;
    const double cell_height = (canvas.height - canvas.legend) / size.rows;
    std::size_t block = 0;
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
        const Plot& plot = figure.panels[i];
        const double x = double(int(i) % size.columns) * cell_width + canvas.left;
        const double y = canvas.height - double(int(i) / size.columns) * cell_height - canvas.top;
        out += fmt::format(
            "set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\n"
            "set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n",
            x / canvas.width, (x + size.width) / canvas.width, y / canvas.height,
            (y - size.height) / canvas.height);
        out += titles_of(plot, canvas, x, y, size);
        if (!plot.grid) {
            out += "set grid back linecolor rgb '#e4e4e4' linetype 1 linewidth 0.6\n";
            out += lines_panel(plot, data, block, styles, size, canvas.width);
        } else {
            out += "unset grid\n";
            out += plot.grid->image ? image_panel(*plot.grid, image_of(figure, i), size)
                                    : cells_panel(*plot.grid, data, block, size);
        }
        out += "unset logscale\nunset label\nunset object\n";
    }
    if (needs_legend(figure)) out += legend_panel(figure, styles, canvas);
    return out + "unset multiplot\nreset\n}\nunset output\n";
}

std::string content_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Sets a fixed date, so that equal figures are equal files.
void forget_date(const fs::path& drawn) {
    const std::string bytes = content_of(drawn);
    const bool tex = drawn.extension() == ".tex";
    const std::string_view epoch = tex ? "Thu Jan  1 00:00:00 1970" : "19700101000000",
                           key = tex ? "\n%% " : "/CreationDate (D:";
    const std::size_t at =
        tex ? bytes.find(key, bytes.find("generated with GNUPLOT")) : bytes.rfind(key);
    if (at == std::string::npos || bytes.size() - at < key.size() + epoch.size()) return;
    std::fstream file(drawn, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(std::streamoff(at + key.size()));
    file.write(epoch.data(), std::streamsize(epoch.size()));
}

/// Is the file complete?  gnuplot does not report a full disk.
bool is_whole(const fs::path& drawn) {
    const std::string bytes = content_of(drawn);
    const std::string_view tail =
        std::string_view(bytes).substr(bytes.size() - std::min<std::size_t>(bytes.size(), 64));
    const fs::path kind = drawn.extension();
    return tail.find(kind == ".svg"   ? "</svg>"
                     : kind == ".png" ? "IEND"
                     : kind == ".tex" ? "\\end{tikzpicture}"
                                      : "%%EOF") != tail.npos;
}

/// What a run of gnuplot has to end with.
void require_success(const Outcome& outcome, const fs::path& directory,
                     std::chrono::seconds limit) {
    if (!outcome.found)
        throw NotAvailable(
            "gnuplot was not found, so no figure is drawn as a file; install gnuplot-nox.");
    if (!outcome.in_time)
        throw Error(
            fmt::format("{}: gnuplot did not end within {} s and was stopped; is the gnuplot "
                        "on PATH the real one?",
                        directory.string(), limit.count()));
    if (outcome.status != 0)
        throw Error(fmt::format("{}: gnuplot failed with status {}: {}", directory.string(),
                                outcome.status, outcome.first_line));
}

/// Removes what gnuplot did not finish; throws where there is such a file.
void require_whole(const std::vector<fs::path>& drawn) {
    std::string lacking;
    std::error_code ignored;
    for (const fs::path& file : drawn) {
        if (is_whole(file)) continue;
        fs::remove(file, ignored);
        if (lacking.empty()) lacking = file.filename().string();
    }
    if (!lacking.empty())
        throw Error(fmt::format("{}: gnuplot did not draw {} (is the disk full?).",
                                drawn.front().parent_path().string(), lacking));
}

/// One process for all figures, each in all formats.
void draw_formats(std::span<const Figure> figures, const fs::path& directory,
                  const FigureStyle& look, const Formats& formats) {
    std::vector<std::string> arguments = {"gnuplot", "-d"};  // no init file
    std::vector<fs::path> files;
    for (const Figure& figure : figures) {
        write_atomically(directory / (figure.name + ".dat"), data_of(figure));
        write_atomically(directory / (figure.name + ".gp"), script_of(figure, look, formats));
        for (std::size_t i = 0; i < figure.panels.size(); ++i)
            if (const auto& grid = figure.panels[i].grid; grid && grid->image)
                write_atomically(directory / image_of(figure, i), grid_png(*grid));
        arguments.push_back(figure.name + ".gp");
        for (const std::string_view ending : formats)
            files.push_back(directory / fmt::format("{}.{}", figure.name, ending));
    }
    constexpr std::chrono::seconds start{60}, a_figure{10};  // a hundred times the usual time
    const std::chrono::seconds limit = start + a_figure * std::ssize(figures);
    require_success(run_program(arguments, directory, limit), directory, limit);
    require_whole(files);
    for (const fs::path& file : files) forget_date(file);
}

std::string_view ending_of(FigureFormat format) {
    constexpr std::array<std::string_view, 4> names{"pdf", "svg", "png", "tex"};
    return names[std::size_t(format)];
}

}  // namespace

void draw(std::span<const Figure> figures, const fs::path& directory, const FigureStyle& look) {
    if (figures.empty()) return;
    std::error_code error;
    fs::create_directory(directory, error);  // not its parents: an interruption removes them
    if (error)
        throw Error(
            fmt::format("{}: the folder cannot be made: {}.", directory.string(), error.message()));
    Formats formats = {"svg", "pdf"};
    if (look.tikz) formats.emplace_back("tex");
    draw_formats(figures, directory, look, formats);
}

std::string drawn_as(const Figure& figure, FigureFormat format, const fs::path& directory,
                     const FigureStyle& look) {
    const std::string_view ending = ending_of(format);
    draw_formats({&figure, 1}, directory, look, {ending});
    std::string bytes = content_of(directory / fmt::format("{}.{}", figure.name, ending));
    return format == FigureFormat::png ? with_resolution(bytes, png_resolution) : bytes;
}

}  // namespace tsdiag
