#include <fmt/format.h>

#include <algorithm>

#include "rows.hpp"
#include "text.hpp"

/// The requested attention matrices, as images.
namespace tsdiag::reports {
namespace {

constexpr std::size_t panels_a_figure = 9;
constexpr Index most_pixels = 1024;       ///< a larger map is reduced to block means
constexpr double end_of_colours = 0.995;  ///< upper end of the colours, a quantile of the entries

/// Means over blocks of k x k entries, k the least that fits `most_pixels`.
Grid reduced(const Map& map) {
    const Index k =
        std::max<Index>(1, (std::max(map.rows, map.cols) + most_pixels - 1) / most_pixels);
    Grid g{
        .rows = (map.rows + k - 1) / k, .cols = (map.cols + k - 1) / k, .step = k, .image = true};
    std::vector<double> sum(std::size_t(g.rows * g.cols));
    std::vector<Index> count(sum.size());
    for (Index i = 0; i < map.rows; ++i)
        for (Index j = 0; j < map.cols; ++j) {
            const auto cell = std::size_t(i / k * g.cols + j / k);
            sum[cell] += map.values[std::size_t(i * map.cols + j)];
            ++count[cell];
        }
    for (std::size_t c = 0; c < sum.size(); ++c) g.values.push_back(sum[c] / double(count[c]));
    return g;
}

/// The colour scale ends at a quantile: a row with a single nonzero entry would darken all others.
void set_colours(Grid& g) {
    std::vector<double> sorted;
    for (const auto& v : g.values) sorted.push_back(*v);
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double q) { return sorted[std::size_t(q * double(sorted.size() - 1))]; };
    if (sorted.front() < 0) {
        g.palette = Palette::diverging;
        g.low = at(1 - end_of_colours);
    } else {
        g.low = 0;
    }
    g.high = at(end_of_colours);
    if (*g.high <= *g.low) g.high = sorted.back();
}

std::string map_in_words(const Map& map) {
    const auto entry = [&](std::string_view which, auto at) {
        const Index where = at - map.values.begin();
        return fmt::format("{} entry {} in row {}, column {}", which, number(*at), where / map.cols,
                           where % map.cols);
    };
    const auto [least, most] = std::minmax_element(map.values.begin(), map.values.end());
    return fmt::format("layer {} head {}: {} x {}, {}{}.", map.at.layer, map.at.head, map.rows,
                       map.cols, entry("greatest", most),
                       *least < 0 ? ", " + entry("least", least) : "");
}

std::vector<Figure> make_attention_maps(const Table& table) {
    std::vector<Figure> found;
    for (const Map& map : table.maps()) {
        if (map.rows == 0 || map.cols == 0) continue;
        if (found.empty() || found.back().panels.size() == panels_a_figure) {
            const std::size_t k = found.size() + 1;
            found.push_back(
                {.name = k == 1 ? "attention_maps" : fmt::format("attention_maps_{}", k),
                 .title = k == 1 ? "Attention maps" : fmt::format("Attention maps, {}", k),
                 .caption =
                     "P of single heads for the first sample: row i shows what token i (or channel "
                     "i, if P is over channels) attends to. The colour scale ends at the 99.5 % "
                     "quantile of the entries; if some are negative, it diverges from 0.",
                 .alt = "Attention maps."});
        }
        Grid g = reduced(map);
        set_colours(g);
        const bool channels = map.name == "channels";
        g.row_title = channels ? "channel" : "token";
        g.col_title = channels ? "from channel" : "attends to";
        g.value_title = "P";
        Figure& f = found.back();
        f.alt += " " + map_in_words(map);
        const std::string means = g.step > 1 ? fmt::format(", means of {0} x {0}", g.step) : "";
        f.panels.push_back(
            {.title = fmt::format("layer {}, head {}{}", map.at.layer, map.at.head, means),
             .grid = g});
    }
    return found;
}

}  // namespace

extern const FigureEntry attention_maps = {.name = "attention_maps",
                                           .title = "Attention maps",
                                           .needs = {"maps"},
                                           .make = make_attention_maps};

}  // namespace tsdiag::reports
