#include "formats.hpp"

#include <array>

namespace tsdiag {

std::span<const ExportFormat* const> export_formats() {
    using namespace exports;
    static constexpr std::array<const ExportFormat*, 3> all = {&json_lines, &parquet, &tensorboard};
    return all;
}

namespace exports {

void append_bytes(std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += char((value >> (8 * i)) & 255U);
}

void append_varint(std::string& out, std::uint64_t value) {
    for (; value >= 128; value >>= 7U) out += char((value & 127U) | 128U);
    out += char(value);
}

}  // namespace exports
}  // namespace tsdiag
