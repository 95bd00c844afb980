#include "rounded_product.hpp"

#include <algorithm>

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

RoundedProduct::RoundedProduct(View out, View a, View b, Transpose t, float alpha)
    : out_(out),
      a_(a),
      b_(b),
      first_(t == Transpose::first),
      second_(t == Transpose::second),
      alpha_(alpha),
      inner_(first_ ? a.shape.rows : a.shape.cols),
      depth_(std::min(inner_, panel / rows_of_job)),
      shared_(a.shape.batch / b.shape.batch),
      together_(std::min(shared_, parts(rows_of_job, out.shape.rows))),
      rows_(std::min(out.shape.rows, rows_of_job)),
      cols_(std::min(out.shape.cols, panel / depth_ / 64 * 64)),
      groups_(b.shape.batch * parts(shared_, together_)),
      down_(parts(out.shape.rows, rows_)),
      across_(parts(out.shape.cols, cols_)) {}

void RoundedProduct::make(Index job) const {
    const Index group = job / (down_ * across_), at = job % (down_ * across_);
    const Index i = at / across_ * rows_, j = at % across_ * cols_;
    onednn::Sizes s{first_, second_, std::min(rows_, out_.shape.rows - i),
                    std::min(cols_, out_.shape.cols - j)};
    const Index of_b = parts(shared_, together_), batch = group / of_b;
    const Index begin = batch * shared_ + group % of_b * together_;
    const Index end = std::min(begin + together_, (batch + 1) * shared_);

    thread_local std::vector<std::uint16_t> left, right;
    for (Index k = 0; k < inner_; k += depth_) {
        s.k = std::min(depth_, inner_ - k);
        const float* b =
            b_.row<float>(batch, 0) + (second_ ? j * b_.row_stride + k : k * b_.row_stride + j);
        rounded(right, b, b_.row_stride, second_ ? s.n : s.k, second_ ? s.k : s.n, 1);
        for (Index sample = begin; sample < end; ++sample) {
            const float* a =
                a_.row<float>(sample, 0) + (first_ ? k * a_.row_stride + i : i * a_.row_stride + k);
            rounded(left, a, a_.row_stride, first_ ? s.k : s.m, first_ ? s.m : s.k, alpha_);
            onednn::multiply(s, left.data(), right.data(), out_.row<float>(sample, i) + j,
                             out_.row_stride, k > 0);
        }
    }
}

}  // namespace tsdiag
