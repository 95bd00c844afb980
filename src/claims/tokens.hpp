#pragma once
#include "bound.hpp"

/// Statements about drawn tokens X.
namespace tsdiag::claim {

/// X of n x d.
Variables draw_tokens(const Rng& rng, const Sizes& at, Distribution distribution);
/// Relative rounding error of n d additions and some products.
double rounding_of(const Matrix& x);
/// An equation about X.
Bound token_equation(std::string reading, std::string formula,
                     std::optional<BoundSides> (*sides)(const Variables&));

}  // namespace tsdiag::claim
