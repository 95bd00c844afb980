#include "tsdiag/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tsdiag/error.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag {
namespace {

/// Whether a spreadsheet would evaluate the cell, or it already has the apostrophe against that.
bool is_formula(std::string_view cell) {
    return !cell.empty() && std::string_view("=+-@\t\r'").find(cell[0]) != std::string_view::npos;
}

}  // namespace

CsvLine& CsvLine::text(std::string_view s) {
    separate();
    if (is_formula(s)) return quoted("'" + std::string(s));
    return quoted(s);
}

CsvLine& CsvLine::quoted(std::string_view s) {
    if (s.find_first_of(",\"\r\n") == std::string_view::npos) {
        out_ += s;
        return *this;
    }
    out_ += '"';
    for (char c : s) {
        if (c == '"') out_ += '"';
        out_ += c;
    }
    out_ += '"';
    return *this;
}

CsvLine& CsvLine::index(Index i) {
    separate();
    if (i >= 0) fmt::format_to(std::back_inserter(out_), "{}", i);
    return *this;
}

CsvLine& CsvLine::number(std::optional<double> v) {
    separate();
    if (v) out_ += shortest(*v);
    return *this;
}

void CsvLine::separate() {
    if (!first_) out_ += ',';
    first_ = false;
}

CsvReader::CsvReader(std::string_view text, std::string_view source, std::string_view header)
    : text_(text), source_(source) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    const std::size_t columns = std::size_t(std::count(header.begin(), header.end(), ',')) + 1;
    if (!next() || joined() != header)
        fail(fmt::format("the header is '{}', expected '{}'", joined(), header));
    columns_ = columns;
}

CsvReader::CsvReader(std::string_view text, std::string_view source)
    : text_(text), source_(source), own_(false) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    if (!next()) fail("there is no header, expected the names of the columns");
    columns_ = fields_.size();
}

bool CsvReader::next() {
    fields_.clear();
    if (at_ >= text_.size()) return false;
    line_ += lines_;
    lines_ = 1;
    bool more = true;
    while (more) more = field();
    if (own_)
        for (std::string& field : fields_)
            if (field.starts_with('\'') && is_formula(std::string_view(field).substr(1)))
                field.erase(0, 1);
    if (columns_ && fields_.size() != columns_)
        fail(fmt::format("{} fields found, expected {}", fields_.size(), columns_));
    return true;
}

Index CsvReader::integer(std::size_t i) const {
    Index value = 0;
    const std::string& s = fields_[i];
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc() || end != s.data() + s.size() || value < 0)
        fail(fmt::format("'{}' found in column {}, expected a count", s, i + 1));
    return value;
}

std::optional<double> CsvReader::number(std::size_t i) const {
    const std::string& s = fields_[i];
    if (s.empty()) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc() || end != s.data() + s.size() || !std::isfinite(value))
        fail(fmt::format("'{}' found in column {}, expected a finite number", s, i + 1));
    return value;
}

double CsvReader::required(std::size_t i) const {
    const std::optional<double> v = number(i);
    if (!v) fail(fmt::format("column {} is empty, expected a number", i + 1));
    return *v;
}

void CsvReader::fail(const std::string& what) const {
    throw FormatError(fmt::format("{}: line {}: {}.{}", source_, line_ ? line_ : 1, what,
                                  own_ ? " Was it written by tsdiag?" : ""));
}

std::string CsvReader::joined() const { return fmt::format("{}", fmt::join(fields_, ",")); }

bool CsvReader::field() {
    std::string& out = fields_.emplace_back();
    if (at_ < text_.size() && text_[at_] == '"') quoted(out);
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
        out += text_[at_++];
    if (at_ < text_.size() && text_[at_] == ',') return ++at_, true;
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    return false;
}

void CsvReader::quoted(std::string& out) {
    ++at_;
    for (;;) {
        if (at_ >= text_.size()) fail("a quoted field is not terminated");
        const char c = text_[at_++];
        if (c == '\n') ++lines_;
        if (c != '"') {
            out += c;
        } else if (at_ < text_.size() && text_[at_] == '"') {
            out += '"';
            ++at_;
        } else {
            break;
        }
    }
    if (at_ < text_.size() && !std::strchr(",\r\n", text_[at_]))
        fail("text follows a closing quote");
}

std::string shortest(double value) {
    if (!std::isfinite(value))
        throw NonFiniteError(fmt::format("{} cannot be written as a decimal number.", value));
    char buffer[32];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
    return {buffer, end};
}

}  // namespace tsdiag
