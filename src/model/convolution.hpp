#pragma once
#include <string>

#include "tsdiag/weights.hpp"

/// Convolutions over an image whose pixels, or patches, are the rows of a tensor.
namespace tsdiag::model {

/// Rows of an image, one below the other.
struct Grid {
    Index rows = 0, cols = 0;
    Index count() const { return rows * cols; }
};

/// A batch norm in inference.
struct BatchNorm {
    Tensor weight, bias, mean, variance;
};
/// `stem`.weight, .bias, .mean and .variance.
BatchNorm load_batch_norm(const Weights& weights, const std::string& stem);
/// (x - mean) / sqrt(variance + eps) * weight + bias of each column.
Tensor batch_norm(const Tensor& x, const BatchNorm& norm, double eps);

/// A 3 x 3 convolution of stride 2, zeros beyond the border: x (s, grid, c) -> (s, half the grid,
/// out), weight (1, out, 9 c) as `nn.Conv2d` stores it.  Halves round up.
Tensor convolve_by_two(const Tensor& x, const Tensor& weight, const Grid& grid);
Grid halved(const Grid& grid);

/// A depthwise convolution of stride 1, zeros beyond the border: weight (1, c, k^2), k odd, bias
/// (1, 1, c).
Tensor convolve_channels(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Grid& grid);

}  // namespace tsdiag::model
