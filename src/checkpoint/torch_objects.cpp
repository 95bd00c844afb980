#include "torch_objects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tsdiag::checkpoint {
namespace {

using Ref = PickleValue::Ref;
using Kind = PickleValue::Kind;

constexpr int deepest = 100;
constexpr std::size_t cost_of_value = 128, cost_of_tensor = 512;  // bytes of memory, about

/// A path of keys, joined only where a tensor needs its name.
struct Path {
    const Path* parent;
    std::string_view key;

    std::string joined() const {
        if (parent == nullptr) return {};
        std::string before = parent->joined();
        if (parent->parent != nullptr) before += '.';
        return before.append(key);
    }
};

using Pairs = std::vector<std::pair<Ref, Ref>>;

bool is_text(Ref value) { return value->is(Kind::text); }

/// The name of an object's class or function: "argparse.Namespace".
std::string class_of(Ref value) {
    Ref callee = value->callee;
    const Ref arguments = value->arguments;
    const bool has_class = arguments != nullptr && arguments->is(Kind::tuple) &&
                           !arguments->items.empty() && arguments->items[0]->is(Kind::global);
    if (callee->is(Kind::global) && callee->text.ends_with("._reconstructor") && has_class)
        callee = arguments->items[0];
    return callee->is(Kind::global) ? callee->text : "unknown";
}

Ref first_argument(Ref object) {
    const Ref arguments = object->arguments;
    if (arguments == nullptr || !arguments->is(Kind::tuple) || arguments->items.empty())
        return nullptr;
    return arguments->items[0];
}

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_dict_class(std::string_view name) {
    return one_of(name, {"collections.OrderedDict", "collections.defaultdict",
                         "collections.Counter", "builtins.dict", "__builtin__.dict"});
}
bool is_set_class(std::string_view name) {
    return one_of(
        name, {"builtins.set", "builtins.frozenset", "__builtin__.set", "__builtin__.frozenset"});
}
bool is_namespace(std::string_view name) {
    return one_of(name, {"argparse.Namespace", "types.SimpleNamespace"});
}

/// JSON has no NaN and no infinity: they become texts.
Json real_json(double d) {
    if (std::isnan(d)) return "nan";
    if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
    return d;
}

std::string key_text(Ref key) {
    switch (key->kind) {
        case Kind::text:
        case Kind::bytes:
        case Kind::global:
            return key->text;
        case Kind::integer:
            return std::to_string(key->integer);
        case Kind::boolean:
            return key->integer != 0 ? "True" : "False";
        case Kind::real:
            return fmt::format("{}", key->real);
        case Kind::none:
            return "None";
        case Kind::tuple: {
            std::string text;
            for (const Ref item : key->items) {
                const bool simple = is_text(item) || item->is(Kind::integer);
                if (!text.empty()) text += ',';
                text += simple ? key_text(item) : "?";
            }
            return fmt::format("({})", text);
        }
        default:
            return "?";
    }
}

class Walker {
  public:
    Walker(StorageSource source, Budget& budget, ListedCheckpoint& out)
        : tensors_(out.source(), std::move(source), budget), budget_(budget), out_(out) {}

    void walk(Ref root) {
        const Path path{nullptr, {}};
        if (tensors_.is_tensor(root)) return list(root, {&path, "tensor"});
        std::optional<Json> metadata = convert(root, path);
        if (metadata && !metadata->is_object())
            metadata = Json::Object{{"value", std::move(*metadata)}};
        if (metadata) out_.set_metadata(std::move(*metadata));
    }

  private:
    void spend(std::size_t bytes) { budget_.spend(bytes, "what stands beside the weights"); }

    void list(Ref value, const Path& path) {
        const std::string name = path.joined();
        spend(cost_of_tensor + name.size());
        out_.add(name, *tensors_.read(value, name));
    }

    /// The metadata of `value` once its tensors are listed; nullopt where it holds nothing but
    /// tensors.
    std::optional<Json> convert(Ref value, const Path& path) {
        spend(cost_of_value + value->text.size());
        if (tensors_.is_tensor(value)) {
            if (listing_) list(value, path);
            return std::nullopt;
        }
        switch (value->kind) {
            case Kind::none:
                return Json();
            case Kind::boolean:
                return Json(value->integer != 0);
            case Kind::integer:
                return Json(value->integer);
            case Kind::real:
                return real_json(value->real);
            case Kind::text:
            case Kind::global:
                return Json(value->text);
            case Kind::bytes:
                return bytes_json(value->text);
            case Kind::persistent:
                return Json::Object{{"__class__", "torch.Storage"}};
            default:
                break;
        }
        if (std::find(active_.begin(), active_.end(), value) != active_.end())
            return Json("<cycle>");
        if (active_.size() == deepest)
            refuse(out_.source(), fmt::format("is nested deeper than {} levels at '{}', expected a "
                                              "model. Save only the state_dict.",
                                              deepest, path.joined()));
        active_.push_back(value);
        std::optional<Json> result = convert_nested(value, path);
        active_.pop_back();
        return result;
    }

