#pragma once
#include <vector>

#include "convolution.hpp"
#include "tsdiag/spec.hpp"

/// Windows of a grid of patches.  [SWIN]
namespace tsdiag::model {

/// The tokens of a grid in the order of their windows.
struct Partition {
    std::vector<Index> order, back;  ///< of each new token its old one, and the reverse
    std::vector<Index> ends, place;  ///< as of Windows
};
/// Throws `UsageError` where the windows do not divide the grid of `layer`.
Partition partition(const WindowSpec& windows, const Grid& grid, Index layer);

}  // namespace tsdiag::model
