#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tsdiag/error.hpp"
#include "tsdiag/pictures.hpp"

/// Sizes as Pillow changes them: filters whose support grows with the reduction, in whole numbers.
namespace tsdiag {
namespace {

constexpr int weight_bits = 22;

double sinc(double x) {
    const double angle = std::numbers::pi * x;
    return x == 0 ? 1 : std::sin(angle) / angle;
}
double weight_at(Resampling filter, double x) {
    const double distance = std::abs(x);
    switch (filter) {
        case Resampling::box:
            return x > -0.5 && x <= 0.5 ? 1 : 0;
        case Resampling::bilinear:
            return std::max(1 - distance, 0.0);
        case Resampling::hamming:
            if (distance >= 1) return 0;
            return sinc(distance) * (0.54 + 0.46 * std::cos(std::numbers::pi * distance));
        case Resampling::bicubic: {
            constexpr double a = -0.5;
            if (distance < 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
            if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * a;
            return 0;
        }
        case Resampling::lanczos:
            return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
        case Resampling::nearest:
            break;
    }
    return 0;
}
double support_of(Resampling filter) {
    constexpr std::array<double, 6> supports{0, 3, 1, 2, 0.5, 1};
    return supports.at(std::size_t(filter));
}

/// What one value of the result is of: neighbours, and their weights in units of 2^-22.
struct Neighbours {
    std::size_t first = 0;
    std::vector<std::int32_t> weights = {};
};

std::vector<Neighbours> neighbours(Index from, Index to, Resampling filter) {
    const double scale = double(from) / double(to), reduction = std::max(scale, 1.0);
    const double support = support_of(filter) * reduction;
    std::vector<Neighbours> out;
    std::vector<double> exact;
    for (Index i = 0; i < to; ++i) {
        const double centre = (double(i) + 0.5) * scale;
        const double low = centre - support + 0.5, high = centre + support + 0.5;
        const Index first = std::max(Index(low), Index(0)), last = std::min(Index(high), from);
        exact.clear();
        double sum = 0;
        for (Index j = first; j < last; ++j) {
            exact.push_back(weight_at(filter, (double(j) - centre + 0.5) / reduction));
            sum += exact.back();
        }
        Neighbours one{std::size_t(first)};
        for (const double w : exact)
            one.weights.push_back(
                std::int32_t(std::round((sum != 0 ? w / sum : w) * double(1 << weight_bits))));
        out.push_back(std::move(one));
    }
    return out;
}

std::uint8_t byte_of(std::int32_t sum) {
    return std::uint8_t(std::clamp(sum >> weight_bits, 0, 255));
}

/// Lines along which values are read or written, rows or columns: how many, and the bytes from one
/// line, and from one value of a line, to the next.
struct LineStrides {
    std::size_t lines, line_step, value_step;
};

void resample(const std::vector<std::uint8_t>& in, LineStrides from, std::vector<std::uint8_t>& out,
              LineStrides to, const std::vector<Neighbours>& all, std::size_t channels) {
    constexpr std::int32_t rounding = 1 << (weight_bits - 1);
    for (std::size_t line = 0; line < from.lines; ++line)
        for (std::size_t i = 0; i < all.size(); ++i)
            for (std::size_t c = 0; c < channels; ++c) {
                const std::uint8_t* x =
                    in.data() + line * from.line_step + all[i].first * from.value_step + c;
                std::int32_t sum = rounding;
                for (const std::int32_t w : all[i].weights) {
                    sum += w * *x;
                    x += from.value_step;
                }
                out[line * to.line_step + i * to.value_step + c] = byte_of(sum);
            }
}

/// The place of the nearest value: the integer part of (i + 1/2) n / m, summed up step by step.
std::vector<std::size_t> nearest_places(Index from, Index to) {
    const double scale = double(from) / double(to);
    std::vector<std::size_t> out;
    double place = scale * 0.5;
    for (Index i = 0; i < to; ++i, place += scale)
        out.push_back(std::size_t(std::min(Index(place), from - 1)));
    return out;
}

}  // namespace

std::string_view name(Resampling filter) {
    constexpr std::array<std::string_view, 6> names{"nearest", "lanczos", "bilinear",
                                                    "bicubic", "box",     "hamming"};
    return names.at(std::size_t(filter));
}

Picture resized(const Picture& picture, Index height, Index width, Resampling filter) {
    const Index between = std::max(height, picture.height);  // rows behind the first pass
    if (height < 1 || width < 1 || std::uint64_t(between) > most_pixels / std::uint64_t(width))
        throw ShapeError(fmt::format(
            "a picture of {} x {} pixels would become {} x {}, expected at most {} pixels.",
            picture.height, picture.width, height, width, most_pixels));
    const auto channels = std::size_t(picture.channels), rows = std::size_t(picture.height),
               columns = std::size_t(picture.width);
    const auto to_rows = std::size_t(height), to_columns = std::size_t(width);
    Picture out = picture;
    out.height = height, out.width = width;
    if (filter == Resampling::nearest) {
        const std::vector<std::size_t> y = nearest_places(picture.height, height),
                                       x = nearest_places(picture.width, width);
        out.pixels.resize(to_rows * to_columns * channels);
        std::size_t at = 0;
        for (const std::size_t row : y)
            for (const std::size_t column : x)
                for (std::size_t c = 0; c < channels; ++c)
                    out.pixels[at++] = picture.pixels[(row * columns + column) * channels + c];
        return out;
    }
    if (width != picture.width) {
        std::vector<std::uint8_t> wide(rows * to_columns * channels);
        resample(out.pixels, {rows, columns * channels, channels}, wide,
                 {rows, to_columns * channels, channels}, neighbours(picture.width, width, filter),
                 channels);
        out.pixels = std::move(wide);
    }
    if (height != picture.height) {
        std::vector<std::uint8_t> high(to_rows * to_columns * channels);
        resample(out.pixels, {to_columns, channels, to_columns * channels}, high,
                 {to_columns, channels, to_columns * channels},
                 neighbours(picture.height, height, filter), channels);
        out.pixels = std::move(high);
    }
    return out;
}

}  // namespace tsdiag
