#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "described.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/table.hpp"

/// The tables of a result as it keeps them.
namespace tsdiag {
namespace {

constexpr std::string_view metrics_header =
    "model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note";
constexpr std::string_view description_header = "of,unit";
constexpr std::string_view curves_header = "model,step,layer,stage,head,curve,x,y,stderr,count";

/// The line of a row, up to its head.
CsvLine placed_line(std::string& out, const std::string& model, const Place& at) {
    CsvLine line(out);
    line.text(model).index(at.step).index(at.layer).text(at.stage).index(at.head);
    return line;
}

}  // namespace

std::string metrics_csv(const std::vector<MetricRow>& rows) {
    std::string out = fmt::format("{},{}\n", metrics_header, description_header);
    for (const MetricRow& r : rows)
        placed_line(out, r.model, r.at)
            .text(r.at.tensor)
            .text(r.metric)
            .number(r.value)
            .number(r.low)
            .number(r.high)
            .number(r.standard_error)
            .index(r.count)
            .text(r.note)
            .text(described_by(r))
            .text(unit_of(r))
            .end();
    return out;
}

std::string curves_csv(const std::vector<CurveRow>& rows) {
    std::string out(curves_header);
    out += '\n';
    for (const CurveRow& r : rows)
        placed_line(out, r.model, r.at)
            .text(r.curve)
            .number(r.x)
            .number(r.y)
            .number(r.standard_error)
            .index(r.count)
            .end();
    return out;
}

namespace {

/// A layer or a head, bounded so that figures can enumerate them.
Index place(const CsvReader& in, std::size_t column) {
    constexpr Index most = 1'000'000;
    const Index at = in.index(column);
    if (at > most)
        in.fail(fmt::format("'{}' found in column {}, expected a layer or head of at most {}", at,
                            column + 1, most));
    return at;
}

/// Earlier versions did not write what a number is of, nor its unit.
std::string header_of_metrics(std::string_view text) {
    const std::string_view first = text.substr(0, text.find_first_of("\r\n"));
    if (first.ends_with(metrics_header)) return std::string(metrics_header);
    return fmt::format("{},{}", metrics_header, description_header);
}

}  // namespace

std::vector<MetricRow> read_metrics_csv(std::string_view text, std::string_view source) {
    std::vector<MetricRow> rows;
    for (CsvReader in(text, source, header_of_metrics(text)); in.next();) {
        MetricRow& r = rows.emplace_back();
        r.model = in.text(0);
        r.at = {in.index(1), place(in, 2), in.text(3), place(in, 4), in.text(5)};
        r.metric = in.text(6);
        r.value = in.number(7);
        r.low = in.number(8);
        r.high = in.number(9);
        r.standard_error = in.number(10);
        r.count = in.integer(11);
        r.note = in.text(12);
    }
    return rows;
}

namespace {

std::string header_of_samples(std::size_t count) {
    std::string header = "layer,stage,tensor,metric";
    for (std::size_t i = 0; i < count; ++i) header += fmt::format(",{}", i);
    return header;
}

constexpr std::size_t first_sample = 4;  // its column

}  // namespace

std::string samples_csv(const std::vector<MetricRow>& rows, Index count) {
    const auto has_all = [&](const MetricRow& row) { return std::ssize(row.samples) == count; };
    if (count < 2 || std::ranges::none_of(rows, has_all)) return {};
    std::string out = header_of_samples(std::size_t(count)) + "\n";
    for (const MetricRow& row : rows) {
        if (!has_all(row)) continue;
        CsvLine line(out);
        line.index(row.at.layer).text(row.at.stage).text(row.at.tensor).text(row.metric);
        for (const std::optional<double>& value : row.samples) line.number(value);
        line.end();
    }
    return out;
}

void read_samples_csv(std::string_view text, std::string_view source, Index count, Index step,
                      std::vector<MetricRow>& rows) {
    if (count < 2 || std::size_t(count) > Table::most_samples_kept)
        throw FormatError(
            fmt::format("{}: is of {} samples, expected 2 to {}; it was not written by tsdiag.",
                        source, count, Table::most_samples_kept));
    using Key = std::tuple<Index, std::string, std::string, std::string>;
    std::map<Key, MetricRow*> row_of;
    for (MetricRow& row : rows)
        if (row.at.head < 0 && row.at.step == step)
            row_of[{row.at.layer, row.at.stage, row.at.tensor, row.metric}] = &row;
    for (CsvReader in(text, source, header_of_samples(std::size_t(count))); in.next();) {
        const auto row = row_of.find({place(in, 0), in.text(1), in.text(2), in.text(3)});
        if (row == row_of.end()) in.fail("metrics.csv has no such row");
        std::vector<std::optional<double>>& samples = row->second->samples;
        if (!samples.empty()) in.fail("the same row is there twice");
        for (Index i = 0; i < count; ++i)
            samples.push_back(in.number(first_sample + std::size_t(i)));
    }
}

std::vector<CurveRow> read_curves_csv(std::string_view text, std::string_view source) {
    std::vector<CurveRow> rows;
    for (CsvReader in(text, source, curves_header); in.next();) {
        CurveRow& r = rows.emplace_back();
        r.model = in.text(0);
        r.at = {in.index(1), place(in, 2), in.text(3), place(in, 4), {}};
        r.curve = in.text(5);
        r.x = in.required(6);
        r.y = in.number(7);
        r.standard_error = in.number(8);
        r.count = in.integer(9);
    }
    return rows;
}

}  // namespace tsdiag
