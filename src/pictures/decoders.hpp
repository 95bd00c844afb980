#pragma once
#include <string_view>

#include "tsdiag/pictures.hpp"

/// The decoders of each format: RGB, three bytes a pixel.
namespace tsdiag::pictures {

/// A file in memory.
struct Source {
    std::string_view bytes, name;
    std::uint64_t most;  ///< pixels

    /// Throws `FormatError`: it cannot be read as `kind`.
    [[noreturn]] void refuse(const char* kind, std::string_view why) const;
    /// Throws `NotAvailable`.
    [[noreturn]] void refuse_without(const char* library) const;
    /// A picture of so many bytes a pixel, of zeros.  Throws `FormatError` for too many pixels.
    Picture picture(const char* kind, std::uint64_t width, std::uint64_t height,
                    Index channels = 3) const;
};

Picture decode_png(const Source& source);
Picture decode_jpeg(const Source& source);
Picture decode_webp(const Source& source);

/// The orientation that EXIF data tell, from 1 to 8; 1 where they tell none.
int exif_orientation(std::string_view exif);

}  // namespace tsdiag::pictures
