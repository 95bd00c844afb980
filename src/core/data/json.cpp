#include "tsdiag/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "tsdiag/error.hpp"
#include "tsdiag/fields.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

constexpr std::size_t deepest = 200;

std::string kind_of(const Json& value) {
    if (value.is_null()) return "null";
    if (value.is_bool()) return "a boolean";
    if (value.is_number()) return "a number";
    if (value.is_string()) return "a string";
    return value.is_array() ? "an array" : "an object";
}

/// "a string ("x")"
std::string described(const Json& value) {
    std::string found = kind_of(value);
    if (value.is_number() && !std::isfinite(value.number()))
        found += " (not finite)";
    else if (value.is_bool() || value.is_number() || value.is_string())
        found += " (" + value.dump().substr(0, 60) + ")";
    return found;
}

[[noreturn]] void wrong_kind(const Json& value, std::string_view expected) {
    throw FormatError(fmt::format("a JSON value is {}, expected {}", described(value), expected));
}

/// Builds a Json from the events of the parser; adds checks that the parser lacks.
class Builder {
  public:
    Builder(std::string_view source) : source_(source) {}

    bool null() { return add(Json()); }
    bool boolean(bool b) { return add(Json(b)); }
    bool number_integer(std::int64_t i) { return add(Json(i)); }
    bool number_unsigned(std::uint64_t u) { return add(Json(u)); }
    bool number_float(double d, const std::string&) { return add(Json(d)); }
    bool string(std::string& s) { return add(Json(std::move(s))); }
    bool binary(std::vector<std::uint8_t>&) { return false; }

    bool start_object(std::size_t) { return open(true); }
    bool start_array(std::size_t) { return open(false); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }

    bool key(std::string& k) {
        open_.back().members.emplace_back(std::move(k), Json());
        return true;
    }

    bool parse_error(std::size_t at, const std::string& token, const std::exception& e) {
        std::string why = e.what();
        if (const std::size_t colon = why.find("; "); colon != std::string::npos)
            why = why.substr(colon + 2);
        throw FormatError(
            fmt::format("{}: not valid JSON at byte {} (near '{}'): {}. Is the file complete?",
                        source_, at, token.substr(0, 40), why));
    }

    Json take() { return std::move(root_); }

  private:
    struct Frame {
        bool is_object;
        Json::Object members;  ///< the last one is without its value at first
        Json::Array elements;
    };

    bool open(bool is_object) {
        if (open_.size() == deepest)
            throw FormatError(
                fmt::format("{}: JSON is nested deeper than {} levels. Is this the right file?",
                            source_, deepest));
        open_.push_back({is_object, {}, {}});
        return true;
    }
    bool close() {
        Frame top = std::move(open_.back());
        open_.pop_back();
        require_different_keys(top.members);
        return add(top.is_object ? Json(std::move(top.members)) : Json(std::move(top.elements)));
    }
    bool add(Json value) {
        if (open_.empty())
            root_ = std::move(value);
        else if (open_.back().is_object)
            open_.back().members.back().second = std::move(value);
        else
            open_.back().elements.push_back(std::move(value));
        return true;
    }

    void require_different_keys(const Json::Object& members) const {
        std::vector<std::string_view> keys;
        keys.reserve(members.size());
        for (const auto& [key, value] : members) keys.push_back(key);
        std::ranges::sort(keys);
        if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
            throw FormatError(
                fmt::format("{}: the JSON key '{}' occurs twice in one object. Remove one of them.",
                            source_, *twice));
    }

    std::string source_;
    std::vector<Frame> open_;
    Json root_;
};

/// A control character as JSON writes it: \\uXXXX, beyond U+FFFF as two of them.
void escape(std::string& out, std::string_view sequence) {
    std::uint32_t code = code_point(sequence);
    if (code >= 0x10000) {
        code -= 0x10000;
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else {
        out += fmt::format("\\u{:04x}", code);
    }
}

void write_string(std::string& out, std::string_view s) {
    out += '"';
    while (!s.empty()) {
        const std::size_t length = utf8_length(s);
        const char c = s[0];
        if (length == 0)
            out += "\\ufffd";  // the text of a pickle need not be UTF-8; JSON must be
        else if (length > 1 && !is_control(s.substr(0, length)))
            out += s.substr(0, length);
        else if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (c == '\r')
            out += "\\r";
        else if (is_control(s.substr(0, length)))
            escape(out, s.substr(0, length));
        else
            out += c;
        s.remove_prefix(length == 0 ? 1 : length);
    }
    out += '"';
}

void write_double(std::string& out, double d) {
    if (!std::isfinite(d)) {
        out += "null";
        return;
    }
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, d).ptr;
    const std::string_view digits(text, std::size_t(end - text));
    out += digits;
    if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";  // reads back as double
}

void new_line(std::string& out, int indent, int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(std::size_t(indent) * std::size_t(level), ' ');
}

