#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>

#include "cifar.hpp"
#include "data.hpp"
#include "token_set.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

Example labelled_image(Tensor image, Index label) {
    Input input;
    input.image = std::move(image);
    return labelled(std::move(input), label);
}

std::size_t big_endian(const std::string& bytes, std::size_t at) {
    std::size_t out = 0;
    for (std::size_t k = 0; k < 4; ++k) out = out << 8 | static_cast<unsigned char>(bytes[at + k]);
    return out;
}

/// The bytes of an idx file with the given `extents`, the first of which is free.
std::string read_idx(const std::string& file, std::vector<std::size_t> extents) {
    const std::string bytes = file_text(file, "a MNIST idx file", longest_data);
    const std::size_t head = 4 + 4 * extents.size();
    if (bytes.size() < head || big_endian(bytes, 0) != 0x800U + extents.size())
        throw FormatError(
            fmt::format("{}: is not an idx file of bytes in {} dimensions.", file, extents.size()));
    std::size_t count = 1;
    for (std::size_t k = 0; k < extents.size(); ++k) {
        const std::size_t extent = big_endian(bytes, 4 + 4 * k);
        if (k > 0 && extent != extents[k])
            throw FormatError(
                fmt::format("{}: extent {} is {}, expected {}.", file, k, extent, extents[k]));
        count = k == 0 ? extent : count * extent;
    }
    if (bytes.size() - head != count)
        throw FormatError(fmt::format("{}: has {} bytes after its header, expected {}.", file,
                                      bytes.size() - head, count));
    return bytes.substr(head);
}

Images read_mnist(const std::string& images, const std::string& labels) {
    const std::string pixels = read_idx(images, {0, 28, 28}), marks = read_idx(labels, {0});
    if (pixels.size() != marks.size() * 28 * 28)
        throw FormatError(fmt::format("{}: has {} images, but {} has {} labels.", images,
                                      pixels.size() / (28 * 28), labels, marks.size()));
    Images out;
    out.pixels.assign(pixels.begin(), pixels.end());
    for (const char mark : marks) out.labels.push_back(static_cast<unsigned char>(mark));
    for (std::size_t i = 0; i < out.labels.size(); ++i)
        if (out.labels[i] > 9)
            throw FormatError(
                fmt::format("{}: label {} is {}, expected 0 to 9.", labels, i, out.labels[i]));
    return out;
}

/// CIFAR or MNIST; each epoch has its own order.
class ImageData final : public Data {
  public:
    explicit ImageData(const std::string& directory) : directory_(directory) {
        if (has("data_batch_1.bin")) {
            Cifar10 cifar = read_cifar10(directory);
            training_ = std::move(cifar.training);
            held_out_ = std::move(cifar.held_out);
        } else if (has("train.bin") && has("test.bin")) {
            classes_ = 100;
            read_cifar(path("train.bin"), 1, 100, training_);
            read_cifar(path("test.bin"), 1, 100, held_out_);
        } else if (has("train-images-idx3-ubyte")) {
            channels_ = 1, side_ = 28;
            training_ =
                read_mnist(path("train-images-idx3-ubyte"), path("train-labels-idx1-ubyte"));
            held_out_ = read_mnist(path("t10k-images-idx3-ubyte"), path("t10k-labels-idx1-ubyte"));
        } else if (has("wnids.txt")) {
            read_tiny_imagenet();
        } else {
            throw FormatError(fmt::format(
                "{}: contains no data_batch_1.bin (CIFAR-10), train.bin and test.bin (CIFAR-100), "
                "train-images-idx3-ubyte (MNIST) or wnids.txt (Tiny-ImageNet).",
                directory));
        }
        if (training_.labels.empty() || held_out_.labels.empty())
            throw FormatError(fmt::format("{}: contains no images.", directory));
    }

    std::string description() const override {
        return fmt::format("{} images of {} classes in {}, {} held out", training_.labels.size(),
                           classes_, directory_, held_out_.labels.size());
    }
    Index classes() const override { return classes_; }
    Index size() const override { return std::ssize(training_.labels); }
    Index held_out() const override { return std::ssize(held_out_.labels); }
    void require(const Fit& fit) const override {
        require_images(fit, channels_, side_, side_, directory_);
    }

  private:
    Example training_sample(const Fit& fit, const Rng& seed, Index i) const override {
        return at(fit, training_, order_.at(seed, std::ssize(training_.labels), i));
    }
    Example held_out_sample(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork("held out").fork(std::uint64_t(i));
        return at(fit, held_out_, Index(rng.below(held_out_.labels.size())));
    }
    std::string path(const std::string& name) const {
        return (fs::path(directory_) / name).string();
    }
    bool has(const std::string& name) const { return fs::exists(path(name)); }

