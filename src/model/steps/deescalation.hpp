#pragma once
#include "tsdiag/model.hpp"

namespace tsdiag::model {

/// x - tau mean of x, of all tokens or of those up to each; `tau` (1, 1, 1) where it is learned.
Tensor deescalated(const Deescalation& spec, const Tensor& tau, const Tensor& x);

}  // namespace tsdiag::model
