#include "tsdiag/checksum.hpp"

#include <array>
#include <bit>

namespace tsdiag {

std::uint32_t masked_crc32c(std::string_view bytes) {
    static const std::array<std::uint32_t, 256> table = [] {
        std::array<std::uint32_t, 256> t{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            t[i] = i;
            for (int k = 0; k < 8; ++k) t[i] = (t[i] >> 1U) ^ ((t[i] & 1U) ? 0x82F63B78U : 0U);
        }
        return t;
    }();
    std::uint32_t crc = 0xFFFFFFFFU;
    for (const char c : bytes)
        crc = table[(crc ^ static_cast<unsigned char>(c)) & 255U] ^ (crc >> 8U);
    return std::rotr(~crc, 15) + 0xA282EAD8U;
}

}  // namespace tsdiag
