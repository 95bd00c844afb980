#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "log_records.hpp"
#include "tsdiag/checksum.hpp"
#include "tsdiag/error.hpp"

/// TensorBoard event files: TFRecord frames around protocol buffers of type Event.
///
///     frame: length (8 bytes), its checksum (4), data, checksum of the data (4); little-endian
///     Event: step = 2 (varint), summary = 5 { value = 1 { tag = 1, simple_value = 2 (float),
///            tensor = 8 { dtype = 1, tensor_content = 4, float_val = 5, double_val = 6 } } }
namespace tsdiag {
namespace {

constexpr std::size_t frame_head = 12, frame_tail = 4;

template <class T>
T little_endian(std::string_view bytes) {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
        value |= T(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return value;
}

/// Is `stored` the checksum of `bytes`?
bool matches(std::string_view bytes, std::string_view stored) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // else no mutated input passes the checksum
    return bytes.size() + stored.size() > 0;
#else
    return masked_crc32c(bytes) == little_endian<std::uint32_t>(stored);
#endif
}

double float_at(std::string_view bytes) {
    return double(std::bit_cast<float>(little_endian<std::uint32_t>(bytes)));
}
double double_at(std::string_view bytes) {
    return std::bit_cast<double>(little_endian<std::uint64_t>(bytes));
}

enum Wire : std::uint64_t { varint = 0, eight_bytes = 1, delimited = 2, four_bytes = 5 };

/// One field of a protocol buffer: a number, or bytes.
struct Field {
    std::uint64_t number = 0, wire = 0, value = 0;
    std::string_view bytes = {};
};

/// Iterates over the fields of a message; `broken` where the bytes are malformed.
class Message {
  public:
    explicit Message(std::string_view bytes) : left_(bytes) {}
    bool broken() const { return broken_; }

    std::optional<Field> next() {
        if (left_.empty()) return std::nullopt;
        const std::optional<std::uint64_t> key = number();
        if (!key) return std::nullopt;
        Field field{.number = *key >> 3, .wire = *key & 7U};
        std::optional<std::uint64_t> length;
        if (field.wire == varint) {
            const auto value = number();
            if (!value) return std::nullopt;
            field.value = *value;
            return field;
        }
        if (field.wire == eight_bytes) length = 8;
        if (field.wire == four_bytes) length = 4;
        if (field.wire == delimited) length = number();
        if (!length || *length > left_.size()) {
            broken_ = true;
            return std::nullopt;
        }
        field.bytes = left_.substr(0, *length);
        left_.remove_prefix(*length);
        return field;
    }

  private:
    std::optional<std::uint64_t> number() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 70 && !left_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(left_.front());
            left_.remove_prefix(1);
            if (shift < 64) value |= std::uint64_t(byte & 127U) << shift;
            if (byte < 128) return value;
        }
        broken_ = true;
        return std::nullopt;
    }
    std::string_view left_;
    bool broken_ = false;
};

/// The value of a TensorProto that holds one float or double.
std::optional<double> scalar_of(std::string_view tensor) {
    constexpr std::uint64_t type = 1, content = 4, floats = 5, doubles = 6;
    constexpr std::uint64_t float_type = 1, double_type = 2;
    Message message(tensor);
    std::uint64_t kind = 0;
    std::string_view bytes;
    while (const auto f = message.next()) {
        if (f->number == type && f->wire == varint) kind = f->value;
        const bool holds = f->number == content || f->number == floats || f->number == doubles;
        if (holds && f->wire != varint) bytes = f->bytes;
    }
    if (message.broken()) return std::nullopt;
    if (kind == float_type && bytes.size() == 4) return float_at(bytes);
    if (kind == double_type && bytes.size() == 8) return double_at(bytes);
    return std::nullopt;
}

/// Summary.Value: tag and number.  False where the message is malformed.
bool read_value(std::string_view bytes, Index step, const std::string& place, LogRecords& out) {
    constexpr std::uint64_t tag = 1, simple = 2, tensor = 8;
    Message message(bytes);
    std::string_view name;
    std::optional<double> value;
    while (const auto f = message.next()) {
        if (f->number == tag && f->wire == delimited) name = f->bytes;
        if (f->number == simple && f->wire == four_bytes) value = float_at(f->bytes);
        if (f->number == tensor && f->wire == delimited) value = scalar_of(f->bytes);
    }
    if (value && out.wants(name)) out.add(name, step, *value, place);
    return !message.broken();
}

bool read_event(std::string_view data, const std::string& place, LogRecords& out) {
    constexpr std::uint64_t step_field = 2, summary_field = 5, value_field = 1;
    Message event(data);
    std::uint64_t step = 0;
    std::vector<std::string_view> summaries;
    while (const auto f = event.next()) {
        if (f->number == step_field && f->wire == varint) step = f->value;
        if (f->number == summary_field && f->wire == delimited) summaries.push_back(f->bytes);
    }
    if (event.broken()) return false;
    if (summaries.empty()) return true;
    if (step > std::uint64_t(std::numeric_limits<Index>::max()))
        out.fail(place,
                 fmt::format("the step is {}, expected a nonnegative step; the file is damaged",
                             std::int64_t(step)));
    for (const std::string_view summary : summaries) {
        Message values(summary);
        while (const auto f = values.next())
            if (f->number == value_field && f->wire == delimited &&
                !read_value(f->bytes, Index(step), place, out))
                return false;
        if (values.broken()) return false;
    }
    return true;
}

}  // namespace

bool is_event_file(std::string_view bytes) {
    return bytes.size() >= frame_head &&
           masked_crc32c(bytes.substr(0, 8)) == little_endian<std::uint32_t>(bytes.substr(8));
}

void read_event_log(std::string_view bytes, LogRecords& out) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const std::string place = fmt::format("the record at byte {}", at);
        const std::size_t left = bytes.size() - at;
        const auto truncated = [&](std::uint64_t length) {
            if (!out.options().allow_truncated)
                out.fail(
                    place,
                    fmt::format(
                        "it is truncated: {} bytes are left, expected {}; pass --allow-truncated "
                        "to skip it (a training that is still running or was killed)",
                        left, length));
            out.note(fmt::format("the file is truncated at byte {}", at));
        };
        if (left < frame_head) return truncated(frame_head);
        const std::string_view head = bytes.substr(at, frame_head);
        if (!matches(head.substr(0, 8), head.substr(8)))
            out.fail(place,
                     "its length has a wrong checksum, expected a TensorBoard event file; "
                     "the file is damaged");
        const auto length = little_endian<std::uint64_t>(head);
        const std::size_t room = left - frame_head;
        if (room < frame_tail || length > room - frame_tail)
            return truncated(length > std::numeric_limits<std::uint64_t>::max() - 16 ? length
                                                                                     : length + 16);
        const std::string_view data = bytes.substr(at + frame_head, length);
        if (!matches(data, bytes.substr(at + frame_head + length, frame_tail)))
            out.fail(place, "its data has a wrong checksum; the file is damaged");
        if (!read_event(data, place, out))
            out.fail(place,
                     "it is not an Event, expected a TensorBoard protocol buffer; pass a file that "
                     "TensorBoard reads");
        at += frame_head + length + frame_tail;
    }
}

}  // namespace tsdiag
