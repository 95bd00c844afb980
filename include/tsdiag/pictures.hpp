#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"
#include "tsdiag/tensor.hpp"

/// Pictures in files, and what the preprocessor of a vision model makes of them.
///
///     Preprocessor made = open_preprocessor("vit-base-patch16-224/preprocessor_config.json", "");
///     Picture x = made.apply(upright(read_picture("cat.jpg", 3)));
///     double red = made.value(0, x.pixels[0]);
namespace tsdiag {

/// Bytes row by row, the channels of a pixel side by side: pixel (y, x), channel c is
/// pixels[(y width + x) channels + c].
struct Picture {
    Index channels = 0, height = 0, width = 0;
    std::vector<std::uint8_t> pixels = {};
    std::string stored = {};  ///< format and colours of the file: "JPEG, CMYK"
    bool rgb = true;          ///< the file has red, green and blue of 8 bits, and nothing else
    int orientation = 1;      ///< as EXIF numbers it, 1 to 8; 1: upright, or not said
};

/// Largest number of pixels of a picture: beyond it Pillow warns of a bomb.
inline constexpr std::uint64_t most_pixels = 89'478'485;

/// A picture as RGB (`channels` 3) or as grey values (1), as Pillow's convert("RGB") and
/// convert("L") give them: alpha is dropped, palettes are looked up, of 16 bits the high byte is
/// kept, CMYK is taken for Adobe's, grey = (19595 R + 38470 G + 7471 B + 2^15) / 2^16.  Colour
/// profiles and gamma are ignored, as there.
///
/// The first bytes decide: PNG by libpng, JPEG by libjpeg-turbo, WebP by libwebp.  Throws
/// `FormatError` naming `source` for other files, what is cut off or damaged, animations, grey
/// values of 16 bits (which Pillow cuts off at 255), sides of more than 65535 and more than `most`
/// pixels in all; `NotAvailable` where tsdiag was built without the library.  Memory: at most 4
/// bytes a pixel here, and what the library needs; time O(pixels).
Picture decode_picture(std::string_view bytes, std::string_view source, Index channels,
                       std::uint64_t most = most_pixels);
/// Bytes of a file that holds a picture; refused beyond 256 MB.
std::string picture_bytes(const std::filesystem::path& file);
/// The picture in such a file.
Picture read_picture(const std::filesystem::path& file, Index channels);

/// The picture turned and mirrored as its orientation says, as viewers show it.
Picture upright(Picture picture);

/// The picture files that `path` stands for: itself, or of a directory those with the endings of
/// PNG, JPEG and WebP, sorted by name; hidden ones and subdirectories are not among them.  Throws
/// `FormatError` where there is none, or it cannot be read.
std::vector<std::filesystem::path> picture_files(const std::filesystem::path& path);

/// Filters of Pillow, in the order of its numbers.
enum class Resampling { nearest, lanczos, bilinear, bicubic, box, hamming };
std::string_view name(Resampling filter);

/// The picture in another size, as Pillow's Image.resize: along the rows, then along the columns,
///
///     y_i = sum_j w_ij x_j,   w_ij ~ f((j + 1/2 - c_i) / r),  sum_j w_ij = 1,
///     c_i = (i + 1/2) n / m,  r = max(n / m, 1)
///
/// for n values made m, f the filter (bicubic with a = -1/2, Lanczos with 3 lobes).  Weights are
/// rounded to multiples of 2^-22 and each pass to bytes, so that the bytes are Pillow's.
/// Throws `ShapeError` for an empty size, and one of more than `most_pixels`.
/// Cost: O(width (height + height') s) with s the support of the filter times r.
Picture resized(const Picture& picture, Index height, Index width, Resampling filter);

/// What is done to a picture before a model sees it, in this order: resize, crop, rescale,
/// normalise.
struct Preprocessor {
    enum class Fit {
        none,      ///< no resizing
        exact,     ///< to height x width, whatever the proportions
        shortest,  ///< the shorter side becomes `side`, the other the floor of its share
        longest,   ///< the longer side becomes `side`, the other the floor of its share
    };
    Fit fit = Fit::none;
    Index height = 0, width = 0, side = 0;
    Index within = 0;  ///< of shortest: the longer side is at most this; 0: any
    Resampling filter = Resampling::bilinear;
    Index crop_height = 0, crop_width = 0;  ///< about the middle, black beyond; 0: no crop
    bool rounds_crop = false;  ///< odd margins by rounding half to even, as torchvision, not floor
    double factor = 1;         ///< of the bytes
    std::vector<double> mean = {}, deviation = {};  ///< of each channel or one of all; empty: none
    bool needs_rgb = false;  ///< pictures are not converted: others than RGB are refused

    std::string source;              ///< the file, or whose published default it is
    std::string sha256 = {};         ///< of the file; empty: there is none
    std::vector<std::string> taken;  ///< keys that it lacks, with the defaults taken

    /// Resized and cropped.  Throws `FormatError` for a picture that it does not take, `ShapeError`
    /// as `resized`.
    Picture apply(const Picture& picture) const;
    /// (byte factor - mean_c) / deviation_c, in double.
    double value(Index channel, std::uint8_t byte) const;
    /// Throws `FormatError` where means or deviations are not those of so many channels.
    void require_channels(Index channels) const;
    Json json() const;                       ///< for run.json
    std::vector<std::string> steps() const;  ///< in words, one a step
};

/// Reads a preprocessor_config.json of Hugging Face, or the `pretrained_cfg` of a config.json of
/// timm.  `family`: of the model, whose usual processor is meant where the file names none.  Keys
/// that are not there have the defaults of that processor.  Throws `FormatError` naming a key that
/// it does not know, unless that is null or a switch that is off.
Preprocessor parse_preprocessor(std::string_view text, std::string_view source,
                                std::string_view family);
/// Reads the preprocessor of `file`, or of the preprocessor_config.json in that folder, as
/// `parse_preprocessor` does its text.
Preprocessor open_preprocessor(const std::filesystem::path& file, std::string_view family);

/// The file beside a checkpoint that says how its pictures are made: preprocessor_config.json, or
/// a config.json with `pretrained_cfg`.  Empty: there is none.
std::filesystem::path preprocessor_file(const std::filesystem::path& checkpoint);

/// That of a family whose published models all agree, for images of height x width: `vit`, whose
/// pixels go to [-1, 1].  No `source`: there is none.
Preprocessor published_preprocessor(std::string_view family, Index height, Index width);

}  // namespace tsdiag
