#pragma once
#include <optional>
#include <span>
#include <vector>

#include "trace.hpp"

namespace tsdiag {

/// How far P of a layer, as it is stored, is from what the queries and keys beside it give.
struct MapFit {
    Index layer = 0;
    Index sample = 0;    ///< the one that is farthest apart, counted over the batches
    double apart = 0;    ///< the largest |P_ij - softmax(scale q k^T)_ij|, causal or not
    double allowed = 0;  ///< by the rounding of the arrays
    double scale = 0;    ///< of the logits
    bool fits() const { return apart <= allowed; }
};

/// The fit of each layer that has `attentions.L` and `queries.L`: some rows of some heads of every
/// sample of these batches, of the tokens that `masks` keep, one a sample, or else the masks of the
/// traces.  Without a `scale`: the nearer of 1/sqrt(columns of a head) and 1, as of queries that
/// are scaled already.  A layer without finite rows has none.  Cost: a pass over the keys of these
/// heads.
std::vector<MapFit> map_fits(std::span<const SavedTrace> batches, std::optional<double> scale,
                             const std::vector<std::vector<bool>>& masks);

}  // namespace tsdiag
