#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "tsdiag/error.hpp"
#include "tsdiag/units.hpp"

namespace tsdiag {
namespace {

static_assert(std::endian::native == std::endian::little, "doubles are written as they stand");
constexpr int bits = 7;  // of a number in one byte

}  // namespace

void RecordWriter::count(std::uint64_t n) {
    for (; n >> bits != 0; n >>= bits) bytes_.push_back(char((n & 127) | 128));
    bytes_.push_back(char(n));
}

void RecordWriter::real(double x) {
    char bytes[sizeof x];
    std::memcpy(bytes, &x, sizeof x);
    bytes_.append(bytes, sizeof x);
}

void RecordWriter::real(const std::optional<double>& x) {
    flag(x.has_value());
    if (x) real(*x);
}

void RecordWriter::text(std::string_view s) {
    count(s.size());
    bytes_.append(s);
}

void RecordWriter::reals(const std::vector<double>& all) {
    count(all.size());
    for (const double x : all) real(x);
}

void RecordReader::refuse(std::string_view what) const {
    throw FormatError(fmt::format("{}: {}; it is damaged or of another version.", source_, what));
}

std::string_view RecordReader::take(std::size_t count) {
    if (count > rest_.size()) refuse("ends in the middle of a record");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
}

std::uint64_t RecordReader::count() {
    std::uint64_t n = 0;
    for (int shift = 0; shift < 64; shift += bits) {
        const auto byte = std::uint64_t((unsigned char)(take(1).front()));
        const std::uint64_t part = (byte & 127) << shift;
        if (part >> shift != (byte & 127)) break;  // more than 64 bits
        n |= part;
        if ((byte & 128) == 0) return n;
    }
    refuse("has a number of more than 64 bits");
}

std::size_t RecordReader::length(std::size_t least) {
    const std::uint64_t n = count();
    if (n > rest_.size() / least) refuse("ends in the middle of a record");
    return std::size_t(n);
}

Index RecordReader::index() {
    const std::uint64_t n = count();
    if (n > std::uint64_t{1} << 62) refuse("has an index beyond all sizes");
    return Index(n) - 1;
}

double RecordReader::real() {
    double x = 0;
    std::memcpy(&x, take(sizeof x).data(), sizeof x);
    return x;
}

std::optional<double> RecordReader::maybe_real() {
    return flag() ? std::optional(real()) : std::nullopt;
}

bool RecordReader::flag() {
    const char byte = take(1).front();
    if (byte != 0 && byte != 1) refuse("has a byte that is neither yes nor no");
    return byte == 1;
}

std::string_view RecordReader::view() { return take(length()); }

std::vector<double> RecordReader::reals() {
    auto all = std::vector<double>(length(sizeof(double)));
    for (double& x : all) x = real();
    return all;
}

void RecordReader::end() const {
    if (!rest_.empty()) refuse("goes on behind its last record");
}

}  // namespace tsdiag
