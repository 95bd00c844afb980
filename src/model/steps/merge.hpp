#pragma once
#include "layer.hpp"

namespace tsdiag::model {

/// x (s, grid, d) -> (s, a quarter of the grid, width).  Throws `UsageError` where the grid of
/// `layer` has an odd side.
Tensor merged(const Tensor& x, const MergeSpec& spec, const MergeWeights& weights, const Grid& grid,
              Index layer);

}  // namespace tsdiag::model
