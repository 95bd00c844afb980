#include "module_pattern.hpp"

#include <cctype>
#include <utility>
#include <vector>

// Not ICU, which runs the expressions of tokenizers: a build may lack it, and adapters are read all
// the same; what it reads otherwise than Python (sets in sets, `{`, `\Q`, `\h`, `(?P<...>`) would
// have to be found by a reader of the syntax such as this one; and what backtracks is ended by a
// clock, so that one machine would take a file that another refuses.
namespace tsdiag::checkpoint {
namespace {

/// Follows all ways through an expression at once: each of its parts leads from a set of places in
/// the text to another, so that nothing is tried twice.
class PatternReader {
  public:
    PatternReader(std::string_view expression, std::string_view text)
        : expression_(expression), text_(text) {}

    std::optional<bool> matches() {
        Places begin = none();
        begin.front() = true;
        const Places end = alternatives(begin);
        if (at_ < expression_.size()) understood_ = false;  // a bracket that nothing opens
        return understood_ ? std::optional<bool>(end.back()) : std::nullopt;
    }

  private:
    /// Of each place in the text, from its beginning to its end: may one be there?
    using Places = std::vector<bool>;
    static constexpr int deepest = 32;

    Places none() const { return Places(text_.size() + 1, false); }
    bool sees(char sign) const { return at_ < expression_.size() && expression_[at_] == sign; }
    bool take(char sign) {
        if (!sees(sign)) return false;
        ++at_;
        return true;
    }
    Places give_up() {
        understood_ = false;
        at_ = expression_.size();
        return none();
    }
    static void add(Places& to, const Places& more) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] || more[i];
    }

    Places alternatives(const Places& from) {
        Places out = none();
        do add(out, sequence(from));
        while (take('|'));
        return out;
    }

    Places sequence(Places from) {
        while (at_ < expression_.size() && !sees('|') && !sees(')')) from = repeated(from);
        return from;
    }

    Places repeated(const Places& from) {
        const std::size_t begin = at_;
        const bool before = std::exchange(repeats_, false);
        Places out = one(from);
        const bool inside = repeats_;
        const bool any = sees('*'), some = sees('+');
        if (any || some) {
            if (inside) return give_up();
            const std::size_t end = at_ + 1;
            for (Places last = out; understood_;) {
                at_ = begin;
                Places next = one(last);
                bool is_new = false;
                for (std::size_t i = 0; i < next.size(); ++i) {
                    next[i] = next[i] && !out[i];
                    is_new = is_new || next[i];
                }
                if (!is_new) break;
                add(out, next);
                last = std::move(next);
            }
            if (understood_) at_ = end;
        } else if (sees('?')) {
            ++at_;
        } else {
            repeats_ = before || inside;
            return out;
        }
        if (!some) add(out, from);
        repeats_ = before || inside || any || some;
        take('?');  // as few as possible: of a whole match no difference
        return sees('*') || sees('+') || sees('?') ? give_up() : out;
    }

    Places one(const Places& from) {
        if (!understood_ || at_ >= expression_.size()) return give_up();
        const char sign = expression_[at_++];
        switch (sign) {
            case '(':
                return group(from);
            case '[':
                return set(from);
            case '.':
                return step(from, [](unsigned char c) { return c != '\n'; });
            case '^':
            case '$': {
                Places out = none();
                const std::size_t at = sign == '^' ? 0 : text_.size();
                out[at] = from[at];
                return out;
            }
            case '\\':
                return escaped(from);
            case '*':
            case '+':
            case '?':
            case '{':
            case '}':
            case ']':
                return give_up();
            default:
                return step(from, [&](unsigned char c) { return char(c) == sign; });
        }
    }

    Places group(const Places& from) {
        if (take('?') && !take(':')) return give_up();
        if (++depth_ > deepest) return give_up();
        Places out = alternatives(from);
        --depth_;
        return take(')') ? out : give_up();
    }

    Places escaped(const Places& from) {
        if (at_ >= expression_.size()) return give_up();
        const char sign = expression_[at_++];
        if (sign == 'd') return step(from, [](unsigned char c) { return std::isdigit(c) != 0; });
        if (sign == 's') return step(from, [](unsigned char c) { return std::isspace(c) != 0; });
        if (sign == 'w')
            return step(from, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
        const auto plain = static_cast<unsigned char>(sign);
        if (std::isalnum(plain) != 0) return give_up();
        return step(from, [&](unsigned char c) { return c == plain; });
    }

    /// Of single characters and ranges of them.
    Places set(const Places& from) {
        const bool all_but = take('^');
        std::vector<bool> in(256, false);
        for (bool first = true; first || !sees(']'); first = false) {
            if (at_ + 1 >= expression_.size() || sees('\\') || sees('[')) return give_up();
            const auto low = static_cast<unsigned char>(expression_[at_++]);
            auto high = low;
            if (sees('-') && at_ + 1 < expression_.size() && expression_[at_ + 1] != ']') {
                high = static_cast<unsigned char>(expression_[at_ + 1]);
                at_ += 2;
                if (high < low || high == '\\') return give_up();
            }
            for (std::size_t c = low; c <= high; ++c) in[c] = true;
        }
        ++at_;
        return step(from, [&](unsigned char c) { return in[c] != all_but; });
    }

    template <class Fits>
    Places step(const Places& from, Fits fits) const {
        Places out = none();
        for (std::size_t i = 0; i < text_.size(); ++i)
            out[i + 1] = from[i] && fits(static_cast<unsigned char>(text_[i]));
        return out;
    }

    std::string_view expression_, text_;
    std::size_t at_ = 0;
    int depth_ = 0;
    bool understood_ = true;
    bool repeats_ = false;  ///< was there a '*' or '+' since it was false?
};

}  // namespace

std::optional<bool> matches_whole(std::string_view expression, std::string_view text) {
    constexpr std::size_t longest = 1024;
    if (text.size() > longest || expression.size() > longest) return std::nullopt;
    return PatternReader(expression, text).matches();
}

}  // namespace tsdiag::checkpoint
