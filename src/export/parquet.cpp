#include <algorithm>
#include <bit>
#include <cstdint>
#include <unordered_map>

#include "formats.hpp"
#include "tsdiag/error.hpp"

/// Apache Parquet, format version 1 (https://parquet.apache.org/docs/file-format/): one file a
/// table.  Every column is OPTIONAL.  Numbers are PLAIN, texts RLE_DICTIONARY; nothing is
/// compressed.  A file is
///
///     "PAR1", for each group of rows and each column its pages, FileMetaData, its length, "PAR1"
///
/// where headers of pages and FileMetaData are structures in Thrift's compact protocol.
namespace tsdiag::exports {
namespace {

using Type = ExportColumn::Type;

constexpr std::string_view magic = "PAR1";
constexpr Index rows_a_group = 1 << 16;

enum Physical : int { int64 = 2, float64 = 5, byte_array = 6 };
enum Encoding : int { plain = 0, rle = 3, rle_dictionary = 8 };
enum Page : int { data_page = 0, dictionary_page = 2 };

/// Writes structures in Thrift's compact protocol.
class Thrift {
  public:
    void i32(int id, std::int64_t value) { field(id, 5), zigzag(value); }
    void i64(int id, std::int64_t value) { field(id, 6), zigzag(value); }
    void text(int id, std::string_view value) { field(id, 8), bare_text(value); }
    void begin(int id) { field(id, 12), open(); }
    /// A list; its elements follow.
    void list(int id, std::size_t count, int type) {
        field(id, 9);
        if (count < 15) {
            out_ += char(count << 4U | unsigned(type));
        } else {
            out_ += char(0xF0U | unsigned(type));
            append_varint(out_, count);
        }
    }
    void open() { last_.push_back(0); }
    void end() {
        out_ += '\0';
        last_.pop_back();
    }
    void zigzag(std::int64_t value) {
        append_varint(out_, (std::uint64_t(value) << 1U) ^ std::uint64_t(value >> 63));
    }
    void bare_text(std::string_view value) {
        append_varint(out_, value.size());
        out_ += value;
    }
    std::string take() { return std::move(out_); }

    static constexpr int integers = 5, texts = 8, structures = 12;  ///< types of elements

