#include <array>
#include <cmath>
#include <limits>

#include "elements.hpp"

namespace tsdiag {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();
constexpr std::int64_t chunk = 4096;

/// Sums in eight lanes, which the compiler keeps in vectors without reordering any sum.
class Accumulator {
  public:
    void add(const double* x, std::int64_t count) {
        std::int64_t i = 0;
        std::int64_t finite = 0;
        for (; i + lanes <= count; i += lanes)
            for (std::int64_t l = 0; l < lanes; ++l) finite += add_one(x[i + l], lane_[l]);
        for (; i < count; ++i) finite += add_one(x[i], lane_[0]);
        if (finite != count && !first_nonfinite_)
            for (std::int64_t j = 0; j < count && !first_nonfinite_; ++j)
                if (!std::isfinite(x[j])) first_nonfinite_ = seen_ + j;
        seen_ += count;
        finite_ += finite;
    }

    TensorSummary summary() const {
        Lane all = lane_[0];
        for (int l = 1; l < lanes; ++l) {
            all.sum += lane_[l].sum;
            all.squares += lane_[l].squares;
            all.minimum = std::min(all.minimum, lane_[l].minimum);
            all.maximum = std::max(all.maximum, lane_[l].maximum);
        }
        TensorSummary result;
        result.sum = all.sum;
        result.norm = std::sqrt(all.squares);
        if (finite_ > 0) {
            result.minimum = all.minimum;
            result.maximum = all.maximum;
        }
        result.nonfinite = seen_ - finite_;
        result.first_nonfinite = first_nonfinite_;
        return result;
    }

    explicit Accumulator(double scale) : scale_(scale) {}

  private:
    static constexpr std::int64_t lanes = 8;
    struct Lane {
        double sum = 0, squares = 0, minimum = infinity, maximum = -infinity;
    };

    bool add_one(double value, Lane& lane) const {
        const bool finite = std::abs(value) <= largest;  // false for NaN
        const double x = finite ? value : 0.0;
        const double scaled = x * scale_;
        lane.sum += x;
        lane.squares += scaled * scaled;
        lane.minimum = finite && x < lane.minimum ? x : lane.minimum;
        lane.maximum = finite && x > lane.maximum ? x : lane.maximum;
        return finite;
    }

    double scale_;
    std::array<Lane, lanes> lane_;
    std::int64_t seen_ = 0, finite_ = 0;
    std::optional<std::int64_t> first_nonfinite_;
};

TensorSummary summarise_scaled(const RawTensor& tensor, double scale) {
    Accumulator accumulator(scale);
    checkpoint::with_element(tensor, [&](auto element) {
        using Element = decltype(element);
        constexpr auto width = static_cast<std::int64_t>(sizeof(typename Element::Stored));
        std::array<double, chunk> buffer;
        std::int64_t filled = 0;
        const auto flush = [&] {
            accumulator.add(buffer.data(), filled);
            filled = 0;
        };
        checkpoint::for_each_run(
            tensor, [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
                const std::byte* from = tensor.bytes.data() + offset * width;
                for (std::int64_t done = 0; done < count;) {
                    const std::int64_t some = std::min(chunk - filled, count - done);
                    checkpoint::widen_run<Element>(from + done * stride * width, some, stride,
                                                   tensor.big_endian, buffer.data() + filled);
                    done += some;
                    filled += some;
                    if (filled == chunk) flush();
                }
            });
        flush();
    });
    return accumulator.summary();
}

}  // namespace

TensorSummary summarise(const RawTensor& tensor) {
    TensorSummary result = summarise_scaled(tensor, 1.0);
    if (!result.maximum) return result;
    // Squares leave the range of double beyond these: only float64 files can hold such values.
    const double size = std::max(std::abs(*result.minimum), std::abs(*result.maximum));
    if (size > 0x1p480 || (size > 0 && size < 0x1p-480)) {
        const double scale = size > 1 ? 0x1p-600 : 0x1p600;
        result.norm = summarise_scaled(tensor, scale).norm / scale;
    }
    return result;
}

}  // namespace tsdiag
