#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "pattern.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

/// Regular expressions of tokenizer.json are those of Oniguruma (Ruby's syntax).  What ICU reads
/// alike is rewritten with every literal as a code point; all else is refused.
namespace tsdiag::tokenizer {
namespace {

constexpr std::array categories{
    "L",       "Lu",     "Ll",       "Lt",     "Lm",      "Lo",       "M",          "Mn",
    "Mc",      "Me",     "N",        "Nd",     "Nl",      "No",       "P",          "Pc",
    "Pd",      "Ps",     "Pe",       "Pi",     "Pf",      "Po",       "S",          "Sm",
    "Sc",      "Sk",     "So",       "Z",      "Zs",      "Zl",       "Zp",         "C",
    "Cc",      "Cf",     "Cn",       "Co",     "Han",     "Hiragana", "Katakana",   "Hangul",
    "Latin",   "Greek",  "Cyrillic", "Arabic", "Hebrew",  "Thai",     "Devanagari", "Bengali",
    "Tamil",   "Telugu", "Lao",      "Khmer",  "Myanmar", "Tibetan",  "Georgian",   "Armenian",
    "Ethiopic"};
constexpr std::string_view word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr int deepest = 50;

class Syntax {
  public:
    Syntax(std::string_view source, const std::string& where) : all_(source), where_(where) {
        require_utf8(source, where);
    }

    std::string rewritten() {
        if (take("(?i)")) out_ += "(?i)";
        while (at_ < all_.size()) one();
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const {
        throw FormatError(
            fmt::format("{}: '{}' at byte {} of the regular expression is not supported; pass ids "
                        "with --input ids:FILE.",
                        where_, visible(what), at_));
    }
    bool take(std::string_view token) {
        if (!all_.substr(at_).starts_with(token)) return false;
        at_ += token.size();
        return true;
    }
    char next() const { return at_ < all_.size() ? all_[at_] : '\0'; }
    static std::string literal(std::uint32_t c) { return fmt::format("\\x{{{:X}}}", c); }

    std::uint32_t character() {
        const std::size_t length = utf8_length(all_.substr(at_, 4));
        const std::uint32_t c = code_point(all_.substr(at_, length));
        at_ += length;
        return c;
    }

    std::uint32_t hexadecimal(std::size_t most, bool braces) {
        std::uint32_t c = 0;
        std::size_t digits = 0;
        for (; digits < most; ++digits, ++at_) {
            const char d = next();
            const int v = d >= '0' && d <= '9'   ? d - '0'
                          : d >= 'a' && d <= 'f' ? d - 'a' + 10
                          : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                                 : -1;
            if (v < 0) break;
            c = c * 16 + std::uint32_t(v);
        }
        if (digits == 0 || (!braces && digits < most) || c > 0x10ffff ||
            (c >= 0xd800 && c < 0xe000) || (braces && !take("}")))
            refuse("\\x");
        return c;
    }

    /// An escape after its backslash.  A single character is returned in `c`, else a class as text.
    std::string escape(std::uint32_t& c, bool& single) {
        single = false;
        const char e = next();
        if (at_ >= all_.size()) refuse("\\");
        if (e == 'p' || e == 'P') return property();
        if (take("s")) return "\\p{White_Space}";
        if (take("S")) return "\\P{White_Space}";
        if (take("d")) return "\\p{Nd}";
        if (take("D")) return "\\P{Nd}";
        if (take("w")) return fmt::format("[{}]", word);
        if (take("W")) return fmt::format("[^{}]", word);
        single = true;
        if (take("r")) return c = '\r', "";
        if (take("n")) return c = '\n', "";
        if (take("t")) return c = '\t', "";
        if (take("f")) return c = '\f', "";
        if (take("v")) return c = '\v', "";
        if (take("x{")) return c = hexadecimal(8, true), "";
        if (take("x")) return c = hexadecimal(2, false), "";
        if (take("u")) return c = hexadecimal(4, false), "";
        const bool plain = e > ' ' && e < 0x7f && !(e >= '0' && e <= '9') &&
                           !(e >= 'a' && e <= 'z') && !(e >= 'A' && e <= 'Z');
        if (!plain && e != ' ') refuse(fmt::format("\\{}", e));
        at_ += 1;
        return c = static_cast<unsigned char>(e), "";
    }

    std::string property() {
        bool negative = next() == 'P';
        at_ += 1;
        const std::size_t close = all_.find('}', at_);
        if (next() != '{' || close == std::string_view::npos) refuse("\\p");
        std::string_view name = all_.substr(at_ + 1, close - at_ - 1);
        if (name.starts_with('^')) {
            negative = !negative;
            name.remove_prefix(1);
        }
        for (const std::string_view known : categories)
            if (name == known) {
                at_ = close + 1;
                return fmt::format("\\{}{{{}}}", negative ? 'P' : 'p', name);
            }
        refuse(fmt::format("\\p{{{}}}", name));
    }

    /// A set after its bracket.
    void set(int depth) {
        if (depth > deepest) refuse("[");
        out_ += '[';
        if (take("^")) out_ += '^';
        if (next() == ']') refuse("[]");
        bool ends_range = false;  // the last item cannot begin a range
        while (!take("]")) {
            if (at_ >= all_.size()) refuse("[");
            if (all_.substr(at_).starts_with("[:")) refuse("[:");
            if (take("&&")) {
                out_ += "&&";
                continue;
            }
            if (take("[")) {
                set(depth + 1);
                ends_range = true;
                continue;
            }
            std::uint32_t low = 0;
            bool single = true;
            if (take("\\")) {
                out_ += escape(low, single);
            } else {
                low = character();
            }
            if (!single) {
                ends_range = true;
                continue;
            }
            const bool dash = next() == '-' && !all_.substr(at_).starts_with("-]");
            if (!dash || (low == '-' && ends_range)) {
                out_ += literal(low);
                ends_range = false;
                continue;
            }
            at_ += 1;
            std::uint32_t high = 0;
            if (take("\\"))
                escape(high, single);
            else if (next() == '[' || at_ >= all_.size())
                refuse("-");
            else
                high = character();
            if (!single || high < low) refuse("-");
            out_ += literal(low) + "-" + literal(high);
            ends_range = true;
        }
        out_ += ']';
    }

    void group() {
        for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
            if (take(known)) {
                out_ += known;
                return;
            }
        if (all_.substr(at_).starts_with("(?")) refuse(all_.substr(at_, 4));
        at_ += 1;
        out_ += "(?:";
    }

    /// {n}, {n,}, {,m} or {n,m}; false: the brace is a character.
    bool interval() {
        const std::size_t close = all_.find('}', at_);
        const std::string_view inside =
            close == std::string_view::npos ? "" : all_.substr(at_ + 1, close - at_ - 1);
        const std::size_t comma = inside.find(',');
        const std::string_view low = inside.substr(0, comma);
        const std::string_view high =
            comma == std::string_view::npos ? "" : inside.substr(comma + 1);
        const auto number = [](std::string_view s) {
            return s.find_first_not_of("0123456789") == std::string_view::npos;
        };
        if (inside.empty() || inside == "," || !number(low) || !number(high)) return false;
        if (low.size() > 4 || high.size() > 4) refuse("{");
        at_ = close + 1;
        out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low,
                            comma == std::string_view::npos ? "" : ",", high);
        if (next() == '+' || next() == '*' || (next() == '?' && comma == std::string_view::npos))
            refuse("}" + std::string(1, next()));
        if (take("?")) out_ += '?';
        if (next() == '?' || next() == '+' || next() == '*') refuse(std::string(1, next()));
        return true;
    }

