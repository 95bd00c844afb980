#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Unicode by ICU.  Where this build has none, all but ASCII is `NotAvailable`.
namespace tsdiag::tokenizer {

/// U+2581, which SentencePiece writes for a space.
inline constexpr std::string_view space_mark = "\xe2\x96\x81";

/// Calls f(code point, its bytes) for each character of a well-formed UTF-8 text.
template <class F>
void each_character(std::string_view text, F&& f);

/// Throws `FormatError` naming the first byte of `text` that is not UTF-8.
void require_utf8(std::string_view text, std::string_view source);

bool is_white_space(std::uint32_t c);      ///< the property White_Space
bool is_punctuation(std::uint32_t c);      ///< categories P*
bool is_numeric(std::uint32_t c);          ///< categories N*
bool is_mark(std::uint32_t c);             ///< categories M*
bool is_nonspacing_mark(std::uint32_t c);  ///< category Mn
bool is_other(std::uint32_t c);            ///< categories Cc, Cf, Co, Cs
bool is_word(std::uint32_t c);             ///< \w of Unicode: Alphabetic, M, Nd, Pc, Join_Control

/// Lower case of each character by itself (a final sigma is not special).
std::string lower_case(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalised(std::string_view text, Form form);

/// The ends of the extended grapheme clusters.
std::vector<std::size_t> grapheme_ends(std::string_view text);

/// Is there ICU?
bool has_unicode();
/// Throws `NotAvailable`: `what` needs ICU.
[[noreturn]] void lacks_unicode(std::string_view what);

template <class F>
void each_character(std::string_view text, F&& f) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        std::uint32_t c = length == 1 ? lead : lead & (0xffU >> (length + 1));
        for (std::size_t k = 1; k < length; ++k)
            c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3fU);
        f(c, text.substr(i, length));
        i += length;
    }
}

}  // namespace tsdiag::tokenizer
