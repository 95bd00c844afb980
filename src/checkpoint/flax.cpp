#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "budget.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "looks_like.hpp"
#include "mapped_file.hpp"

/// What flax.serialization writes: MessagePack, in which arrays are an extension type.
namespace tsdiag::checkpoint {
namespace {

constexpr int deepest_map = 100;
constexpr std::size_t longest_map_key = 1 << 16, most_plain_values = 1 << 14;

/// The extension types of Flax.
enum class FlaxExtension { array = 1, complex = 2, scalar = 3 };

struct FlaxType {
    std::string_view name;
    DType type;
};
constexpr std::array flax_types{
    FlaxType{"float32", DType::f32},
    FlaxType{"bfloat16", DType::bf16},
    FlaxType{"float16", DType::f16},
    FlaxType{"float64", DType::f64},
    FlaxType{"int8", DType::i8},
    FlaxType{"uint8", DType::u8},
    FlaxType{"int16", DType::i16},
    FlaxType{"uint16", DType::u16},
    FlaxType{"int32", DType::i32},
    FlaxType{"uint32", DType::u32},
    FlaxType{"int64", DType::i64},
    FlaxType{"uint64", DType::u64},
    FlaxType{"bool", DType::boolean},
    FlaxType{"float8_e4m3fn", DType::f8_e4m3},
    FlaxType{"float8_e5m2", DType::f8_e5m2},
    FlaxType{"complex64", DType::c64},
    FlaxType{"complex128", DType::c128},
};

/// What a byte begins.
enum class PackKind { nothing, truth, integer, real, text, bytes, list, map, extension };

struct PackToken {
    PackKind kind = PackKind::nothing;
    std::uint64_t length = 0;  ///< bytes, or elements of a list or pairs of a map
    Json value;                ///< of truths, integers and reals
    int extension = 0;
};

/// Reads MessagePack from its first byte to its last; numbers are big-endian there.
class MessagePack {
  public:
    MessagePack(Bytes bytes, std::string where) : in_(bytes, std::move(where)) {}

    std::size_t left() const { return in_.left(); }
    std::size_t position() const { return in_.position(); }
    Bytes take(std::uint64_t count) { return in_.take_bytes(count); }
    std::string_view take_text(std::uint64_t count) { return text_of(in_.take_bytes(count)); }

    [[noreturn]] void damaged(const std::string& found, std::string_view expected) const {
        refuse(in_.where(), fmt::format("has {} at byte {}, expected {}. It is damaged; download "
                                        "it again.",
                                        found, in_.position(), expected));
    }

    PackToken next() {
        const auto first = in_.take<std::uint8_t>();
        if (first < 0x80) return number(std::int64_t{first});
        if (first < 0x90) return sized(PackKind::map, first & 0x0f);
        if (first < 0xa0) return sized(PackKind::list, first & 0x0f);
        if (first < 0xc0) return sized(PackKind::text, first & 0x1f);
        if (first >= 0xe0) return number(std::int64_t{first} - 0x100);
        switch (first) {
            case 0xc0:
                return {};
            case 0xc2:
            case 0xc3:
                return {PackKind::truth, 0, Json(first == 0xc3), 0};
            case 0xc4:
            case 0xc5:
            case 0xc6:
                return sized(PackKind::bytes, big(1u << (first - 0xc4)));
            case 0xc7:
            case 0xc8:
            case 0xc9:
                return extended(big(1u << (first - 0xc7)));
            case 0xca:
                return real(double(std::bit_cast<float>(std::uint32_t(big(4)))));
            case 0xcb:
                return real(std::bit_cast<double>(big(8)));
            case 0xcc:
            case 0xcd:
            case 0xce:
            case 0xcf:
                return {PackKind::integer, 0, Json(big(1u << (first - 0xcc))), 0};
            case 0xd0:
                return number(std::int8_t(big(1)));
            case 0xd1:
                return number(std::int16_t(big(2)));
            case 0xd2:
                return number(std::int32_t(big(4)));
            case 0xd3:
                return number(std::int64_t(big(8)));
            case 0xd4:
            case 0xd5:
            case 0xd6:
            case 0xd7:
            case 0xd8:
                return extended(1u << (first - 0xd4));
            case 0xd9:
            case 0xda:
            case 0xdb:
                return sized(PackKind::text, big(1u << (first - 0xd9)));
            case 0xdc:
            case 0xdd:
                return sized(PackKind::list, big(2u << (first - 0xdc)));
            case 0xde:
            case 0xdf:
                return sized(PackKind::map, big(2u << (first - 0xde)));
            default:
                damaged("the unused MessagePack type 0xc1", "a value");
        }
    }