    /// wnids.txt, a class a line; train/CLASS/images/*.JPEG; val/images/*.JPEG with the class of
    /// each in val/val_annotations.txt.
    void read_tiny_imagenet() {
        const std::string names = file_text(path("wnids.txt"), "names of classes, one per line");
        std::map<std::string, Index, std::less<>> classes;
        for (Lines lines(names); lines.next();)
            if (!lines.line().empty()) classes.emplace(lines.line(), Index(classes.size()));
        classes_ = std::ssize(classes);
        for (const auto& [name, label] : classes)
            for (const fs::path& file : jpegs(fs::path(directory_) / "train" / name / "images"))
                add(file, label, training_);
        const std::string marks =
            file_text(path("val/val_annotations.txt"), "names of images and their classes");
        for (Lines lines(marks); lines.next();) {
            const std::vector<std::string> cells = split(lines.line(), '\t');
            const auto known = cells.size() < 2 ? classes.end() : classes.find(cells[1]);
            if (known == classes.end())
                throw FormatError(
                    fmt::format("{}: line {}: is '{}', expected an image and a class of wnids.txt.",
                                path("val/val_annotations.txt"), lines.number(),
                                visible(shortened(lines.line(), 60))));
            add(fs::path(directory_) / "val/images" / cells[0], known->second, held_out_);
        }
    }
    static std::vector<fs::path> jpegs(const fs::path& folder) {
        std::vector<fs::path> out;
        std::error_code failed;
        for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
             at.increment(failed))
            if (at->path().extension() == ".JPEG") out.push_back(at->path());
        if (failed)
            throw FormatError(
                fmt::format("{}: cannot be read ({}), expected a folder of images of one class.",
                            folder.string(), failed.message()));
        std::ranges::sort(out);
        return out;
    }
    void add(const fs::path& file, Index label, Images& out) {
        const Picture picture = read_picture(file, 3);
        if (training_.labels.empty() && held_out_.labels.empty()) side_ = picture.height;
        if (picture.height != side_ || picture.width != side_)
            throw FormatError(fmt::format("{}: has {} x {} pixels, expected {} x {}.",
                                          file.string(), picture.height, picture.width, side_,
                                          side_));
        out.labels.push_back(label);
        for (std::size_t c = 0; c < 3; ++c)  // by channel
            for (std::size_t i = c; i < picture.pixels.size(); i += 3)
                out.pixels.push_back(picture.pixels[i]);
    }

    Example at(const Fit& fit, const Images& from, Index i) const {
        const auto size = std::size_t(channels_ * side_ * side_), k = std::size_t(i);
        return labelled_image(
            image_tensor(fit, std::span(from.pixels).subspan(k * size, size), channels_),
            from.labels[k]);
    }
    std::string directory_;
    Index channels_ = 3, side_ = 32, classes_ = 10;
    Images training_, held_out_;
    EpochOrder order_;
};

/// Gratings in noise: class k of C is the direction pi k / C; wavelength, phase, contrast and
/// colour are drawn.
class PatternData final : public DrawnData {
  public:
    explicit PatternData(Index classes) : classes_(classes) {}

    std::string description() const override {
        return fmt::format("gratings in noise, {} directions", classes_);
    }
    Index classes() const override { return classes_; }
    void require(const Fit& fit) const override {
        const ModelSpec& s = fit.spec;
        require_images(fit, s.embedding.image.channels, s.embedding.image.height,
                       s.embedding.image.width, "patterns");
    }

  private:
    Example drawn(const Fit& fit, const Rng&, Rng rng) const override {
        const ModelSpec& s = fit.spec;
        const auto label = Index(rng.below(std::uint64_t(classes_)));
        const double angle = std::numbers::pi * double(label) / double(classes_);
        const double side = double(std::min(s.embedding.image.height, s.embedding.image.width));
        const double wave = 2 * std::numbers::pi / (side * (0.15 + 0.2 * rng.uniform()));
        const double phase = 2 * std::numbers::pi * rng.uniform(),
                     strength = 40 + 50 * rng.uniform();
        const double dx = wave * std::cos(angle), dy = wave * std::sin(angle);
        std::vector<std::uint8_t> pixels;
        for (Index c = 0; c < s.embedding.image.channels; ++c) {
            const double colour = 0.5 + 0.5 * rng.uniform();
            for (Index y = 0; y < s.embedding.image.height; ++y)
                for (Index x = 0; x < s.embedding.image.width; ++x) {
                    const double v =
                        127.5 +
                        strength * colour * std::sin(dx * double(x) + dy * double(y) + phase) +
                        noise * rng.normal();
                    pixels.push_back(std::uint8_t(std::clamp(v, 0.0, 255.0)));
                }
        }
        return labelled_image(image_tensor(fit, pixels, s.embedding.image.channels), label);
    }

    static constexpr double noise = 40;  // of 255 grey levels
    Index classes_;
};

}  // namespace

extern const DataEntry images = {
    .kind =
        {.name = "images",
         .argument = "DIR",
         .samples = "CIFAR-10 or CIFAR-100 in binary form, MNIST as idx, Tiny-ImageNet; shuffled "
                    "in each epoch",
         .held_out = "the test files; for Tiny-ImageNet `val`",
         .layout =
             "`data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin`; `train.bin`, "
             "`test.bin`; `train-images-idx3-ubyte` and the three files that belong to it; "
             "`wnids.txt`, `train/CLASS/images/*.JPEG`, `val/images`, `val/val_annotations.txt`",
         .labelled = true},
    .holds =
        [](const fs::path& folder) {
            return fs::exists(folder / "data_batch_1.bin") ||
                   (fs::exists(folder / "train.bin") && fs::exists(folder / "test.bin")) ||
                   fs::exists(folder / "train-images-idx3-ubyte") ||
                   fs::exists(folder / "wnids.txt");
        },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<ImageData>(r.argument);
    }};

extern const DataEntry patterns = {
    .kind = {.name = "patterns",
             .argument = "[:C]",
             .samples = "gratings in noise of the model's image size; the class is the direction, "
                        "pi k / C",
             .held_out = "drawn separately",
             .layout = "",
             .labelled = true},
    .holds = nullptr,
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<PatternData>(r.number(10, 2, 1000));
    }};

}  // namespace tsdiag::training::data_list
