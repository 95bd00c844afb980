#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <numeric>

#include "data.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag::training {
namespace {

namespace fs = std::filesystem;

void require_images(const Fit& fit, Index channels, Index height, Index width,
                    const std::string& what) {
    const ModelSpec& s = fit.spec;
    if (s.channels == 0)
        throw UsageError(fmt::format("{} takes tokens, and {} are images.", s.name, what));
    if (s.image_height != height || s.image_width != width ||
        (channels != 1 && channels != s.channels))
        throw UsageError(fmt::format(
            "{} takes images of {} x {} x {}, and {} are {} x {} x {}; give the model image={}.",
            s.name, s.channels, s.image_height, s.image_width, what, channels, height, width,
            height));
}

Example labelled(Tensor image, Index label) {
    Example out;
    out.input.image = std::move(image);
    out.loss.kind = Loss::Kind::classes;
    out.loss.label = label;
    return out;
}

/// Pixels and labels in memory.
struct Images {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
};

/// Records: `skip` bytes, a label, and the pixels.
void read_cifar(const std::string& file, std::size_t skip, Index classes, Images& out) {
    constexpr std::size_t pixels = 3 * 32 * 32;
    const std::string bytes = file_text(file, "images of CIFAR", longest_data);
    const std::size_t record = skip + 1 + pixels;
    if (bytes.empty() || bytes.size() % record != 0)
        throw FormatError(fmt::format("{}: has {} bytes, expected a multiple of {}.", file,
                                      bytes.size(), record));
    for (std::size_t at = 0; at < bytes.size(); at += record) {
        const auto label = std::uint8_t(bytes[at + skip]);
        if (label >= classes)
            throw FormatError(fmt::format("{}: image {} has the label {}, expected 0 to {}.", file,
                                          at / record, label, classes - 1));
        out.labels.push_back(label);
        const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data()) + at + skip + 1;
        out.pixels.insert(out.pixels.end(), first, first + pixels);
    }
}

std::size_t big_endian(const std::string& bytes, std::size_t at) {
    std::size_t out = 0;
    for (std::size_t k = 0; k < 4; ++k) out = out << 8 | static_cast<unsigned char>(bytes[at + k]);
    return out;
}

/// The bytes of an idx file with the given `extents`, the first of which is free.
std::string read_idx(const std::string& file, std::vector<std::size_t> extents) {
    const std::string bytes = file_text(file, "an idx file of MNIST", longest_data);
    const std::size_t head = 4 + 4 * extents.size();
    if (bytes.size() < head || big_endian(bytes, 0) != 0x800U + extents.size())
        throw FormatError(
            fmt::format("{}: is no idx file of bytes in {} dimensions.", file, extents.size()));
    std::size_t count = 1;
    for (std::size_t k = 0; k < extents.size(); ++k) {
        const std::size_t extent = big_endian(bytes, 4 + 4 * k);
        if (k > 0 && extent != extents[k])
            throw FormatError(
                fmt::format("{}: extent {} is {}, expected {}.", file, k, extent, extents[k]));
        count = k == 0 ? extent : count * extent;
    }
    if (bytes.size() - head != count)
        throw FormatError(fmt::format("{}: has {} bytes behind its header, expected {}.", file,
                                      bytes.size() - head, count));
    return bytes.substr(head);
}

