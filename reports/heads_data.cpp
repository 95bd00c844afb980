#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "drawing.hpp"
#include "page.hpp"
#include "rows.hpp"
#include "tsdiag/intervals.hpp"

/// The numbers of single heads, for the look at a cell of the page.
namespace tsdiag::reports {
namespace {

constexpr double most_numbers_of_heads = 1 << 16;  ///< about 1 MB of page
constexpr std::size_t most_points_of_heads = 1 << 14;

/// [value, low, high], [value] without an interval, null where undefined.
Json point_json(const Point& p) {
    if (!p.value) return nullptr;
    Json::Array out{rounded(p.value)};
    if (const Series s =
            line_of_means("", std::vector<MeanAt>{{0, p.value, p.error, double(p.count - 1)}});
        !s.low.empty())
        out.insert(out.end(), {rounded(s.low[0]), rounded(s.high[0])});
    return out;
}

struct HeadExtent {
    Index layers = 0, heads = 0;
};
/// Of the grid from layer 0, head 0 that holds all.
HeadExtent head_extent(const Heads& heads) {
    HeadExtent out;
    for (const auto& [at, p] : heads) {
        out.layers = std::max(out.layers, at.first + 1);
        out.heads = std::max(out.heads, at.second + 1);
    }
    return out;
}

Json cells_json(const Heads& heads) {
    const auto [layers, count] = head_extent(heads);
    Json::Array rows;
    for (Index l = 0; l < layers; ++l) {
        Json::Array row;
        for (Index h = 0; h < count; ++h) {
            const auto found = heads.find({l, h});
            row.push_back(found == heads.end() ? Json(nullptr) : point_json(found->second));
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

Json curves_json(const Table& table, const std::string& model) {
    std::map<std::string, Json::Array> curves;  // by "layer:head"
    std::size_t points = 0;
    for (const CurveRow& row : table.curves()) {
        if (row.model != model || row.curve != metric::local_acc || row.at.head < 0 || !row.y)
            continue;
        if (++points > most_points_of_heads) return Json::Object{};
        curves[fmt::format("{}:{}", row.at.layer, row.at.head)].push_back(
            Json::Array{rounded(row.x), rounded(row.y)});
    }
    Json out = Json::Object{};
    for (auto& [at, all] : curves) out.set(at, std::move(all));
    return out;
}

}  // namespace

Json heads_data(const Table& table) {
    const TableView rows(table);
    Json out = Json::Object{};
    double numbers = 0;  // cells without a value too: heads may be far apart
    for (const std::string& model : rows.models()) {
        Json::Array all;
        for (const Metric* metric : metrics()) {
            if (metric->of != Of::head) continue;
            const Heads heads = rows.heads(model, metric->name);
            const auto [layers, count] = head_extent(heads);
            numbers += double(layers) * double(count);
            if (heads.empty() || numbers > most_numbers_of_heads) continue;
            all.push_back(Json::Object{{"name", metric->name},
                                       {"title", title_of(metric->name)},
                                       {"cells", cells_json(heads)}});
        }
        if (all.empty()) continue;
        out.set(model,
                Json::Object{{"metrics", std::move(all)}, {"curves", curves_json(table, model)}});
    }
    return out;
}

}  // namespace tsdiag::reports
