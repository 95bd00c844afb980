#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tsdiag/error.hpp"

/// Bounds-checked reading of little-endian bytes, and overflow-checked arithmetic of sizes.
namespace tsdiag::checkpoint {

static_assert(std::endian::native == std::endian::little, "files are read in place");

using Bytes = std::span<const std::byte>;

/// Throws `FormatError` "where: sentence".  The sentence may quote the file: control characters are
/// replaced, and long names are truncated.
[[noreturn]] inline void refuse(std::string_view where, std::string_view sentence) {
    constexpr std::size_t longest = 2000;
    std::string message = std::string(where) + ": " + std::string(sentence.substr(0, longest));
    if (sentence.size() > longest) message += " ...";
    for (char& c : message)
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
    throw FormatError(message);
}

/// The T at `at`; the caller has checked that it lies inside.
template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// a b and a + b; nullopt where the result exceeds 64 bits.
inline std::optional<std::int64_t> times(std::int64_t a, std::int64_t b) {
    std::int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}
inline std::optional<std::int64_t> plus(std::int64_t a, std::int64_t b) {
    std::int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

/// Does [at, at + length) lie inside `size` bytes?
inline bool inside(std::uint64_t at, std::uint64_t length, std::uint64_t size) {
    return at <= size && length <= size - at;
}

inline std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline bool starts_with(Bytes bytes, std::string_view magic) {
    return text_of(bytes).starts_with(magic);
}

/// Reads values in sequence; throws `FormatError` where the bytes end too early.
class ByteReader {
  public:
    ByteReader(Bytes bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

    std::size_t position() const { return at_; }
    std::size_t left() const { return bytes_.size() - at_; }
    const std::string& where() const { return where_; }

    template <class T>
    T take() {
        return load<T>(take_bytes(sizeof(T)).data());
    }
    Bytes take_bytes(std::uint64_t count) {
        if (count > left())
            refuse(where_, "ends at byte " + std::to_string(bytes_.size()) + " where " +
                               std::to_string(count) + " more bytes are expected at byte " +
                               std::to_string(at_) +
                               ". Is the file complete? Download or save it again.");
        const Bytes taken = bytes_.subspan(at_, std::size_t(count));
        at_ += taken.size();
        return taken;
    }
    /// The text up to the next '\n', which is skipped.
    std::string_view take_line() {
        const std::string_view rest = text_of(bytes_.subspan(at_));
        const std::size_t length = rest.find('\n');
        if (length == std::string_view::npos)
            refuse(where_, "has no line end after byte " + std::to_string(at_) +
                               ", expected one. Is the file complete? Download or save it again.");
        at_ += length + 1;
        return rest.substr(0, length);
    }

  private:
    Bytes bytes_;
    std::string where_;
    std::size_t at_ = 0;
};

}  // namespace tsdiag::checkpoint
