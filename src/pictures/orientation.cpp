#include <array>
#include <utility>

#include "decoders.hpp"

namespace tsdiag {
namespace pictures {
namespace {

/// Whole numbers of a TIFF file in its order of bytes; 0 beyond its end.
struct TiffNumbers {
    std::string_view bytes;
    bool little;

    std::uint32_t at(std::size_t place, std::size_t count) const {
        if (count > bytes.size() || place > bytes.size() - count) return 0;
        std::uint32_t out = 0;
        for (std::size_t k = 0; k < count; ++k)
            out =
                out << 8 | static_cast<unsigned char>(bytes[place + (little ? count - 1 - k : k)]);
        return out;
    }
};

}  // namespace

int exif_orientation(std::string_view exif) {
    constexpr std::string_view head("Exif\0\0", 6);
    constexpr std::uint32_t orientation = 0x0112, shorts = 3;
    if (exif.starts_with(head)) exif.remove_prefix(head.size());
    if (!exif.starts_with("II") && !exif.starts_with("MM")) return 1;
    const TiffNumbers numbers{exif, exif.starts_with("II")};
    if (numbers.at(2, 2) != 42) return 1;
    const std::size_t first = numbers.at(4, 4), entries = numbers.at(first, 2);
    for (std::size_t i = 0; i < entries; ++i) {  // at most 65535
        const std::size_t entry = first + 2 + 12 * i;
        if (numbers.at(entry, 2) != orientation || numbers.at(entry + 2, 2) != shorts) continue;
        const std::uint32_t value = numbers.at(entry + 8, 2);
        return value >= 1 && value <= 8 ? int(value) : 1;
    }
    return 1;
}

}  // namespace pictures

Picture upright(Picture picture) {
    if (picture.orientation == 1) return picture;
    // whether rows and columns change places, and which of the stored ones run backwards
    struct Turn {
        bool swap, rows, columns;
    };
    constexpr std::array<Turn, 9> turns{{{},
                                         {},
                                         {false, false, true},
                                         {false, true, true},
                                         {false, true, false},
                                         {true, false, false},
                                         {true, true, false},
                                         {true, true, true},
                                         {true, false, true}}};
    const Turn turn = turns.at(std::size_t(picture.orientation));
    Picture out = picture;
    out.orientation = 1;
    if (turn.swap) std::swap(out.height, out.width);
    const auto channels = std::size_t(picture.channels);
    std::size_t to = 0;
    for (Index y = 0; y < out.height; ++y)
        for (Index x = 0; x < out.width; ++x) {
            const Index row = turn.swap ? x : y, column = turn.swap ? y : x;
            const Index from = (turn.rows ? picture.height - 1 - row : row) * picture.width +
                               (turn.columns ? picture.width - 1 - column : column);
            for (std::size_t c = 0; c < channels; ++c)
                out.pixels[to++] = picture.pixels[std::size_t(from) * channels + c];
        }
    return out;
}

}  // namespace tsdiag
