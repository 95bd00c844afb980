#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cells.hpp"
#include "text.hpp"

/// The kept attention matrices, as images.
namespace tsdiag::reports {
namespace {

constexpr std::size_t panels_a_figure = 9;
constexpr Index most_pixels = 1024;       ///< a larger map is reduced to block means
constexpr double end_of_colours = 0.995;  ///< upper end of the colours, a quantile of the entries
constexpr Index most_bytes = 3'000'000;   ///< of the page, for maps that are drawn one by one
constexpr Index tile = 32;                ///< rows and columns of a map in the gallery
constexpr std::size_t least_of_gallery = 4;

/// The offsets j - i whose entries are all exactly 0, as masks leave them, above and below the
/// diagonals that have others: [first, last] keep an entry.
struct Diagonals {
    Index first, last;
    bool has(Index i, Index j) const { return j - i >= first && j - i <= last; }
};

Diagonals unmasked(const Map& map) {
    constexpr Index fewest = 3;  // a single zero in a corner is no mask
    const auto empty = [&](Index offset) {
        for (Index i = std::max<Index>(0, -offset); i < map.rows && i + offset < map.cols; ++i)
            if (map.values[std::size_t(i * map.cols + i + offset)] != 0) return false;
        return true;
    };
    Diagonals kept{-(map.rows - 1), map.cols - 1};
    while (kept.last > 0 && empty(kept.last)) --kept.last;
    while (kept.first < 0 && empty(kept.first)) ++kept.first;
    if (map.cols - 1 - kept.last < std::min(fewest, map.cols - 1)) kept.last = map.cols - 1;
    if (map.rows - 1 + kept.first < std::min(fewest, map.rows - 1)) kept.first = -(map.rows - 1);
    return kept;
}

/// A map with at most `side` rows and columns: means over blocks of its entries that are finite
/// and not masked.
Grid grid_of(const Map& map, Index side) {
    Grid g{.rows = map.rows, .cols = map.cols, .image = true};
    const Diagonals kept = unmasked(map);
    for (Index i = 0; i < map.rows; ++i)
        for (Index j = 0; j < map.cols; ++j)
            if (const double v = map.values[std::size_t(i * map.cols + j)];
                kept.has(i, j) && std::isfinite(v))
                g.values.emplace_back(v);
            else
                g.values.emplace_back();
    const Index k = (std::max(map.rows, map.cols) + side - 1) / side;
    return k > 1 ? block_means(g, k) : g;
}

/// The colour scale ends at a quantile: a row with a single nonzero entry would darken all others.
void set_colours(Grid& g) {
    std::vector<double> sorted;
    for (const auto& v : g.values)
        if (v) sorted.push_back(*v);
    if (sorted.empty()) return;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double q) { return sorted[std::size_t(q * double(sorted.size() - 1))]; };
    g.high = at(end_of_colours);
    g.low = at(1 - end_of_colours);
    if (sorted.front() < 0)
        g.palette = Palette::diverging;
    else
        g.low = colours_begin(*g.low, *g.high);
    if (*g.high <= *g.low) g.high = sorted.back();
}

std::string map_in_words(const Map& map) {
    const auto entry = [&](std::string_view which, auto at) {
        const Index where = at - map.values.begin();
        return fmt::format("{} entry {} in row {}, column {}", which, number(*at), where / map.cols,
                           where % map.cols);
    };
    auto least = map.values.end(), most = least;
    for (auto at = map.values.begin(); at != map.values.end(); ++at) {
        if (!std::isfinite(*at)) continue;
        if (least == map.values.end() || *at < *least) least = at;
        if (most == map.values.end() || *at > *most) most = at;
    }
    std::string text =
        fmt::format("layer {} head {}: {} x {}", map.at.layer, map.at.head, map.rows, map.cols);
    if (most != map.values.end()) text += ", " + entry("greatest", most);
    if (most != map.values.end() && *least < 0) text += ", " + entry("least", least);
    return text + ".";
}

/// Of a map with entries that are NaN or infinite; else empty.
std::string left_blank(const Map& map) {
    const auto bad = std::ranges::count_if(map.values, [](double v) { return !std::isfinite(v); });
    if (bad == 0) return {};
    return fmt::format(" Layer {}, head {}: {} of {} entries {} NaN or infinite, and left blank.",
                       map.at.layer, map.at.head, bad, map.values.size(), bad == 1 ? "is" : "are");
}

/// Those of heads.
std::vector<const Map*> maps_of(const Table& table) {
    std::vector<const Map*> out;
    for (const Map& map : table.maps())
        if (map.at.head >= 0) out.push_back(&map);
    return out;
}

/// All maps side by side, each in shares of the end of its own colours, with blank lines between.
std::optional<Figure> gallery(const Table& table, const std::vector<const Map*>& maps) {
    const TableView rows(table);
    std::set<Index> layers, heads;
    for (const Map* map : maps) {
        layers.insert(map->at.layer);
        heads.insert(map->at.head);
    }
    if (maps.size() < least_of_gallery) return std::nullopt;
    constexpr Index pitch = tile + 1;
    Grid g{.rows = std::ssize(layers) * pitch,
           .cols = std::ssize(heads) * pitch,
           .row_title = "layer",
           .col_title = "head",
           .value_title = "P, share of the map's own range",
           .image = true,
           .tile = pitch};
    if (rows.models().size() == 1) g.model = rows.models().front();
    g.values.resize(std::size_t(g.rows * g.cols));
    for (const Index layer : layers) g.row_labels.push_back(fmt::format("{}", layer));
    for (const Index head : heads) g.col_labels.push_back(fmt::format("{}", head));
    for (const Map* map : maps) {
        Grid one = grid_of(*map, tile);
        set_colours(one);
        const Index top = std::distance(layers.begin(), layers.find(map->at.layer)) * pitch,
                    left = std::distance(heads.begin(), heads.find(map->at.head)) * pitch;
        const bool diverges = one.palette == Palette::diverging;
        if (diverges) g.palette = Palette::diverging;
        const double low = diverges ? 0 : one.low.value_or(0),
                     span = std::max(std::abs(one.high.value_or(1) - low), 1e-300);
        for (Index i = 0; i < tile; ++i)
            for (Index j = 0; j < tile; ++j)
                if (const auto& v = one.values[std::size_t(i * one.rows / tile * one.cols +
                                                           j * one.cols / tile)])
                    g.values[std::size_t((top + i) * g.cols + left + j)] =
                        std::clamp((*v - low) / span, -1.0, 1.0);
    }
    g.low = g.palette == Palette::diverging ? -1 : 0;
    g.high = 1;
    return Figure{
        .name = "attention_maps_gallery",
        .title = "All kept attention maps",
        .caption = fmt::format("P of {} heads for the first sample, as {} x {} means, each in "
                               "colours of its own that end at the 99.5 % quantile of its entries. "
                               "Hatched (blank on paper): masked diagonals, all entries exactly 0.",
                               maps.size(), tile, tile),
        .alt = fmt::format("A gallery of {} attention maps: {} layers downwards, {} heads across.",
                           maps.size(), layers.size(), heads.size()),
        .panels = {{.title = "P, one map per head", .grid = std::move(g)}}};
}

Figure figure_of_maps(std::size_t k) {
    return {.name = k == 1 ? "attention_maps" : fmt::format("attention_maps_{}", k),
            .title = k == 1 ? "Attention maps" : fmt::format("Attention maps, {}", k),
            .caption =
                "P of single heads for the first sample: row i shows what token (or channel) i "
                "attends to. Colours end at the 99.5 % quantile of the entries; with negative "
                "entries they diverge from 0. Hatched (blank on paper): masked diagonals, all "
                "entries exactly 0.",
            .alt = "Attention maps."};
}

Plot panel_of(const Map& map) {
    Grid g = grid_of(map, most_pixels);
    set_colours(g);
    g.layer = map.at.layer;
    g.head = map.at.head;
    const bool channels = map.name == "channels";
    g.tokens = !channels;
    g.row_title = channels ? "channel" : "token";
    g.col_title = channels ? "from channel" : "attends to";
    g.value_title = "P";
    const std::string means = g.step > 1 ? fmt::format(", means of {0} x {0}", g.step) : "";
    return {.title = fmt::format("layer {}, head {}{}", map.at.layer, map.at.head, means),
            .grid = g};
}

/// About: a byte and a third an entry of the image, and the numbers of small maps.
Index bytes_of(const Map& map) {
    const Index entries = std::min(map.rows, most_pixels) * std::min(map.cols, most_pixels);
    return entries * (entries <= 4096 ? 9 : 2);
}

std::vector<Figure> make_attention_maps(const Table& table) {
    std::vector<Figure> found;
    Index bytes = 0;
    std::size_t left_out = 0;
    const std::vector<const Map*> maps = maps_of(table);
    for (const Map* one : maps) {
        const Map& map = *one;
        if (map.rows == 0 || map.cols == 0) continue;
        bytes += bytes_of(map);
        if (bytes > most_bytes && !found.empty()) {
            ++left_out;
            continue;
        }
        if (found.empty() || found.back().panels.size() == panels_a_figure)
            found.push_back(figure_of_maps(found.size() + 1));
        found.back().alt += " " + map_in_words(map);
        found.back().caption += left_blank(map);
        found.back().panels.push_back(panel_of(map));
    }
    if (left_out > 0)
        found.back().caption += fmt::format(
            " {} more maps would make the page too large: the gallery and maps.npz have "
            "them.",
            left_out);
    if (std::optional<Figure> all = gallery(table, maps))
        found.insert(found.begin(), *std::move(all));
    return found;
}

}  // namespace

extern const FigureEntry attention_maps = {.name = "attention_maps",
                                           .title = "Attention maps",
                                           .needs = {"maps"},
                                           .make = make_attention_maps};

}  // namespace tsdiag::reports
