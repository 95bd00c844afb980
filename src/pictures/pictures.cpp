#include "tsdiag/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decoders.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace pictures {
namespace {

constexpr std::uint64_t largest_side = 65535;  // JPEG's, and more than WebP's

}  // namespace

void Source::refuse(const char* kind, std::string_view why) const {
    throw FormatError(
        fmt::format("{}: cannot be read as {} ({}).", name, kind, visible(shortened(why, 100))));
}

void Source::refuse_without(const char* library) const {
    throw NotAvailable(fmt::format(
        "{}: this tsdiag was built without {}; install it and build again.", name, library));
}

Picture Source::picture(const char* kind, std::uint64_t width, std::uint64_t height,
                        Index channels) const {
    if (width == 0 || height == 0 || std::max(width, height) > largest_side ||
        height > most / width)
        refuse(kind, fmt::format("{} x {} pixels, expected at most {}", width, height, most));
    Picture out{channels, Index(height), Index(width)};
    out.pixels.resize(std::size_t(width * height) * std::size_t(channels));
    return out;
}

}  // namespace pictures

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t longest_picture = std::uint64_t{1} << 28;

/// One byte a pixel, by Pillow's weights of ITU-R 601-2.
Picture grey_of(Picture rgb) {
    constexpr unsigned red = 19595, green = 38470, blue = 7471, half = 1u << 15;
    const std::size_t area = rgb.pixels.size() / 3;
    for (std::size_t i = 0; i < area; ++i) {
        const std::uint8_t* p = rgb.pixels.data() + 3 * i;
        rgb.pixels[i] = std::uint8_t((red * p[0] + green * p[1] + blue * p[2] + half) >> 16);
    }
    rgb.pixels.resize(area);
    rgb.channels = 1;
    return rgb;
}

bool has_picture_ending(const fs::path& file) {
    constexpr std::array<std::string_view, 6> endings{".png", ".jpg",  ".jpeg",
                                                      ".jpe", ".jfif", ".webp"};
    std::string ending = file.extension().string();
    std::ranges::transform(ending, ending.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return std::ranges::find(endings, ending) != endings.end();
}

}  // namespace

Picture decode_picture(std::string_view bytes, std::string_view source, Index channels,
                       std::uint64_t most) {
    using namespace std::string_view_literals;
    if (channels != 1 && channels != 3)
        throw FormatError(fmt::format("{}: a picture has 1 or 3 channels, but {} are expected.",
                                      source, channels));
    const pictures::Source file{bytes, source, most};
    Picture out;
    if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv))
        out = pictures::decode_png(file);
    else if (bytes.starts_with("\xff\xd8\xff"sv))
        out = pictures::decode_jpeg(file);
    else if (bytes.starts_with("RIFF"sv) &&
             bytes.substr(std::min<std::size_t>(8, bytes.size())).starts_with("WEBP"sv))
        out = pictures::decode_webp(file);
    else
        throw FormatError(
            fmt::format("{}: is no picture in PNG, JPEG or WebP by its first bytes.", source));
    return channels == 1 ? grey_of(std::move(out)) : out;
}

std::string picture_bytes(const fs::path& file) {
    return file_text(file, "a picture", longest_picture);
}

Picture read_picture(const fs::path& file, Index channels) {
    return decode_picture(picture_bytes(file), file.string(), channels);
}

std::vector<fs::path> picture_files(const fs::path& path) {
    std::error_code failed;
    if (!fs::is_directory(path, failed)) return {path};
    std::vector<fs::path> out;
    fs::directory_iterator at(path, failed);
    for (const fs::directory_iterator end; !failed && at != end; at.increment(failed))
        if (has_picture_ending(at->path()) && !at->path().filename().string().starts_with('.') &&
            at->is_regular_file())
            out.push_back(at->path());
    if (failed)
        throw FormatError(fmt::format("{}: cannot be read ({}), expected a folder of pictures.",
                                      path.string(), failed.message()));
    if (out.empty())
        throw FormatError(fmt::format(
            "{}: contains no picture, expected files that end in .png, .jpg, .jpeg or .webp.",
            path.string()));
    std::ranges::sort(out);
    return out;
}

}  // namespace tsdiag
