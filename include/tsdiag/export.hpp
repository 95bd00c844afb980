#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"

/// The tables of a result as files of other programs.
namespace tsdiag {

/// One column; of the three lists the one of its type has an entry a row.
struct ExportColumn {
    enum class Type { text, integer, number } type = Type::text;
    std::string name = {};
    std::vector<std::optional<std::string>> texts = {};
    std::vector<std::optional<Index>> integers = {};
    std::vector<std::optional<double>> numbers = {};  ///< finite
};
struct ExportTable {
    std::string name = {};  ///< "metrics"
    Index rows = 0;
    std::vector<ExportColumn> columns = {};
    /// Nullptr where there is none.
    const ExportColumn* column(std::string_view wanted) const;
};

/// Rows of metrics.csv: where a number belongs, `metric`, `of`, `unit`, `value`, `low`, `high`,
/// `stderr`, `count`, `undefined` (why there is no number), `note`.
ExportTable metrics_table(std::span<const MetricRow> rows);
ExportTable curves_table(std::span<const CurveRow> rows);
/// Another table, as it stands: a column whose cells are all numbers or empty is one of numbers.
/// Throws `FormatError` naming `source`.
ExportTable csv_table(std::string name, std::string_view text, std::string_view source);

struct ExportedFile {
    std::string name = {};  ///< empty: of a format that is one file
    std::string content = {};
    std::string table = {};  ///< empty: all of them
    Index rows = 0;
};
/// A format of `tsdiag export --to NAME`.
struct ExportFormat {
    std::string_view name, description;
    std::string_view files;  ///< pattern of their names in a folder; empty: a single file
    std::vector<ExportedFile> (*write)(std::span<const ExportTable> tables);
};
std::span<const ExportFormat* const> export_formats();

}  // namespace tsdiag
