#include "layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

namespace tsdiag::reports {
namespace {

/// Of the digits of a colour in HTML.
template <std::size_t count>
constexpr std::array<Rgb, count> of_digits(const std::uint32_t (&digits)[count]) {
    std::array<Rgb, count> out;
    for (std::size_t i = 0; i < count; ++i)
        out[i] = {std::uint8_t(digits[i] >> 16), std::uint8_t(digits[i] >> 8 & 0xff),
                  std::uint8_t(digits[i] & 0xff)};
    return out;
}
constexpr std::array<Rgb, anchors> viridis =
    of_digits({0x440154, 0x482475, 0x414487, 0x355f8d, 0x2a788e, 0x21918c, 0x22a884, 0x44bf70,
               0x7ad151, 0xbddf26, 0xfde725});
constexpr std::array<Rgb, anchors> blue_red =
    of_digits({0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xd1e5f0, 0xf7f7f7, 0xfddbc7, 0xf4a582,
               0xd6604d, 0xb2182b, 0x67001f});
// Okabe and Ito, without their yellow: as dark as it must be on white, it is no yellow any more.
constexpr std::array<Rgb, 7> okabe_ito =
    of_digits({0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0x56b4e9, 0xe69f00, 0x000000});
constexpr Rgb grey{0x55, 0x55, 0x55};
const std::vector<std::vector<int>> measured_dashes = {
    {}, {9, 2}, {9, 2, 2, 2}, {14, 3}, {5, 2}, {9, 2, 2, 2, 2, 2}, {14, 3, 3, 3}};
const std::vector<std::vector<int>> predicted_dashes = {{4, 3}, {1, 2}, {4, 2, 1, 2}, {2, 4}};

constexpr double largest_bubble = 40;  // pixels

/// A rectangle in pixels.
struct Box {
    double x, y, width, height;  ///< x, y: the centre
};
double overlap(const Box& a, const Box& b) {
    const auto shared = [](double at, double size, double other, double other_size) {
        return std::max(0.0, std::min(at + size / 2, other + other_size / 2) -
                                 std::max(at - size / 2, other - other_size / 2));
    };
    return shared(a.x, a.width, b.x, b.width) * shared(a.y, a.height, b.y, b.height);
}

/// Where `name` covers least of what is `taken`: in the bubble, beside, above or below it.
Box place_of_name(const std::string& name, const Box& bubble, const std::vector<Box>& taken,
                  const Box& panel) {
    constexpr double character = 6, line = 12;
    const Box word{bubble.x, bubble.y, character * double(name.size()), line};
    const double aside = (bubble.width + word.width) / 2 + 2, up = (bubble.height + line) / 2;
    std::vector<Box> places;
    const auto add = [&](double dx, double dy) {
        places.push_back({word.x + dx, word.y + dy, word.width, word.height});
    };
    if (word.width <= bubble.width) add(0, 0);
    add(aside, 0);
    add(-aside, 0);
    for (const double away : {up, up + line, up + 2 * line})
        for (const double side : {1.0, -1.0}) add(0, side * away);
    const auto covered = [&](const Box& place) {
        double sum = place.width * place.height - overlap(place, panel);
        for (const Box& other : taken) sum += overlap(place, other);
        return sum;
    };
    return *std::ranges::min_element(places, {}, covered);
}

bool has_bubbles(const Plot& plot) {
    return std::ranges::any_of(plot.series, [](const Series& s) { return !s.areas.empty(); });
}

/// Relative luminance by WCAG 2.1.
double luminance(Rgb c) {
    const auto linear = [](std::uint8_t v) {
        const double s = v / 255.0;
        return s <= 0.04045 ? s / 12.92 : std::pow((s + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(c.r) + 0.7152 * linear(c.g) + 0.0722 * linear(c.b);
}

Rgb blend(Rgb a, Rgb b, double part) {
    const auto one = [&](std::uint8_t u, std::uint8_t v) {
        return std::uint8_t(std::lround(u + part * (double(v) - u)));
    };
    return {one(a.r, b.r), one(a.g, b.g), one(a.b, b.b)};
}

constexpr int shades = 100;  ///< steps of a search for a contrast

/// `c`, mixed with as much of `away` as it takes to be seen on `ground`.
Rgb seen_on(Rgb ground, Rgb c, Rgb away) {
    for (int i = 0; i < shades; ++i)
        if (const Rgb mixed = blend(c, away, double(i) / shades);
            contrast(mixed, ground) >= least_contrast)
            return mixed;
    return away;
}

/// The part of viridis that is seen on `ground`: from its dark end on white, from its bright one at
/// night.
Extent seen_part(Rgb ground) {
    Extent e{1, 0};
    for (int i = 0; i <= shades; ++i)
        if (const double t = double(i) / shades;
            contrast(colour_at(Palette::sequential, t), ground) >= least_contrast)
            e = {std::min(e.low, t), std::max(e.high, t)};
    return e;
}

void set_colours(LineStyle& style, Rgb c) {
    style.colour = hex(seen_on(paper, c, {0, 0, 0}));
    style.night_colour = hex(seen_on(night, c, paper));
}

/// The colour at `place` in [0, 1] of an order.
void set_ordered(LineStyle& style, double place) {
    const auto at = [&](Rgb ground) {
        const Extent part = seen_part(ground);
        return hex(colour_at(Palette::sequential, std::lerp(part.low, part.high, place)));
    };
    style.colour = at(paper);
    style.night_colour = at(night);
}

void widen(Extent& e, double v, bool& any) {
    if (!std::isfinite(v)) return;
    e.low = any ? std::min(e.low, v) : v;
    e.high = any ? std::max(e.high, v) : v;
    any = true;
}

// Axes end at the largest double; between smaller numbers there is no room for ticks.
constexpr double largest = std::numeric_limits<double>::max();
constexpr double smallest = std::numeric_limits<double>::min();

/// Adds a margin around the data; ends that the axis fixes are kept.
Extent settle(Extent e, bool any, const Axis& axis, double room) {
    const bool logarithmic = axis.scale == Scale::log;
    if (!any) e = logarithmic ? Extent{0.1, 1} : Extent{0, 1};
    if (logarithmic) {
        const double factor =
            std::exp(std::max((std::log(e.high) - std::log(e.low)) * room, std::log(1.05)));
        e = {std::clamp(e.low / factor, smallest, largest / 2),
             std::clamp(e.high * factor, 2 * smallest, largest)};
    } else {
        const double size = std::max(std::abs(e.low), std::abs(e.high));
        double margin = e.high * room - e.low * room;
        if (e.high - e.low <= std::max(1e-9 * size, smallest))
            margin = size < smallest ? 0.5 : 0.1 * size;
        e = {std::max(e.low - margin, -largest), std::min(e.high + margin, largest)};
    }
    return {axis.low.value_or(e.low), axis.high.value_or(e.high)};
}

std::vector<double> log_ticks(Extent e, int about) {
    const int first = int(std::floor(std::log10(e.low))), last = int(std::ceil(std::log10(e.high)));
    const auto collect = [&](const std::vector<double>& factors, int step) {
        std::vector<double> found;
        for (int k = first - ((first % step) + step) % step; k <= last; k += step)
            for (double f : factors) {
                // 1e-3 exactly; repeated rounding would not give it
                const double v = std::strtod(fmt::format("{}e{}", f, k).c_str(), nullptr);
                if (v >= e.low && v <= e.high) found.push_back(v);
            }
        return found;
    };
    for (const auto& factors : {std::vector<double>{1}, {1, 3}, {1, 2, 5}}) {
        std::vector<double> found = collect(factors, std::max(1, (last - first) / about));
        if (found.size() >= 3) return found;
    }
    return ticks(e, Scale::linear, about);
}

}  // namespace

std::string hex(Rgb c) { return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b); }

std::array<Rgb, anchors> ramp(Palette palette) {
    return palette == Palette::sequential ? viridis : blue_red;
}

Rgb colour_at(Palette palette, double t) {
    const auto colours = ramp(palette);
    const double position = std::clamp(t, 0.0, 1.0) * (anchors - 1);
    const int i = std::min(int(position), anchors - 2);
    return blend(colours[std::size_t(i)], colours[std::size_t(i) + 1], position - i);
}

double contrast(Rgb a, Rgb b) {
    const double u = luminance(a), v = luminance(b);
    return (std::max(u, v) + 0.05) / (std::min(u, v) + 0.05);
}

std::vector<LineStyle> line_styles(const Figure& figure, bool on_paper) {
    std::vector<LineStyle> styles;
    std::size_t measured = 0, ordered = 0, predicted = 0;
    const std::size_t first = on_paper ? okabe_ito.size() - 1 : 0;  // black
    const auto dashes = [](std::size_t i) { return measured_dashes[i % measured_dashes.size()]; };
    std::set<std::string> in_order;  // the same name in two panels gets the same style
    for (const Plot& plot : figure.panels)
        if (plot.ordered)
            for (const Series& s : plot.series)
                if (!s.dashed) in_order.insert(s.name);
    for (const Plot& plot : figure.panels)
        for (const Series& s : plot.series) {
            const auto known = [&](const LineStyle& style) { return style.name == s.name; };
            if (std::any_of(styles.begin(), styles.end(), known)) continue;
            LineStyle style{.name = s.name, .colour = {}};
            set_colours(
                style, plot.ordered ? grey : okabe_ito[(styles.size() + first) % okabe_ito.size()]);
            if (s.dashed) {
                style.dash = predicted_dashes[predicted++ % predicted_dashes.size()];
            } else if (plot.ordered) {
                const std::size_t places = in_order.size() / plot.runs;
                set_ordered(style,
                            places > 1 ? double(ordered / plot.runs) / double(places - 1) : 0);
                if (on_paper) style.dash = dashes(plot.runs > 1 ? ordered % plot.runs : measured);
                ++ordered;
                ++measured;
            } else {
                // the dashes change when the colours repeat
                const std::size_t round = measured / measured_dashes.size();
                style.dash = dashes(measured++ + round);
            }
            styles.push_back(std::move(style));
        }
    return styles;
}

bool needs_legend(const Figure& figure) {
    const auto lines = [](const Plot& plot) {
        return std::ranges::any_of(plot.series, [](const Series& s) { return s.areas.empty(); });
    };
    return line_styles(figure).size() > 1 && std::ranges::any_of(figure.panels, lines);
}

int legend_columns(const Figure& figure, double width) {
    std::size_t longest = 1;
    const std::vector<LineStyle> styles = line_styles(figure);
    for (const LineStyle& s : styles) longest = std::max(longest, s.name.size());
    return std::clamp(int(width / (double(longest) * 7 + 50)), 1, std::max(1, int(styles.size())));
}

double share_of(Extent e, double v) { return (v / 2 - e.low / 2) / (e.high / 2 - e.low / 2); }

Extent x_extent(const Plot& plot) {
    Extent e;
    bool any = false;
    for (const Series& s : plot.series)
        for (double x : s.x) widen(e, x, any);
    return settle(e, any, plot.x, has_bubbles(plot) ? 0.1 : 0.02);
}

Extent y_extent(const Plot& plot) {
    Extent e;
    bool any = false;
    const auto take = [&](const std::vector<std::optional<double>>& values) {
        for (const auto& v : values)
            if (v && (plot.y.scale == Scale::linear || *v > 0)) widen(e, *v, any);
    };
    for (const Series& s : plot.series) {
        take(s.y);
        take(s.low);
        take(s.high);
    }
    for (const auto& [y, label] : plot.marks)
        if (plot.y.scale == Scale::linear || y > 0) widen(e, y, any);
    return settle(e, any, plot.y, has_bubbles(plot) ? 0.15 : 0.05);
}

Extent value_extent(const Grid& grid) {
    Extent e;
    bool any = false;
    for (const auto& v : grid.values)
        if (v) widen(e, *v, any);
    if (!any) e = {0, 1};
    e = {grid.low.value_or(e.low), grid.high.value_or(e.high)};
    if (grid.palette == Palette::diverging) {
        const double most = std::max(std::abs(e.low), std::abs(e.high));
        e = {-most, most};
    }
    const double size = std::max(std::abs(e.low), std::abs(e.high));
    if (e.high - e.low <= std::max(1e-12 * size, smallest)) {
        const double margin = size < smallest ? 0.5 : 0.1 * size;
        e = {std::max(e.low - margin, -largest), std::min(e.high + margin, largest)};
    }
    return e;
}

std::vector<double> ticks(Extent e, Scale scale, int about, bool whole) {
    if (scale == Scale::log) return log_ticks(e, about);
    const double raw = e.high / std::max(about, 1) - e.low / std::max(about, 1);
    const double decade = std::pow(10.0, std::floor(std::log10(raw)));
    double step = 10 * decade;
    for (double f : {5.0, 2.5, 2.0, 1.0})
        if (f * decade >= raw * 0.999 && !(whole && f == 2.5)) step = f * decade;
    if (whole) step = std::max(1.0, std::round(step));
    std::vector<double> found;
    const double first = std::ceil(e.low / step - 1e-9), last = std::floor(e.high / step + 1e-9);
    for (double k = first; k <= last; ++k) {
        const double v = k * step;
        found.push_back(std::strtod(fmt::format("{:.10g}", v).c_str(), nullptr) + 0.0);
    }
    return found;
}

std::string tick_label(double value) {
    std::string s = fmt::format("{:.6g}", value);
    const std::size_t e = s.find('e');
    if (e == std::string::npos) return s;
    return fmt::format("{}e{}", s.substr(0, e), std::stoi(s.substr(e + 1)));
}

namespace {

/// Every k-th of `count` cells, so that labels do not touch.
std::vector<Index> cell_ticks(Index count, Index at_most) {
    Index step = 1;
    for (Index s : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})
        if (count <= s * at_most) {
            step = s;
            break;
        }
    std::vector<Index> found;
    for (Index i = 0; i < count; i += step) found.push_back(i);
    return found;
}

/// The label at `i`, or its number where there are no labels.
std::string cell_label(const std::vector<std::string>& labels, Index i) {
    return std::size_t(i) < labels.size() ? labels[std::size_t(i)] : fmt::format("{}", i);
}

/// Ticks of `cells`, in their middles.
std::vector<Tick> in_cells(Index count, Index at_most, const std::vector<std::string>& labels) {
    std::vector<Tick> found;
    for (const Index i : cell_ticks(count, at_most))
        found.push_back({(double(i) + 0.5) / double(count), cell_label(labels, i)});
    return found;
}

/// Ticks of one side of a grid; those of a gallery are its images', of an image its entries'.
std::vector<Tick> side_ticks(const Grid& g, Index cells, const std::vector<std::string>& labels,
                             Index at_most) {
    if (g.tile > 0) return in_cells(std::ssize(labels), at_most, labels);
    if (!g.image) return in_cells(cells, at_most, labels);
    const Extent whole{0, double(cells * g.step)};
    std::vector<Tick> found;
    for (const double v : ticks(whole, Scale::linear, 4, true))
        found.push_back({share_of(whole, v), tick_label(v)});
    return found;
}

constexpr int level_label = 22, turned_label = 13;  ///< pixels of a column that has one

}  // namespace

bool turns_labels(const Grid& g, int pixels) {
    if (g.turned) return true;
    if (g.tile > 0 || g.image || g.col_labels.empty()) return false;
    // A page leaves the cells three quarters of the width, beside names of rows and a bar.
    constexpr double character = 7, gap = 6, left = 0.75;
    const std::vector<Tick> level = side_ticks(g, g.cols, g.col_labels, pixels / level_label);
    for (std::size_t i = 1; i < level.size(); ++i) {
        const double apart = left * pixels * (level[i].share - level[i - 1].share);
        const auto both = double(level[i - 1].label.size() + level[i].label.size());
        if (character * both / 2 + gap > apart) return true;
    }
    return false;
}

std::vector<Tick> column_ticks(const Grid& g, int pixels) {
    return side_ticks(g, g.cols, g.col_labels,
                      pixels / (turns_labels(g, pixels) ? turned_label : level_label));
}

std::vector<Tick> row_ticks(const Grid& g, int pixels) {
    return side_ticks(g, g.rows, g.row_labels, pixels / 14);
}

std::size_t label_width(const Plot& plot, const Layout& size) {
    std::size_t longest = 1;
    if (plot.grid)
        for (const Tick& t : row_ticks(*plot.grid, size.height))
            longest = std::max(longest, t.label.size());
    else
        for (const double v : ticks(y_extent(plot), plot.y.scale, 5, plot.y.whole))
            longest = std::max(longest, tick_label(v).size());
    return longest;
}

Layout layout(const Figure& figure) {
    Layout l;
    const int n = int(figure.panels.size());
    l.columns = n <= 1 ? 1 : n == 2 || n == 4 ? 2 : 3;
    l.rows = std::max(1, (n + l.columns - 1) / l.columns);
    l.width = l.columns == 1 ? 620 : l.columns == 2 ? 400 : 262;
    l.height = l.columns == 1 ? 290 : l.columns == 2 ? 250 : 215;
    Index most_rows = 0;
    bool lines = false, image = false;
    for (const Plot& plot : figure.panels) {
        if (plot.grid) most_rows = std::max(most_rows, plot.grid->rows);
        lines = lines || !plot.grid;
        image = image || (plot.grid && (plot.grid->image || plot.grid->turned));
    }
    if (!lines) l.width = l.columns == 1 ? 520 : l.columns == 2 ? 370 : 225;
    if (image) l.width = l.height = l.columns == 1 ? 440 : l.columns == 2 ? 350 : 225;
    if (n == 1 && figure.panels[0].grid && figure.panels[0].grid->tile > 0) {
        const Grid& g = *figure.panels[0].grid;  // a gallery: as wide as lines, its images squares
        l.width = 620;
        l.height = int(std::lround(double(l.width) * double(g.rows) / double(g.cols)));
    } else if (!image && most_rows > 0 && !lines)
        l.height = int(std::clamp<Index>(most_rows * 17, 90, 430));
    return l;
}

std::vector<Bubble> bubbles(const Plot& plot, const Layout& size) {
    std::vector<Bubble> out;
    double most = 0;
    for (const Series& s : plot.series)
        for (std::size_t i = 0; i < s.areas.size(); ++i) {
            if (!s.y[i] || !std::isfinite(*s.y[i])) continue;
            out.push_back({.name = s.name, .x = s.x[i], .y = *s.y[i], .area = s.areas[i]});
            most = std::max(most, s.areas[i]);
        }
    // an axis in pixels, and back
    struct PixelAxis {
        Extent extent;
        bool logarithmic;
        double length;
        PixelAxis(Extent e, Scale scale, int pixels)
            : extent(e), logarithmic(scale == Scale::log), length(pixels) {
            if (logarithmic) extent = {std::log(e.low), std::log(e.high)};
        }
        double pixel(double v) const {
            return length * share_of(extent, logarithmic ? std::log(v) : v);
        }
        double value(double pixel) const {
            const double v = std::lerp(extent.low, extent.high, pixel / length);
            return logarithmic ? std::exp(v) : v;
        }
    };
    const PixelAxis across(x_extent(plot), plot.x.scale, size.width),
        up(y_extent(plot), plot.y.scale, size.height);
    const Box panel{size.width / 2.0, size.height / 2.0, double(size.width), double(size.height)};
    std::vector<Box> circles;
    for (Bubble& b : out) {
        b.width = most > 0 ? largest_bubble * std::sqrt(b.area / most) : 0;
        circles.push_back({across.pixel(b.x), up.pixel(b.y), b.width, b.width});
    }
    std::vector<Box> names;
    for (std::size_t i = 0; i < out.size(); ++i) {
        std::vector<Box> taken = names;
        for (std::size_t j = 0; j < out.size(); ++j)
            if (j != i) taken.push_back(circles[j]);
        names.push_back(place_of_name(out[i].name, circles[i], taken, panel));
        out[i].label_x = across.value(names.back().x);
        out[i].label_y = up.value(names.back().y);
    }
    return out;
}

std::string ink_on(const Grid& grid, double value) {
    const Rgb c = colour_at(grid.palette, share_of(value_extent(grid), value));
    const double light = 0.299 * c.r + 0.587 * c.g + 0.114 * c.b;  // as the eye weighs them
    return light < 128 ? "#ffffff" : "#000000";
}

}  // namespace tsdiag::reports
