#pragma once
#include <vector>

#include "tsdiag/ops.hpp"

/// Stacks of centred matrices, by ops on any backend.
namespace tsdiag::centred {

/// |A|_F^2 of each matrix of a stack, (h, 1, 1).
Tensor squares(const Tensor& a);
/// One factor per matrix.
Tensor times(const Tensor& a, const std::vector<double>& factors);

/// Pi2 P and Pi2 P Pi2 of each head, in float64; 0 where only rounding of P is left.
Tensor columns(const Tensor& p);
Tensor both(const Tensor& p);

}  // namespace tsdiag::centred
