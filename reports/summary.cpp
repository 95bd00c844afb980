#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"

/// The table of the layers.
namespace tsdiag::reports {
namespace {

constexpr std::size_t most_table_rows = 64;  ///< of more, every k-th is shown

struct Column {
    const Metric* metric;
    std::string stage;
    Depth depth = {};
    std::size_t after_point = 0;  ///< characters of the longest number from its point on
};

/// The characters from the point on.
std::size_t after_point(const std::string& number) {
    return number.size() - std::min(number.find('.'), number.size());
}

/// The longest of a column.
std::size_t after_point(const Depth& depth) {
    std::size_t most = 0;
    for (const auto& [layer, p] : depth)
        if (p.value) most = std::max(most, after_point(number(*p.value)));
    return most;
}

/// The metrics of the page that have a number.
std::vector<Column> columns_of(const TableView& rows, const std::string& model) {
    std::vector<Column> found;
    for (const Metric* metric : metrics()) {
        if (!has(metric->show, Show::page)) continue;
        const std::string stage = rows.stage_of(model, *metric);
        Column c{metric, stage, rows.depth(model, metric->name, stage)};
        const auto defined = [](const auto& entry) { return entry.second.value.has_value(); };
        if (!std::any_of(c.depth.begin(), c.depth.end(), defined)) continue;
        c.after_point = after_point(c.depth);
        found.push_back(std::move(c));
    }
    return found;
}

/// A number whose point stands below the others' of its column: spaces as wide as what it lacks.
std::string aligned(const std::string& number, std::size_t most) {
    std::string out = number;
    const std::size_t own = after_point(number);
    for (std::size_t i = own; i < most; ++i) out += i == 0 ? "\u2008" : "\u2007";
    return out;
}

std::string cell(const Column& column, Index layer) {
    const auto found = column.depth.find(layer);
    if (found == column.depth.end()) return "<td></td>";
    const Point& p = found->second;
    if (!p.value) return "<td title=\"undefined\">\u2013</td>";
    const std::string value = aligned(number(*p.value), column.after_point);
    if (!p.error) return fmt::format("<td>{}</td>", value);
    return fmt::format("<td title=\"standard error {}\">{}</td>", number(*p.error), value);
}

std::string model_table(const TableView& rows, const std::string& model) {
    const std::vector<Column> columns = columns_of(rows, model);
    std::set<Index> layers;
    for (const Column& c : columns)
        for (const auto& [layer, p] : c.depth) layers.insert(layer);
    if (layers.empty()) return {};
    const std::size_t step = (layers.size() + most_table_rows - 1) / most_table_rows;
    std::vector<HtmlTable::Column> titles = {{"layer"}};
    for (const Column& c : columns)
        titles.push_back({fmt::format("{}<small>{}</small>", c.metric->name, html(c.stage)),
                          fmt::format(" title=\"{}\"", html(in_words(*c.metric)))});
    std::string body;
    std::size_t i = 0;
    for (Index layer : layers) {
        if (i++ % step != 0 && i != layers.size()) continue;
        body += fmt::format("<tr><th scope=\"row\">{}</th>", layer);
        for (const Column& c : columns) body += cell(c, layer);
        body += "</tr>\n";
    }
    const std::string left_out =
        step > 1 ? fmt::format(" One layer in {} is shown; metrics.csv has all.", step) : "";
    const std::string whose = rows.models().size() > 1 ? html(label(model)) + ": " : "";
    return table_html(
        {.label = "Numbers by layer",
         .caption = whose +
                    "Each metric by layer, at the stage under its name. Attention metrics are "
                    "means over heads; all metrics are means over samples." +
                    left_out,
         .columns = std::move(titles),
         .rows = std::move(body)});
}

}  // namespace

std::string summary_html(const Table& table) {
    const TableView rows(table);
    std::string out;
    for (const std::string& model : rows.models()) out += model_table(rows, model);
    return out;
}

}  // namespace tsdiag::reports
