#include "torch_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "elements.hpp"
#include "layout.hpp"
#include "owner.hpp"
#include "torch_calls.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::checkpoint {
namespace {

using Ref = PickleValue::Ref;
using Kind = PickleValue::Kind;

struct StorageClass {
    std::string_view name;
    DType dtype;
    std::size_t width;
};
constexpr StorageClass storage_classes[] = {
    {"DoubleStorage", DType::f64, 8},       {"FloatStorage", DType::f32, 4},
    {"HalfStorage", DType::f16, 2},         {"BFloat16Storage", DType::bf16, 2},
    {"LongStorage", DType::i64, 8},         {"IntStorage", DType::i32, 4},
    {"ShortStorage", DType::i16, 2},        {"CharStorage", DType::i8, 1},
    {"ByteStorage", DType::u8, 1},          {"BoolStorage", DType::boolean, 1},
    {"ComplexFloatStorage", DType::c64, 8}, {"ComplexDoubleStorage", DType::c128, 16},
    {"QInt8Storage", DType::other, 1},      {"QUInt8Storage", DType::other, 1},
    {"QInt32Storage", DType::other, 4},     {"QUInt4x2Storage", DType::other, 0},
    {"QUInt2x4Storage", DType::other, 0},   {"UntypedStorage", DType::other, 1},
    {"_UntypedStorage", DType::other, 1},
};

/// The dtypes of tensors over untyped storages (`_rebuild_tensor_v3`).
constexpr StorageClass torch_dtypes[] = {
    {"torch.float64", DType::f64, 8},
    {"torch.float32", DType::f32, 4},
    {"torch.float16", DType::f16, 2},
    {"torch.bfloat16", DType::bf16, 2},
    {"torch.int64", DType::i64, 8},
    {"torch.int32", DType::i32, 4},
    {"torch.int16", DType::i16, 2},
    {"torch.int8", DType::i8, 1},
    {"torch.uint64", DType::u64, 8},
    {"torch.uint32", DType::u32, 4},
    {"torch.uint16", DType::u16, 2},
    {"torch.uint8", DType::u8, 1},
    {"torch.bool", DType::boolean, 1},
    {"torch.float8_e5m2", DType::f8_e5m2, 1},
    {"torch.float8_e4m3fn", DType::f8_e4m3, 1},
    {"torch.complex64", DType::c64, 8},
    {"torch.complex128", DType::c128, 16},
    {"torch.float8_e4m3fnuz", DType::other, 1},
    {"torch.float8_e5m2fnuz", DType::other, 1},
    {"torch.float8_e8m0fnu", DType::f8_e8m0, 1},
    {"torch.complex32", DType::other, 4},
    {"torch.float4_e2m1fn_x2", DType::other, 1},
};

constexpr std::size_t longest_key = 1000;

/// Upper bound on the decoded bytes of `value`.
std::size_t longest_text(Ref value) {
    std::size_t longest = value->text.size();
    if (is_tuple(value->arguments, 1))
        longest = std::max(longest, value->arguments->items[0]->text.size());
    return longest;
}

RawTensor copied(const NumpyType& type, const std::string& data) {
    RawTensor tensor;
    tensor.dtype = type.dtype;
    tensor.dtype_name = fmt::format("numpy {}", name(type.dtype));
    tensor.big_endian = type.big_endian;
    const auto memory = std::make_shared<std::vector<std::byte>>(data.size());
    if (!data.empty()) std::memcpy(memory->data(), data.data(), data.size());
    tensor.bytes = *memory;
    tensor.owner = memory;
    return tensor;
}

/// A copy of the elements, each with the other sign; of a type whose first bit is the sign.
RawTensor negated(const RawTensor& tensor, std::size_t width) {
    verify(tensor);
    const auto memory =
        std::make_shared<std::vector<std::byte>>(std::size_t(tensor.count()) * width);
    std::byte* to = memory->data();
    for_each_run(tensor, [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
        for (std::int64_t i = 0; i < count; ++i, to += width) {
            std::memcpy(to, tensor.bytes.data() + std::size_t(offset + i * stride) * width, width);
            to[tensor.big_endian ? 0 : width - 1] ^= std::byte{0x80};
        }
    });
    RawTensor out = tensor;
    out.strides = row_major(tensor.shape);
    out.offset = 0;
    out.bytes = *memory;
    out.owner = memory;
    return out;
}

bool has_sign_bit(DType type) {
    return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

bool is_complex(DType type) { return type == DType::c64 || type == DType::c128; }

/// Refuses a tensor by its name when its elements are needed.
class Refusal final : public Owner {
  public:
    Refusal(std::string sentence, std::shared_ptr<const void> kept)
        : sentence_(std::move(sentence)), kept_(std::move(kept)) {}
    void verify() const override { throw NotAvailable(sentence_); }

  private:
    std::string sentence_;
    std::shared_ptr<const void> kept_;
};

/// What to save instead of a tensor of a type that PyTorch has and `widen` has not.
std::string_view conversion_of(const RawTensor& tensor) {
    const std::string_view type = tensor.dtype_name;
    if (type.ends_with(')')) return {};  // it is told
    if (is_complex(tensor.dtype) || type == "torch.complex32") return " (save x.real)";
    if (type.starts_with('Q') && type.ends_with("Storage")) return " (save x.dequantize())";
    if (type.starts_with("torch.float8_")) return " (save x.float())";
    return {};
}

/// The lazy operation, or other metadata, that changes the elements of a tensor; nullopt where
/// there is none but perhaps `neg`.
std::optional<std::string> unknown_metadata(Ref metadata) {
    if (metadata->is(Kind::none)) return std::nullopt;
    const Ref arguments = metadata->arguments;
    const bool plain =
        metadata->is(Kind::dict) || (metadata->is(Kind::object) && !is_tuple(arguments, 1));
    if (!plain) return "?";
    for (const auto& [key, value] : metadata->pairs) {
        const bool is_switch =
            value->is(Kind::none) || value->is(Kind::boolean) || value->is(Kind::integer);
        const bool off = is_switch && value->integer == 0;
        if (!off && !(key->is(Kind::text) && key->text == "neg" && is_switch))
            return key->is(Kind::text) ? key->text.substr(0, longest_word) : "?";
    }
    return std::nullopt;
}

/// Is the switch `key` of `metadata` on?  `Tensor.__reduce_ex__` writes it since PyTorch 2.0.
bool is_set(Ref metadata, std::string_view key) {
    for (const auto& [name, value] : metadata->pairs)
        if (name->is(Kind::text) && name->text == key) return value->integer != 0;
    return false;
}

}  // namespace

std::optional<std::string> bytes_of_value(Ref value, std::size_t most) {
    if (value->text.size() > most) return std::nullopt;
    if (value->is(Kind::bytes) || value->is(Kind::text)) return value->text;
    const std::string_view function = called(value);
    if (!is_tuple(value->arguments, 1)) return std::nullopt;
    const Ref first = value->arguments->items[0];
    if (first->text.size() / 2 > most) return std::nullopt;  // two bytes of UTF-8 give at least one
    if (last_part(function) == "bytearray" || last_part(function) == "bytes")
        return first->is(Kind::bytes) ? std::optional(first->text) : std::nullopt;
    if (function != "_codecs.encode" || !first->is(Kind::text)) return std::nullopt;
    std::string latin1;
    for (std::size_t i = 0; i < first->text.size(); ++i) {
        const auto lead = static_cast<unsigned char>(first->text[i]);
        if (lead < 0x80) {
            latin1 += char(lead);
            continue;
        }
        if ((lead != 0xC2 && lead != 0xC3) || i + 1 == first->text.size()) return std::nullopt;
        latin1 += char((lead & 3) << 6 | (first->text[++i] & 0x3F));
    }
    return latin1.size() > most ? std::nullopt : std::optional(std::move(latin1));
}

StorageId read_storage_id(Ref persistent, const std::string& where) {
    const Ref id = persistent->callee;
    if (id->is(Kind::text))
        refuse(where,
               "was saved with pickle protocol 0, which torch.load cannot read either, expected "
               "protocol 1 to 5. Save it again without pickle_protocol=0.");
    const bool good = is_tuple(id, 5) && id->items[0]->text == "storage" &&
                      id->items[1]->is(Kind::global) && id->items[4]->is(Kind::integer) &&
                      (id->items[2]->is(Kind::text) || id->items[2]->is(Kind::integer)) &&
                      id->items[2]->text.size() <= longest_key;
    if (!good)
        refuse(where,
               "has a persistent id that is not ('storage', class, key, location, count). "
               "Save the state_dict with torch.save again.");
    StorageId result;
    result.class_name = last_part(id->items[1]->text);
    for (const StorageClass& known : storage_classes)
        if (known.name == result.class_name) {
            result.dtype = known.dtype;
            result.width = known.width;
        }
    const Ref key = id->items[2];
    result.key = key->is(Kind::text) ? key->text : std::to_string(key->integer);
    result.count = id->items[4]->integer;
    if (result.count < 0)
        refuse(where, fmt::format("storage '{}' has {} elements, expected 0 or more. The file is "
                                  "damaged; save it again.",
                                  result.key, result.count));
    if (id->items.size() > 5 && id->items[5]->is(Kind::tuple)) result.view = id->items[5];
    return result;
}

bool TensorReader::is_tensor(Ref value) const {
    const TensorCall call = unwrapped(value);
    return is_rebuild(call.function) || is_numeric_array(call.value) || unreadable_of(call);
}

std::optional<RawTensor> TensorReader::read(Ref value, const std::string& name) {
    const TensorCall call = unwrapped(value);
    RawTensor tensor;
    if (is_rebuild(call.function)) {
        tensor = read_rebuilt(call.function, call.arguments, name);
    } else if (is_numeric_array(call.value)) {
        const auto known = arrays_.find(call.value);
        tensor = known != arrays_.end() ? known->second
                                        : read_array(call.value, fmt::format("array '{}'", name));
        arrays_.emplace(call.value, tensor);
    } else if (auto other = unreadable_of(call)) {
        tensor.dtype_name = std::move(other->what);
        tensor.shape = std::move(other->shape);
        tensor.strides = row_major(tensor.shape);
    } else {
        return std::nullopt;
    }
    for (const Attributes& attributes : call.attributes) {
        spend_on_attributes(attributes.state, name);
        const auto found = telling_attribute(attributes);
        if (!found || tensor.dtype == DType::other) continue;
        tensor.dtype = DType::other;
        const std::string_view type = attributes.type.empty() ? "Tensor" : attributes.type;
        tensor.dtype_name = fmt::format("{} with {} (save the plain tensor that it stands for)",
                                        last_part(type).substr(0, longest_word), *found);
    }
    if (tensor.dtype == DType::other || is_complex(tensor.dtype)) refuse_elements(tensor, name);
    return tensor;
}

void TensorReader::spend_on_attributes(Ref state, const std::string& name) {
    std::size_t count = state->pairs.size() + state->items.size();
    if (state->is(Kind::tuple))
        for (const Ref part : state->items) count += part->pairs.size();
    budget_.spend(count * sizeof(state->pairs.front()), fmt::format("tensor '{}'", name));
}

void TensorReader::refuse_elements(RawTensor& tensor, const std::string& name) {
    tensor.dtype_name += conversion_of(tensor);
    std::string sentence =
        fmt::format("{}: tensor '{}' has dtype {}, which cannot be read, expected real numbers.",
                    where_, name, tensor.dtype_name);
    budget_.spend(sentence.size(), "what cannot be read");
    tensor.owner = own(new Refusal(std::move(sentence), tensor.owner));
}

RawTensor TensorReader::read_array(Ref value, const std::string& what) {
    const auto parts = array_parts(value);
    const NumpyType type = numpy_type_of(parts->dtype);
    const auto shape = integers(parts->shape);
    budget_.spend(longest_text(parts->data), what);
    const auto data = bytes_of_value(parts->data);
    if (!data)
        refuse(where_, what + " has data that is not bytes. The file is damaged; save it again.");
    RawTensor tensor = copied(type, *data);
    tensor.shape = *shape;
    tensor.strides = parts->fortran ? column_major(*shape) : row_major(*shape);
    check_layout(tensor, type.width, where_, what);
    return tensor;
}

void TensorReader::spend_on_view(const RawTensor& tensor, std::size_t width,
                                 const std::string& what) {
    if (!views_.emplace(tensor.bytes.data(), tensor.offset, tensor.shape, tensor.strides).second)
        return;
    const auto count = std::uint64_t(tensor.count());
    const bool repeats = width > 0 && count > tensor.bytes.size() / width;
    budget_.spend(count * (repeats ? sizeof(double) : width), what);
}

std::optional<RawTensor> TensorReader::read_scalar(Ref value) const {
    if (!is_numpy(called(value), "scalar") || !is_tuple(value->arguments, 2)) return std::nullopt;
    const NumpyType type = numpy_type_of(value->arguments->items[0]);
    const auto data = bytes_of_value(value->arguments->items[1], longest_word);
    if (type.dtype == DType::other || !data || data->size() != type.width) return std::nullopt;
    return copied(type, *data);
}

RawTensor TensorReader::read_rebuilt(std::string_view function, Ref arguments,
                                     const std::string& name) {
    const std::string what = fmt::format("tensor '{}'", name);
    const auto fail = [&](std::string_view found) {
        refuse(where_,
               fmt::format("{} {}. Save the state_dict with torch.save again.", what, found));
    };
    if (!is_tuple(arguments, 4) || !arguments->items[0]->is(Kind::persistent) ||
        !arguments->items[1]->is(Kind::integer))
        fail("has no storage and offset, expected (storage, offset, size, stride)");
    const auto shape = integers(arguments->items[2]);
    const auto strides = integers(arguments->items[3]);
    if (!shape || !strides) fail("has no sizes and strides, expected tuples of integers");
    const StorageId id = read_storage_id(arguments->items[0], where_);
    RawTensor tensor;
    tensor.dtype = id.dtype;
    tensor.dtype_name = id.class_name;
    std::size_t width = id.width;
    if (function.ends_with("_v3")) {
        if (arguments->items.size() < 7 || !arguments->items[6]->is(Kind::global))
            fail("has no dtype, expected one for an untyped storage");
        tensor.dtype_name = arguments->items[6]->text;
        tensor.dtype = DType::other;
        width = 0;
        for (const StorageClass& known : torch_dtypes)
            if (known.name == tensor.dtype_name) {
                tensor.dtype = known.dtype;
                width = known.width;
            }
    }
    tensor.shape = *shape;
    tensor.strides = *strides;
    tensor.offset = arguments->items[1]->integer;
    const Storage storage = source_(id);
    tensor.bytes = storage.bytes;
    tensor.owner = storage.owner;
    tensor.big_endian = storage.big_endian;
    check_layout(tensor, width, where_, what);
    spend_on_view(tensor, width, what);
    if (function.ends_with("_rebuild_qtensor")) {
        tensor.dtype = DType::other;
        return tensor;
    }
    const std::size_t at = function.ends_with("_v3") ? 7 : 6;
    if (arguments->items.size() <= at) return tensor;
    const Ref metadata = arguments->items[at];
    budget_.spend(metadata->pairs.size() * sizeof(metadata->pairs.front()), what);
    const auto unknown = unknown_metadata(metadata);
    const bool negative = is_set(metadata, "neg");
    if (unknown || (negative && !has_sign_bit(tensor.dtype))) {
        tensor.dtype = DType::other;
        tensor.dtype_name +=
            fmt::format(" with '{}' in its metadata (save x.clone())", unknown.value_or("neg"));
    }
    if (unknown || !negative || tensor.dtype == DType::other) return tensor;
    budget_.spend(std::uint64_t(tensor.count()) * width, what);
    return negated(tensor, width);
}

}  // namespace tsdiag::checkpoint
