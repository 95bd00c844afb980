#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "tsdiag/tensor.hpp"

namespace tsdiag::training {

/// Bytes by channel, then by row.
struct Picture {
    Index channels = 0, height = 0, width = 0;
    std::vector<std::uint8_t> pixels = {};
};
/// A PNG file as grey values (`channels` 1) or RGB (3), by libpng; a JPEG file, by libjpeg-turbo.
/// Throws `FormatError` naming the file where it is no such file, is cut off, damaged, or has more
/// than 2^24 pixels; `NotAvailable` where tsdiag was built without the library.
Picture read_png(const std::filesystem::path& file, Index channels);
Picture read_jpeg(const std::filesystem::path& file, Index channels);

}  // namespace tsdiag::training