  private:
    void field(int id, int type) {
        out_ += char((id - last_.back()) << 4 | type);  // ids here ascend by at most 15
        last_.back() = id;
    }
    std::string out_;
    std::vector<int> last_ = {};
};

/// The hybrid encoding of runs, each of equal values.
template <class Value>
std::string runs(std::size_t count, int bytes, Value value) {
    std::string out;
    for (std::size_t i = 0; i < count;) {
        std::size_t end = i + 1;
        while (end < count && value(end) == value(i)) ++end;
        append_varint(out, (end - i) << 1U);
        append_bytes(out, value(i), bytes);
        i = end;
    }
    return out;
}

/// Which cells are there: definition levels of one bit.
template <class Cells>
std::string levels(const Cells& cells) {
    const std::string body =
        runs(cells.size(), 1, [&](std::size_t i) { return std::uint64_t(cells[i].has_value()); });
    std::string out;
    append_bytes(out, body.size(), 4);
    return out + body;
}

struct Chunk {
    Physical type = int64;
    std::string dictionary = {}, values = {};  ///< bodies of pages
    std::size_t distinct = 0;
    bool has_dictionary = false;
};

Chunk chunk_of(std::span<const std::optional<Index>> cells) {
    Chunk out{.type = int64, .values = levels(cells)};
    for (const auto& cell : cells)
        if (cell) append_bytes(out.values, std::uint64_t(*cell), 8);
    return out;
}

Chunk chunk_of(std::span<const std::optional<double>> cells) {
    Chunk out{.type = float64, .values = levels(cells)};
    for (const auto& cell : cells)
        if (cell) append_bytes(out.values, std::bit_cast<std::uint64_t>(*cell), 8);
    return out;
}

Chunk chunk_of(std::span<const std::optional<std::string>> cells) {
    Chunk out{.type = byte_array, .values = levels(cells), .has_dictionary = true};
    std::unordered_map<std::string_view, std::uint64_t> known;
    std::vector<std::uint64_t> keys;
    for (const auto& cell : cells) {
        if (!cell) continue;
        const auto [at, fresh] = known.emplace(*cell, known.size());
        keys.push_back(at->second);
        if (!fresh) continue;
        append_bytes(out.dictionary, cell->size(), 4);
        out.dictionary += *cell;
    }
    out.distinct = known.size();
    const int bits = std::max(1, int(std::bit_width(std::max<std::size_t>(known.size(), 1) - 1)));
    out.values += char(bits);
    out.values += runs(keys.size(), (bits + 7) / 8, [&](std::size_t i) { return keys[i]; });
    return out;
}

Chunk chunk_of(const ExportColumn& column, std::size_t from, std::size_t count) {
    switch (column.type) {
        case Type::text:
            return chunk_of(std::span(column.texts).subspan(from, count));
        case Type::integer:
            return chunk_of(std::span(column.integers).subspan(from, count));
        case Type::number:
            break;
    }
    return chunk_of(std::span(column.numbers).subspan(from, count));
}

/// PageHeader and the body.
std::string page(Page type, const std::string& body, std::size_t values, Encoding encoding) {
    check(body.size() < (std::size_t(1) << 31), "a page of Parquet is below 2 GiB");
    Thrift head;
    head.open();
    head.i32(1, type);
    head.i32(2, std::int64_t(body.size()));
    head.i32(3, std::int64_t(body.size()));
    head.begin(type == data_page ? 5 : 7);
    head.i32(1, std::int64_t(values));
    head.i32(2, encoding);
    if (type == data_page) {
        head.i32(3, rle);
        head.i32(4, rle);
    }
    head.end();
    head.end();
    return head.take() + body;
}

/// A column of a group of rows as it lies in the file.
struct Placed {
    Physical type = int64;
    bool has_dictionary = false;
    std::size_t begin = 0, data = 0, end = 0;
};

Placed place(const Chunk& chunk, std::size_t rows, std::string& file) {
    Placed out{.type = chunk.type, .has_dictionary = chunk.has_dictionary, .begin = file.size()};
    if (chunk.has_dictionary)
        file += page(dictionary_page, chunk.dictionary, chunk.distinct, plain);
    out.data = file.size();
    file += page(data_page, chunk.values, rows, chunk.has_dictionary ? rle_dictionary : plain);
    out.end = file.size();
    return out;
}

void add_schema(Thrift& out, const ExportTable& table) {
    out.list(2, table.columns.size() + 1, Thrift::structures);
    out.open();
    out.text(4, table.name);
    out.i32(5, std::int64_t(table.columns.size()));
    out.end();
    for (const ExportColumn& column : table.columns) {
        out.open();
        out.i32(1, column.type == Type::text      ? byte_array
                   : column.type == Type::integer ? int64
                                                  : float64);
        out.i32(3, 1);  // OPTIONAL
        out.text(4, column.name);
        if (column.type == Type::text) {
            out.i32(6, 0);  // UTF8
            out.begin(10);  // LogicalType: STRING
            out.begin(1);
            out.end();
            out.end();
        }
        out.end();
    }
}

void add_chunk(Thrift& out, const Placed& chunk, const std::string& name, std::size_t rows) {
    out.open();
    out.i64(2, std::int64_t(chunk.begin));
    out.begin(3);
    out.i32(1, chunk.type);
    out.list(2, chunk.has_dictionary ? 3 : 2, Thrift::integers);
    out.zigzag(plain);
    out.zigzag(rle);
    if (chunk.has_dictionary) out.zigzag(rle_dictionary);
    out.list(3, 1, Thrift::texts);
    out.bare_text(name);
    out.i32(4, 0);  // UNCOMPRESSED
    out.i64(5, std::int64_t(rows));
    out.i64(6, std::int64_t(chunk.end - chunk.begin));
    out.i64(7, std::int64_t(chunk.end - chunk.begin));
    out.i64(9, std::int64_t(chunk.data));
    if (chunk.has_dictionary) out.i64(11, std::int64_t(chunk.begin));
    out.end();
    out.end();
}

struct Group {
    std::size_t rows = 0;
    std::vector<Placed> columns = {};
};

std::string footer(const ExportTable& table, const std::vector<Group>& groups) {
    Thrift out;
    out.open();
    out.i32(1, 1);  // version of the format
    add_schema(out, table);
    out.i64(3, table.rows);
    out.list(4, groups.size(), Thrift::structures);
    for (const Group& group : groups) {
        out.open();
        out.list(1, group.columns.size(), Thrift::structures);
        for (std::size_t c = 0; c < group.columns.size(); ++c)
            add_chunk(out, group.columns[c], table.columns[c].name, group.rows);
        out.i64(2, std::int64_t(group.columns.back().end - group.columns.front().begin));
        out.i64(3, std::int64_t(group.rows));
        out.end();
    }
    out.text(6, "tsdiag version " TSDIAG_VERSION);
    out.end();
    return out.take();
}

std::string file_of(const ExportTable& table) {
    std::string file(magic);
    std::vector<Group> groups;
    for (Index from = 0; from < table.rows; from += rows_a_group) {
        Group group{.rows = std::size_t(std::min(rows_a_group, table.rows - from))};
        for (const ExportColumn& column : table.columns)
            group.columns.push_back(
                place(chunk_of(column, std::size_t(from), group.rows), group.rows, file));
        groups.push_back(std::move(group));
    }
    const std::string end = footer(table, groups);
    file += end;
    append_bytes(file, end.size(), 4);
    return file += magic;
}

std::vector<ExportedFile> write(std::span<const ExportTable> tables) {
    std::vector<ExportedFile> out;
    for (const ExportTable& table : tables)
        out.push_back({table.name + ".parquet", file_of(table), table.name, table.rows});
    return out;
}

}  // namespace

const ExportFormat parquet = {"parquet", "Apache Parquet, one file a table", "*.parquet", write};

}  // namespace tsdiag::exports
