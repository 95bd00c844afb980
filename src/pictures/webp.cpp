#include "decoders.hpp"

#ifdef TSDIAG_WEBP
#include <webp/decode.h>
#endif

namespace tsdiag::pictures {

#ifdef TSDIAG_WEBP
namespace {

/// The chunk EXIF of a WebP file, which is a RIFF file.
std::string_view exif_of_webp(std::string_view bytes) {
    constexpr std::size_t head = 12;  // RIFF, size, WEBP
    for (std::size_t at = head; at + 8 <= bytes.size();) {
        std::size_t length = 0;
        for (std::size_t k = 4; k > 0; --k)
            length = length << 8 | static_cast<unsigned char>(bytes[at + 3 + k]);
        if (length > bytes.size() - at - 8) return {};
        if (bytes.substr(at, 4) == "EXIF") return bytes.substr(at + 8, length);
        at += 8 + length + length % 2;
    }
    return {};
}

}  // namespace

Picture decode_webp(const Source& source) {
    constexpr const char* kind = "WebP";
    const auto* data = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
    WebPBitstreamFeatures features;
    const VP8StatusCode status = WebPGetFeatures(data, source.bytes.size(), &features);
    if (status != VP8_STATUS_OK)
        source.refuse(kind, status == VP8_STATUS_NOT_ENOUGH_DATA ? "the file ends too early"
                                                                 : "it is damaged");
    if (features.has_animation != 0) source.refuse(kind, "an animation, expected one picture");
    Picture out =
        source.picture(kind, std::uint64_t(features.width), std::uint64_t(features.height));
    out.stored = features.has_alpha != 0 ? "WebP, RGB with alpha" : "WebP, RGB";
    out.rgb = features.has_alpha == 0;
    if (!WebPDecodeRGBInto(data, source.bytes.size(), out.pixels.data(), out.pixels.size(),
                           features.width * 3))
        source.refuse(kind, "it is cut off or damaged");
    out.orientation = exif_orientation(exif_of_webp(source.bytes));
    return out;
}
#else
Picture decode_webp(const Source& source) { source.refuse_without("libwebp"); }
#endif

}  // namespace tsdiag::pictures
