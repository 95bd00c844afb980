#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensor/cpu_kernels.hpp"
#include "tensor/simd.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag {
namespace {

/// |x - y|_1, summed in double.
template <class T>
TSDIAG_INLINE double exact_distance(const T* x, const T* y, Index n) {
    double s[4] = {};
    Index k = 0;
    for (; k + 4 <= n; k += 4)
        for (int c = 0; c < 4; ++c) s[c] += std::abs(double(x[k + c]) - double(y[k + c]));
    for (; k < n; ++k) s[0] += std::abs(double(x[k]) - double(y[k]));
    return (s[0] + s[1]) + (s[2] + s[3]);
}
TSDIAG_CLONES double distance(const float* x, const float* y, Index n) {
    return exact_distance(x, y, n);
}
TSDIAG_CLONES double distance(const double* x, const double* y, Index n) {
    return exact_distance(x, y, n);
}

template <class T>
TSDIAG_INLINE void widen_range(const T* row, Index n, T* low, T* high) {
#pragma omp simd
    for (Index c = 0; c < n; ++c) {
        low[c] = row[c] < low[c] ? row[c] : low[c];
        high[c] = row[c] > high[c] ? row[c] : high[c];
    }
}
TSDIAG_CLONES void widen(const float* row, Index n, float* low, float* high) {
    widen_range(row, n, low, high);
}
TSDIAG_CLONES void widen(const double* row, Index n, double* low, double* high) {
    widen_range(row, n, low, high);
}

/// bytes[c] = round(above[c] / step), step > 0; returns the sum of |above[c] - step bytes[c]|.
TSDIAG_CLONES double round_to_bytes(const double* above, Index n, double step,
                                    std::uint8_t* bytes) {
    const double inverse = 1 / step;
    double off = 0;
#pragma omp simd reduction(+ : off)
    for (Index c = 0; c < n; ++c) {
        // NOLINTNEXTLINE(bugprone-incorrect-roundings): lround has no vector form; off counts it
        const int near = int(above[c] * inverse + 0.5);
        const int b = near < 255 ? near : 255;
        bytes[c] = std::uint8_t(b);
        off += std::abs(above[c] - step * b);
    }
    return off;
}

template <class T>
double farthest_from(const View& a, Index i, Index& which) {
    double worst = 0;
    for (Index j = 0; j < a.shape.rows; ++j) {
        const double d = distance(a.row<T>(0, i), a.row<T>(0, j), a.shape.cols);
        if (d > worst) worst = d, which = j;
    }
    return worst;
}

/// The rows in bytes, and how far the distance of two rows of bytes may be from theirs.
///
/// Column c of row i is about low_c + step_g b_ic, b_ic in 0 .. 255, with one step for a group of
/// columns of like range.  By the triangle inequality | |a_i - a_j|_1 - sum_g step_g |b_i - b_j|_1
/// | <= off_i + off_j, off_i = |a_i - low - step b_i|_1.  A sum of absolute differences of bytes is
/// one instruction of every x86.
class Bytes {
    static constexpr Index groups = 4, vector = 64;
    /// Relative rounding of the numbers below: `groups` float32 products and sums, and an `off` in
    /// double.
    static constexpr float slack = 4 * (groups + 2) * 0x1p-24F;

  public:
    static constexpr Index tile = 128;  ///< rows that stay in the L2 cache

    template <class T>
    Bytes(const View& a, T) : rows_(a.shape.rows), off_(std::size_t(a.shape.rows)) {
        const Index n = a.shape.cols;
        std::vector<T> low(a.row<T>(0, 0), a.row<T>(0, 0) + n), high = low;
        for (Index i = 1; i < rows_; ++i) widen(a.row<T>(0, i), n, low.data(), high.data());
        std::vector<double> range;
        for (std::size_t c = 0; c < low.size(); ++c)
            range.push_back(double(high[c]) - double(low[c]));
        std::vector<Index> order(low.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::sort(order, {}, [&](Index c) { return range[std::size_t(c)]; });
        unit_ = range[std::size_t(order.back())] / 255;
        if (!usable()) return;
        const Index part = (n + groups * vector - 1) / (groups * vector) * vector;
        for (Index end = part; end - part < n; end += part) {
            const Index last = std::min(end, n) - 1;
            const double step = range[std::size_t(order[std::size_t(last)])] / 255;
            steps_.push_back(std::max(step, unit_ * 0x1p-40));  // its inverse is finite
            narrow_steps_.push_back(float(steps_.back() / unit_));
            ends_.push_back(end);
        }
        stride_ = ends_.back();
        bytes_.assign(std::size_t(rows_ * stride_), 0);
        std::vector<double> above(low.size());
        for (Index i = 0; i < rows_; ++i) {
            const T* row = a.row<T>(0, i);
            for (std::size_t k = 0; k < above.size(); ++k)
                above[k] = double(row[order[k]]) - double(low[std::size_t(order[k])]);
            double off = 0;
            for (Index g = 0, first = 0; first < n; ++g, first += part)
                off += round_to_bytes(above.data() + first, std::min(part, n - first),
                                      steps_[std::size_t(g)], bytes_.data() + i * stride_ + first);
            off_[std::size_t(i)] = float(off / unit_) * (1 + slack);
        }
    }

    /// The rows differ, and no sum of their entries leaves the range of double.
    bool usable() const { return unit_ > 0x1p-900 && unit_ < 0x1p900; }

    /// Calls use(j) for the rows j in [first, last) whose distance from row i may exceed `most`.
    template <class Use>
    void each_beyond(Index i, Index first, Index last, const double& most, const Use& use) const {
        float found[tile];
        kernels::table().byte_distances(row(i), row(first), last - first, stride_, ends_.data(),
                                        narrow_steps_.data(), Index(ends_.size()), found);
        for (Index j = first; j < last; ++j) {
            const float high =
                found[j - first] * (1 + slack) + off_[std::size_t(i)] + off_[std::size_t(j)];
            if (double(high) * (1 + slack) * unit_ >= most) use(j);
        }
    }

  private:
    const std::uint8_t* row(Index i) const { return bytes_.data() + i * stride_; }

    Index rows_, stride_ = 0;
    double unit_ = 0;                  ///< the largest step
    std::vector<double> steps_;        ///< of each group
    std::vector<float> narrow_steps_;  ///< the same in units
    std::vector<Index> ends_;          ///< of each group of columns
    std::vector<float> off_;           ///< in units
    std::vector<std::uint8_t> bytes_;
};

/// Pairs of rows whose distance in bytes tells that they are not the farthest are left out.
template <class T>
double largest_distance(const View& a) {
    const Index m = a.shape.rows, n = a.shape.cols;
    if (m < 2 || n < 1) return 0;
    Index far = 0, other = 0;
    farthest_from<T>(a, 0, far);
    double most = farthest_from<T>(a, far, other);  // close to the largest
    if (most == 0) return 0;                        // all rows are equal
    const Bytes bytes(a, T{});
    if (!bytes.usable()) {
        for (Index i = 0; i < m; ++i) most = std::max(most, farthest_from<T>(a, i, other));
        return most;
    }
    for (Index first = 0; first < m; first += Bytes::tile)
        for (Index i = first + 1; i < m; ++i)
            bytes.each_beyond(i, first, std::min(first + Bytes::tile, i), most, [&](Index j) {
                most = std::max(most, distance(a.row<T>(0, i), a.row<T>(0, j), n));
            });
    return most;
}

}  // namespace

double largest_row_distance(const View& a) {
    return a.type == Type::f32 ? largest_distance<float>(a) : largest_distance<double>(a);
}

}  // namespace tsdiag
