#pragma once
#include "layer.hpp"

namespace tsdiag::model {

/// What the attention of one layer is made of, of s samples.
struct AttentionParts {
    AttentionInput input;
    Tensor v;                 ///< (s h', n, w)
    Tensor gate;              ///< heads side by side are multiplied by it, (s, n, h w); empty: none
    Projections projections;  ///< unless the block is a gated unit
    Tensor x;                 ///< what the projections act on
};
/// Projections of `x`, their norms, activations and positions.  Throws `UsageError` for a masked
/// sample of a gated unit, which counts hidden tokens too.
AttentionParts attention_parts(const AttentionSpec& spec, const AttentionWeights& weights,
                               const Batch& batch, const Tensor& x);

}  // namespace tsdiag::model
