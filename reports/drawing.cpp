#include "drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "layout.hpp"
#include "png.hpp"
#include "skeleton.hpp"
#include "text.hpp"

namespace tsdiag::reports {
namespace {

constexpr double units = 1000;  ///< width and height of the inside of a panel, in its own unit
constexpr std::size_t most_dots = 400;        ///< points of a panel that are marked
constexpr Index most_values = 1 << 14;        ///< cells of a panel whose numbers the page holds
constexpr Index most_image_values = 1 << 12;  ///< the same of an image
constexpr double tick_character = 6.6, title_margin = 29;  ///< pixels of a tick's label; of a title

/// 37.5 for 0.375: a share of the width or height.
std::string percent(double share) { return fmt::format("{:.6g}", 100 * share); }

double place(Extent e, Scale scale, double v) {
    if (scale == Scale::log) return std::log(v / e.low) / std::log(e.high / e.low);
    return share_of(e, v);
}

/// A line's class: its colour by day.
std::string class_of(const LineStyle& style) { return "c" + style.colour.substr(1); }

std::string dash_of(const std::vector<int>& dash) {
    return dash.empty() ? std::string()
                        : fmt::format(" stroke-dasharray=\"{}\"", fmt::join(dash, " "));
}

std::string room_class(std::size_t characters) { return fmt::format("room-{}", characters); }

std::vector<Tick> axis_ticks(Extent e, const Axis& axis, int about) {
    std::vector<Tick> found;
    for (const double v : ticks(e, axis.scale, about, axis.whole))
        found.push_back({place(e, axis.scale, v), tick_label(v)});
    return found;
}

/// Every second label gives way on narrow screens.
std::string x_ticks_svg(const std::vector<Tick>& all, bool lines, bool turned = false) {
    std::string out;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string x = percent(all[i].share);
        if (lines) out += fmt::format("<line x1=\"{0}%\" x2=\"{0}%\" y2=\"100%\"/>", x);
        const std::string_view spare = i % 2 == 1 ? " class=\"spare\"" : "";
        if (turned)
            out += fmt::format(
                "<svg x=\"{}%\" y=\"100%\"><text{} transform=\"rotate(-90)\" x=\"-5\" dy=\"4\" "
                "text-anchor=\"end\">{}</text></svg>",
                x, spare, html(all[i].label));
        else
            out += fmt::format(
                "<text{} x=\"{}%\" y=\"100%\" dy=\"16\" text-anchor=\"middle\">{}</text>", spare, x,
                html(all[i].label));
    }
    return filled("axis", {{"name", "x"}, {"ticks", out}});
}

/// From the bottom upwards, or (cells) from the top downwards.
std::string y_ticks_svg(const std::vector<Tick>& all, bool lines, bool down) {
    std::string out;
    for (const Tick& t : all) {
        const std::string y = percent(down ? t.share : 1 - t.share);
        if (lines) out += fmt::format("<line x2=\"100%\" y1=\"{0}%\" y2=\"{0}%\"/>", y);
        out += fmt::format("<text x=\"-6\" y=\"{}%\" dy=\"4\" text-anchor=\"end\">{}</text>", y,
                           html(t.label));
    }
    return filled("axis", {{"name", "y"}, {"ticks", out}});
}

/// The series of a plot as path data of SVG, in units of the inside: polylines, points, outlines of
/// bands.
class PlotPath {
  public:
    PlotPath(Extent xs, Extent ys, const Plot& plot) : xs_(xs), ys_(ys), plot_(&plot) {}
    std::string at(double x, double y) const {
        const auto near = [](double share) {
            return std::clamp(std::round(share * units * 10) / 10, -9 * units, 10 * units);
        };
        return fmt::format("{:g} {:g}", near(place(xs_, plot_->x.scale, x)),
                           near(1 - place(ys_, plot_->y.scale, y)));
    }
    bool has(double x, const std::optional<double>& y) const {
        const auto fits = [](double v, Scale scale) {
            return std::isfinite(v) && (scale == Scale::linear || v > 0);
        };
        return y && fits(*y, plot_->y.scale) && fits(x, plot_->x.scale);
    }
    std::string line(const Series& s) const {
        std::string out;
        bool pen = false;
        for (std::size_t i = 0; i < s.x.size(); ++i) {
            const bool drawn = has(s.x[i], s.y[i]);
            if (drawn) out += (pen ? "L" : "M") + at(s.x[i], *s.y[i]);
            pen = drawn;
        }
        return out;
    }
    std::string dots(const Series& s) const {
        std::string out;
        for (std::size_t i = 0; i < s.x.size(); ++i)
            if (has(s.x[i], s.y[i])) out += "M" + at(s.x[i], *s.y[i]) + "h0";
        return out;
    }
    std::string band(const Series& s) const {
        std::string out, back;
        const auto close = [&] {
            if (!back.empty()) out += back + "Z";
            back.clear();
        };
        for (std::size_t i = 0; i < s.low.size(); ++i) {
            if (!has(s.x[i], s.low[i]) || !has(s.x[i], s.high[i])) {
                close();
                continue;
            }
            out += (back.empty() ? "M" : "L") + at(s.x[i], *s.high[i]);
            back = "L" + at(s.x[i], *s.low[i]) + back;
        }
        close();
        return out;
    }