  private:
    std::uint64_t big(unsigned bytes) {
        std::uint64_t out = 0;
        for (const std::byte b : in_.take_bytes(bytes))
            out = out << 8 | std::to_integer<std::uint64_t>(b);
        return out;
    }
    static PackToken number(std::int64_t value) { return {PackKind::integer, 0, Json(value), 0}; }
    static PackToken real(double value) {
        return {PackKind::real, 0,
                std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)), 0};
    }
    /// A value of `length` bytes, or of as many elements of at least one byte.
    PackToken sized(PackKind kind, std::uint64_t length) const {
        if (length > in_.left())
            damaged(fmt::format("a length of {}", length),
                    fmt::format("at most the {} bytes that follow", in_.left()));
        return {kind, length, {}, 0};
    }
    PackToken extended(std::uint64_t length) {
        const auto type = std::int8_t(big(1));
        PackToken out = sized(PackKind::extension, length);
        out.extension = type;
        return out;
    }

    ByteReader in_;
};

class FlaxReader {
  public:
    explicit FlaxReader(std::shared_ptr<const MappedFile> file)
        : file_(std::move(file)),
          in_(file_->bytes(), file_->path()),
          budget_(file_->path(), file_->bytes().size()),
          listed_(std::make_unique<ListedCheckpoint>("flax msgpack", file_->path())) {}

    std::unique_ptr<Checkpoint> read() {
        const PackToken whole = in_.next();
        if (whole.kind != PackKind::map) in_.damaged("no map", "one of parameters");
        read_map(whole.length, "", 0);
        if (in_.left() > 0)
            in_.damaged(fmt::format("{} bytes more", in_.left()), "the end of the file");
        listed_->set_metadata(std::move(metadata_));
        return std::move(listed_);
    }

  private:
    void read_map(std::uint64_t pairs, const std::string& path, int depth) {
        if (depth > deepest_map)
            in_.damaged("deeper nesting", fmt::format("{} at most", deepest_map));
        // No containers: maps are modules, and one called `model` is no wrapper.
        for (std::uint64_t i = 0; i < pairs; ++i) {
            const PackToken key = in_.next();
            if (key.kind != PackKind::text || key.length == 0 || key.length > longest_map_key)
                in_.damaged("a key that is no text", "a name");
            const std::string_view name = in_.take_text(key.length);
            if (name == "__msgpack_chunked_array__")
                refuse(file_->path(),
                       fmt::format("stores the array '{}' in chunks, because it has more than "
                                   "2^30 bytes, which is not supported. Save the model as "
                                   "safetensors.",
                                   path));
            budget_.spend(path.size() + name.size(), "a name");
            read_value(path.empty() ? std::string(name) : fmt::format("{}.{}", path, name), depth);
        }
    }

    void read_value(const std::string& path, int depth) {
        const PackToken token = in_.next();
        if (token.kind == PackKind::map) return read_map(token.length, path, depth + 1);
        if (token.kind == PackKind::extension && token.extension != int(FlaxExtension::complex))
            return read_array(token, path);
        if (metadata_.object().size() >= most_plain_values)
            in_.damaged("more values that are no arrays",
                        fmt::format("{} at most", most_plain_values));
        if (metadata_.contains(path)) in_.damaged(fmt::format("'{}' twice", path), "other names");
        metadata_.set(path, plain(token, depth));
    }

