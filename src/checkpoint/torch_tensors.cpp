#include "torch_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "layout.hpp"
#include "npy.hpp"

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

std::string_view last_part(std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); }

bool is_tuple(Ref value, std::size_t at_least) {
    return value != nullptr && value->is(Kind::tuple) && value->items.size() >= at_least;
}

/// The name of the function that an object would call; empty for other values.
std::string_view called(Ref value) {
    if (!value->is(Kind::object) || !value->callee->is(Kind::global)) return {};
    return value->callee->text;
}

constexpr int most_wrappings = 16;
constexpr std::size_t longest_word = 64;  // a type, an order of bytes
constexpr std::size_t longest_key = 1000;

/// A tuple or list of few integers, also as `torch.Size`; nullopt for other values.
std::optional<std::vector<std::int64_t>> integers(Ref value) {
    if (called(value) == "torch.Size" && is_tuple(value->arguments, 1))
        value = value->arguments->items[0];
    if (!value->is(Kind::tuple) && !value->is(Kind::list)) return std::nullopt;
    if (value->items.size() > most_dimensions) return std::nullopt;
    std::vector<std::int64_t> result;
    for (const Ref item : value->items) {
        if (!item->is(Kind::integer)) return std::nullopt;
        result.push_back(item->integer);
    }
    return result;
}

bool is_rebuild(std::string_view function) {
    constexpr std::string_view module = "torch._utils.";
    if (!function.starts_with(module)) return false;
    function.remove_prefix(module.size());
    return function == "_rebuild_tensor" || function == "_rebuild_tensor_v2" ||
           function == "_rebuild_tensor_v3" || function == "_rebuild_qtensor";
}

/// A tensor's own function and arguments, without wrappers that add nothing: Parameter, subclass,
/// device.
struct Call {
    std::string_view function;
    Ref arguments;
    Ref value;  ///< the object itself; null where only the arguments are known
};
Call unwrapped(Ref value) {
    std::string_view function = called(value);
    Ref arguments = value->is(Kind::object) ? value->arguments : nullptr;
    for (int i = 0; i < most_wrappings; ++i) {
        if (last_part(function).starts_with("_rebuild_from_type") && is_tuple(arguments, 3) &&
            arguments->items[0]->is(Kind::global)) {
            const Ref from = arguments;
            function = from->items[0]->text;
            arguments = from->items[from->items[1]->is(Kind::tuple) ? 1 : 2];
            value = nullptr;
            continue;
        }
        const bool holds = function == "torch._utils._rebuild_parameter" ||
                           function == "torch._utils._rebuild_parameter_with_state" ||
                           function == "torch._utils._rebuild_device_tensor_from_numpy";
        if (!holds || !is_tuple(arguments, 1)) return {function, arguments, value};
        value = arguments->items[0];
        function = called(value);
        arguments = value->is(Kind::object) ? value->arguments : nullptr;
    }
    return {{}, nullptr, nullptr};
}

bool is_numpy(std::string_view function, std::string_view name) {
    return function.starts_with("numpy.") && last_part(function) == name;
}

/// `numpy.dtype('f4', ...)` with the byte order in its state.
NumpyType numpy_type_of(Ref value) {
    if (!is_numpy(called(value), "dtype") || !is_tuple(value->arguments, 1)) return {};
    const auto kind = bytes_of_value(value->arguments->items[0], longest_word);
    if (!kind) return {};
    std::string order;
    if (is_tuple(value->state, 2))
        order = bytes_of_value(value->state->items[1], longest_word).value_or("");
    return numpy_type(order == ">" || order == "<" || order == "|" ? order + *kind : *kind);
}

/// The parts of a pickled array.
struct ArrayParts {
    Ref dtype, shape, data;
    bool fortran;
};
std::optional<ArrayParts> array_parts(Ref value) {
    if (value == nullptr) return std::nullopt;
    const std::string_view function = called(value);
    if (is_numpy(function, "_reconstruct") && is_tuple(value->state, 5)) {
        const auto& s = value->state->items;  // version, shape, dtype, fortran order, data
        return ArrayParts{s[2], s[1], s[4], s[3]->integer != 0};
    }
    if (is_numpy(function, "_frombuffer") && is_tuple(value->arguments, 4)) {
        const auto& a = value->arguments->items;  // data, dtype, shape, order
        return ArrayParts{a[1], a[2], a[0], a[3]->text == "F"};
    }
    return std::nullopt;
}

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

/// Would `bytes_of_value` return bytes?  Decided without decoding them.
bool holds_bytes(Ref value) {
    return value->is(Kind::bytes) || value->is(Kind::text) || called(value) == "_codecs.encode" ||
           called(value).ends_with(".bytearray") || called(value).ends_with(".bytes");
}

/// Is `value` an array of numbers, not of objects, texts or records?
bool is_numeric_array(Ref value) {
    const auto parts = array_parts(value);
    return parts && numpy_type_of(parts->dtype).dtype != DType::other && integers(parts->shape) &&
           holds_bytes(parts->data);
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
    const Call call = unwrapped(value);
    return is_rebuild(call.function) || is_numeric_array(call.value);
}

std::optional<RawTensor> TensorReader::read(Ref value, const std::string& name) {
    const Call call = unwrapped(value);
    if (is_rebuild(call.function)) return read_rebuilt(call.function, call.arguments, name);
    if (!is_numeric_array(call.value)) return std::nullopt;
    if (const auto known = arrays_.find(call.value); known != arrays_.end()) return known->second;
    return arrays_.emplace(call.value, read_array(call.value, fmt::format("array '{}'", name)))
        .first->second;
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
    return tensor;
}

}  // namespace tsdiag::checkpoint
