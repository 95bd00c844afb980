#include "unicode.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"
#ifdef TSDIAG_ICU
#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>

#include <memory>
#include <new>

#include "utf16.hpp"
#endif

namespace tsdiag::tokenizer {
namespace {

bool ascii_space(std::uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

#ifdef TSDIAG_ICU
/// A failure for another reason is one of ICU's tables.
void require_success(UErrorCode status, std::string_view done) {
    if (status == U_MEMORY_ALLOCATION_ERROR) throw std::bad_alloc();
    if (U_FAILURE(status))
        throw NotAvailable(
            fmt::format("The text cannot be {}: tables of the library ICU are missing or damaged; "
                        "install it again, or pass ids with --input ids:FILE.",
                        done));
}
bool has_category(std::uint32_t c, std::uint32_t mask) {
    return (U_MASK(u_charType(UChar32(c))) & mask) != 0;
}
#endif

}  // namespace

void lacks_unicode(std::string_view what) {
    throw NotAvailable(fmt::format(
        "{} needs ICU, which this build of tsdiag lacks; install libicu-dev and build again, or "
        "pass ids with --input ids:FILE.",
        what));
}

void require_utf8(std::string_view text, std::string_view source) {
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length =
            static_cast<unsigned char>(text[i]) < 0x80 ? 1 : utf8_length(text.substr(i, 4));
        if (length == 0)
            throw FormatError(
                fmt::format("{}: byte {} is 0x{:02x}, expected UTF-8; convert the text with iconv.",
                            source, i, static_cast<unsigned char>(text[i])));
        i += length;
    }
}

#ifdef TSDIAG_ICU

bool has_unicode() { return true; }

bool is_white_space(std::uint32_t c) {
    return c < 0x80 ? ascii_space(c) : u_isUWhiteSpace(UChar32(c)) != 0;
}
bool is_punctuation(std::uint32_t c) { return has_category(c, U_GC_P_MASK); }
bool is_numeric(std::uint32_t c) { return has_category(c, U_GC_N_MASK); }
bool is_mark(std::uint32_t c) { return has_category(c, U_GC_M_MASK); }
bool is_nonspacing_mark(std::uint32_t c) { return has_category(c, U_GC_MN_MASK); }
bool is_other(std::uint32_t c) {
    return has_category(c, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK);
}
bool is_word(std::uint32_t c) {
    return has_category(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
           u_hasBinaryProperty(UChar32(c), UCHAR_ALPHABETIC) ||
           u_hasBinaryProperty(UChar32(c), UCHAR_JOIN_CONTROL);
}

std::string lower_case(std::string_view text) {
    constexpr std::uint32_t dotted_i = 0x130;  // the only one with two characters in lower case
    std::string out;
    out.reserve(text.size());
    each_character(text, [&](std::uint32_t c, std::string_view bytes) {
        if (c < 0x80) {
            out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : char(c);
            return;
        }
        const auto low = std::uint32_t(u_tolower(UChar32(c)));
        if (c == dotted_i)
            out += "i\xcc\x87";
        else if (low == c)
            out += bytes;
        else
            out += utf8(low);
    });
    return out;
}

std::string normalised(std::string_view text, Form form) {
    bool ascii = true;
    for (const char c : text) ascii = ascii && static_cast<unsigned char>(c) < 0x80;
    if (ascii) return std::string(text);  // is in every form
    UErrorCode status = U_ZERO_ERROR;
    const UNormalizer2* how = form == Form::nfc    ? unorm2_getNFCInstance(&status)
                              : form == Form::nfd  ? unorm2_getNFDInstance(&status)
                              : form == Form::nfkc ? unorm2_getNFKCInstance(&status)
                                                   : unorm2_getNFKDInstance(&status);
    const std::u16string wide = to_utf16(text);
    std::u16string out(wide.size() + wide.size() / 2 + 16, u'\0');
    while (true) {
        status = U_ZERO_ERROR;
        const std::int32_t length = unorm2_normalize(how, wide.data(), std::int32_t(wide.size()),
                                                     out.data(), std::int32_t(out.size()), &status);
        if (status == U_BUFFER_OVERFLOW_ERROR) {
            out.resize(std::size_t(length));
            continue;
        }
        require_success(status, "normalised");
        out.resize(std::size_t(length));
        return to_utf8(out);
    }
}

std::vector<std::size_t> grapheme_ends(std::string_view text) {
    const std::u16string wide = to_utf16(text);
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<UBreakIterator, void (*)(UBreakIterator*)> breaks(
        ubrk_open(UBRK_CHARACTER, "", wide.data(), std::int32_t(wide.size()), &status), ubrk_close);
    require_success(status, "divided into characters");
    std::vector<std::size_t> ends;
    BytesBefore bytes(wide);
    for (std::int32_t at = ubrk_next(breaks.get()); at != UBRK_DONE; at = ubrk_next(breaks.get()))
        ends.push_back(bytes.at(std::size_t(at)));
    return ends;
}

#else

bool has_unicode() { return false; }

namespace {

void require_ascii(std::uint32_t c) {
    if (c >= 0x80) lacks_unicode("A text beyond ASCII");
}
bool letter(std::uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool is_white_space(std::uint32_t c) {
    require_ascii(c);
    return ascii_space(c);
}
bool is_punctuation(std::uint32_t c) {
    require_ascii(c);
    return c > ' ' && c < 0x7f && !letter(c) && !is_numeric(c) &&
           std::string_view("$+<=>^`|~").find(char(c)) == std::string_view::npos;
}
bool is_numeric(std::uint32_t c) {
    require_ascii(c);
    return c >= '0' && c <= '9';
}
bool is_mark(std::uint32_t c) {
    require_ascii(c);
    return false;
}
bool is_nonspacing_mark(std::uint32_t c) { return is_mark(c); }
bool is_other(std::uint32_t c) {
    require_ascii(c);
    return c < ' ' || c == 0x7f;
}
bool is_word(std::uint32_t c) { return is_numeric(c) || letter(c) || c == '_'; }

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        require_ascii(static_cast<unsigned char>(c));
        if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    }
    return out;
}

std::string normalised(std::string_view text, Form) {
    each_character(text, [](std::uint32_t c, std::string_view) { require_ascii(c); });
    return std::string(text);
}

std::vector<std::size_t> grapheme_ends(std::string_view text) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < text.size(); ++i) {
        require_ascii(static_cast<unsigned char>(text[i]));
        if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') ends.push_back(i + 1);
    }
    return ends;
}

#endif

}  // namespace tsdiag::tokenizer