void write(std::string& out, const Json& value, int indent, int level) {
    if (value.is_null())
        out += "null";
    else if (value.is_bool())
        out += value.boolean() ? "true" : "false";
    else if (value.is_integer())
        out += std::to_string(value.integer());
    else if (value.is_number())
        write_double(out, value.number());
    else if (value.is_string())
        write_string(out, value.string());
    else if (value.is_array()) {
        out += '[';
        bool first = true;
        for (const Json& element : value.array()) {
            if (!first) out += indent < 0 ? ", " : ",";
            first = false;
            new_line(out, indent, level + 1);
            write(out, element, indent, level + 1);
        }
        if (!first) new_line(out, indent, level);
        out += ']';
    } else {
        out += '{';
        bool first = true;
        for (const auto& [key, member] : value.object()) {
            if (!first) out += indent < 0 ? ", " : ",";
            first = false;
            new_line(out, indent, level + 1);
            write_string(out, key);
            out += ": ";
            write(out, member, indent, level + 1);
        }
        if (!first) new_line(out, indent, level);
        out += '}';
    }
}

}  // namespace

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::uint64_t i) {
    if (i <= std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        value_ = std::int64_t(i);
    else
        value_ = double(i);
}

bool Json::boolean() const {
    if (!is_bool()) wrong_kind(*this, "true or false");
    return std::get<bool>(value_);
}

std::int64_t Json::integer() const {
    if (is_integer()) return std::get<std::int64_t>(value_);
    if (const double* d = std::get_if<double>(&value_))
        if (*d >= -0x1p63 && *d < 0x1p63 && *d == std::trunc(*d)) return std::int64_t(*d);
    wrong_kind(*this, "an integer");
}

double Json::number() const {
    if (is_integer()) return double(std::get<std::int64_t>(value_));
    if (!is_number()) wrong_kind(*this, "a number");
    return std::get<double>(value_);
}

const std::string& Json::string() const {
    if (!is_string()) wrong_kind(*this, "a string");
    return std::get<std::string>(value_);
}

const Json::Array& Json::array() const {
    if (!is_array()) wrong_kind(*this, "an array");
    return std::get<Array>(value_);
}

const Json::Object& Json::object() const {
    if (!is_object()) wrong_kind(*this, "an object");
    return std::get<Members>(value_).list;
}

/// Index by key of a large object.
class Json::Members::Index {
  public:
    explicit Index(const Object& list) {
        for (std::size_t i = 0; i < list.size(); ++i) add(list[i].first, i);
    }
    /// Of equal keys the first counts, as in a linear search.
    void add(const std::string& key, std::size_t at) { positions_.emplace(key, at); }
    std::optional<std::size_t> find(std::string_view key) const {
        const auto found = positions_.find(key);
        return found == positions_.end() ? std::nullopt : std::optional(found->second);
    }

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view key) const {
            return std::hash<std::string_view>()(key);
        }
    };
    std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> positions_;
};

Json::Members::Members(Object object) : list(std::move(object)) {}
Json::Members::Members(const Members& other) : list(other.list) {}
Json::Members& Json::Members::operator=(const Members& other) {
    if (this != &other) *this = Members(other);
    return *this;
}
Json::Members::Members(Members&&) noexcept = default;
Json::Members& Json::Members::operator=(Members&&) noexcept = default;
Json::Members::~Members() = default;

const Json* Json::Members::find(std::string_view key) const {
    if (index) {
        const auto at = index->find(key);
        return at ? &list[*at].second : nullptr;
    }
    for (const auto& [k, member] : list)
        if (k == key) return &member;
    return nullptr;
}

Json& Json::Members::at(std::string key) {
    constexpr std::size_t many = 32;  // below, a linear search is faster
    if (!index && list.size() >= many) index = std::make_unique<Index>(list);
    if (const Json* found = find(key)) return const_cast<Json&>(*found);
    if (index) index->add(key, list.size());
    return list
        .emplace_back(std::piecewise_construct, std::forward_as_tuple(std::move(key)),
                      std::forward_as_tuple())
        .second;
}

const Json& Json::operator[](std::string_view key) const {
    static const Json null;
    const Json* found = is_object() ? std::get<Members>(value_).find(key) : nullptr;
    return found == nullptr ? null : *found;
}

bool Json::contains(std::string_view key) const {
    return is_object() && std::get<Members>(value_).find(key) != nullptr;
}

Json& Json::set(std::string key, Json value) {
    if (is_null()) value_ = Members(Object());
    if (!is_object()) wrong_kind(*this, "an object to set a member of");
    std::get<Members>(value_).at(std::move(key)) = std::move(value);
    return *this;
}

Json& Json::push(Json value) {
    if (is_null()) value_ = Array();
    if (!is_array()) wrong_kind(*this, "an array to append to");
    std::get<Array>(value_).push_back(std::move(value));
    return *this;
}

std::string Json::dump(int indent) const {
    std::string out;
    write(out, *this, indent, 0);
    return out;
}

Json Json::parse(std::string_view text, std::string_view source, std::uint64_t most) {
    if (text.size() > most)
        throw FormatError(
            fmt::format("{}: has {} bytes of JSON, expected at most {}. Is this the right file?",
                        source, text.size(), most));
    // The parser takes a zero byte for the end of the text and would ignore the rest.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
        throw FormatError(fmt::format(
            "{}: not valid JSON at byte {}: a zero byte. Is the file complete?", source, zero));
    Builder builder(source);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
        throw FormatError(fmt::format("{}: not valid JSON. Is the file complete?", source));
    return builder.take();
}

void refuse_absent(std::string_view source, const char* name) {
    throw FormatError(
        fmt::format("{}: has no member '{}'; another version may have written it.", source, name));
}

void refuse_type(std::string_view source, const char* name, const Json& value,
                 const char* expected) {
    throw FormatError(fmt::format("{}: has {} in member '{}', expected {}.", source,
                                  described(value), name, expected));
}

}  // namespace tsdiag
