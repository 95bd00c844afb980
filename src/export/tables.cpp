#include <algorithm>
#include <charconv>
#include <cmath>

#include "described.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/export.hpp"
#include "tsdiag/metric.hpp"

namespace tsdiag {
namespace {

using Type = ExportColumn::Type;

std::optional<std::string> text_or_null(std::string_view text) {
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
}
std::optional<Index> index_or_null(Index i) { return i < 0 ? std::nullopt : std::optional(i); }

template <class Rows, class Get>
ExportColumn texts(const char* name, const Rows& rows, Get get) {
    ExportColumn out{.type = Type::text, .name = name};
    for (const auto& row : rows) out.texts.push_back(text_or_null(get(row)));
    return out;
}
template <class Rows, class Get>
ExportColumn integers(const char* name, const Rows& rows, Get get) {
    ExportColumn out{.type = Type::integer, .name = name};
    for (const auto& row : rows) out.integers.push_back(get(row));
    return out;
}
template <class Rows, class Get>
ExportColumn numbers(const char* name, const Rows& rows, Get get) {
    ExportColumn out{.type = Type::number, .name = name};
    for (const auto& row : rows) out.numbers.push_back(get(row));
    return out;
}

/// The columns that rows of both tables begin with.
template <class Rows>
std::vector<ExportColumn> placed(const Rows& rows) {
    return {texts("model", rows, [](const auto& r) { return std::string_view(r.model); }),
            integers("step", rows, [](const auto& r) { return index_or_null(r.at.step); }),
            integers("layer", rows, [](const auto& r) { return index_or_null(r.at.layer); }),
            texts("stage", rows, [](const auto& r) { return std::string_view(r.at.stage); }),
            integers("head", rows, [](const auto& r) { return index_or_null(r.at.head); }),
            texts("tensor", rows, [](const auto& r) { return std::string_view(r.at.tensor); })};
}

bool is_missing(const MetricRow& row) { return !row.value && !row.low && !row.high; }

/// A finite number that the whole of `text` spells.
std::optional<double> number_in(const std::string& text) {
    double number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = failed == std::errc() && end == text.data() + text.size();
    return whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace

const ExportColumn* ExportTable::column(std::string_view wanted) const {
    const auto found = std::ranges::find(columns, wanted, &ExportColumn::name);
    return found == columns.end() ? nullptr : &*found;
}

ExportTable metrics_table(std::span<const MetricRow> rows) {
    using Row = const MetricRow&;
    ExportTable out{.name = "metrics", .rows = std::ssize(rows), .columns = placed(rows)};
    const auto add = [&](ExportColumn column) { out.columns.push_back(std::move(column)); };
    add(texts("metric", rows, [](Row r) { return std::string_view(r.metric); }));
    add(texts("of", rows, [](Row r) { return described_by(r); }));
    add(texts("unit", rows, [](Row r) { return unit_of(r); }));
    add(numbers("value", rows, [](Row r) { return r.value; }));
    add(numbers("low", rows, [](Row r) { return r.low; }));
    add(numbers("high", rows, [](Row r) { return r.high; }));
    add(numbers("stderr", rows, [](Row r) { return r.standard_error; }));
    add(integers("count", rows, [](Row r) { return std::optional(r.count); }));
    add(texts("undefined", rows,
              [](Row r) { return is_missing(r) ? std::string_view(r.note) : ""; }));
    add(texts("note", rows, [](Row r) { return is_missing(r) ? "" : std::string_view(r.note); }));
    return out;
}

ExportTable curves_table(std::span<const CurveRow> rows) {
    using Row = const CurveRow&;
    ExportTable out{.name = "curves", .rows = std::ssize(rows), .columns = placed(rows)};
    const auto add = [&](ExportColumn column) { out.columns.push_back(std::move(column)); };
    add(texts("curve", rows, [](Row r) { return std::string_view(r.curve); }));
    add(numbers("x", rows, [](Row r) { return std::optional(r.x); }));
    add(numbers("y", rows, [](Row r) { return r.y; }));
    add(numbers("stderr", rows, [](Row r) { return r.standard_error; }));
    add(integers("count", rows, [](Row r) { return std::optional(r.count); }));
    return out;
}

ExportTable csv_table(std::string name, std::string_view text, std::string_view source) {
    CsvReader in(text, source);
    ExportTable out{.name = std::move(name)};
    for (const std::string& title : in.fields())
        out.columns.push_back({.type = Type::text, .name = title});
    for (; in.next(); ++out.rows)
        for (std::size_t c = 0; c < out.columns.size(); ++c)
            out.columns[c].texts.push_back(text_or_null(in.text(c)));
    for (ExportColumn& column : out.columns) {
        for (const auto& cell : column.texts)
            column.numbers.push_back(cell ? number_in(*cell) : std::nullopt);
        const bool numeric = std::ranges::equal(column.texts, column.numbers,
                                                [](const auto& cell, const auto& number) {
                                                    return cell.has_value() == number.has_value();
                                                });
        column.type = numeric ? Type::number : Type::text;
        if (numeric)
            column.texts.clear();
        else
            column.numbers.clear();
    }
    return out;
}

}  // namespace tsdiag
