#include "pictures.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

#ifdef TSDIAG_PNG
#include <png.h>
#endif
#ifdef TSDIAG_JPEG
#include <turbojpeg.h>
#endif

namespace tsdiag::training {
namespace {

constexpr std::uint64_t longest_picture = std::uint64_t{1} << 28, most_pixels = 1 << 24;

[[noreturn]] [[maybe_unused]] void refuse(const std::filesystem::path& file, const char* kind,
                                          const std::string& why) {
    throw FormatError(fmt::format("{}: cannot be read as {} ({}).", file.string(), kind,
                                  visible(shortened(why, 100))));
}

[[maybe_unused]] void require_size(const std::filesystem::path& file, const char* kind,
                                   std::uint64_t width, std::uint64_t height) {
    if (width == 0 || height == 0 || width > most_pixels || height > most_pixels / width)
        refuse(file, kind, fmt::format("{} x {} pixels", width, height));
}

[[noreturn]] [[maybe_unused]] void unavailable(const std::filesystem::path& file,
                                               const char* package) {
    throw NotAvailable(
        fmt::format("{}: this tsdiag was built without {}; install it and build again.",
                    file.string(), package));
}

/// From bytes pixel by pixel to bytes by channel.
[[maybe_unused]] Picture by_channel(Index channels, Index height, Index width,
                                    const std::vector<std::uint8_t>& mixed) {
    Picture out{channels, height, width, std::vector<std::uint8_t>(mixed.size())};
    const auto area = std::size_t(height * width), planes = std::size_t(channels);
    for (std::size_t i = 0; i < area; ++i)
        for (std::size_t c = 0; c < planes; ++c) out.pixels[c * area + i] = mixed[i * planes + c];
    return out;
}

}  // namespace

#ifdef TSDIAG_PNG
Picture read_png(const std::filesystem::path& file, Index channels) {
    const std::string bytes = file_text(file, "a PNG image", longest_picture);
    struct Image {
        png_image png = {};
        ~Image() { png_image_free(&png); }
    } image;
    image.png.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&image.png, bytes.data(), bytes.size()))
        refuse(file, "PNG", static_cast<const char*>(image.png.message));
    require_size(file, "PNG", image.png.width, image.png.height);
    image.png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    std::vector<std::uint8_t> mixed(PNG_IMAGE_SIZE(image.png));
    const png_color black = {};
    // a warning is of a damaged file, too
    if (!png_image_finish_read(&image.png, &black, mixed.data(), 0, nullptr) ||
        image.png.warning_or_error != 0)
        refuse(file, "PNG", static_cast<const char*>(image.png.message));
    return by_channel(channels, Index(image.png.height), Index(image.png.width), mixed);
}
#else
Picture read_png(const std::filesystem::path& file, Index) { unavailable(file, "libpng"); }
#endif

#ifdef TSDIAG_JPEG
Picture read_jpeg(const std::filesystem::path& file, Index channels) {
    const std::string bytes = file_text(file, "a JPEG image", longest_picture);
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    struct Decoder {
        tjhandle handle = tjInitDecompress();
        ~Decoder() {
            if (handle) tjDestroy(handle);
        }
    } decoder;
    if (!decoder.handle) throw Error("libjpeg-turbo cannot be started.");
    const auto failed = [&] { refuse(file, "JPEG", tjGetErrorStr2(decoder.handle)); };
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(decoder.handle, data, bytes.size(), &width, &height, &sampling,
                            &colours) != 0)
        failed();
    require_size(file, "JPEG", std::uint64_t(width), std::uint64_t(height));
    std::vector<std::uint8_t> mixed(std::size_t(channels) * std::size_t(width) *
                                    std::size_t(height));
    // a file that is cut off is a warning, and grey for the rest
    if (tjDecompress2(decoder.handle, data, bytes.size(), mixed.data(), width, 0, height,
                      channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_STOPONWARNING) != 0)
        failed();
    return by_channel(channels, height, width, mixed);
}
#else
Picture read_jpeg(const std::filesystem::path& file, Index) { unavailable(file, "libjpeg-turbo"); }
#endif

}  // namespace tsdiag::training
