#include "rounded_product.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu_kernels.hpp"
#include "onednn.hpp"

namespace tsdiag {
namespace {

/// Rows of a job: the panel's rounding costs 6 % of a job of so many (16e9 numbers and 225e9
/// operations a second of a Zen 4 core).
constexpr Index rows_of_job = 128;
/// Numbers of a panel, 2 MB; of a block of rows at most as many, since longer sums are made in
/// parts.
constexpr Index panel = Index{1} << 20;

constexpr Index parts(Index count, Index size) { return (count + size - 1) / size; }

/// factor times `rows` rows of `cols` numbers, rounded, one behind another.
const std::uint16_t* rounded(std::vector<std::uint16_t>& out, const float* a, Index stride,
                             Index rows, Index cols, float factor) {
    out.resize(std::max(out.size(), std::size_t(rows * cols)));
    for (Index r = 0; r < rows; ++r)
        kernels::table().bfloat16(a + r * stride, factor, out.data() + r * cols, cols);
    return out.data();
}

}  // namespace

RoundedProduct::RoundedProduct(const MatrixProduct& product, float alpha)
    : of_(product),
      alpha_(alpha),
      depth_(std::min(of_.inner, panel / rows_of_job)),
      shared_(of_.a.shape.batch / of_.b.shape.batch),
      together_(std::min(shared_, parts(rows_of_job, of_.out.shape.rows))),
      rows_(std::min(of_.out.shape.rows, rows_of_job)),
      cols_(std::min(of_.out.shape.cols, panel / depth_ / 64 * 64)),
      groups_(of_.b.shape.batch * parts(shared_, together_)),
      down_(parts(of_.out.shape.rows, rows_)),
      across_(parts(of_.out.shape.cols, cols_)) {}

void RoundedProduct::make(Index job) const {
    const Index group = job / (down_ * across_), at = job % (down_ * across_);
    const Index i = at / across_ * rows_, j = at % across_ * cols_;
    onednn::Sizes s{of_.first, of_.second, std::min(rows_, of_.out.shape.rows - i),
                    std::min(cols_, of_.out.shape.cols - j)};
    const Index of_b = parts(shared_, together_), batch = group / of_b;
    const Index begin = batch * shared_ + group % of_b * together_;
    const Index end = std::min(begin + together_, (batch + 1) * shared_);

    thread_local std::vector<std::uint16_t> left, right;
    for (Index k = 0; k < of_.inner; k += depth_) {
        s.k = std::min(depth_, of_.inner - k);
        const float* b = of_.b.row<float>(batch, 0) +
                         (of_.second ? j * of_.b.row_stride + k : k * of_.b.row_stride + j);
        rounded(right, b, of_.b.row_stride, of_.second ? s.n : s.k, of_.second ? s.k : s.n, 1);
        for (Index sample = begin; sample < end; ++sample) {
            const float* a = of_.a.row<float>(sample, 0) +
                             (of_.first ? k * of_.a.row_stride + i : i * of_.a.row_stride + k);
            rounded(left, a, of_.a.row_stride, of_.first ? s.k : s.m, of_.first ? s.m : s.k,
                    alpha_);
            onednn::multiply(s, left.data(), right.data(), of_.out.row<float>(sample, i) + j,
                             of_.out.row_stride, k > 0);
        }
    }
}

}  // namespace tsdiag
