#include "decoders.hpp"

#ifdef TSDIAG_JPEG
#include <turbojpeg.h>
#endif
#include "tsdiag/error.hpp"

namespace tsdiag::pictures {

#ifdef TSDIAG_JPEG
namespace {

/// The EXIF data of a JPEG file: of the segment APP1 that begins so, before the pixels.
std::string_view exif_of_jpeg(std::string_view bytes) {
    constexpr std::string_view head("Exif\0\0", 6);
    constexpr unsigned app1 = 0xe1, scan = 0xda;
    const auto byte = [&](std::size_t i) { return unsigned(static_cast<unsigned char>(bytes[i])); };
    for (std::size_t at = 2; at + 4 <= bytes.size() && byte(at) == 0xff;) {
        const unsigned marker = byte(at + 1);
        const std::size_t length = byte(at + 2) << 8 | byte(at + 3);
        if (marker == scan || length < 2 || length > bytes.size() - at - 2) return {};
        const std::string_view segment = bytes.substr(at + 4, length - 2);
        if (marker == app1 && segment.starts_with(head)) return segment;
        at += 2 + length;
    }
    return {};
}

/// a b / 255, rounded as Pillow rounds it.
unsigned of_255(unsigned a, unsigned b) {
    const unsigned product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/// Adobe's: inks are stored as what they leave of the light.
void cmyk_to_rgb(const std::vector<std::uint8_t>& inks, std::vector<std::uint8_t>& rgb) {
    for (std::size_t i = 0, k = 0; i < rgb.size(); i += 3, k += 4)
        for (std::size_t c = 0; c < 3; ++c)
            rgb[i + c] =
                std::uint8_t(inks[k + 3] - of_255(255u - inks[k + c], unsigned(inks[k + 3])));
}

}  // namespace

Picture decode_jpeg(const Source& source) {
    constexpr const char* kind = "JPEG";
    const auto* data = reinterpret_cast<const unsigned char*>(source.bytes.data());
    struct Decoder {
        tjhandle handle = tjInitDecompress();
        ~Decoder() {
            if (handle) tjDestroy(handle);
        }
    } decoder;
    if (!decoder.handle) throw Error("libjpeg-turbo cannot be started.");
    const auto failed = [&] { source.refuse(kind, tjGetErrorStr2(decoder.handle)); };
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(decoder.handle, data, source.bytes.size(), &width, &height, &sampling,
                            &colours) != 0)
        failed();
    const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
    Picture out = source.picture(kind, std::uint64_t(width), std::uint64_t(height));
    out.stored = std::string("JPEG, ") + (inks ? "CMYK" : colours == TJCS_GRAY ? "grey" : "RGB");
    out.rgb = !inks && colours != TJCS_GRAY;
    std::vector<std::uint8_t> four(inks ? out.pixels.size() / 3 * 4 : 0);
    // a file that is cut off is a warning, and grey for the rest
    if (tjDecompress2(decoder.handle, data, source.bytes.size(),
                      inks ? four.data() : out.pixels.data(), width, 0, height,
                      inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0)
        failed();
    if (inks) cmyk_to_rgb(four, out.pixels);
    out.orientation = exif_orientation(exif_of_jpeg(source.bytes));
    return out;
}
#else
Picture decode_jpeg(const Source& source) { source.refuse_without("libjpeg-turbo"); }
#endif

}  // namespace tsdiag::pictures
