#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

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
constexpr double right_margin = 16, top_margin = 26, bottom_margin = 50, colour_bar = 64,
                 legend_line = 18;
constexpr Index most_cells = 4096;       ///< beyond, gnuplot's `image` draws one bitmap
constexpr Index most_numbers = 1 << 16;  ///< of a panel drawn as an image, written as text

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

/// The values of the images, as comments for readers; for large ones, where to find them.
std::string images_of(const Figure& figure) {
    std::string out;
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
        const Plot& plot = figure.panels[i];
        if (!plot.grid || !plot.grid->image) continue;
        const Index cells = plot.grid->rows * plot.grid->cols;
        out +=
            fmt::format("# {}: drawn from {}\n", gnuplot_string(plot.title), image_of(figure, i));
        out += cells <= most_numbers ? cells_of(*plot.grid)
                                     : fmt::format("# {} x {} numbers, which ../maps.npz has\n\n\n",
                                                   plot.grid->rows, plot.grid->cols);
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

/// Ticks at integer positions with `labels`, or their numbers.
std::string cell_tick_list(const std::vector<Index>& cells,
                           const std::vector<std::string>& labels) {
    std::string out;
    for (const Index c : cells)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ",
                           gnuplot_string(cell_label(labels, c)), c);
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
            "set label {} at first {}, first {} center font ',9' front\n",
            shortest(b.x), shortest(b.y), b.width / 2 / page_width,
            styles[style_of(styles, b.name) - 1].colour, gnuplot_string(b.name),
            shortest(b.label_x), shortest(b.label_y));
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
                "set label {} at graph 0.01, first {} offset 0,{} font ',9' textcolor rgb "
                "'#555555'\n",
                gnuplot_string(name), shortest(y), height > 0.9 ? -0.6 : 0.5);
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

std::string cells_panel(const Grid& g, const std::string& data, std::size_t& block,
                        const Layout& size) {
    std::string out = palette_lines(g);
    out += fmt::format(
        "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset xtics {}\nset ytics {}\n",
        double(g.cols) - 0.5, double(g.rows) - 0.5,
        (g.turned ? "rotate by 90 right " : "norotate ") +
            cell_tick_list(cell_ticks(g.cols, size.width / (g.turned ? 11 : 20)), g.col_labels),
        cell_tick_list(cell_ticks(g.rows, size.height / 14), g.row_labels));
    out += fmt::format(
        "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '{}' "
        "fillstyle solid noborder\n",
        hex(no_value));
    for (Index i = 0; i < g.rows && g.decimals >= 0; ++i)
        for (Index j = 0; j < g.cols; ++j)
            if (const auto& v = g.values[std::size_t(i * g.cols + j)]; v && std::isfinite(*v))
                out += fmt::format(
                    "set label '{:.{}f}' at first {}, first {} center font ',9' textcolor rgb "
                    "'{}' front\n",
                    *v, g.decimals, j, i, ink_on(g, *v));
    // `image` draws no single row or column
    const char* style = g.rows == 1 || g.cols == 1
                            ? "using 1:2:(0.5):(0.5):3 with boxxyerror fillcolor palette "
                              "fillstyle solid noborder"
                        : g.rows * g.cols <= most_cells ? "using 1:2:3 with image pixels"
                                                        : "using 1:2:3 with image";
    out += fmt::format("plot {} index {} {}\nunset object 1\n", data, block++, style);
    return out;
}

