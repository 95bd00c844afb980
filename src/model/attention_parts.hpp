#pragma once
#include "layer.hpp"

namespace tsdiag::model {

/// What the attention of one layer is made of.
struct AttentionParts {
    AttentionInput input;
    Tensor v;                 ///< (h', n, w)
    Tensor gate;              ///< heads side by side are multiplied by it, (1, n, h w); empty: none
    Projections projections;  ///< unless the block is a gated unit
    Tensor x;                 ///< what the projections act on
};
/// Projections of `x`, their norms, activations and positions.  Throws `UsageError` for a masked
/// sample of a gated unit, which counts hidden tokens too.
AttentionParts attention_parts(const BlockSpec& block, const LayerWeights& weights,
                               const Sample& sample, const Tensor& x);

}  // namespace tsdiag::model
