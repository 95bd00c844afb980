#pragma once
#include "layer.hpp"

namespace tsdiag::model {

/// scale * conv2(batch norm(act(conv1(x)))), x (s, patches of `grid`, d) behind its norm.
Tensor interact(const LocalSpec& spec, const LocalWeights& weights, const Tensor& x,
                const Grid& grid);

}  // namespace tsdiag::model
