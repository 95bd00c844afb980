#include "../../reports/png.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>

#include "../../reports/layout.hpp"

namespace tsdiag::reports {
namespace {

std::uint32_t word(const std::string& s, std::size_t at) {
    std::uint32_t v = 0;
    for (std::size_t k = 0; k < 4; ++k) v = (v << 8) | std::uint8_t(s[at + k]);
    return v;
}

/// A reader that shares no code with the writer.
struct Png {
    std::uint32_t width = 0, height = 0;
    std::string palette, pixels;  ///< pixels with the filter byte of each row
    std::string opacity;          ///< by index

    explicit Png(const std::string& file) {
        EXPECT_EQ(file.substr(0, 8), "\x89PNG\r\n\x1a\n");
        std::string packed;
        for (std::size_t at = 8; at < file.size();) {
            const std::size_t n = word(file, at);
            const std::string type = file.substr(at + 4, 4), body = file.substr(at + 8, n);
            const std::string sealed = type + body;
            EXPECT_EQ(word(file, at + 8 + n),
                      crc32(0, reinterpret_cast<const Bytef*>(sealed.data()), uInt(sealed.size())));
            if (type == "IHDR") width = word(body, 0), height = word(body, 4);
            if (type == "PLTE") palette = body;
            if (type == "tRNS") opacity = body;
            if (type == "IDAT") packed += body;
            at += 12 + n;
        }
        pixels.resize(std::size_t(height) * (width + 1));
        uLongf size = pixels.size();
        EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(pixels.data()), &size,
                             reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
                  Z_OK);
        EXPECT_EQ(size, pixels.size());
    }
    std::string colour(std::size_t row, std::size_t column) const {
        const auto index = std::uint8_t(pixels[row * (width + 1) + 1 + column]);
        return palette.substr(3 * index, 3);
    }
};

TEST(PngTest, CellsBecomeSquaresInTheColoursOfThePalette) {
    const Grid g{.rows = 2, .cols = 3, .values = {0.0, 1.0, 0.5, {}, 0.0, 7.0}, .high = 1};
    const Png png(grid_png(g));
    const auto bytes = [](Rgb c) { return std::string{char(c.r), char(c.g), char(c.b)}; };

    EXPECT_EQ(png.width, 768u);
    EXPECT_EQ(png.height, 512u);
    EXPECT_EQ(png.colour(0, 0), bytes(ramp(Palette::sequential).front()));
    EXPECT_EQ(png.colour(255, 511), bytes(ramp(Palette::sequential).back()));
    EXPECT_EQ(png.colour(0, 512), bytes(ramp(Palette::sequential)[5]));
    EXPECT_EQ(png.colour(511, 0), bytes(no_value));
    EXPECT_EQ(png.opacity, std::string(255, '\xff') + '\0');  // what lies behind is seen there
    EXPECT_EQ(png.colour(511, 767), png.colour(0, 300));      // clamped beyond the range
}

TEST(PngTest, LargeGridsKeepTheirSize) {
    Grid g{.rows = 800, .cols = 10};
    g.values.assign(8000, 0.5);
    const Png png(grid_png(g));
    EXPECT_EQ(png.height, 800u);
    EXPECT_EQ(png.width, 10u);
}

}  // namespace
}  // namespace tsdiag::reports
