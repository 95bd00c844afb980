#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "elements.hpp"
#include "owner.hpp"

namespace tsdiag {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t chunk = 4096;

constexpr std::size_t lanes = 4;
using Vector = std::array<double, lanes>;

/// Sums in separate lanes, which the compiler can vectorise without reordering any sum.
struct Lanes {
    Vector sum{}, squares{}, finite{};
    Vector minimum = {infinity, infinity, infinity, infinity};
    Vector maximum = {-infinity, -infinity, -infinity, -infinity};

    void add(const double* x, double scale) {
        for (std::size_t l = 0; l < lanes; ++l) {
            const bool good = std::abs(x[l]) <= largest;  // false for NaN
            const double value = good ? x[l] : 0.0;
            const double scaled = value * scale;
            sum[l] += value;
            squares[l] += scaled * scaled;
            finite[l] += good ? 1.0 : 0.0;
            minimum[l] = std::min(minimum[l], good ? value : infinity);
            maximum[l] = std::max(maximum[l], good ? value : -infinity);
        }
    }
};

double total(const Vector& v) { return (v[0] + v[1]) + (v[2] + v[3]); }

class Accumulator {
  public:
    explicit Accumulator(double scale) : scale_(scale) {}

    /// `x` has room for a multiple of `lanes` elements; those after `count` are overwritten.
    void add(double* x, std::int64_t count) {
        const auto used = std::size_t(count);
        const std::size_t padded = (used + lanes - 1) / lanes * lanes;
        std::fill(x + used, x + padded, nan);
        const double before = total(lanes_.finite);
        Lanes local = lanes_;  // so that nothing is written to memory in the loop
        for (std::size_t i = 0; i < padded; i += lanes) local.add(x + i, scale_);
        lanes_ = local;
        if (total(lanes_.finite) - before < double(count) && !first_nonfinite_)
            first_nonfinite_ =
                seen_ +
                (std::find_if_not(x, x + used, [](double v) { return std::isfinite(v); }) - x);
        seen_ += count;
    }

    TensorSummary summary() const {
        const auto finite = std::int64_t(total(lanes_.finite));
        TensorSummary result;
        result.sum = total(lanes_.sum);
        result.norm = std::sqrt(total(lanes_.squares));
        if (finite > 0) {
            result.minimum = *std::min_element(lanes_.minimum.begin(), lanes_.minimum.end());
            result.maximum = *std::max_element(lanes_.maximum.begin(), lanes_.maximum.end());
        }
        result.nonfinite = seen_ - finite;
        result.first_nonfinite = first_nonfinite_;
        return result;
    }

  private:
    double scale_;
    Lanes lanes_;
    std::int64_t seen_ = 0;
    std::optional<std::int64_t> first_nonfinite_;
};

TensorSummary summarise_scaled(const RawTensor& tensor, double scale) {
    Accumulator accumulator(scale);
    static_assert(chunk % lanes == 0);
    std::array<double, chunk> buffer;
    std::int64_t filled = 0;
    const auto flush = [&] {
        accumulator.add(buffer.data(), filled);
        filled = 0;
    };
    checkpoint::for_each_piece<double>(
        tensor, [&](std::int64_t offset, std::int64_t count, std::int64_t stride, auto widen) {
            for (std::int64_t done = 0; done < count;) {
                const std::int64_t some = std::min(chunk - filled, count - done);
                widen(offset + done * stride, some, stride, buffer.data() + filled);
                done += some;
                filled += some;
                if (filled == chunk) flush();
            }
        });
    flush();
    return accumulator.summary();
}

}  // namespace

TensorSummary summarise(const RawTensor& tensor) {
    checkpoint::verify(tensor);
    TensorSummary result = summarise_scaled(tensor, 1.0);
    if (!result.maximum) return result;
    // Squares overflow or underflow beyond these: only float64 files can hold such values.
    const double size = std::max(std::abs(*result.minimum), std::abs(*result.maximum));
    if (size > 0x1p480 || (size > 0 && size < 0x1p-480)) {
        const double scale = size > 1 ? 0x1p-600 : 0x1p600;
        result.norm = summarise_scaled(tensor, scale).norm / scale;
    }
    return result;
}

}  // namespace tsdiag