    std::optional<Json> convert_nested(Ref value, const Path& path) {
        const std::size_t tensors_before = out_.names().size();
        std::optional<Json> result;
        if (value->is(Kind::dict))
            result = convert_dict(value->pairs, path);
        else if (value->is(Kind::object))
            result = convert_object(value, path);
        else
            result = convert_list(value->items, path);
        if (out_.names().size() > tensors_before && path.parent != nullptr && !in_module_) {
            std::string name = path.joined();
            spend(name.size());
            out_.add_container(std::move(name));
        }
        return result;
    }

    std::optional<Json> convert_dict(const Pairs& pairs, const Path& path) {
        Json::Object object;
        convert_members(pairs, path, object);
        if (object.empty() && !pairs.empty()) return std::nullopt;
        return Json(std::move(object));
    }

    void convert_members(const Pairs& pairs, const Path& path, Json::Object& object) {
        std::unordered_map<std::string, std::size_t>
            index;  // for a repeated key the last value counts
        std::vector<std::pair<std::string, Ref>> members;
        for (const auto& [key, member] : pairs) {
            std::string text = key_text(key);
            spend(sizeof(Pairs::value_type) + text.size());
            const auto [at, is_new] = index.emplace(text, members.size());
            if (is_new)
                members.emplace_back(std::move(text), member);
            else
                members[at->second].second = member;
        }
        for (const auto& [key, member] : members)
            if (auto json = convert(member, {&path, key}))
                object.emplace_back(key, std::move(*json));
    }

    std::optional<Json> convert_list(const std::vector<Ref>& items, const Path& path) {
        Json::Array array;
        bool only_tensors = !items.empty();
        for (std::size_t i = 0; i < items.size(); ++i) {
            const std::string index = std::to_string(i);
            auto json = convert(items[i], {&path, index});
            only_tensors = only_tensors && !json;
            array.push_back(json ? std::move(*json) : Json());
        }
        if (only_tensors) return std::nullopt;
        return Json(std::move(array));
    }

    std::optional<Json> convert_object(Ref value, const Path& path) {
        const std::string name = class_of(value);
        const Ref first = first_argument(value);
        spend(name.size() + (first == nullptr ? 0 : first->text.size()));
        if (!value->pairs.empty() || is_dict_class(name))
            return convert_dict(all_pairs(value), path);
        if (const auto scalar = tensors_.read_scalar(value)) return scalar_json(*scalar);
        if (is_set_class(name) && first != nullptr) return convert_list(first->items, path);
        if (name == "torch.Size" && first != nullptr) return convert(first, path);
        if (name == "torch.device") return Json(joined_arguments(value, ":"));
        if (name.starts_with("pathlib.")) return Json(joined_arguments(value, "/"));
        if (is_attribute(name, value)) return Json(joined_arguments(value, "."));
        if (const auto bytes = bytes_of_value(value)) return bytes_json(*bytes);
        if (!value->items.empty()) return convert_list(value->items, path);
        const Pairs state = state_pairs(value);
        spend(state.size() * sizeof(Pairs::value_type));
        if (is_namespace(name)) return convert_dict(state, path);
        if (is_module(state)) return convert_module(name, state, path);
        return convert_opaque(name, value, state, path);
    }

    /// An object of an unknown class: its class, its arguments, and the members of its state.
    Json convert_opaque(const std::string& name, Ref value, const Pairs& state, const Path& path) {
        Json::Object object{{"__class__", name}};
        const Ref arguments = value->arguments;
        if (arguments != nullptr && !arguments->items.empty()) {
            const bool before = std::exchange(listing_, false);
            if (auto json = convert(arguments, path))
                object.emplace_back("__args__", std::move(*json));
            listing_ = before;
        }
        const bool before = std::exchange(in_module_, true);
        convert_members(state, path, object);
        in_module_ = before;
        return object;
    }

    static bool is_module(const Pairs& state) {
        int found = 0;
        for (const auto& [key, member] : state)
            if (is_text(key) && (key->text == "_parameters" || key->text == "_modules")) ++found;
        return found == 2;
    }

