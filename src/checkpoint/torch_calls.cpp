#include "torch_calls.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "layout.hpp"
#include "torch_tensors.hpp"

namespace tsdiag::checkpoint {

bool is_numpy(std::string_view function, std::string_view name) {
    return function.starts_with("numpy.") && last_part(function) == name;
}

namespace {

using Ref = PickleValue::Ref;
using Kind = PickleValue::Kind;
using Sizes = std::vector<std::int64_t>;

constexpr int most_wrappings = 16;
constexpr std::string_view plain_tensor = "the plain tensor that it stands for";

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Would `bytes_of_value` return bytes?  Decided without decoding them.
bool holds_bytes(Ref value) {
    return value->is(Kind::bytes) || value->is(Kind::text) || called(value) == "_codecs.encode" ||
           called(value).ends_with(".bytearray") || called(value).ends_with(".bytes");
}

/// Classes of PyTorch whose attributes are notes.
bool is_plain(std::string_view type) {
    return type == "torch.Tensor" || type == "torch._tensor.Tensor" ||
           type.starts_with("torch.nn.parameter.");
}

/// Does a function of that name build a tensor?
bool builds_tensor(std::string_view function) {
    const std::string_view name = last_part(function);
    return contains(name, "rebuild_") &&
           (contains(name, "tensor") || function.starts_with("torch._utils.") ||
            function.starts_with("torch._tensor."));
}

bool is_number(Ref value) { return value->is(Kind::integer) || value->is(Kind::real); }

/// A tensor, an array or a scalar, as far as its function tells.
bool is_called_tensor(Ref value) {
    const std::string_view function = called(value);
    return builds_tensor(function) || is_numpy(function, "_reconstruct") ||
           is_numpy(function, "_frombuffer") || is_numpy(function, "_mareconstruct") ||
           is_numpy(function, "scalar");
}

/// The sizes in `value`, where tensors of them can be counted and summed up.
Sizes shape_of(Ref value) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    const auto shape = integers(value);
    const auto count = shape ? element_count(*shape) : std::nullopt;
    return count && *count <= most ? *shape : Sizes();
}
/// The sizes in member `at` of a tuple; none where there is no such member.
Sizes shape_at(Ref tuple, std::size_t at) {
    return is_tuple(tuple, at + 1) ? shape_of(tuple->items[at]) : Sizes();
}

std::string text_of_class(std::string_view type) {
    return std::string(last_part(type).substr(0, longest_word));
}

Unreadable instead(std::string_view what, std::string_view save, Sizes shape = {}) {
    return {fmt::format("{} (save {})", what, save), std::move(shape)};
}

/// Layout, then what that layout consists of, the sizes last or followed by a switch.
Unreadable sparse(Ref arguments) {
    Sizes shape;
    if (is_tuple(arguments, 2) && is_tuple(arguments->items[1], 1)) {
        const auto& parts = arguments->items[1]->items;
        const std::size_t last = parts.size() - 1;
        const bool has_switch = last > 0 && parts[last]->is(Kind::boolean);
        shape = shape_of(parts[has_switch ? last - 1 : last]);
    }
    return instead("sparse", "x.to_dense()", std::move(shape));
}

/// A subclass without elements of its own: (class, dtype, sizes, ...).
Unreadable wrapper(const TensorCall& call) {
    std::string_view type = call.type;
    if (type.empty() && is_tuple(call.arguments, 1)) type = call.arguments->items[0]->text;
    const std::string name = text_of_class(type);
    const bool sharded = name == "DTensor";
    return instead(name.empty() ? "wrapped" : name, sharded ? "x.full_tensor()" : plain_tensor,
                   shape_at(call.arguments, 2));
}

/// Are the elements of an array of objects numbers?  Few are looked at.
bool holds_numbers(Ref data) {
    constexpr std::size_t looked_at = 64;
    const std::size_t count = std::min(data->items.size(), looked_at);
    for (std::size_t i = 0; i < count; ++i) {
        const Ref item = data->items[i];
        const bool list = item->is(Kind::list) || item->is(Kind::tuple);
        const bool of_numbers = list && !item->items.empty() && is_number(item->items.front());
        if (!is_number(item) && !of_numbers && !is_called_tensor(item)) return false;
    }
    return count > 0;
}

std::optional<Unreadable> unreadable_array(const ArrayParts& parts) {
    const Sizes shape = shape_of(parts.shape);
    if (!is_numpy(called(parts.dtype), "dtype") || !is_tuple(parts.dtype->arguments, 1))
        return std::nullopt;
    const Ref type = parts.dtype->arguments->items[0];
    if (type->is(Kind::global))
        return instead("numpy " + text_of_class(type->text), "x.astype('float32')", shape);
    const auto text = bytes_of_value(type, longest_word);
    if (!text || text->empty()) return std::nullopt;
    if (numpy_type_of(parts.dtype).dtype != DType::other)
        return instead(fmt::format("numpy {} without its bytes", *text), "it again", shape);
    switch (text->find_first_of("fcO") == 0 ? text->front() : ' ') {
        case 'f':
            return instead("numpy longdouble", "x.astype('float64')", shape);
        case 'c':
            return instead("numpy clongdouble", "x.real.astype('float64')", shape);
        case 'O':
            if (!holds_numbers(parts.data)) return std::nullopt;
            return instead("numpy objects", "x.astype('float64')", shape);
        default:
            return std::nullopt;  // texts, dates, records
    }
}

}  // namespace