    void quantifier() {
        out_ += all_[at_++];
        if (next() == '?' || next() == '+') out_ += all_[at_++];
        if (next() == '?' || next() == '+' || next() == '*') refuse(std::string(1, next()));
    }

    void one() {
        const char c = next();
        std::uint32_t value = 0;
        bool single = false;
        if (take("\\")) {
            if (take("A") || take("z")) {
                out_ += all_.substr(at_ - 2, 2);
                return;
            }
            const std::string text = escape(value, single);
            out_ += single ? literal(value) : text;
        } else if (take("[")) {
            set(0);
        } else if (c == '(') {
            group();
        } else if (c == ')' || c == '|') {
            out_ += all_[at_++];
        } else if (c == '*' || c == '+' || c == '?') {
            quantifier();
        } else if (c == '{' && interval()) {
            return;
        } else if (take(".")) {
            out_ += "[^\\x{A}]";
        } else if (take("^")) {  // at the begin of each line
            out_ += "(?<![^\\x{A}])(?!\\z)";
        } else if (take("$")) {  // at the end of each line
            out_ += "(?![^\\x{A}])";
        } else {
            out_ += literal(character());
        }
    }

    std::string_view all_;
    const std::string& where_;
    std::size_t at_ = 0;
    std::string out_;
};

}  // namespace

std::string icu_syntax(std::string_view source, const std::string& where) {
    return Syntax(source, where).rewritten();
}

}  // namespace tsdiag::tokenizer
