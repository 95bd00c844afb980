#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "layout.hpp"
#include "png.hpp"
#include "text.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/text.hpp"

/// The Vega-Lite writer.
namespace tsdiag {
namespace {

using namespace reports;
using Object = Json::Object;
using Array = Json::Array;

Json text(std::string_view s) { return Json(visible(s, "\n")); }

/// Six significant digits suffice for display.  Null: not finite after rounding,
/// such as the end of a band around 1e308.
Json rounded(double v) {
    const double near = std::strtod(fmt::format("{:.6g}", v).c_str(), nullptr);
    return std::isfinite(near) ? Json(near) : Json(nullptr);
}
Json rounded(const std::optional<double>& v) { return v ? rounded(*v) : Json(nullptr); }

template <class Range>
Json list(const Range& values) {
    Array a;
    for (const auto& v : values) a.push_back(Json(v));
    return a;
}

Json axis(const std::string& title, const std::vector<double>& positions, Scale scale) {
    Object a{{"title", title.empty() ? Json(nullptr) : text(title)}, {"values", list(positions)}};
    if (scale == Scale::log)
        a.emplace_back(
            "labelExpr",
            "datum.value < 0.001 || datum.value >= 100000 ? format(datum.value, '.2~e') : "
            "format(datum.value, '.3~g')");
    else
        a.emplace_back("format", ".6~g");
    return a;
}

Json scale_of(Extent e, Scale scale) {
    Object s{{"domain", Array{e.low, e.high}}, {"nice", false}, {"zero", false}};
    if (scale == Scale::log)
        s = {{"type", "log"}, {"domain", Array{e.low, e.high}}, {"nice", false}};
    return s;
}

/// A tooltip field; numbers with four digits.
Json tip(const char* field, const std::string& title, bool number) {
    Json t = Object{{"field", field}, {"title", text(title)}};
    t.set("type", number ? "quantitative" : "nominal");
    if (number) t.set("format", ".4~g");
    return t;
}

struct Styling {
    Json names = Array{}, colours = Array{}, dashes = Array{};
    bool legend = false;
    int columns = 1;  ///< of the legend
};

Styling styling(const Figure& figure) {
    Styling s;
    for (const LineStyle& style : line_styles(figure)) {
        s.names.push(text(style.name));
        s.colours.push(style.colour);
        s.dashes.push(style.dash.empty() ? Json(Array{1, 0}) : list(style.dash));
    }
    s.legend = needs_legend(figure);
    const Layout size = layout(figure);
    s.columns =
        legend_columns(figure, shares_legend(figure) ? size.columns * size.width : size.width);
    return s;
}

Json legend_of(const Styling& s) {
    if (!s.legend) return nullptr;
    return Object{{"title", nullptr},     {"orient", "bottom"},     {"direction", "horizontal"},
                  {"columns", s.columns}, {"labelLimit", 0},        {"symbolType", "stroke"},
                  {"symbolSize", 500},    {"symbolStrokeWidth", 2}, {"symbolOpacity", 1}};
}

Json values_of(const Plot& plot) {
    Array values;
    for (const Series& s : plot.series)
        for (std::size_t i = 0; s.areas.empty() && i < s.x.size(); ++i) {
            Object v{{"x", rounded(s.x[i])}, {"y", rounded(s.y[i])}, {"s", text(s.name)}};
            if (!s.low.empty() && s.low[i] && s.high[i]) {
                v.emplace_back("l", rounded(s.low[i]));
                v.emplace_back("h", rounded(s.high[i]));
            }
            values.push_back(std::move(v));
        }
    return values;
}

/// Circles with their names.
void add_bubbles(Json& layers, const Plot& plot, const Layout& size, const Json& x, const Json& y,
                 const Json& colour) {
    Array values;
    for (const Bubble& b : bubbles(plot, size))
        values.push_back(Object{{"x", rounded(b.x)},
                                {"y", rounded(b.y)},
                                {"s", text(b.name)},
                                {"a", rounded(b.area)},
                                {"w", rounded(b.width * b.width * std::numbers::pi / 4)},
                                {"lx", rounded(b.label_x)},
                                {"ly", rounded(b.label_y)}});
    if (values.empty()) return;
    const Json data = Object{{"values", std::move(values)}};
    const Json pixels =
        Object{{"field", "w"}, {"type", "quantitative"}, {"scale", nullptr}, {"legend", nullptr}};
    layers.push(Object{
        {"data", data},
        {"mark", Object{{"type", "point"}, {"filled", true}, {"opacity", 0.5}}},
        {"encoding",
         Object{{"x", x},
                {"y", y},
                {"color", colour},
                {"size", pixels},
                {"tooltip",
                 Array{tip("s", "series", false),
                       tip("x", plot.x.title.empty() ? "x" : plot.x.title, true),
                       tip("y", plot.y.title.empty() ? "y" : plot.y.title, true),
                       tip("a", plot.area_title.empty() ? "area" : plot.area_title, true)}}}}});
    Json at_x = x, at_y = y;
    at_x.set("field", "lx");
    at_y.set("field", "ly");
    const Json name = Object{{"field", "s"}, {"type", "nominal"}};
    layers.push(Object{{"data", data},
                       {"mark", Object{{"type", "text"}, {"fontSize", 10}, {"color", "#222222"}}},
                       {"encoding", Object{{"x", at_x}, {"y", at_y}, {"text", name}}}});
}

/// Horizontal reference lines with their labels at the right end.
void add_marks(Json& layers, const Plot& plot) {
    const Extent ys = y_extent(plot);
    for (const auto& [y, label] : plot.marks) {
        const bool near_top = y > ys.low + 0.9 * (ys.high - ys.low);
        const Json one = Object{{"values", Array{Object{}}}};
        const Json at = Object{{"datum", y}};
        layers.push(Object{
            {"data", one},
            {"mark", Object{{"type", "rule"}, {"color", "#666666"}, {"strokeDash", Array{1, 3}}}},
            {"encoding", Object{{"y", at}}}});
        if (label.empty()) continue;
        layers.push(Object{{"data", one},
                           {"mark", Object{{"type", "text"},
                                           {"align", "left"},
                                           {"dx", 3},
                                           {"dy", near_top ? 8 : -5},
                                           {"fontSize", 10},
                                           {"color", "#555555"}}},
                           {"encoding", Object{{"y", at},
                                               {"x", Object{{"value", 0}}},
                                               {"text", Object{{"value", text(label)}}}}}});
    }
}

Json line_panel(const Plot& plot, const Styling& style, const Layout& size) {
    const Extent xs = x_extent(plot), ys = y_extent(plot);
    std::size_t points = 0;
    bool band = false;
    for (const Series& s : plot.series) {
        points += s.x.size();
        band = band || !s.low.empty();
    }
    const Json x = Object{
        {"field", "x"},
        {"type", "quantitative"},
        {"scale", scale_of(xs, plot.x.scale)},
        {"axis",
         axis(plot.x.title, ticks(xs, plot.x.scale, size.width / 55, plot.x.whole), plot.x.scale)}};
    const auto y = [&](const char* field) {
        return Object{
            {"field", field},
            {"type", "quantitative"},
            {"scale", scale_of(ys, plot.y.scale)},
            {"axis", axis(plot.y.title, ticks(ys, plot.y.scale, 5, plot.y.whole), plot.y.scale)}};
    };
    // the same legend in every layer: a layer without one would remove it
    const Json colour = Object{{"field", "s"},
                               {"type", "nominal"},
                               {"scale", Object{{"domain", style.names}, {"range", style.colours}}},
                               {"legend", legend_of(style)}};
    Json layers = Array{};
    if (band)
        layers.push(Object{
            {"transform", Array{Object{{"filter", "isValid(datum.l)"}}}},
            {"mark", Object{{"type", "area"}, {"opacity", 0.16}}},
            {"encoding",
             Object{{"x", x}, {"y", y("l")}, {"y2", Object{{"field", "h"}}}, {"color", colour}}}});
    const Json dash = Object{{"field", "s"},
                             {"type", "nominal"},
                             {"scale", Object{{"domain", style.names}, {"range", style.dashes}}},
                             {"legend", legend_of(style)}};
    layers.push(Object{
        {"mark", Object{{"type", "line"}, {"strokeWidth", 1.8}, {"clip", true}}},
        {"encoding", Object{{"x", x}, {"y", y("y")}, {"color", colour}, {"strokeDash", dash}}}});
    // points carry the tooltips; on long curves they are invisible
    const bool seen = points <= 400;
    layers.push(Object{
        {"mark", Object{{"type", "point"},
                        {"filled", true},
                        {"size", seen ? 16 : 60},
                        {"opacity", seen ? 1.0 : 0.0}}},
        {"encoding",
         Object{{"x", x},
                {"y", y("y")},
                {"color", colour},
                {"tooltip", Array{tip("s", "series", false),
                                  tip("x", plot.x.title.empty() ? "x" : plot.x.title, true),
                                  tip("y", plot.y.title.empty() ? "y" : plot.y.title, true)}}}}});
    add_bubbles(layers, plot, size, x, y("y"), colour);
    add_marks(layers, plot);
    return Object{{"data", Object{{"values", values_of(plot)}}}, {"layer", layers}};
}

/// A colour scale given by its anchors, so that page, images and gnuplot show the same colours.
Json colours_of(const Grid& grid, const Layout& size) {
    const Extent e = value_extent(grid);
    Array domain, range;
    const auto colours = ramp(grid.palette);
    for (int i = 0; i < anchors; ++i) {
        domain.push_back(Json(std::lerp(e.low, e.high, double(i) / (anchors - 1))));
        range.push_back(hex(colours[std::size_t(i)]));
    }
    return Object{
        {"field", "v"},
        {"type", "quantitative"},
        {"scale",
         Object{{"type", "linear"}, {"domain", domain}, {"range", range}, {"clamp", true}}},
        {"legend", Object{{"title", nullptr},
                          {"orient", "right"},
                          {"offset", 8},
                          {"gradientLength", size.height},
                          {"gradientThickness", 10},
                          {"values", list(ticks(e, Scale::linear, 5))},
                          {"format", ".6~g"}}}};
}

Json cell_axis(const std::string& field, const std::string& title, Index count, Index at_most,
               const std::vector<std::string>& labels, bool turned = false) {
    Json axis = Object{{"title", text(title)},
                       {"values", list(cell_ticks(count, at_most))},
                       {"labelAngle", turned ? -90 : 0},
                       {"grid", false}};
    if (!labels.empty()) {
        Array words;
        for (const std::string& label : labels) words.push_back(text(label));
        axis.set("labelExpr", Json(std::move(words)).dump() + "[datum.value]");
    }
    return Object{{"field", field}, {"type", "ordinal"}, {"axis", axis}};
}

/// "3: the"
std::string named(const std::vector<std::string>& labels, Index i) {
    return fmt::format("{}: {}", i, cell_label(labels, i));
}

Json cell_panel(const Grid& grid, const Layout& size) {
    const bool written = grid.decimals >= 0;
    Array values;
    for (Index i = 0; i < grid.rows; ++i)
        for (Index j = 0; j < grid.cols; ++j) {
            const auto& v = grid.values[std::size_t(i * grid.cols + j)];
            Object cell{{"i", i}, {"j", j}, {"v", rounded(v)}};
            if (grid.turned) {
                cell.emplace_back("a", text(named(grid.row_labels, i)));
                cell.emplace_back("b", text(named(grid.col_labels, j)));
            }
            if (written && v && std::isfinite(*v)) {
                cell.emplace_back("n", fmt::format("{:.{}f}", *v, grid.decimals));
                cell.emplace_back("c", ink_on(grid, *v));
            }
            values.push_back(std::move(cell));
        }
    Json colour = colours_of(grid, size);
    colour.set("condition", Object{{"test", "!isValid(datum.v)"}, {"value", hex(no_value)}});
    const Json x = cell_axis("j", grid.col_title, grid.cols, size.width / (grid.turned ? 11 : 20),
                             grid.col_labels, grid.turned),
               y = cell_axis("i", grid.row_title, grid.rows, size.height / 14, grid.row_labels);
    const Json cells = Object{
        {"mark", Object{{"type", "rect"}, {"invalid", nullptr}}},
        {"encoding", Object{{"x", x},
                            {"y", y},
                            {"color", colour},
                            {"tooltip", Array{tip(grid.turned ? "a" : "i", grid.row_title, false),
                                              tip(grid.turned ? "b" : "j", grid.col_title, false),
                                              tip("v", grid.value_title, true)}}}}};
    Array layers{cells};
    if (written)
        layers.push_back(Object{
            {"mark", Object{{"type", "text"}, {"fontSize", 10}}},
            {"encoding",
             Object{{"x", x},
                    {"y", y},
                    {"text", Object{{"field", "n"}, {"type", "nominal"}}},
                    {"color", Object{{"field", "c"}, {"type", "nominal"}, {"scale", nullptr}}}}}});
    return Object{{"data", Object{{"values", values}}}, {"layer", layers}};
}

Json image_axis(const char* field, const std::string& title, Index count, Index step, bool down) {
    const Extent e{0, double(count * step)};
    Json scale = Object{{"domain", Array{e.low, e.high}}, {"nice", false}};
    if (down) scale.set("reverse", true);
    Json a = axis(title, ticks(e, Scale::linear, 4, true), Scale::linear);
    a.set("grid", false);
    return Object{{"field", field}, {"type", "quantitative"}, {"scale", scale}, {"axis", a}};
}

Json image_panel(const Grid& grid, const Layout& size) {
    const std::string url = "data:image/png;base64," + base64(grid_png(grid));
    const Json zero = Object{{"value", 0}};
    Json image = Object{
        {"data", Object{{"values", Array{Object{{"u", url}}}}}},
        {"mark", Object{{"type", "image"},
                        {"width", size.width},
                        {"height", size.height},
                        {"aspect", false},
                        {"smooth", false},
                        {"align", "left"},
                        {"baseline", "top"}}},
        {"encoding",
         Object{{"x", zero}, {"y", zero}, {"url", Object{{"field", "u"}, {"type", "nominal"}}}}}};
    // the image has neither axes nor colours: an invisible point adds them
    Json point = Object{
        {"data", Object{{"values", Array{Object{{"x", 0}, {"y", 0}, {"v", 0}}}}}},
        {"mark", Object{{"type", "point"}, {"opacity", 0}}},
        {"encoding", Object{{"x", image_axis("x", grid.col_title, grid.cols, grid.step, false)},
                            {"y", image_axis("y", grid.row_title, grid.rows, grid.step, true)},
                            {"color", colours_of(grid, size)}}}};
    return Object{{"layer", Array{image, point}}};
}

Json panel(const Plot& plot, const Styling& style, const Layout& size) {
    Json p = !plot.grid         ? line_panel(plot, style, size)
             : plot.grid->image ? image_panel(*plot.grid, size)
                                : cell_panel(*plot.grid, size);
    p.set("width", size.width);
    p.set("height", size.height);
    p.set("title", text(plot.title));
    return p;
}

Json config() {
    return Object{
        {"font", "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"},
        {"background", "white"},
        {"view", Object{{"stroke", "#b0b0b0"}}},
        {"title",
         Object{{"anchor", "start"}, {"fontSize", 12}, {"fontWeight", 600}, {"offset", 6}}},
        {"axis", Object{{"gridColor", "#ececec"},
                        {"domainColor", "#888888"},
                        {"tickColor", "#888888"},
                        {"labelColor", "#333333"},
                        {"titleColor", "#333333"},
                        {"titleFontWeight", "normal"},
                        {"labelFontSize", 11},
                        {"titleFontSize", 11},
                        {"labelOverlap", true}}},
        {"legend", Object{{"labelFontSize", 11}, {"labelColor", "#333333"}}},
        {"concat", Object{{"spacing", 26}}},
        // the figure has one alternative text; labels of hundreds of cells would obscure it
        {"aria", false}};
}

}  // namespace

Json vega_lite(const Figure& figure) {
    const Styling style = styling(figure);
    const Layout size = layout(figure);
    Json spec = Object{{"$schema", "https://vega.github.io/schema/vega-lite/v6.json"},
                       {"description", text(figure.alt)},
                       {"config", config()}};
    Array panels;
    for (const Plot& plot : figure.panels) panels.push_back(panel(plot, style, size));
    spec.set("columns", size.columns);
    spec.set("concat", panels);
    const char* shared = shares_legend(figure) ? "shared" : "independent";
    spec.set("resolve", Object{{"scale", Object{{"color", shared}, {"strokeDash", shared}}}});
    return spec;
}

}  // namespace tsdiag
