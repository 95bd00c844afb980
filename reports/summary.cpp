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
    /// Characters of the longest number, and of the longest error, from its point on.
    std::size_t after_point = 0, after_point_of_error = 0;
    std::size_t widest_error = 0;  ///< in characters; 0: no number has one
};

/// The characters from the point on.
std::size_t after_point(const std::string& number) {
    return number.size() - std::min(number.find('.'), number.size());
}

constexpr std::string_view plus_minus = " \u00b1 ";

/// A number, and its error where it has one.
std::pair<std::string, std::string> number_and_error(const Point& p) {
    const std::string text = with_error(*p.value, p.error);
    const std::size_t at = text.find(plus_minus);
    if (at == std::string::npos) return {text, ""};
    return {text.substr(0, at), text.substr(at + plus_minus.size())};
}

/// What the column is as wide as.
void measure(Column& column) {
    for (const auto& [layer, p] : column.depth) {
        if (!p.value) continue;
        const auto [value, error] = number_and_error(p);
        column.after_point = std::max(column.after_point, after_point(value));
        column.after_point_of_error = std::max(column.after_point_of_error, after_point(error));
        column.widest_error = std::max(column.widest_error, error.size());
    }
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
        measure(c);
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
    const auto [value, error] = number_and_error(p);
    std::string text = aligned(value, column.after_point);
    if (!error.empty())
        text += std::string(plus_minus) + aligned(error, column.after_point_of_error);
    else if (column.widest_error > 0)  // its point stands below the others', too
        for (std::size_t i = 0; i < column.widest_error + 2; ++i) text += "\u2007";
    return fmt::format("<td>{}</td>", text);
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
    const bool scattered =
        std::ranges::any_of(columns, [](const Column& c) { return c.widest_error > 0; });
    const std::string whose = rows.models().size() > 1 ? html(label(model)) + ": " : "";
    return table_html(
        {.label = "Numbers by layer",
         .caption = whose +
                    "Each metric by layer, at the stage under its name. Attention metrics are "
                    "means over heads; all metrics are means over samples" +
                    (scattered ? ", \u00b1 standard error." : ".") + left_out,
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
