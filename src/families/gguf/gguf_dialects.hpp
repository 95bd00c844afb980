#pragma once
#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/families.hpp"

/// How llama.cpp writes each family, as data.
namespace tsdiag::families {

/// A stem or a key in GGUF and in the family's files.  The first '*' is the layer, a second one on
/// the right the expert: the tensor on the left stacks those of all experts.
struct GgufPair {
    std::string_view here, there;
};

class GgufKeys;

enum class GgufRotation {
    none,
    as_stored,  ///< columns are those of the family's own files
    paired,     ///< rows i and i + h / 2 of a head of h rows are neighbours
};

struct GgufDialect {
    std::string_view architecture, model_type;
    std::span<const GgufPair> tensors, keys;
    std::string_view epsilon;
    std::string_view activation_key = "", activation = "";  ///< no key: the family has no choice
    GgufRotation rotation = GgufRotation::as_stored;
    /// Reads the keys of its own.
    void (*more)(GgufKeys& keys) = nullptr;
    /// Whether it owns the file, of several with its architecture.
    bool (*owns)(const Checkpoint& file) = nullptr;
    bool fused_in_parts = false;  ///< of q, k, v in groups all queries, all keys, all values
    Index key_heads = 0;          ///< where no key of the family says it; 0: as many as heads
    bool plus_one = false;        ///< the 1 of norms that multiply by 1 + w is in the file's w
    std::string_view share_key = "partial_rotary_factor";  ///< empty: whole heads rotate
};

/// All that are supported; the first that owns a file reads it.
std::span<const GgufDialect> gguf_dialects();

/// Reads metadata while a configuration of the family is written.
class GgufKeys {
  public:
    GgufKeys(const Checkpoint& file, const GgufDialect& dialect)
        : config(Json::Object()), file_(file), dialect_(dialect) {}

    Json config;

    const Checkpoint& file() const { return file_; }
    const GgufDialect& dialect() const { return dialect_; }
    /// The value of "ARCHITECTURE.key"; null: absent.
    const Json& said(std::string_view key);
    /// A positive number.  Throws `FormatError` for anything else.
    double number(std::string_view key);
    /// Refuses other values than this one and none.
    void only(std::string_view key, const Json& expected);
    /// Columns of a head's keys.
    Index head_columns();
    bool was_read(std::string_view full) const;
    [[noreturn]] void refuse(const std::string& what) const;

  private:
    std::string full(std::string_view key) const {
        return fmt::format("{}.{}", dialect_.architecture, key);
    }

    const Checkpoint& file_;
    const GgufDialect& dialect_;
    std::vector<std::string> used_;
};

}  // namespace tsdiag::families