std::string image_panel(const Grid& g, const std::string& image) {
    const Extent xs{0, double(g.cols * g.step)}, ys{0, double(g.rows * g.step)};
    std::string out = palette_lines(g);
    out += axis_lines('x', {}, xs, ticks(xs, Scale::linear, 4, true));
    out += axis_lines('y', {}, {ys.high, ys.low}, ticks(ys, Scale::linear, 4, true));
    const Index scale = (image_pixels + std::max(g.rows, g.cols) - 1) / std::max(g.rows, g.cols);
    const double pixel = double(g.step) / double(scale);
    // the invisible second plot makes gnuplot draw the colour bar
    out += fmt::format(
        "plot {} binary filetype=png origin=({},{}) dx={} dy={} flipy with rgbimage, \\\n"
        "  {} using (NaN):(NaN):(0) every ::0::0 with points palette\n",
        gnuplot_string(image), shortest(pixel / 2), shortest(pixel / 2), shortest(pixel),
        shortest(pixel), "'+'");
    return out;
}

struct Canvas {
    double width = 0, height = 0, legend = 0;
    double left = 0;    ///< of a panel: room for a title, and numbers or names
    double bottom = 0;  ///< the same below it
};

Canvas canvas_of(const Figure& figure, const Layout& size) {
    const bool bars = std::any_of(figure.panels.begin(), figure.panels.end(),
                                  [](const Plot& p) { return p.grid.has_value(); });
    const std::vector<LineStyle> styles = line_styles(figure);
    std::size_t longest = 9;  // numbers
    for (const Plot& plot : figure.panels)
        if (plot.grid)
            for (const std::string& label : plot.grid->row_labels)
                longest = std::max(longest, label.size());
    Canvas canvas{.left = 27 + 7 * double(longest), .bottom = bottom_margin};
    for (const Plot& plot : figure.panels)
        if (plot.grid && plot.grid->turned)
            for (const std::string& label : plot.grid->col_labels)
                canvas.bottom =
                    std::max(canvas.bottom, bottom_margin - 10 + 7 * double(label.size()));
    canvas.width =
        size.columns * (canvas.left + size.width + right_margin + (bars ? colour_bar : 0));
    if (needs_legend(figure)) {
        const int columns = legend_columns(figure, canvas.width);
        canvas.legend = legend_line * double((int(styles.size()) + columns - 1) / columns) + 12;
    }
    canvas.height = size.rows * (top_margin + size.height + canvas.bottom) + canvas.legend;
    return canvas;
}

/// The keys of all lines, in a strip below the panels.
std::string legend_panel(const Figure& figure, const std::vector<LineStyle>& styles,
                         const Canvas& canvas) {
    std::string keys;
    for (std::size_t i = 0; i < styles.size(); ++i)
        keys += fmt::format("{}  NaN with lines linestyle {} title {}", i ? ", \\\n" : "", i + 1,
                            gnuplot_string(styles[i].name));
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
        return text.empty() ? std::string()
                            : fmt::format("set label {} at screen {:.5f}, screen {:.5f} {}\n",
                                          gnuplot_string(text), at_x / canvas.width,
                                          at_y / canvas.height, how);
    };
    const std::string& across = plot.grid ? plot.grid->col_title : plot.x.title;
    const std::string& up = plot.grid ? plot.grid->row_title : plot.y.title;
    return label(plot.title, x, y + 13, "left font ',12'") +
           label(across, x + size.width / 2.0, y - size.height - canvas.bottom + 14, "center") +
           label(up, x - canvas.left + 14, y - size.height / 2.0, "center rotate by 90");
}

std::string script_of(const Figure& figure) {
    const Layout size = layout(figure);
    const Canvas canvas = canvas_of(figure, size);
    const std::vector<LineStyle> styles = line_styles(figure);
    const std::string data = gnuplot_string(figure.name + ".dat");
    std::string out = fmt::format(
        "# {}\n# Draw again with: gnuplot {}.gp\nreset\nset encoding utf8\n"
        "do for [format in \"svg pdf\"] {{\n"
        "if (format eq \"svg\") {{\n"
        "set terminal svg noenhanced size {:.0f},{:.0f} font 'sans-serif,11' "
        "background rgb 'white' dashlength 1 linewidth 1.2\n"
        "}} else {{\n"
        "set terminal pdfcairo noenhanced size {:.3f}in,{:.3f}in font 'sans-serif,11' "
        "dashlength 2 linewidth 1.6\n"
        "}}\nset output '{}.'.format\n",
        gnuplot_string(figure.title), figure.name, canvas.width, canvas.height, canvas.width / 72,
        canvas.height / 72, figure.name);
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
        const double y = canvas.height - double(int(i) / size.columns) * cell_height - top_margin;
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
            out += plot.grid->image ? image_panel(*plot.grid, image_of(figure, i))
                                    : cells_panel(*plot.grid, data, block, size);
        }
        out += "unset logscale\nunset label\nunset object\n";
    }
    if (needs_legend(figure)) out += legend_panel(figure, styles, canvas);
    return out + "unset multiplot\nreset\n}\nunset output\n";
}

