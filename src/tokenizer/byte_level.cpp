#include <array>

#include "parts.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

/// Printable bytes stand for themselves, the others for U+0100, U+0101, ... in their order.
struct ByteCharacters {
    std::array<std::string, 256> of_byte;
    std::array<int, 0x144> of_character;
    ByteCharacters() {
        of_character.fill(-1);
        std::uint32_t next = 0x100;
        for (int b = 0; b < 256; ++b) {
            const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            const std::uint32_t c = printable ? std::uint32_t(b) : next++;
            of_byte[std::size_t(b)] = utf8(c);
            of_character[c] = b;
        }
    }
};

const ByteCharacters& byte_alphabet() {
    static const ByteCharacters table;
    return table;
}

}  // namespace

const std::string_view gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string byte_characters(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size() + bytes.size() / 4);
    for (const char c : bytes) out += byte_alphabet().of_byte[static_cast<unsigned char>(c)];
    return out;
}

std::string bytes_of_characters(std::string_view text) {
    std::string out;
    each_character(text, [&](std::uint32_t c, std::string_view bytes) {
        const int byte =
            c < byte_alphabet().of_character.size() ? byte_alphabet().of_character[c] : -1;
        if (byte >= 0)
            out += char(byte);
        else
            out += bytes;
    });
    return out;
}

}  // namespace tsdiag::tokenizer
