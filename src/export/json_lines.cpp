#include "formats.hpp"
#include "tsdiag/json.hpp"

/// JSON lines: one object a row; `table` and the columns are its keys.
namespace tsdiag::exports {
namespace {

template <class T>
Json or_null(const std::optional<T>& cell) {
    return cell ? Json(*cell) : Json();
}

Json cell_of(const ExportColumn& column, std::size_t row) {
    switch (column.type) {
        case ExportColumn::Type::text:
            return or_null(column.texts[row]);
        case ExportColumn::Type::integer:
            return or_null(column.integers[row]);
        case ExportColumn::Type::number:
            break;
    }
    return or_null(column.numbers[row]);
}

std::vector<ExportedFile> write(std::span<const ExportTable> tables) {
    ExportedFile out;
    for (const ExportTable& table : tables) {
        for (std::size_t r = 0; r < std::size_t(table.rows); ++r) {
            Json row;
            row.set("table", table.name);
            for (const ExportColumn& column : table.columns)
                row.set(column.name, cell_of(column, r));
            out.content += row.dump() + "\n";
        }
        out.rows += table.rows;
    }
    return {std::move(out)};
}

}  // namespace

const ExportFormat json_lines = {"jsonl", "one JSON object per number", "", write};

}  // namespace tsdiag::exports