Images read_mnist(const std::string& images, const std::string& labels) {
    const std::string pixels = read_idx(images, {0, 28, 28}), marks = read_idx(labels, {0});
    if (pixels.size() != marks.size() * 28 * 28)
        throw FormatError(fmt::format("{}: has {} images, and {} has {} labels.", images,
                                      pixels.size() / (28 * 28), labels, marks.size()));
    Images out;
    out.pixels.assign(pixels.begin(), pixels.end());
    out.labels.assign(marks.begin(), marks.end());
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
            for (int k = 1; k <= 5; ++k)
                read_cifar(path(fmt::format("data_batch_{}.bin", k)), 0, 10, training_);
            read_cifar(path("test_batch.bin"), 0, 10, held_out_);
        } else if (has("train.bin") && has("test.bin")) {
            classes_ = 100;
            read_cifar(path("train.bin"), 1, 100, training_);
            read_cifar(path("test.bin"), 1, 100, held_out_);
        } else if (has("train-images-idx3-ubyte")) {
            channels_ = 1, side_ = 28;
            training_ =
                read_mnist(path("train-images-idx3-ubyte"), path("train-labels-idx1-ubyte"));
            held_out_ = read_mnist(path("t10k-images-idx3-ubyte"), path("t10k-labels-idx1-ubyte"));
        } else {
            throw FormatError(fmt::format(
                "{}: holds no data_batch_1.bin (CIFAR-10), train.bin and test.bin (CIFAR-100) or "
                "train-images-idx3-ubyte (MNIST).",
                directory));
        }
        if (training_.labels.empty() || held_out_.labels.empty())
            throw FormatError(fmt::format("{}: holds no images.", directory));
    }

    std::string description() const override {
        return fmt::format("{} images of {} classes in {}, {} held out", training_.labels.size(),
                           classes_, directory_, held_out_.labels.size());
    }
    Index classes() const override { return classes_; }
    Index held_out() const override { return std::ssize(held_out_.labels); }
    void require(const Fit& fit) const override {
        require_images(fit, channels_, side_, side_, directory_);
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        const Index count = std::ssize(training_.labels), epoch = i / count;
        if (epoch != epoch_) shuffle(seed, epoch);
        return at(fit, training_, order_[std::size_t(i % count)]);
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork("held out").fork(std::uint64_t(i));
        return at(fit, held_out_, Index(rng.below(held_out_.labels.size())));
    }

  private:
    std::string path(const std::string& name) const {
        return (fs::path(directory_) / name).string();
    }
    bool has(const std::string& name) const { return fs::exists(path(name)); }
    Example at(const Fit& fit, const Images& from, Index i) const {
        const auto size = std::size_t(channels_ * side_ * side_), k = std::size_t(i);
        return labelled(
            image_tensor(fit, std::span(from.pixels).subspan(k * size, size), channels_),
            from.labels[k]);
    }
    void shuffle(const Rng& seed, Index epoch) const {
        Rng rng = seed.fork("epoch").fork(std::uint64_t(epoch));
        order_.resize(training_.labels.size());
        std::iota(order_.begin(), order_.end(), 0);
        for (std::size_t k = order_.size(); k > 1; --k)
            std::swap(order_[k - 1], order_[rng.below(k)]);
        epoch_ = epoch;
    }

    std::string directory_;
    Index channels_ = 3, side_ = 32, classes_ = 10;
    Images training_, held_out_;
    mutable std::vector<Index> order_;  ///< of `epoch_`
    mutable Index epoch_ = -1;
};

/// Gratings in noise: class k of C is the direction pi k / C; wavelength, phase, contrast and
/// colour are drawn.
class PatternData final : public Data {
  public:
    explicit PatternData(Index classes) : classes_(classes) {}

    std::string description() const override {
        return fmt::format("gratings in noise, {} directions", classes_);
    }
    Index classes() const override { return classes_; }
    Index held_out() const override { return Index{1} << 20; }
    void require(const Fit& fit) const override {
        const ModelSpec& s = fit.spec;
        require_images(fit, s.channels, s.image_height, s.image_width, "patterns");
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork(std::uint64_t(i)));
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork("held out").fork(std::uint64_t(i)));
    }

  private:
    Example drawn(const Fit& fit, Rng rng) const {
        const ModelSpec& s = fit.spec;
        const auto label = Index(rng.below(std::uint64_t(classes_)));
        const double angle = std::numbers::pi * double(label) / double(classes_);
        const double side = double(std::min(s.image_height, s.image_width));
        const double wave = 2 * std::numbers::pi / (side * (0.15 + 0.2 * rng.uniform()));
        const double phase = 2 * std::numbers::pi * rng.uniform(),
                     strength = 40 + 50 * rng.uniform();
        const double dx = wave * std::cos(angle), dy = wave * std::sin(angle);
        std::vector<std::uint8_t> pixels;
        for (Index c = 0; c < s.channels; ++c) {
            const double colour = 0.5 + 0.5 * rng.uniform();
            for (Index y = 0; y < s.image_height; ++y)
                for (Index x = 0; x < s.image_width; ++x) {
                    const double v =
                        127.5 +
                        strength * colour * std::sin(dx * double(x) + dy * double(y) + phase) +
                        noise * rng.normal();
                    pixels.push_back(std::uint8_t(std::clamp(v, 0.0, 255.0)));
                }
        }
        return labelled(image_tensor(fit, pixels, s.channels), label);
    }

    static constexpr double noise = 40;  // of 255 grey levels
    Index classes_;
};

}  // namespace

std::unique_ptr<Data> image_data(const std::string& directory) {
    return std::make_unique<ImageData>(directory);
}
std::unique_ptr<Data> pattern_data(Index classes) { return std::make_unique<PatternData>(classes); }

}  // namespace tsdiag::training