    /// A value that is no array.
    Json plain(const PackToken& token, int depth) {
        switch (token.kind) {
            case PackKind::nothing:
                return {};
            case PackKind::truth:
            case PackKind::integer:
            case PackKind::real:
                return token.value;
            case PackKind::text:
                budget_.spend(token.length, "a text");
                return Json(in_.take_text(token.length));
            case PackKind::bytes:
                in_.take(token.length);
                return Json(fmt::format("{} bytes", token.length));
            case PackKind::extension:
                if (token.extension != int(FlaxExtension::complex))
                    in_.damaged("an array inside a list", "a number or a text");
                in_.take(token.length);
                return Json("a complex number");
            case PackKind::list: {
                if (depth > deepest_map)
                    in_.damaged("deeper nesting", fmt::format("{} at most", deepest_map));
                budget_.spend(token.length * sizeof(Json), "a list");
                Json::Array all;
                for (std::uint64_t i = 0; i < token.length; ++i)
                    all.push_back(plain(in_.next(), depth + 1));
                return Json(std::move(all));
            }
            case PackKind::map:
                break;
        }
        in_.damaged("a map inside a list", "a number or a text");
    }

    /// A list of sizes, the name of a type and the bytes, in the order of rows.
    void read_array(const PackToken& token, const std::string& path) {
        const std::string what = fmt::format("tensor '{}'", path);
        if (token.extension != int(FlaxExtension::array) &&
            token.extension != int(FlaxExtension::scalar))
            in_.damaged(fmt::format("extension type {}", token.extension), "an array (1)");
        MessagePack in(in_.take(token.length), fmt::format("{}: {}", file_->path(), what));
        if (const PackToken list = in.next(); list.kind != PackKind::list || list.length != 3)
            in.damaged("no list of sizes, type and bytes", "one");
        RawTensor out;
        const PackToken sizes = in.next();
        if (sizes.kind != PackKind::list || sizes.length > most_dimensions)
            in.damaged("no list of sizes", fmt::format("{} at most", most_dimensions));
        for (std::uint64_t i = 0; i < sizes.length; ++i) {
            const PackToken size = in.next();
            if (size.kind != PackKind::integer || !size.value.is_integer())
                in.damaged("a size that is no integer", "one");
            out.shape.push_back(size.value.integer());
        }
        const PackToken type = in.next();
        if (type.kind != PackKind::text && type.kind != PackKind::bytes)
            in.damaged("no name of a type", "one");
        out.dtype_name = std::string(in.take_text(type.length));
        const auto known = std::ranges::find(flax_types, out.dtype_name, &FlaxType::name);
        out.dtype = known == flax_types.end() ? DType::other : known->type;
        const PackToken data = in.next();
        if (data.kind != PackKind::text && data.kind != PackKind::bytes)
            in.damaged("no bytes", "some");
        out.bytes = in.take(data.length);
        if (in.left() > 0) in.damaged(fmt::format("{} bytes more", in.left()), "the end");
        out.owner = file_;
        out.strides = row_major(out.shape);
        require_size(out, what);
        listed_->add(path, std::move(out));
    }

    void require_size(const RawTensor& tensor, const std::string& what) const {
        const std::size_t width = bytes_of(tensor.dtype);
        checkpoint::check_layout(tensor, width, file_->path(), what);
        const auto count = element_count(tensor.shape);
        if (width > 0 && (!count || std::uint64_t(*count) != tensor.bytes.size() / width ||
                          tensor.bytes.size() % width != 0))
            refuse(file_->path(),
                   fmt::format("{} of shape {} and type {} has {} bytes, expected as many as its "
                               "elements take. It is damaged; download it again.",
                               what, shape_text(tensor.shape), tensor.dtype_name,
                               tensor.bytes.size()));
    }

    std::shared_ptr<const MappedFile> file_;
    MessagePack in_;
    Budget budget_;
    std::unique_ptr<ListedCheckpoint> listed_;
    Json metadata_ = Json::Object();
};

bool sniff_flax(Bytes head) { return begins_as_msgpack(text_of(head)); }

std::unique_ptr<Checkpoint> open_flax(const std::filesystem::path& path) {
    return FlaxReader(MappedFile::open(path)).read();
}

}  // namespace

extern const FormatEntry flax = {"flax msgpack", "MessagePack of Flax (flax_model.msgpack)",
                                 sniff_flax, open_flax};

}  // namespace tsdiag::checkpoint