std::string_view last_part(std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); }

bool is_tuple(Ref value, std::size_t at_least) {
    return value != nullptr && value->is(Kind::tuple) && value->items.size() >= at_least;
}

std::string_view called(Ref value) {
    if (!value->is(Kind::object) || !value->callee->is(Kind::global)) return {};
    return value->callee->text;
}

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

TensorCall unwrapped(Ref value) {
    TensorCall call;
    const auto enter = [&](Ref inner) {
        call.value = inner;
        call.function = called(inner);
        call.arguments = inner->is(Kind::object) ? inner->arguments : nullptr;
    };
    enter(value);
    const auto add = [&](Ref state, std::string_view type) {
        if (state != nullptr && !state->is(Kind::none))
            call.attributes.push_back({state, is_plain(type) ? std::string_view() : type});
    };
    for (int i = 0; i < most_wrappings; ++i) {
        const Ref from = call.arguments;
        if (last_part(call.function).starts_with("_rebuild_from_type") && is_tuple(from, 3) &&
            from->items[0]->is(Kind::global)) {
            const std::size_t at = from->items[1]->is(Kind::tuple) ? 1 : 2;
            const std::string_view type = at == 2 ? from->items[1]->text : std::string_view();
            if (call.type.empty()) call.type = type;
            if (from->items.size() > at + 1) add(from->items[at + 1], type);
            call.function = from->items[0]->text;
            call.arguments = from->items[at];
            call.value = nullptr;
            call.wrapped = true;
            continue;
        }
        const bool stateful = call.function == "torch._utils._rebuild_parameter_with_state";
        const bool holds = stateful || call.function == "torch._utils._rebuild_parameter" ||
                           call.function == "torch._utils._rebuild_device_tensor_from_numpy" ||
                           call.function == "torch._utils._rebuild_device_tensor_from_cpu_tensor";
        if (!holds || !is_tuple(from, 1)) return call;
        if (stateful && from->items.size() > 3) add(from->items[3], {});
        call.wrapped = true;
        enter(from->items[0]);
    }
    return {};
}

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

NumpyType numpy_type_of(Ref value) {
    if (!is_numpy(called(value), "dtype") || !is_tuple(value->arguments, 1)) return {};
    const auto kind = bytes_of_value(value->arguments->items[0], longest_word);
    if (!kind) return {};
    std::string order;
    if (is_tuple(value->state, 2))
        order = bytes_of_value(value->state->items[1], longest_word).value_or("");
    return numpy_type(order == ">" || order == "<" || order == "|" ? order + *kind : *kind);
}

bool is_numeric_array(Ref value) {
    const auto parts = array_parts(value);
    return parts && numpy_type_of(parts->dtype).dtype != DType::other && integers(parts->shape) &&
           holds_bytes(parts->data);
}

std::optional<Unreadable> unreadable_of(const TensorCall& call) {
    if (is_rebuild(call.function) || is_numeric_array(call.value)) return std::nullopt;
    const std::string_view name = last_part(call.function);
    if (is_numpy(call.function, "_mareconstruct"))
        return instead("numpy masked array", "x.filled(0)",
                       call.value ? shape_at(call.value->state, 1) : Sizes());
    if (const auto parts = array_parts(call.value)) return unreadable_array(*parts);
    if (call.function.starts_with("torch.nn.parameter.Uninitialized"))
        return Unreadable{fmt::format("{} (run the model once before it is saved)", name), {}};
    if (call.function.starts_with("torch.distributed.") &&
        (name == "ShardedTensor" || name == "DTensor"))
        return instead(name, "a full state dict");
    if (!call.wrapped && !builds_tensor(call.function)) return std::nullopt;
    if (name.starts_with("_rebuild_sparse")) return sparse(call.arguments);
    if (name.starts_with("_rebuild_meta_tensor"))
        return instead("meta device", "it from a device that holds its values",
                       shape_at(call.arguments, 1));
    if (name == "_rebuild_wrapper_subclass") return wrapper(call);
    if (name == "_rebuild_nested_tensor") return instead("nested", "x.to_padded_tensor(0)");
    return instead(text_of_class(!call.type.empty() ? call.type
                                 : name.empty()     ? std::string_view("unknown")
                                                    : name),
                   plain_tensor);
}

std::optional<std::string> telling_attribute(const Attributes& attributes) {
    const bool subclass = !attributes.type.empty();
    const auto tells = [&](std::string_view name, Ref value) {
        if (name.starts_with('_') || (!is_number(value) && !is_called_tensor(value))) return false;
        return subclass || contains(name, "scale") || contains(name, "zero_point");
    };
    const auto found_in = [&](Ref part) -> std::optional<std::string> {
        for (const auto& [key, value] : part->pairs)
            if (tells(key->text, value))
                return fmt::format("attribute '{}'", key->text.substr(0, longest_word));
        return std::nullopt;
    };
    if (auto found = found_in(attributes.state)) return found;
    if (!attributes.state->is(Kind::tuple)) return std::nullopt;
    for (const Ref part : attributes.state->items) {  // those of the dict, then those of slots
        if (auto found = found_in(part)) return found;
        if (subclass && (is_number(part) || is_called_tensor(part))) return "state of its own";
    }
    return std::nullopt;
}

}  // namespace tsdiag::checkpoint
