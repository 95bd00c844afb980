#pragma once
#include <functional>
#include <vector>

#include "layer.hpp"

/// The feed-forward step of a layer: one FFN, or a mixture of experts.
namespace tsdiag::model {

/// act(gate x) * up x, clipped where `limit` says so, or act(up x) where it is not gated.
Tensor inner_state(const FeedForwardSpec& spec, const FeedForwardMaps& maps, const Tensor& x);
/// down(inner state).
Tensor apply_maps(const FeedForwardSpec& spec, const FeedForwardMaps& maps, const Tensor& x);

/// Experts of each token in turn, most probable first.
using Choices = std::vector<Index>;
/// Receives p, (1, n, E), and the choices of each sample.
using TellRouting = std::function<void(Index sample, const Tensor& p, const Choices& chosen)>;
/// The mixture of ExpertsSpec, x (s, n, d).  Only experts that some token chose are read.  Each
/// sample is routed alone, so that its numbers do not depend on the batch.  The choice itself has
/// no derivative.  Cost of a token: that of the chosen experts.
Tensor mixture(const FeedForwardSpec& spec, const FeedForwardWeights& weights, const Tensor& x,
               const TellRouting& tell);

}  // namespace tsdiag::model