  private:
    Extent xs_, ys_;
    const Plot* plot_;
};

const LineStyle& style_of(const std::vector<LineStyle>& styles, const std::string& name) {
    return *std::ranges::find(styles, name, &LineStyle::name);
}

std::string path(std::string_view kind, const std::string& d, const std::string& more = {}) {
    return d.empty() ? d : fmt::format("<path class=\"{}\"{} d=\"{}\"/>", kind, more, d);
}

std::string series_svg(const Plot& plot, const std::vector<LineStyle>& styles,
                       const PlotPath& paths) {
    std::size_t points = 0;
    for (const Series& s : plot.series) points += s.x.size();
    std::string out;
    for (const Series& s : plot.series) {
        if (!s.areas.empty()) continue;
        const LineStyle& style = style_of(styles, s.name);
        out += fmt::format("<g class=\"{}\" data-s=\"{}\">{}{}{}</g>\n", class_of(style),
                           &style - styles.data(), path("band", paths.band(s)),
                           path("line", paths.line(s), dash_of(style.dash)),
                           points <= most_dots ? path("dots", paths.dots(s)) : "");
    }
    return out;
}

/// Circles with their names, over the panel: their sizes are pixels.
std::string bubbles_svg(const Plot& plot, const std::vector<LineStyle>& styles, const Layout& size,
                        Extent xs, Extent ys) {
    std::string out;
    for (const Bubble& b : bubbles(plot, size)) {
        const auto x = [&](double v) { return percent(place(xs, plot.x.scale, v)); };
        const auto y = [&](double v) { return percent(1 - place(ys, plot.y.scale, v)); };
        out += fmt::format(
            "<circle class=\"{} bubble\" data-s=\"{}\" cx=\"{}%\" cy=\"{}%\" r=\"{:.1f}\"/><text "
            "class=\"name\" "
            "x=\"{}%\" y=\"{}%\" dy=\"4\" text-anchor=\"middle\">{}</text>\n",
            class_of(style_of(styles, b.name)), &style_of(styles, b.name) - styles.data(), x(b.x),
            y(b.y), b.width / 2, x(b.label_x), y(b.label_y), html(b.name));
    }
    return out;
}

std::string marks_svg(const Plot& plot, Extent ys, const PlotPath& paths, Extent xs,
                      std::string& names) {
    std::string out;
    for (const auto& [y, name] : plot.marks) {
        out += path("mark", "M" + paths.at(xs.low, y) + "L" + paths.at(xs.high, y));
        const double share = place(ys, plot.y.scale, y);
        if (!name.empty())
            names += fmt::format("<text class=\"mark\" x=\"3\" y=\"{}%\" dy=\"{}\">{}</text>",
                                 percent(1 - share), share > 0.9 ? 13 : -4, html(name));
    }
    return out;
}

std::string lines_svg(const Plot& plot, const std::vector<LineStyle>& styles, const Layout& size) {
    const Extent xs = x_extent(plot), ys = y_extent(plot);
    const PlotPath paths(xs, ys, plot);
    std::string names;
    const std::string marks = marks_svg(plot, ys, paths, xs, names);
    return filled("lines", {{"grid", x_ticks_svg(axis_ticks(xs, plot.x, size.width / 64), true) +
                                         y_ticks_svg(axis_ticks(ys, plot.y, 5), true, false)},
                            {"series", marks + series_svg(plot, styles, paths)},
                            {"above", names + bubbles_svg(plot, styles, size, xs, ys)}});
}

std::string written_svg(const Grid& g) {
    std::string out;
    for (Index i = 0; i < g.rows && g.decimals >= 0; ++i)
        for (Index j = 0; j < g.cols; ++j)
            if (const auto& v = g.values[std::size_t(i * g.cols + j)]; v && std::isfinite(*v))
                out += fmt::format(
                    "<text class=\"cell\" fill=\"{}\" x=\"{}%\" y=\"{}%\" dy=\"4\" "
                    "text-anchor=\"middle\">{:.{}f}</text>",
                    ink_on(g, *v), percent((double(j) + 0.5) / double(g.cols)),
                    percent((double(i) + 0.5) / double(g.rows)), *v, g.decimals);
    return out;
}

std::string colour_bar(const Grid& g) {
    const Extent e = value_extent(g);
    std::string labels;
    for (const double v : ticks(e, Scale::linear, 5))
        labels += fmt::format("<text x=\"15\" y=\"{}%\" dy=\"4\">{}</text>",
                              percent(1 - share_of(e, v)), tick_label(v));
    return filled("colour-bar",
                  {{"ramp", g.palette == Palette::sequential ? "sequential" : "diverging"},
                   {"labels", labels}});
}

std::string cells_svg(const Grid& g, const Layout& size) {
    const std::string axes =
        x_ticks_svg(column_ticks(g, size.width), false, turns_labels(g, size.width)) +
        y_ticks_svg(row_ticks(g, size.height), false, true);
    return filled("cells", {{"png", base64(grid_png(g))},
                            {"axes", axes},
                            {"written", written_svg(g)},
                            {"bar", colour_bar(g)}});
}

std::string panel_html(const Plot& plot, const std::vector<LineStyle>& styles, const Layout& size) {
    const std::string& across = plot.grid ? plot.grid->col_title : plot.x.title;
    const std::string& up = plot.grid ? plot.grid->row_title : plot.y.title;
    const std::size_t characters = label_width(plot, size);
    std::size_t below = 0;
    if (plot.grid && turns_labels(*plot.grid, size.width))
        for (const std::string& s : plot.grid->col_labels) below = std::max(below, s.size());
    const int under = below > 0 ? int(tick_character * double(below)) + 6 : 20;
    std::string titles;
    if (!across.empty())
        titles += fmt::format(
            "<text class=\"title\" x=\"50%\" y=\"100%\" dy=\"{}\" text-anchor=\"middle\">{}</text>",
            under + 15, html(across));
    if (!up.empty())
        titles += fmt::format(
            "<text class=\"title\" transform=\"rotate(-90)\" x=\"{}\" y=\"{:.0f}\" "
            "text-anchor=\"middle\">{}</text>",
            -size.height / 2, -13 - tick_character * double(characters), html(up));
    return filled("panel", {{"kind", plot.grid ? "cells" : "lines"},
                            {"title", html(plot.title)},
                            {"room", room_class(characters) + (plot.grid ? " barred" : "")},
                            {"height", fmt::format("{}", size.height)},
                            {"under", fmt::format("{}", under + 24)},
                            {"inside", plot.grid ? cells_svg(*plot.grid, size)
                                                 : lines_svg(plot, styles, size)},
                            {"titles", titles}});
}

std::string legend_html(const Figure& figure, const std::vector<LineStyle>& styles) {
    if (!needs_legend(figure)) return {};
    std::string items;
    for (std::size_t i = 0; i < styles.size(); ++i)
        items += filled("legend-item", {{"index", fmt::format("{}", i)},
                                        {"class", class_of(styles[i])},
                                        {"dash", dash_of(styles[i].dash)},
                                        {"name", html(styles[i].name)}});
    return filled("legend", {{"items", items}});
}

template <class Range, class Make>
Json list(const Range& values, const Make& make) {
    Json::Array out;
    for (const auto& v : values) out.push_back(make(v));
    return out;
}

Json text(const std::string& s) { return Json(visible(s, "\n")); }
Json number_json(double v) { return rounded(v); }

Json axis_data(const Axis& axis, Extent e) {
    return Json::Object{{"title", text(axis.title)},
                        {"log", axis.scale == Scale::log},
                        {"whole", axis.whole},
                        {"low", e.low},
                        {"high", e.high}};
}

Json grid_data(const Grid& g) {
    Json out = Json::Object{{"rows", g.rows}, {"cols", g.cols}, {"step", g.step}};
    out.set("row", text(g.row_title)).set("col", text(g.col_title));
    out.set("value", text(g.value_title));
    if (!g.model.empty()) out.set("model", text(g.model));
    if (g.head >= 0) out.set("layer", g.layer).set("head", g.head);
    if (!g.row_labels.empty()) out.set("rowLabels", list(g.row_labels, text));
    if (!g.col_labels.empty()) out.set("colLabels", list(g.col_labels, text));
    if (g.rows * g.cols <= (g.image ? most_image_values : most_values) && g.tile == 0)
        out.set("values", list(g.values, rounded));
    if (g.tile > 0)
        out.set("rows", std::ssize(g.row_labels))
            .set("cols", std::ssize(g.col_labels))
            .set("gallery", true);
    return out;
}

Json plot_data(const Plot& plot, const std::vector<LineStyle>& styles) {
    Json out = Json::Object{{"title", text(plot.title)}};
    if (plot.grid) return out.set("grid", grid_data(*plot.grid));
    out.set("x", axis_data(plot.x, x_extent(plot))).set("y", axis_data(plot.y, y_extent(plot)));
    Json::Array all;
    for (const Series& s : plot.series) {
        Json one = Json::Object{{"s", &style_of(styles, s.name) - styles.data()},
                                {"name", text(s.name)},
                                {"x", list(s.x, number_json)},
                                {"y", list(s.y, rounded)}};
        if (!s.low.empty()) one.set("low", list(s.low, rounded)).set("high", list(s.high, rounded));
        if (!s.areas.empty()) one.set("areas", list(s.areas, number_json));
        all.push_back(std::move(one));
    }
    return out.set("series", std::move(all)).set("area", text(plot.area_title));
}

}  // namespace

