#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "adapted_model.hpp"
#include "inputs.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

/// Samples from pictures, as the preprocessor of the checkpoint makes them.
namespace tsdiag {
namespace {

Json described_picture(const std::filesystem::path& file, std::string_view bytes,
                       const Picture& stored, const Picture& made) {
    Json out;
    out.set("file", file.filename().string()).set("sha256", sha256(bytes));
    out.set("stored", stored.stored).set("height", stored.height).set("width", stored.width);
    if (stored.orientation != 1) out.set("orientation", Index(stored.orientation));
    return out.set("made_height", made.height).set("made_width", made.width);
}

}  // namespace

void InputSource::require_pictures() const {
    if (spec_.embedding.image.channels == 0)
        throw UsageError("--images: this model takes tokens, not images.");
    if (spec_.embedding.image.channels != 1 && spec_.embedding.image.channels != 3)
        throw UsageError(
            fmt::format("--images: this model takes images of {} channels, pictures have 1 or 3.",
                        spec_.embedding.image.channels));
}

Preprocessor InputSource::choose_preprocessor() {
    if (!options_.preprocessor.empty())
        return open_preprocessor(options_.preprocessor, spec_.family);
    const std::string& model = options_.subject.model;
    if (!model.starts_with("random:")) {
        for (const std::filesystem::path& place : places_beside(options_.subject))
            if (const std::filesystem::path file = preprocessor_file(place); !file.empty())
                return open_preprocessor(file, spec_.family);
    }
    Preprocessor usual = published_preprocessor(spec_.family, spec_.embedding.image.height,
                                                spec_.embedding.image.width);
    if (usual.source.empty())
        throw UsageError(fmt::format(
            "--images: no preprocessor_config.json lies beside {}, and published models of its "
            "family differ in how pictures are made; name one with --preprocessor FILE.",
            model));
    assumption_ =
        fmt::format("No preprocessor_config.json says how pictures are made; {} was taken ({})",
                    usual.source, fmt::join(usual.steps(), "; "));
    return usual;
}

void InputSource::read_pictures() {
    settle_images();
    preprocessor_ = choose_preprocessor();
    preprocessor_.require_channels(spec_.embedding.image.channels);
    const std::vector<std::filesystem::path> files = picture_files(file_);
    settle_samples(std::ssize(files));
    if (options_.samples == 0 && count_ > usual_pictures) {
        defaults_.push_back(
            fmt::format("samples: the first {} of {} pictures", usual_pictures, count_));
        count_ = usual_pictures;
    }
    for (const std::string& line : preprocessor_.taken) defaults_.push_back("pictures: " + line);
    Json::Array described;
    std::size_t turned = 0;
    for (Index s = 0; s < count_; ++s) {
        const std::filesystem::path& file = files[std::size_t(s)];
        const std::string bytes = picture_bytes(file);
        const Picture stored = decode_picture(bytes, file.string(), spec_.embedding.image.channels);
        turned += stored.orientation != 1 ? 1 : 0;
        try {
            pictures_.push_back(preprocessor_.apply(upright(stored)));
        } catch (const Error& error) {
            throw FormatError(fmt::format("{}: {}", file.string(), error.what()));
        }
        const Picture& made = pictures_.back();
        if (made.height != spec_.embedding.image.height ||
            made.width != spec_.embedding.image.width)
            throw ShapeError(fmt::format(
                "{}: {} makes it {} x {} pixels, but the model takes {} x {}; name another with "
                "--preprocessor FILE.",
                file.string(), preprocessor_.source, made.height, made.width,
                spec_.embedding.image.height, spec_.embedding.image.width));
        described.push_back(described_picture(file, bytes, stored, made));
    }
    if (turned > 0)
        defaults_.push_back(fmt::format("pictures: {} of {} turned upright, as their EXIF data say",
                                        turned, count_));
    pictures_json_.set("files", std::move(described)).set("preprocessor", preprocessor_.json());
}

Tensor InputSource::image_of(const Picture& picture) const {
    const Index channels = picture.channels, area = picture.height * picture.width;
    std::vector<double> of_byte, values;
    for (Index c = 0; c < channels; ++c)
        for (int byte = 0; byte < 256; ++byte)
            of_byte.push_back(preprocessor_.value(c, std::uint8_t(byte)));
    for (Index c = 0; c < channels; ++c)
        for (Index i = 0; i < area; ++i)
            values.push_back(
                of_byte[std::size_t(256 * c) + picture.pixels[std::size_t(i * channels + c)]]);
    return Tensor::from_host(backend_, {channels, picture.height, picture.width},
                             std::span<const double>(values), type_);
}

}  // namespace tsdiag
