#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tsdiag/json.hpp"

/// Records whose members are named once, for who writes them and who reads them.
///
/// A record is a struct with a function beside it that visits its members in the order in which
/// they are written:
///
///     struct Mark { std::uint64_t bytes = 0; std::string digest = {}; };
///     void fields(auto& io, Is<Mark> auto& mark) {
///         io.key("bytes", mark.bytes).key("sha256", mark.digest);
///     }
///     const Json json = fields_json(Mark{3, "ab"});       // {"bytes": 3, "sha256": "ab"}
///     const Mark mark = read_fields<Mark>(json, "marks.json");
///
/// `io` reads or writes: `key(name, field, there)` a member that is written where `there` holds,
/// `some(name, field)` one that is written unless it is empty, `inlined(name, part)` a part whose
/// members stand among those of the record, `name` the first of them, and `whole(json)` the members
/// as they are, also those without a field.  An empty `optional` is null, and read where there is
/// none.
namespace tsdiag {

template <class T, class Part>
concept Is = std::same_as<std::remove_const_t<T>, Part>;

/// Throws `FormatError`: member `name` of `source` is absent, or of another type.
[[noreturn]] void refuse_absent(std::string_view source, const char* name);
[[noreturn]] void refuse_type(std::string_view source, const char* name, const Json& value,
                              const char* expected);

/// Takes the members of an object that are known.
class FieldReader {
  public:
    /// Without a `source`, a field stays as it is where there is no member of its type.
    explicit FieldReader(const Json& from, std::string_view source = {})
        : from_(from), source_(source) {}

    template <class T>
    FieldReader& key(const char* name, T& field, bool there = true) {
        name_ = name;
        const Json& value = from_[name];
        constexpr bool may_be_null = requires { field.reset(); };
        if (there && strict() && !may_be_null && !from_.contains(name))
            refuse_absent(source_, name);
        if (there || !value.is_null()) take(value, field);
        return *this;
    }
    template <class T>
    FieldReader& some(const char* name, T& field) {
        return key(name, field, false);
    }
    template <class Part>
    FieldReader& inlined(const char* name, std::optional<Part>& part) {
        if (from_.contains(name)) fields(*this, *(part = Part()));
        return *this;
    }
    FieldReader& whole(Json& json) {
        json = from_;
        return *this;
    }

  private:
    bool strict() const { return !source_.empty(); }
    bool accept(bool of_type, const Json& value, const char* expected) const {
        if (!of_type && strict()) refuse_type(source_, name_, value, expected);
        return of_type;
    }
    // Whether `value` is of the type.
    bool take(const Json& value, Json& out) const {
        out = value;
        return true;
    }
    bool take(const Json& value, std::string& out) const {
        if (!accept(value.is_string(), value, "a string")) return false;
        out = value.string();
        return true;
    }
    bool take(const Json& value, std::int64_t& out) const {
        if (!accept(value.is_integer(), value, "an integer")) return false;
        out = value.integer();
        return true;
    }
    /// JSON has those beyond int64 as doubles.
    bool take(const Json& value, std::uint64_t& out) const {
        const double number = value.is_number() ? value.number() : -1;
        const bool of_type = value.is_integer() ? value.integer() >= 0 : number >= 0x1p63;
        if (!accept(of_type, value, "an integer of 0 or more")) return false;
        if (value.is_integer())
            out = std::uint64_t(value.integer());
        else
            out =
                number < 0x1p64 ? std::uint64_t(number) : std::numeric_limits<std::uint64_t>::max();
        return true;
    }
    bool take(const Json& value, double& out) const {
        if (!accept(value.is_number(), value, "a number")) return false;
        out = value.number();
        return true;
    }
    bool take(const Json& value, bool& out) const {
        if (!accept(value.is_bool(), value, "true or false")) return false;
        out = value.boolean();
        return true;
    }
    bool take(const Json& value, std::vector<std::string>& lines) const {
        if (!accept(value.is_array(), value, "an array")) return false;
        for (const Json& line : value.array()) lines.push_back(word(line));
        return true;
    }
    bool take(const Json& value, std::vector<std::pair<std::string, std::string>>& words) const {
        if (!accept(value.is_object(), value, "an object")) return false;
        for (const auto& [name, one] : value.object()) words.emplace_back(name, word(one));
        return true;
    }
    template <class T>
    bool take(const Json& value, std::vector<T>& list) const {
        if (!accept(value.is_array(), value, "an array")) return false;
        for (const Json& one : value.array()) take(one, list.emplace_back());
        return true;
    }
    template <class T>
    bool take(const Json& value, std::optional<T>& out) const {
        T held{};
        if (value.is_null() || !take(value, held)) return false;
        out = std::move(held);
        return true;
    }
    template <class Part>
    requires std::is_class_v<Part>
    bool take(const Json& value, Part& part) const {
        if (!accept(value.is_object(), value, "an object")) return false;
        FieldReader members(value, source_);
        fields(members, part);
        return true;
    }
    /// A number or a word, as it stands.
    std::string word(const Json& value) const {
        if (accept(value.is_string(), value, "a string")) return value.string();
        return value.is_null() ? std::string() : value.dump();
    }

    const Json& from_;
    std::string_view source_;
    const char* name_ = "";
};

/// Makes an object of the members.
class FieldWriter {
  public:
    template <class T>
    FieldWriter& key(const char* name, const T& field, bool there = true) {
        if (there) out_.set(name, json_of(field));
        return *this;
    }
    template <class T>
    FieldWriter& some(const char* name, const T& field) {
        return key(name, field, !is_empty(field));
    }
    template <class Part>
    FieldWriter& inlined(const char*, const std::optional<Part>& part) {
        if (part) fields(*this, *part);
        return *this;
    }
    FieldWriter& whole(const Json& json) {
        out_ = json;
        return *this;
    }
    template <class Part>
    static Json members(const Part& part) {
        FieldWriter io;
        fields(io, part);
        return std::move(io.out_);
    }

  private:
    template <class Part>
    static Json json_of(const Part& part) {
        return members(part);
    }
    template <class T>
    requires std::is_convertible_v<const T&, Json>
    static Json json_of(const T& value) { return value; }
    template <class T>
    static Json json_of(const std::vector<T>& list) {
        Json::Array all;
        for (const T& one : list) all.push_back(json_of(one));
        return all;
    }
    template <class T>
    static Json json_of(const std::optional<T>& value) {
        return value ? json_of(*value) : Json();
    }
    static Json json_of(const std::vector<std::pair<std::string, std::string>>& words) {
        return Json::Object(words.begin(), words.end());
    }
    template <class T>
    static bool is_empty(const T& field) {
        if constexpr (requires { field.has_value(); })
            return !field.has_value();
        else if constexpr (requires { field.is_null(); })
            return field.is_null();
        else
            return field.empty();
    }

    Json out_ = Json::Object{};
};

/// The members of a record as an object.
template <class Record>
Json fields_json(const Record& record) {
    return FieldWriter::members(record);
}

/// The record that `fields_json` has written.  Throws `FormatError` naming `source`, the file, and
/// the member where one is absent or of another type; those of `some` may be absent, and so may an
/// `optional`.
template <class Record>
Record read_fields(const Json& json, std::string_view source) {
    Record record{};
    FieldReader io(json, source);
    fields(io, record);
    return record;
}

}  // namespace tsdiag
