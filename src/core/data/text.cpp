#include "tsdiag/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace tsdiag {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::uint32_t code_point(std::string_view sequence) {
    const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(sequence[i])); };
    constexpr std::uint32_t lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    std::uint32_t code = byte(0) & lead_bits[sequence.size()];
    for (std::size_t i = 1; i < sequence.size(); ++i) code = code << 6 | (byte(i) & 0x3f);
    return code;
}

std::size_t utf8_length(std::string_view s) {
    const auto byte = [&](std::size_t i) { return std::uint8_t(s[i]); };
    const std::uint8_t lead = byte(0);
    if (lead < 0x80) return 1;
    const std::size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || s.size() < n) return 0;
    for (std::size_t i = 1; i < n; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    const std::uint8_t second = byte(1);
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool surrogate = lead == 0xed && second > 0x9f;
    const bool beyond = lead == 0xf4 && second > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

bool is_control(std::string_view sequence) {
    struct Range {
        std::uint32_t first, last;
    };
    constexpr Range controls[] = {
        {0, 0x1f},          {0x7f, 0x9f},      // C0, DEL, C1
        {0xad, 0xad},       {0x61c, 0x61c},    // soft hyphen, Arabic letter mark
        {0x180e, 0x180e},   {0x200b, 0x200f},  // zero width; direction marks
        {0x2028, 0x202e},   {0x2060, 0x206f},  // separators, embeddings, isolates
        {0xfeff, 0xfeff},   {0xfff9, 0xfffb},  // byte order mark, annotations
        {0xe0000, 0xe007f},                    // tags
    };
    const std::uint32_t code = code_point(sequence);
    for (const Range& range : controls)
        if (range.first <= code && code <= range.last) return true;
    return false;
}

std::string spelled_control(std::string_view sequence) {
    const std::uint32_t code = code_point(sequence);
    switch (code) {
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        default:
            break;
    }
    return code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
}

std::string visible(std::string_view s, std::string_view kept) {
    std::string out;
    while (!s.empty()) {
        const std::size_t length = utf8_length(s);
        const std::string_view sequence = s.substr(0, length);
        if (length == 0)
            out += replacement;
        else if (is_control(sequence) && kept.find(sequence) == std::string_view::npos)
            out += spelled_control(sequence);
        else
            out += sequence;
        s.remove_prefix(length ? length : 1);
    }
    return out;
}

std::string shortened(std::string_view s, std::size_t most) {
    if (s.size() <= most) return std::string(s);
    const auto inside = [&](std::size_t i) { return (std::uint8_t(s[i]) & 0xc0) == 0x80; };
    std::size_t head = most - most / 4, tail = s.size() - most / 4;
    while (head > 0 && inside(head)) --head;
    while (tail < s.size() && inside(tail)) ++tail;
    return fmt::format("{}...({} bytes left out)...{}", s.substr(0, head), tail - head,
                       s.substr(tail));
}

std::string utf8(std::uint32_t code) {
    if (code < 0x80) return {char(code)};
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr std::array<std::uint32_t, 4> lead = {0, 0xC0, 0xE0, 0xF0};
    std::string out(1, char(lead[std::size_t(more)] | (code >> 6 * more)));
    for (int k = more - 1; k >= 0; --k) out += char(0x80U | (code >> 6 * k & 0x3FU));
    return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);  // distances of a prefix of a to all prefixes of b
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::string shell_word(std::string_view text) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
    if (!text.empty() && text.find_first_not_of(plain) == text.npos) return std::string(text);
    return fmt::format("'{}'", fmt::join(split(text, '\''), "'\\''"));
}

std::string as_percent(double share) {
    constexpr double whole = 99.5;  // "{:.2g}" writes 1e+02 from here on
    const double value = 100 * share;
    return std::abs(value) < whole ? fmt::format("{:.2g} %", value)
                                   : fmt::format("{:.0f} %", value);
}

std::string counted(std::size_t count, std::string_view noun) {
    if (count == 1) return fmt::format("1 {}", noun);
    return count ? fmt::format("{} {}s", count, noun) : fmt::format("no {}s", noun);
}

std::vector<std::size_t> named_by(std::string_view word,
                                  const std::vector<std::string_view>& names) {
    const bool has_dot = word.find('.') != word.npos;
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == word) return {i};
        if (names[i].starts_with(word) &&
            (has_dot || names[i].substr(word.size()).starts_with('.')))
            found.push_back(i);
    }
    return found;
}

}  // namespace tsdiag
