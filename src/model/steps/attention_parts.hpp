#pragma once
#include "attention.hpp"

namespace tsdiag::model {

/// Inputs of the attention of one layer, for s samples.
struct AttentionParts {
    AttentionInput input;
    Tensor v;                 ///< (s h', m + n, w); over channels V^T, (s h', w, n), as q and k
    Tensor gate;              ///< multiplies the concatenated heads, (s, n, h w); empty: none
    Projections projections;  ///< unless the block is a gated unit; of latent keys q, k and scale
    Tensor x;                 ///< the input of the projections
};
/// Projections of `x`, their norms, activations and positions; keys and values also of `memory`,
/// which may be empty.  Throws `UsageError` for a masked sample of a gated unit, which counts
/// hidden tokens too.
AttentionParts attention_parts(const AttentionSpec& spec, const AttentionWeights& weights,
                               const Batch& batch, const Tensor& x, const Tensor& memory);

}  // namespace tsdiag::model
