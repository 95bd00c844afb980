#include "elements.hpp"
#include "packed.hpp"

namespace tsdiag::checkpoint {
namespace {

constexpr std::int64_t panel = 64, chunk = 256;  // rows and columns decoded at a time

/// Half of the widest step between neighbouring levels over their spread.
double widest_step(std::array<float, 16> levels) {
    std::ranges::sort(levels);
    double widest = 0;
    for (std::size_t i = 1; i < levels.size(); ++i)
        widest = std::max(widest, double(levels[i]) - double(levels[i - 1]));
    return widest / 2 / (double(levels.back()) - double(levels.front()));
}

}  // namespace

void GroupedIntegers::decode(std::int64_t row, std::int64_t rows, std::int64_t column,
                             std::int64_t columns, float* out) const {
    const std::int64_t g = groups_.count;
    std::vector<float> scale(std::size_t(std::min(rows, panel) * g)), zero(scale.size());
    std::array<std::uint8_t, panel * chunk> buffer;
    for (std::int64_t first = 0; first < rows; first += panel) {
        const std::int64_t some = std::min(panel, rows - first);
        scales(row + first, some, scale.data());
        zeros(row + first, some, zero.data());
        for (std::int64_t c = 0; c < columns;) {
            // Chunks end where 32 codes end: a stream of codes is unpacked so many at a time.
            const std::int64_t wide = std::min(columns - c, chunk - (column + c) % 32);
            codes(row + first, some, column + c, wide, buffer.data());
            for (std::int64_t r = 0; r < some; ++r)
                apply(buffer.data() + r * wide, scale.data() + r * g, zero.data() + r * g,
                      column + c, wide, out + (first + r) * columns + c);
            c += wide;
        }
    }
}

void GroupedIntegers::apply(const std::uint8_t* codes, const float* scale, const float* zero,
                            std::int64_t column, std::int64_t columns, float* out) const {
    if (!groups_.of.empty()) {
        for (std::int64_t j = 0; j < columns; ++j) {
            const std::int32_t g = groups_.of[std::size_t(column + j)];
            out[j] = (float(codes[j]) - zero[g]) * scale[g];
        }
        return;
    }
    for (std::int64_t j = 0; j < columns;) {
        const std::int64_t g = (column + j) / groups_.size;
        const std::int64_t end = std::min(columns, (g + 1) * groups_.size - column);
        const float z = zero[g], s = scale[g];
        for (; j < end; ++j) out[j] = (float(codes[j]) - z) * s;
    }
}

ScaledLevels::ScaledLevels(std::int64_t columns, std::vector<RawTensor> parts,
                           const std::array<float, 16>& levels, bool high_first, std::int64_t block,
                           Scales scales)
    : PackedMatrix(columns, std::move(parts), widest_step(levels)),
      levels_(levels),
      high_first_(high_first),
      block_(block),
      scales_(std::move(scales)) {}

void ScaledLevels::decode(std::int64_t row, std::int64_t rows, std::int64_t column,
                          std::int64_t columns, float* out) const {
    const bool whole = columns == this->columns();
    const std::int64_t runs = whole ? 1 : rows, length = whole ? rows * columns : columns;
    std::vector<float> scales(std::size_t(std::min(length, chunk * block_) / block_ + 2));
    for (std::int64_t r = 0; r < runs; ++r)
        for (std::int64_t done = 0; done < length; done += chunk * block_)
            run((row + r) * this->columns() + column + done,
                std::min(length - done, chunk * block_), scales, out + r * length + done);
}

void ScaledLevels::run(std::int64_t first, std::int64_t count, std::span<float> scales,
                       float* out) const {
    const std::byte* bytes = parts().front().bytes.data();
    const std::int64_t begin = first / block_;
    scales_(begin, (first + count - 1) / block_ - begin + 1, scales.data());
    const int even = high_first_ ? 4 : 0, odd = 4 - even;
    for (std::int64_t i = first; i < first + count;) {
        const std::int64_t block = i / block_;
        const std::int64_t end = std::min(first + count, (block + 1) * block_);
        std::array<float, 16> values;
        for (std::size_t q = 0; q < 16; ++q)
            values[q] = levels_[q] * scales[std::size_t(block - begin)];
        const auto value = [&](std::int64_t at, int shift) {
            return values[std::to_integer<std::size_t>(bytes[at / 2]) >> shift & 15];
        };
        if (i % 2 != 0) *out++ = value(i, odd), ++i;
        for (; i + 1 < end; i += 2) {
            *out++ = value(i, even);
            *out++ = value(i, odd);
        }
        if (i < end) *out++ = value(i, even), ++i;
    }
}

}  // namespace tsdiag::checkpoint

namespace tsdiag {

void PackedMatrix::decode_double(std::int64_t row, std::int64_t rows, std::int64_t column,
                                 std::int64_t columns, double* out) const {
    std::vector<float> values(std::size_t(rows * columns));
    decode(row, rows, column, columns, values.data());
    std::ranges::copy(values, out);
}

}  // namespace tsdiag