/// Sets a fixed date, so that equal figures are equal files.
void forget_date(const fs::path& pdf) {
    constexpr std::string_view key = "/CreationDate (D:", epoch = "19700101000000";
    std::fstream file(pdf, std::ios::binary | std::ios::in | std::ios::out);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::size_t at = bytes.rfind(key);
    if (at == std::string::npos || bytes.size() - at < key.size() + epoch.size()) return;
    file.clear();
    file.seekp(std::streamoff(at + key.size()));
    file.write(epoch.data(), std::streamsize(epoch.size()));
}

/// Is the file complete?  gnuplot does not report a full disk.
bool is_whole(const fs::path& drawn) {
    std::ifstream file(drawn, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::string_view tail =
        std::string_view(bytes).substr(bytes.size() - std::min<std::size_t>(bytes.size(), 64));
    return tail.find(drawn.extension() == ".svg" ? "</svg>" : "%%EOF") != tail.npos;
}

}  // namespace

void draw(std::span<const Figure> figures, const fs::path& directory) {
    if (figures.empty()) return;
    std::error_code error;
    fs::create_directory(directory, error);  // not its parents: an interruption removes them
    if (error)
        throw Error(
            fmt::format("{}: the folder cannot be made: {}.", directory.string(), error.message()));
    std::vector<std::string> arguments = {"gnuplot", "-d"};  // no init file
    for (const Figure& figure : figures) {
        write_atomically(directory / (figure.name + ".dat"), data_of(figure));
        write_atomically(directory / (figure.name + ".gp"), script_of(figure));
        for (std::size_t i = 0; i < figure.panels.size(); ++i)
            if (const auto& grid = figure.panels[i].grid; grid && grid->image)
                write_atomically(directory / image_of(figure, i), grid_png(*grid));
        arguments.push_back(figure.name + ".gp");
    }
    constexpr std::chrono::seconds start{60}, a_figure{10};  // a hundred times the usual time
    const std::chrono::seconds limit = start + a_figure * std::ssize(figures);
    const Outcome outcome = run_program(arguments, directory, limit);
    if (!outcome.found)
        throw NotAvailable(
            "gnuplot was not found, so the figures are not drawn as SVG and PDF; install "
            "gnuplot-nox.");
    if (!outcome.in_time)
        throw Error(
            fmt::format("{}: gnuplot did not end within {} s and was stopped; is the gnuplot "
                        "on PATH the real one?",
                        directory.string(), limit.count()));
    if (outcome.status != 0)
        throw Error(fmt::format("{}: gnuplot failed with status {}: {}", directory.string(),
                                outcome.status, outcome.first_line));
    std::string lacking;
    for (const Figure& figure : figures)
        for (const char* ending : {".svg", ".pdf"})
            if (const fs::path drawn = directory / (figure.name + ending); !is_whole(drawn)) {
                fs::remove(drawn, error);
                if (lacking.empty()) lacking = drawn.filename().string();
            }
    if (!lacking.empty())
        throw Error(fmt::format("{}: gnuplot did not draw {} (is the disk full?).",
                                directory.string(), lacking));
    for (const Figure& figure : figures) forget_date(directory / (figure.name + ".pdf"));
}

}  // namespace tsdiag
