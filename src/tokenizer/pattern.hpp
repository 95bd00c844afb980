#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Texts and regular expressions that are searched for.
namespace tsdiag::tokenizer {

/// When the work on a text must be over.
class Deadline {
  public:
    /// Three seconds, and one more for each 200 KB.
    explicit Deadline(std::size_t bytes);
    bool over() const { return std::chrono::steady_clock::now() > end_; }
    /// Throws `FormatError` if it is over, naming what took the time.
    void require(std::string_view what) const;

  private:
    std::chrono::steady_clock::time_point end_;
};

using Range = std::pair<std::size_t, std::size_t>;  ///< bytes [begin, end)

/// `pattern` of a Split or a Replace.
class Pattern {
  public:
    static Pattern of_text(std::string text);
    /// A regular expression in the part of Oniguruma's syntax that ICU reads alike
    /// (regex_syntax.cpp); `where` names it in messages.
    static Pattern of_regex(std::string_view source, const std::string& where);

    /// The matches in a well-formed UTF-8 text, in order, none overlapping; some may be empty.
    std::vector<Range> matches(std::string_view text, const Deadline& deadline) const;

  private:
    struct Compiled;
    Pattern() = default;
    std::string text_;
    std::shared_ptr<const Compiled> regex_;
    std::string where_;
};

/// The expression as ICU reads it.  Throws `FormatError` naming a construct that is not known to
/// mean the same in both.
std::string icu_syntax(std::string_view source, const std::string& where);

}  // namespace tsdiag::tokenizer
