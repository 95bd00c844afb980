#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Options given as text, NAME=VALUE: of an attention, of a step of a layer.
namespace tsdiag {

using Index = std::int64_t;

struct NamedOption {
    std::string_view name;        ///< "p"
    std::string_view fallback;    ///< "3"
    std::string_view words = {};  ///< "none 1/sqrt(N)"; empty: a number only
    bool numbers = false;         ///< a number may be given: "0.5", "3" or "1/14"
    bool whole = false;           ///< and must be a whole one
    double least = 0, most = 1e8;
    std::string_view description = {};
};
/// As given: "p" -> "3".
using OptionTexts = std::map<std::string, std::string>;

/// Throws `UsageError` for an option that is not in `known` (suggests the nearest) or an invalid
/// value.  `owner`, for the message: "attention 'polynomial'"; `page`: where its options are
/// described.
void check_options(std::string_view owner, std::span<const NamedOption> known,
                   const OptionTexts& given, std::string_view page);

/// The values of options: as given, else their defaults.
class OptionValues {
  public:
    OptionValues(std::span<const NamedOption> known, OptionTexts given);

    bool has(std::string_view name) const { return values_.contains(std::string(name)); }
    const std::string& text(std::string_view name) const;
    bool is(std::string_view name, std::string_view word) const { return text(name) == word; }
    /// Empty where the option is a word.
    std::optional<double> number(std::string_view name) const;
    Index count(std::string_view name) const;  ///< of an option that is a number

  private:
    OptionTexts values_;
};

/// "none, or a number from 0 to 1".
std::string range_of(const NamedOption& option);

}  // namespace tsdiag
