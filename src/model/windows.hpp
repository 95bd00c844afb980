#pragma once
#include <vector>

#include "convolution.hpp"
#include "linear.hpp"
#include "norm.hpp"

/// Windows of a grid of patches, and the merging of its patches.  [SWIN]
namespace tsdiag::model {

/// The tokens of a grid in the order of their windows.
struct Partition {
    std::vector<Index> order, back;  ///< of each new token its old one, and the reverse
    std::vector<Index> ends, place;  ///< as of Windows
};
/// Throws `UsageError` where the windows do not divide the grid of `layer`.
Partition partition(const WindowSpec& windows, const Grid& grid, Index layer);

/// These rows of every sample of x (s, n, d).
Tensor rows_of_each(const Tensor& x, const std::vector<Index>& rows);

/// The norm and the map of a patch merging.
struct MergeWeights {
    Norm norm;
    Linear map;
};
/// x (s, grid, d) -> (s, a quarter of the grid, width).  Throws `UsageError` where the grid of
/// `layer` has an odd side.
Tensor merged(const Tensor& x, const MergeSpec& spec, const MergeWeights& weights, const Grid& grid,
              Index layer);

}  // namespace tsdiag::model