Json rounded(const std::optional<double>& v) {
    if (!v) return nullptr;
    const double near = std::strtod(fmt::format("{:.6g}", *v).c_str(), nullptr);
    return std::isfinite(near) ? Json(near) : Json(nullptr);
}

std::string drawing_html(const Figure& figure) {
    const std::vector<LineStyle> styles = line_styles(figure);
    const Layout size = layout(figure);
    std::string panels;
    for (const Plot& plot : figure.panels) panels += panel_html(plot, styles, size);
    const bool square = std::ranges::any_of(figure.panels, [](const Plot& p) {
        return p.grid && (p.grid->image || p.grid->turned) && p.grid->tile == 0;
    });
    return filled("drawing", {{"columns", fmt::format("{}", size.columns)},
                              {"shape", square ? " square" : ""},
                              {"panels", panels},
                              {"legend", legend_html(figure, styles)}});
}

Json figure_data(const Figure& figure) {
    const std::vector<LineStyle> styles = line_styles(figure);
    return Json::Object{
        {"title", text(figure.title)},
        {"panels", list(figure.panels, [&](const Plot& plot) { return plot_data(plot, styles); })}};
}

std::string drawing_css(std::span<const Figure> figures) {
    std::map<std::string, std::string> nights;  // by class
    std::size_t widest = 1;
    for (const Figure& f : figures) {
        for (const LineStyle& style : line_styles(f)) nights[class_of(style)] = style.night_colour;
        for (const Plot& plot : f.panels) widest = std::max(widest, label_width(plot, layout(f)));
    }
    std::string day, dark;
    for (const auto& [name, colour] : nights) {
        day += fmt::format(".{0}{{--c:#{1}}}\n", name, name.substr(1));
        dark += fmt::format(".{}{{--c:{}}}\n", name, colour);
    }
    for (std::size_t k = 1; k <= widest; ++k)
        day += fmt::format(".{}{{--room:{:.0f}px}}\n", room_class(k),
                           title_margin + tick_character * double(k));
    return fmt::format("{}@media screen and (prefers-color-scheme:dark){{\n{}}}\n", day, dark);
}

std::string shared_definitions() {
    std::string ramps;
    for (const Palette palette : {Palette::sequential, Palette::diverging}) {
        std::string stops;
        const auto colours = ramp(palette);
        for (int i = 0; i < anchors; ++i)
            stops += fmt::format("<stop offset=\"{}%\" stop-color=\"{}\"/>",
                                 percent(double(i) / (anchors - 1)), hex(colours[std::size_t(i)]));
        ramps +=
            filled("ramp", {{"name", palette == Palette::sequential ? "sequential" : "diverging"},
                            {"stops", stops}});
    }
    return filled("definitions", {{"ramps", ramps}});
}

}  // namespace tsdiag::reports
