#include "convolution.hpp"

#include <cmath>

#include "linear.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

/// What entry `tap` of a kernel of `side` rows meets at each place of the output: rows of x, zeros
/// beyond the border.
class Taps {
  public:
    Taps(const Tensor& x, const Grid& grid, Index side, Index stride)
        : samples_(x.batch()),
          grid_(grid),
          out_{(grid.rows + stride - 1) / stride, (grid.cols + stride - 1) / stride},
          side_(side),
          stride_(stride) {
        check(x.rows() == grid.count(), "a token for each place of the grid");
        const Index rows = samples_ * x.rows();
        table_ = concat_rows({contiguous(x).reshape({1, rows, x.cols()}),
                              zeros(x.backend(), {1, 1, x.cols()}, x.type())});
    }

    Tensor at(Index tap) const {
        const Index down = tap / side_ - side_ / 2, right = tap % side_ - side_ / 2;
        const Index beyond = samples_ * grid_.count();
        std::vector<Index> rows;
        rows.reserve(std::size_t(samples_ * out_.count()));
        for (Index s = 0; s < samples_; ++s)
            for (Index i = 0; i < out_.rows; ++i)
                for (Index j = 0; j < out_.cols; ++j) {
                    const Index y = i * stride_ + down, x = j * stride_ + right;
                    const bool inside = y >= 0 && y < grid_.rows && x >= 0 && x < grid_.cols;
                    rows.push_back(inside ? s * grid_.count() + y * grid_.cols + x : beyond);
                }
        return gather_rows(table_, rows).reshape({samples_, out_.count(), table_.cols()});
    }

  private:
    Index samples_;
    Grid grid_, out_;
    Index side_, stride_;
    Tensor table_;
};

}  // namespace

BatchNorm load_batch_norm(const Weights& weights, const std::string& stem) {
    return {weights.get(stem + ".weight"), weights.get(stem + ".bias"), weights.get(stem + ".mean"),
            weights.get(stem + ".variance")};
}

Tensor batch_norm(const Tensor& x, const BatchNorm& norm, double eps) {
    const Tensor deviation = map(Unary::sqrt, affine(norm.variance, 1, eps));
    return add(multiply(subtract(x, norm.mean), divide(norm.weight, deviation)), norm.bias);
}

Grid halved(const Grid& grid) { return {(grid.rows + 1) / 2, (grid.cols + 1) / 2}; }

Tensor convolve_by_two(const Tensor& x, const Tensor& weight, const Grid& grid) {
    constexpr Index side = 3, taps = side * side;
    const Taps seen(x, grid, side, 2);
    std::vector<Tensor> columns;
    for (Index tap = 0; tap < taps; ++tap) columns.push_back(seen.at(tap));
    const Index out = weight.rows(), in = x.cols();
    const Tensor by_tap = transpose(contiguous(weight).reshape({out, in, taps}));  // (out, 9, in)
    return linear(concat_cols(columns), contiguous(by_tap).reshape({1, out, taps * in}), {});
}

Tensor convolve_channels(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Grid& grid) {
    const auto side = Index(std::llround(std::sqrt(double(weight.cols()))));
    check(side * side == weight.cols() && side % 2 == 1, "a square kernel with a middle");
    const Taps seen(x, grid, side, 1);
    const Tensor by_tap = transpose(weight);  // (1, k^2, c)
    Tensor sum = bias;
    for (Index tap = 0; tap < weight.cols(); ++tap)
        sum = add(multiply(seen.at(tap), by_tap.row_range(tap, 1)), sum);
    return sum;
}

}  // namespace tsdiag::model