    /// A pickled nn.Module: its own parameters and buffers, then its modules, without the members
    /// of the class in the names, as its state_dict would have them.
    Json convert_module(const std::string& name, const Pairs& state, const Path& path) {
        Json::Object object{{"__class__", name}};
        std::unordered_set<std::string> transient;
        for (const Ref buffer : members_of(state, "_non_persistent_buffers_set")) {
            spend(cost_of_value + buffer->text.size());
            transient.insert(buffer->text);
        }
        const auto add = [&](std::string_view part) {
            const Pairs members = pairs_of(state, part);
            spend(members.size() * sizeof(Pairs::value_type));
            for (const auto& [key, member] : members) {
                const std::string text = key_text(key);
                if (member->is(Kind::none) || transient.contains(text)) continue;
                const bool before = std::exchange(in_module_, true);
                if (auto json = convert(member, {&path, text}))
                    object.emplace_back(text, std::move(*json));
                in_module_ = before;
            }
        };
        add("_parameters");
        add("_buffers");
        add("_modules");
        for (const auto& [key, member] : state) {
            if (!is_text(key) || key->text.starts_with('_')) continue;
            // A function is an activation, say; of other objects only a configuration is of use.
            const bool simple = member->is(Kind::boolean) || member->is(Kind::integer) ||
                                member->is(Kind::real) || member->is(Kind::text) ||
                                member->is(Kind::global);
            if (!simple && key->text != "config") continue;
            const bool before = std::exchange(listing_, false);
            if (auto json = convert(member, path)) object.emplace_back(key->text, std::move(*json));
            listing_ = before;
        }
        return object;
    }

    /// The items of a dict-like object: those of its constructor, then those set later.
    static Pairs all_pairs(Ref value) {
        Pairs pairs;
        const Ref arguments = value->arguments;
        if (arguments != nullptr && arguments->is(Kind::tuple))
            for (const Ref argument : arguments->items) {
                pairs.insert(pairs.end(), argument->pairs.begin(), argument->pairs.end());
                if (!argument->is(Kind::list)) continue;
                for (const Ref item : argument->items)
                    if (item->items.size() == 2) pairs.emplace_back(item->items[0], item->items[1]);
            }
        pairs.insert(pairs.end(), value->pairs.begin(), value->pairs.end());
        return pairs;
    }

    /// The attributes of an object: its state is a dict, or (dict or None, dict of slots).
    static Pairs state_pairs(Ref value) {
        if (value->state == nullptr) return {};
        if (!value->state->is(Kind::tuple)) return value->state->pairs;
        Pairs pairs;
        for (const Ref part : value->state->items)
            pairs.insert(pairs.end(), part->pairs.begin(), part->pairs.end());
        return pairs;
    }

    static Ref member(const Pairs& state, std::string_view name) {
        for (const auto& [key, value] : state)
            if (is_text(key) && key->text == name) return value;
        return nullptr;
    }
    static Pairs pairs_of(const Pairs& state, std::string_view name) {
        const Ref found = member(state, name);
        return found == nullptr ? Pairs() : all_pairs_or_dict(found);
    }
    static Pairs all_pairs_or_dict(Ref value) {
        return value->is(Kind::object) ? all_pairs(value) : value->pairs;
    }
    /// The elements of a set, which protocols before 4 write as a call with a list.
    static std::vector<Ref> members_of(const Pairs& state, std::string_view name) {
        const Ref found = member(state, name);
        if (found == nullptr) return {};
        const Ref first = found->is(Kind::object) ? first_argument(found) : found;
        return first == nullptr ? std::vector<Ref>() : first->items;
    }

    /// getattr(Class, 'NAME'): how newer Pythons write a member of an Enum.
    static bool is_attribute(const std::string& name, Ref value) {
        const Ref arguments = value->arguments;
        return one_of(name, {"builtins.getattr", "__builtin__.getattr"}) &&
               arguments->items.size() == 2 && arguments->items[0]->is(Kind::global) &&
               is_text(arguments->items[1]);
    }

    static std::string joined_arguments(Ref value, std::string_view separator) {
        std::string text;
        if (value->arguments == nullptr) return text;
        for (const Ref argument : value->arguments->items) {
            if (!text.empty() && text != separator) text += separator;
            text += key_text(argument);
        }
        return text;
    }

    static Json bytes_json(const std::string& bytes) {
        const bool ascii =
            std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
        if (ascii) return bytes;
        return Json::Object{{"__class__", "bytes"}, {"size", std::int64_t(bytes.size())}};
    }

    static std::optional<Json> scalar_json(const RawTensor& scalar) {
        if (scalar.dtype == DType::c64 || scalar.dtype == DType::c128)
            return Json::Object{{"__class__", "numpy.complex"}};
        double value = 0;
        widen<double>(scalar, {&value, 1});
        if (scalar.dtype == DType::boolean) return Json(value != 0);
        const bool floating = scalar.dtype == DType::f16 || scalar.dtype == DType::bf16 ||
                              scalar.dtype == DType::f32 || scalar.dtype == DType::f64;
        if (floating || std::abs(value) > 0x1p53) return real_json(value);
        return Json(std::int64_t(value));
    }

    TensorReader tensors_;
    Budget& budget_;
    ListedCheckpoint& out_;
    std::vector<Ref> active_;  ///< the objects being converted, outermost first
    bool listing_ = true;      ///< false inside the arguments of an opaque object
    bool in_module_ = false;   ///< true where the path continues with an attribute of a module
};

}  // namespace

void list_objects(const Pickle& pickle, StorageSource source, Budget& budget,
                  ListedCheckpoint& out) {
    Walker(std::move(source), budget, out).walk(pickle.root);
}

}  // namespace tsdiag::checkpoint
