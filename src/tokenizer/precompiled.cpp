#include <fmt/format.h>

#include <optional>

#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "unicode.hpp"

/// The rules of SentencePiece: a double array (Darts-clone) of what is replaced, and the
/// replacements, each ended by a zero.
namespace tsdiag::tokenizer {
namespace {

class Rules {
  public:
    Rules(std::string_view blob, const std::string& where) {
        const auto word = [&](std::size_t at) {
            std::uint32_t v = 0;
            for (std::size_t k = 4; k-- > 0;) v = v << 8 | static_cast<unsigned char>(blob[at + k]);
            return v;
        };
        const std::size_t bytes = blob.size() < 4 ? 1 : word(0);
        if (bytes % 4 != 0 || bytes > blob.size() - 4)
            throw FormatError(fmt::format("{}: the charsmap is cut off.", where));
        for (std::size_t at = 4; at < 4 + bytes; at += 4) units_.push_back(word(at));
        texts_ = blob.substr(4 + bytes);
        require_utf8(texts_, where);
    }

    /// The replacement of the shortest rule that `text` begins with.
    std::optional<std::string_view> find(std::string_view text) const {
        if (units_.empty()) return std::nullopt;
        std::size_t at = offset(units_[0]);
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            at ^= byte;
            if (at >= units_.size() || byte == 0) return std::nullopt;
            const std::uint32_t unit = units_[at];
            if ((unit & 0x800000ffU) != byte) return std::nullopt;
            at ^= offset(unit);
            if ((unit >> 8 & 1U) == 0) continue;
            if (at >= units_.size()) return std::nullopt;
            const std::size_t begin = units_[at] & 0x7fffffffU;
            if (begin > texts_.size()) return std::nullopt;
            const std::string_view rest = std::string_view(texts_).substr(begin);
            return rest.substr(0, rest.find('\0'));
        }
        return std::nullopt;
    }

  private:
    static std::size_t offset(std::uint32_t unit) {
        return std::size_t(unit >> 10) << ((unit & 0x200U) >> 6);
    }
    std::vector<std::uint32_t> units_;
    std::string texts_;
};

}  // namespace

std::string bytes_of_base64(std::string_view text, const std::string& where) {
    const auto value = [](char c) {
        if (c >= 'A' && c <= 'Z') return c - 'A';
        if (c >= 'a' && c <= 'z') return c - 'a' + 26;
        if (c >= '0' && c <= '9') return c - '0' + 52;
        return c == '+' ? 62 : c == '/' ? 63 : -1;
    };
    std::string out;
    std::uint32_t bits = 0;
    int held = 0;
    while (!text.empty() && text.back() == '=') text.remove_suffix(1);
    for (const char c : text) {
        const int v = value(c);
        if (v < 0) throw FormatError(fmt::format("{}: a text of it is not base64.", where));
        bits = bits << 6 | std::uint32_t(v);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out += char(bits >> held & 0xff);
    }
    return out;
}

Normalizer precompiled(std::string_view charsmap, const std::string& where) {
    auto rules = std::make_shared<const Rules>(charsmap, where);
    return [rules](std::string& text, const Limits& limits) {
        constexpr std::size_t short_cluster = 6;  // bytes: longer clusters have no rule
        std::string out;
        std::size_t begin = 0;
        for (const std::size_t end : grapheme_ends(text)) {
            const std::string_view cluster = std::string_view(text).substr(begin, end - begin);
            begin = end;
            if (cluster.size() < short_cluster)
                if (const auto whole = rules->find(cluster)) {
                    out += *whole;
                    limits.growth.require(out.size());
                    continue;
                }
            each_character(cluster, [&](std::uint32_t, std::string_view bytes) {
                out += rules->find(bytes).value_or(bytes);
            });
            limits.growth.require(out.size());
        }
        require_utf8(out, "The normalised text");
        text = std::move(out);
    };
}

}  // namespace tsdiag::tokenizer
