#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"

/// Comma-separated values with the quoting of RFC 4180.
namespace tsdiag {

/// Appends the fields of one record to a text.
class CsvLine {
  public:
    explicit CsvLine(std::string& out) : out_(out) {}
    /// A text that a spreadsheet would evaluate, beginning with = + - @ or a tab, is prefixed with
    /// an apostrophe, which `CsvReader` removes.
    CsvLine& text(std::string_view s);
    CsvLine& index(Index i);                   ///< empty where negative
    CsvLine& number(std::optional<double> v);  ///< shortest decimal that round-trips; may be empty
    void end() { out_ += '\n'; }

  private:
    void separate();
    CsvLine& quoted(std::string_view s);
    std::string& out_;
    bool first_ = true;
};

/// Splits a text into records; every error is a `FormatError` that names source and line.
class CsvReader {
  public:
    /// Reads the first record, which must be `header`.
    CsvReader(std::string_view text, std::string_view source, std::string_view header);
    /// Reads the first record, whatever its names; every other must have as many fields.
    CsvReader(std::string_view text, std::string_view source);
    /// The next record; false after the last.
    bool next();
    const std::string& text(std::size_t i) const { return fields_[i]; }
    const std::vector<std::string>& fields() const { return fields_; }
    Index line() const { return line_; }  ///< where the record begins, from 1
    Index index(std::size_t i) const { return fields_[i].empty() ? -1 : integer(i); }
    Index integer(std::size_t i) const;
    std::optional<double> number(std::size_t i) const;
    double required(std::size_t i) const;
    [[noreturn]] void fail(const std::string& what) const;

  private:
    std::string joined() const;
    bool field();
    void quoted(std::string& out);

    std::string_view text_, source_;
    std::size_t at_ = 0, columns_ = 0;
    Index line_ = 0, lines_ = 1;  // the record's first line, and how many it spans
    std::vector<std::string> fields_;
    bool own_ = true;  // expected to be a table of tsdiag
};

}  // namespace tsdiag
