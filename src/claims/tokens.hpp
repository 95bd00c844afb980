#pragma once
#include "bound.hpp"

/// Statements about tokens X that are drawn.
namespace tsdiag::claim {

/// X of n x d.
Variables draw_tokens(const Rng& rng, const Sizes& at, Distribution distribution);
/// What n d additions and some products can be off by, as part of the result.
double rounding_of(const Matrix& x);
/// An equation about X.
Bound token_equation(std::string reading, std::string formula,
                     std::optional<Sides> (*sides)(const Variables&));

}  // namespace tsdiag::claim
