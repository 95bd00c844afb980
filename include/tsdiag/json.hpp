#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// A JSON value, as in config.json, safetensors headers, pickled hyper-parameters and run.json.
namespace tsdiag {

/// The longest texts that are parsed, in bytes, by what they are: several times those that exist,
/// and no more, since a hostile text takes many times its size in memory.
inline constexpr std::uint64_t longest_json = 8 << 20;    ///< config.json with 21 843 names: 2 MB
inline constexpr std::uint64_t longest_index = 32 << 20;  ///< of shards: 91 991 tensors, 9 MB
inline constexpr std::uint64_t longest_vocabulary = 64 << 20;  ///< tokenizer.json: up to 40 MB
inline constexpr std::uint64_t longest_result = 64 << 20;      ///< run.json: 200 bytes a spectrum
inline constexpr std::uint64_t longest_history = 256 << 20;    ///< trainer_state.json: 150 a step

class Json {
  public:
    using Array = std::vector<Json>;
    using Object = std::vector<std::pair<std::string, Json>>;  ///< in the order of the text

    Json() = default;
    Json(std::nullptr_t) {}
    // Out of line: GCC 12 takes their inlined code for uninitialised.
    Json(const Json& other);
    Json(Json&& other) noexcept;
    Json& operator=(const Json& other);
    Json& operator=(Json&& other) noexcept;
    ~Json();
    Json(bool b) : value_(b) {}
    Json(int i) : value_(std::int64_t{i}) {}
    Json(std::int64_t i) : value_(i) {}
    Json(std::uint64_t i);  ///< a double where it exceeds int64
    Json(double d) : value_(d) {}
    Json(const char* s) : value_(std::string(s)) {}
    Json(std::string_view s) : value_(std::string(s)) {}
    Json(std::string s) : value_(std::move(s)) {}
    Json(Array a) : value_(std::move(a)) {}
    Json(Object o) : value_(Members(std::move(o))) {}

    bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
    bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    bool is_object() const { return std::holds_alternative<Members>(value_); }

    /// The value as that type; throws `FormatError` naming what was found instead.
    bool boolean() const;
    std::int64_t integer() const;  ///< also of a double without fraction
    double number() const;
    const std::string& string() const;
    const Array& array() const;
    const Object& object() const;

    /// Member `key` of an object; null (the same static value) where there is none or this is no
    /// object.  Cost: O(members), O(1) where `set` has made a large object.
    const Json& operator[](std::string_view key) const;
    bool contains(std::string_view key) const;
    /// Appends a member to an object (null becomes an object) or an element to an array, each at
    /// constant cost.
    Json& set(std::string key, Json value);  ///< replaces an equal key; returns *this
    Json& push(Json value);

    /// Text; `indent` < 0 is one line.  Doubles use the shortest form that round-trips.
    /// NaN and infinities are null, as what is undefined is: JSON has none.
    std::string dump(int indent = -1) const;

    /// Reads one JSON text.  Strict: at most `most` bytes of UTF-8, no duplicate keys, only white
    /// space after the value, nesting at most 200.  Throws `FormatError` with the byte offset;
    /// `source` names the file.  Memory: 40 bytes a value, 32 a key, and long texts; up to 45 times
    /// the text (a list of digits), 2 to 5 times that of real files.
    static Json parse(std::string_view text, std::string_view source,
                      std::uint64_t most = longest_json);

  private:
    /// The members, and an index by key once `set` has seen many of them.
    struct Members {
        class Index;
        explicit Members(Object object);
        Members(const Members& other);  // the copy makes its own index when it needs one
        Members& operator=(const Members& other);
        Members(Members&&) noexcept;
        Members& operator=(Members&&) noexcept;
        ~Members();

        const Json* find(std::string_view key) const;
        Json& at(std::string key);  ///< the member of that key, appended where there is none

        Object list;
        std::unique_ptr<Index> index;
    };

    std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Members> value_;
};

}  // namespace tsdiag
