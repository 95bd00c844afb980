#pragma once
#include <cstdint>
#include <string_view>

namespace tsdiag {

/// CRC-32C (polynomial 0x1EDC6F41, reflected), masked as in the frames of TFRecord files: rotated
/// right by 15 bits, plus 0xA282EAD8.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tsdiag
