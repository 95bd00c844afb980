#include "decoders.hpp"

#ifdef TSDIAG_PNG
#include <png.h>

#include <algorithm>
#include <csetjmp>
#endif

namespace tsdiag::pictures {

#ifdef TSDIAG_PNG
namespace {

/// A file that libpng reads.  An error of it jumps to the function that called it, so these have
/// nothing to destroy.
struct PngReader {
    explicit PngReader(std::string_view bytes)
        : rest(bytes),
          png(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::fail,
                                     &PngReader::warn)),
          info(png ? png_create_info_struct(png) : nullptr) {
        if (info) png_set_read_fn(png, this, &PngReader::take);
    }
    ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
    PngReader(const PngReader&) = delete;
    PngReader& operator=(const PngReader&) = delete;

    /// The header, and bytes of red, green and blue as what is to come.
    bool read_header();
    bool read_rows(png_bytepp rows);
    /// The chunk eXIf, which may stand behind the pixels.
    std::string_view exif() {
        png_bytep bytes = nullptr;
        png_uint_32 count = 0;
        if (png_get_eXIf_1(png, info, &count, &bytes) == 0) return {};
        return {reinterpret_cast<const char*>(bytes), count};
    }

    std::string_view rest;
    char why[100] = "out of memory";
    bool damaged = false;  ///< pixels were decoded with a warning
    png_structp png;
    png_infop info;
    int depth = 0, colours = 0;

  private:
    static void fail(png_structp png, png_const_charp message) {
        static_cast<PngReader*>(png_get_error_ptr(png))->tell(message);
        png_longjmp(png, 1);
    }
    /// Of other chunks than those of the pixels (profiles, texts) nothing is used.
    static void warn(png_structp png, png_const_charp message) {
        if (!message || !std::string_view(message).starts_with("IDAT")) return;
        auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
        reader->damaged = true;
        reader->tell(message);
    }
    void tell(png_const_charp message) {
        const std::string_view words = message ? message : "";
        const std::size_t count = std::min(words.size(), sizeof why - 1);
        std::copy_n(words.data(), count, static_cast<char*>(why));
        why[count] = '\0';
    }
    static void take(png_structp png, png_bytep to, std::size_t count) {
        auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
        if (count > reader->rest.size()) png_error(png, "the file ends too early");
        std::copy_n(reader->rest.data(), count, to);
        reader->rest.remove_prefix(count);
    }
};

bool PngReader::read_header() {
    if (!info || setjmp(png_jmpbuf(png))) return false;
    png_set_user_limits(png, png_uint_32(most_pixels), png_uint_32(most_pixels));
    png_read_info(png, info);
    depth = png_get_bit_depth(png, info);
    colours = png_get_color_type(png, info);
    if (colours == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (colours == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16) png_set_strip_16(png);
    if ((colours & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
}

bool PngReader::read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_image(png, rows);
    png_read_end(png, info);
    return true;
}

/// Does every chunk end in the file?  libpng allocates what the length of one says.
bool chunks_fit(std::string_view bytes) {
    constexpr std::size_t signature = 8, header = 8, checksum = 4;
    for (std::size_t at = signature; at <= bytes.size() && bytes.size() - at >= header;) {
        std::size_t length = 0;
        for (std::size_t k = 0; k < 4; ++k)
            length = length << 8 | static_cast<unsigned char>(bytes[at + k]);
        if (length > bytes.size() - at - header) return false;
        if (bytes.substr(at + 4, 4) == "IEND") break;
        at += header + length + checksum;
    }
    return true;
}

std::string png_colours(int colours, int depth) {
    const char* name = colours == PNG_COLOR_TYPE_PALETTE      ? "palette"
                       : colours == PNG_COLOR_TYPE_GRAY       ? "grey"
                       : colours == PNG_COLOR_TYPE_GRAY_ALPHA ? "grey with alpha"
                       : colours == PNG_COLOR_TYPE_RGB_ALPHA  ? "RGB with alpha"
                                                              : "RGB";
    return std::string("PNG, ") + name + (depth == 16 ? " of 16 bits" : "");
}

}  // namespace

Picture decode_png(const Source& source) {
    constexpr const char* kind = "PNG";
    if (!chunks_fit(source.bytes)) source.refuse(kind, "a chunk goes beyond the end of the file");
    PngReader reader(source.bytes);
    if (!reader.read_header()) source.refuse(kind, static_cast<const char*>(reader.why));
    const png_uint_32 width = png_get_image_width(reader.png, reader.info),
                      height = png_get_image_height(reader.png, reader.info);
    Picture out = source.picture(kind, width, height);
    out.stored = png_colours(reader.colours, reader.depth);
    out.rgb = reader.colours == PNG_COLOR_TYPE_RGB && reader.depth == 8;
    if (reader.colours == PNG_COLOR_TYPE_GRAY && reader.depth == 16)
        source.refuse(kind,
                      "grey values of 16 bits, which Pillow would cut off at 255; convert "
                      "it to 8 bits");
    if (png_get_rowbytes(reader.png, reader.info) != std::size_t(width) * 3)
        source.refuse(kind, "rows of another length than its header says");
    std::vector<png_bytep> rows(height);
    for (std::size_t y = 0; y < height; ++y) rows[y] = out.pixels.data() + y * width * 3;
    if (!reader.read_rows(rows.data()) || reader.damaged)
        source.refuse(kind, static_cast<const char*>(reader.why));
    png_colorp palette = nullptr;
    int entries = 0;
    if (png_get_PLTE(reader.png, reader.info, &palette, &entries) != 0 &&
        reader.colours == PNG_COLOR_TYPE_PALETTE &&
        png_get_palette_max(reader.png, reader.info) >= entries)
        source.refuse(kind, "a pixel beyond the end of its palette");
    out.orientation = exif_orientation(reader.exif());
    return out;
}
#else
Picture decode_png(const Source& source) { source.refuse_without("libpng"); }
#endif

}  // namespace tsdiag::pictures
