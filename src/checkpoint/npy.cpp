#include "npy.hpp"

#include <fmt/format.h>

#include <charconv>

#include "layout.hpp"

namespace tsdiag::checkpoint {
namespace {

/// The Python dict literal of a header: only the three keys that NumPy writes.
class HeaderText {
  public:
    HeaderText(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

    void read() {
        expect('{');
        while (!skip('}')) {
            const std::string key = quoted();
            expect(':');
            if (key == "descr" && look() != '[')
                descr = quoted();
            else if (key == "descr")
                refuse(where_,
                       "contains records (a dtype with fields), expected numbers. Save each field "
                       "as a separate array.");
            else if (key == "fortran_order")
                fortran = boolean();
            else if (key == "shape")
                shape = tuple();
            else
                fail(fmt::format("key '{}'", key));
            ++keys;
            if (!skip(',') && look() != '}') fail("no comma");
        }
        if (look() != '\0') fail("text after the dict");
        if (keys != 3 || descr.empty()) fail("missing or repeated keys");
    }

    std::string descr;
    bool fortran = false;
    std::vector<std::int64_t> shape;

  private:
    [[noreturn]] void fail(const std::string& found) {
        refuse(where_, fmt::format("has an npy header with {}, expected a dict with descr, "
                                   "fortran_order and shape. Save the array again.",
                                   found));
    }
    char look() {
        const std::size_t first = rest_.find_first_not_of(" \t\n\r");
        rest_.remove_prefix(std::min(first, rest_.size()));
        return rest_.empty() ? '\0' : rest_[0];
    }
    bool skip(char c) {
        if (look() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }
    void expect(char c) {
        if (!skip(c)) fail(fmt::format("no '{}'", c));
    }
    std::string quoted() {
        const char quote = look();
        if (quote != '\'' && quote != '"') fail("no quoted string");
        const std::size_t end = rest_.find(quote, 1);
        if (end == std::string_view::npos) fail("an unterminated quote");
        const std::string word(rest_.substr(1, end - 1));
        rest_.remove_prefix(end + 1);
        return word;
    }
    bool boolean() {
        look();
        for (const bool b : {true, false}) {
            const std::string_view word = b ? "True" : "False";
            if (!rest_.starts_with(word)) continue;
            rest_.remove_prefix(word.size());
            return b;
        }
        fail("no True or False");
    }
    std::vector<std::int64_t> tuple() {
        std::vector<std::int64_t> sizes;
        expect('(');
        while (!skip(')')) {
            look();
            std::int64_t size = 0;
            const auto [end, error] =
                std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
            if (error != std::errc() || size < 0) fail("no size");
            rest_.remove_prefix(std::size_t(end - rest_.data()));
            skip('L');  // Python 2 wrote long integers so
            sizes.push_back(size);
            if (!skip(',') && look() != ')') fail("no comma");
        }
        return sizes;
    }

    std::string_view rest_;
    const std::string& where_;
    int keys = 0;
};

struct NumpyName {
    std::string_view name;
    DType dtype;
};
constexpr NumpyName numpy_names[] = {
    {"b1", DType::boolean}, {"u1", DType::u8},    {"i1", DType::i8},  {"u2", DType::u16},
    {"i2", DType::i16},     {"u4", DType::u32},   {"i4", DType::i32}, {"u8", DType::u64},
    {"i8", DType::i64},     {"f2", DType::f16},   {"f4", DType::f32}, {"f8", DType::f64},
    {"c8", DType::c64},     {"c16", DType::c128},
};

/// Bytes per element of a listed-only type, from its letter and number: U counts characters.
std::size_t listed_width(std::string_view kind) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(kind.data() + 1, kind.data() + kind.size(), number);
    if (error != std::errc() || number > 1u << 30) return 0;
    if (*kind.data() == 'U') number *= 4;
    const bool plain = end == kind.data() + kind.size() || *end == '[';  // "M8[ns]"
    return plain ? number : 0;
}

}  // namespace

NumpyType numpy_type(std::string_view descr) {
    NumpyType type;
    if (descr.empty()) return type;
    const std::string_view orders = "<>|=";
    const bool has_order = orders.find(descr[0]) != std::string_view::npos;
    type.big_endian = descr[0] == '>';
    const std::string_view kind = descr.substr(has_order ? 1 : 0);
    if (kind.size() < 2) return type;
    if (kind == "V2") {
        type.dtype = DType::bf16;  // NumPy has no name for it: ml_dtypes and JAX save it so
        type.big_endian = false;
    }
    for (const NumpyName& known : numpy_names)
        if (known.name == kind) type.dtype = known.dtype;
    type.width = type.dtype == DType::other ? listed_width(kind) : bytes_of(type.dtype);
    return type;
}

NpyHeader read_npy_header(Bytes head, std::uint64_t size, const std::string& where) {
    ByteReader in(head, where);
    if (!starts_with(in.take_bytes(npy_magic.size()), npy_magic))
        refuse(where,
               "does not begin with \\x93NUMPY, expected a NumPy array. Save it with numpy.save or "
               "numpy.savez.");
    const int version = in.take<std::uint8_t>();
    in.take<std::uint8_t>();
    if (version < 1 || version > 3)
        refuse(where, fmt::format("has npy version {}, expected 1, 2 or 3. Save the array again.",
                                  version));
    const std::uint64_t length = version == 1 ? in.take<std::uint16_t>() : in.take<std::uint32_t>();
    HeaderText text(text_of(in.take_bytes(length)), where);
    text.read();
    if (text.descr.find('O') != std::string::npos)
        refuse(where, fmt::format("contains Python objects (dtype {}), expected numbers. Save it "
                                  "as an array of a numeric dtype.",
                                  text.descr));
    const NumpyType type = numpy_type(text.descr);
    if (type.width == 0)
        refuse(where, fmt::format("has dtype {}, whose element size is zero or unknown, expected "
                                  "numbers. Save it as an array of a numeric dtype.",
                                  text.descr));
    NpyHeader header;
    header.begin = in.position();
    header.tensor.dtype = type.dtype;
    header.tensor.dtype_name = text.descr;
    header.tensor.big_endian = type.big_endian;
    header.tensor.shape = text.shape;
    header.tensor.strides = text.fortran ? column_major(text.shape) : row_major(text.shape);
    const auto count = element_count(text.shape);
    const auto bytes = count ? times(*count, std::int64_t(type.width)) : std::nullopt;
    if (!bytes || text.shape.size() > 64)
        refuse(where, fmt::format("has shape {}, expected at most 64 sizes whose product fits 63 "
                                  "bits. Save the array again.",
                                  shape_text(text.shape)));
    header.bytes = size - header.begin;
    const auto expected = std::uint64_t(*bytes);
    if (header.bytes != expected)
        refuse(where,
               fmt::format("has {} bytes of data, expected {} for dtype {} and shape {}. "
                           "It is {}; download or save it again.",
                           header.bytes, expected, text.descr, shape_text(text.shape),
                           header.bytes < expected ? "truncated" : "followed by extra bytes"));
    return header;
}

RawTensor npy_tensor(NpyHeader header, Bytes content, std::shared_ptr<const void> owner) {
    RawTensor tensor = std::move(header.tensor);
    tensor.bytes = content.subspan(header.begin, header.bytes);
    tensor.owner = std::move(owner);
    return tensor;
}

}  // namespace tsdiag::checkpoint
