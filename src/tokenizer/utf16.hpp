#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "tsdiag/text.hpp"
#include "unicode.hpp"

/// UTF-16, which ICU works on.
namespace tsdiag::tokenizer {

inline std::u16string to_utf16(std::string_view text) {
    std::u16string out;
    out.reserve(text.size());
    each_character(text, [&](std::uint32_t c, std::string_view) {
        if (c < 0x10000) {
            out += char16_t(c);
        } else {
            out += char16_t(0xd7c0 + (c >> 10));
            out += char16_t(0xdc00 + (c & 0x3ff));
        }
    });
    return out;
}

/// The number of bytes in UTF-8 before each unit, for positions that grow.
class BytesBefore {
  public:
    explicit BytesBefore(std::u16string_view text) : text_(text) {}
    std::size_t at(std::size_t unit) {
        for (; unit_ < unit; ++unit_) {
            const char16_t c = text_[unit_];
            // two units of a pair are four bytes
            bytes_ += c < 0x80 ? 1 : c < 0x800 || (c >= 0xd800 && c < 0xe000) ? 2 : 3;
        }
        return bytes_;
    }

  private:
    std::u16string_view text_;
    std::size_t unit_ = 0, bytes_ = 0;
};

/// Of text without lone surrogates.
inline std::string to_utf8(std::u16string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::uint32_t c = text[i];
        if (c >= 0xd800 && c < 0xdc00 && i + 1 < text.size())
            c = 0x10000 + ((c - 0xd800) << 10) + (text[++i] - 0xdc00U);
        out += utf8(c);
    }
    return out;
}

}  // namespace tsdiag::tokenizer
