#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "commands.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/metric.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
Json text_or_null(std::string_view text) { return text.empty() ? Json() : Json(text); }
Json index_or_null(Index index) { return index < 0 ? Json() : Json(index); }

/// What a number is of.  A metric of heads without a head is their mean.
std::string_view described_by(const Metric* metric, const Place& at) {
    if (!metric) return "";
    switch (metric->of) {
        case Of::state:
            return "state";
        case Of::step:
            return "step";
        case Of::layer:
            return "layer";
        case Of::head:
            return at.head < 0 ? "mean over heads" : "head";
        case Of::gradient:
            return "gradient";
        case Of::curve:
            return "curve";
        case Of::series:
            return "series";
    }
    return "";
}

/// The members that objects of both tables begin with.
Json placed(const char* table, const std::string& model, const Place& at) {
    Json row;
    row.set("table", table).set("model", text_or_null(model)).set("step", index_or_null(at.step));
    row.set("layer", index_or_null(at.layer)).set("stage", text_or_null(at.stage));
    return row.set("head", index_or_null(at.head)).set("tensor", text_or_null(at.tensor));
}

Json metric_object(const MetricRow& m) {
    const Metric* metric = find_metric(m.metric);
    const bool missing = !m.value && !m.low && !m.high;
    Json row = placed("metrics", m.model, m.at);
    row.set("metric", m.metric).set("of", text_or_null(described_by(metric, m.at)));
    row.set("unit", text_or_null(metric ? metric->unit : ""));
    row.set("value", number_or_null(m.value)).set("low", number_or_null(m.low));
    row.set("high", number_or_null(m.high)).set("stderr", number_or_null(m.standard_error));
    row.set("count", m.count).set("undefined", text_or_null(missing ? m.note : ""));
    return row.set("note", text_or_null(missing ? "" : m.note));
}

Json point_object(const CurveRow& c) {
    Json row = placed("curves", c.model, c.at);
    row.set("curve", c.curve).set("x", c.x).set("y", number_or_null(c.y));
    return row.set("stderr", number_or_null(c.standard_error)).set("count", c.count);
}

/// A cell of a training's table: null, a number, or a text.
Json cell_of(const std::string& text) {
    if (text.empty()) return {};
    double number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = failed == std::errc() && end == text.data() + text.size();
    return whole && std::isfinite(number) ? Json(number) : Json(text);
}

/// The records of a table as they stand.
std::string records(const fs::path& file) {
    const std::string text = file_text(file, "a table");
    CsvReader in(text, file.string());
    const std::vector<std::string> names = in.fields();
    std::string out;
    while (in.next()) {
        Json row;
        row.set("table", file.stem().string());
        for (std::size_t i = 0; i < names.size(); ++i) row.set(names[i], cell_of(in.text(i)));
        out += row.dump() + "\n";
    }
    return out;
}

std::string json_lines(const fs::path& folder, const Json& run) {
    std::string out;
    for (const auto& [name, digest] : run["tables"].object()) {
        if (name == "metrics.csv")
            for (const MetricRow& row : read_metrics(folder))
                out += metric_object(row).dump() + "\n";
        else if (name == "curves.csv")
            for (const CurveRow& row : read_curves(folder)) out += point_object(row).dump() + "\n";
        else if (name.ends_with(".csv"))
            out += records(folder / name);
    }
    return out;
}

}  // namespace

int run_command(const ExportCommand& command) {
    if (command.to != "jsonl")
        throw UsageError(
            fmt::format("--to: '{}' is not a format, expected jsonl.", printable(command.to)));
    const fs::path folder = command.directory, out = command.out;
    std::error_code failed;
    if (!fs::is_directory(folder, failed))
        throw FormatError(fmt::format("{}: is not a directory, expected one written by tsdiag.",
                                      folder.string()));
    if (!out.empty() && fs::exists(fs::symlink_status(out, failed)) && !command.force)
        throw UsageError(
            fmt::format("--out: {} exists; choose another name or add --force.", out.string()));
    const Json run = read_description(folder);
    const std::string text = json_lines(folder, run);
    if (out.empty())
        print(text);
    else
        write_atomically(out, text);
    return 0;
}

}  // namespace tsdiag::cli
