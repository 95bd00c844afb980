#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#ifdef TSDIAG_PNG
#include <png.h>
#endif
#ifdef TSDIAG_JPEG
#include <turbojpeg.h>
#endif

/// Files of images that tests write.
namespace tsdiag::test {

#ifdef TSDIAG_PNG
/// Grey values, row by row, as a PNG file.
inline std::string png_of(std::string_view grey, unsigned width) {
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = unsigned(grey.size()) / width;
    image.format = PNG_FORMAT_GRAY;
    png_alloc_size_t size = 0;
    png_image_write_to_memory(&image, nullptr, &size, 0, grey.data(), 0, nullptr);
    std::string out(size, '\0');
    png_image_write_to_memory(&image, out.data(), &size, 0, grey.data(), 0, nullptr);
    out.resize(size);
    return out;
}
#endif

#ifdef TSDIAG_JPEG
/// A JPEG file of `side` x `side` pixels of one colour; grey where all three are equal and `grey`.
inline std::string jpeg_of(int side, std::uint8_t red, std::uint8_t green, std::uint8_t blue,
                           bool grey = false) {
    const auto area = std::size_t(side) * std::size_t(side);
    std::vector<unsigned char> pixels;
    for (std::size_t i = 0; i < area; ++i)
        for (const std::uint8_t c : {red, green, blue})
            if (!grey || pixels.size() <= i) pixels.push_back(c);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    tjhandle coder = tjInitCompress();
    tjCompress2(coder, pixels.data(), side, 0, side, grey ? TJPF_GRAY : TJPF_RGB, &bytes, &size,
                grey ? TJSAMP_GRAY : TJSAMP_444, 95, 0);
    std::string out(reinterpret_cast<const char*>(bytes), size);
    tjFree(bytes);
    tjDestroy(coder);
    return out;
}
#endif

}  // namespace tsdiag::test
