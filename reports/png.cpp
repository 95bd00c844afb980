#include "png.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "layout.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::reports {
namespace {

constexpr int palette_size = 255;  // index 255 is "no value"

void append_word(std::string& out, std::uint32_t v) {
    for (int shift : {24, 16, 8, 0}) out += char((v >> shift) & 0xff);
}

void append_chunk(std::string& out, std::string_view type, std::string_view body) {
    append_word(out, std::uint32_t(body.size()));
    const std::string bytes = std::string(type) + std::string(body);
    out += bytes;
    append_word(out, std::uint32_t(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()),
                                         uInt(bytes.size()))));
}

std::string deflate(const std::string& raw) {
    uLongf size = compressBound(uLong(raw.size()));
    std::string out(size, '\0');
    check(compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                    reinterpret_cast<const Bytef*>(raw.data()), uLong(raw.size()), 6) == Z_OK,
          "zlib compresses into a buffer of compressBound bytes");
    out.resize(size);
    return out;
}

std::string palette_of(const Grid& grid) {
    std::string out;
    for (int i = 0; i <= palette_size; ++i) {
        const Rgb c =
            i < palette_size ? colour_at(grid.palette, double(i) / (palette_size - 1)) : no_value;
        out += {char(c.r), char(c.g), char(c.b)};
    }
    return out;
}

}  // namespace

std::string grid_png(const Grid& grid) {
    const Index longer = std::max<Index>({grid.rows, grid.cols, 1});
    const Index scale = (image_pixels + longer - 1) / longer;
    const Extent range = value_extent(grid);
    std::string raw;
    raw.reserve(std::size_t(grid.rows * scale * (grid.cols * scale + 1)));
    for (Index i = 0; i < grid.rows; ++i) {
        std::string line(1, '\0');  // no filter
        for (Index j = 0; j < grid.cols; ++j) {
            const auto& v = grid.values[std::size_t(i * grid.cols + j)];
            int index = palette_size;
            if (v && std::isfinite(*v))
                index = int(
                    std::lround(std::clamp(share_of(range, *v), 0.0, 1.0) * (palette_size - 1)));
            line.append(std::size_t(scale), char(index));
        }
        for (Index k = 0; k < scale; ++k) raw += line;
    }
    std::string header;
    append_word(header, std::uint32_t(grid.cols * scale));
    append_word(header, std::uint32_t(grid.rows * scale));
    header += {8, 3, 0, 0, 0};  // 8 bits, palette, deflate, no filter method, not interlaced
    std::string out = "\x89PNG\r\n\x1a\n";
    append_chunk(out, "IHDR", header);
    append_chunk(out, "PLTE", palette_of(grid));
    append_chunk(out, "tRNS", std::string(palette_size, '\xff') + '\0');
    append_chunk(out, "IDAT", deflate(raw));
    append_chunk(out, "IEND", "");
    return out;
}

std::string with_resolution(std::string_view png, int pixels_an_inch) {
    constexpr std::size_t header = 8 + 12 + 13;  // the signature, and IHDR
    constexpr double inches_a_metre = 1 / 0.0254;
    if (png.size() < header) return std::string(png);
    const auto a_metre = std::uint32_t(std::lround(pixels_an_inch * inches_a_metre));
    std::string size;
    append_word(size, a_metre);
    append_word(size, a_metre);
    size += '\1';  // the unit is the metre
    std::string out(png.substr(0, header));
    append_chunk(out, "pHYs", size);
    return out.append(png.substr(header));
}

}  // namespace tsdiag::reports
