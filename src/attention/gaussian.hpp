#pragma once
#include "options.hpp"

/// The Gaussian kernel exp(-scale |q - k|^2 / 2).  [SKYFORMER]
namespace tsdiag::variants {

/// Shifts queries and keys by the first key of each head.  No distance changes, and the common part
/// of all tokens no longer cancels in |q|^2 - 2 q k + |k|^2.  Throws `UsageError` where the scale
/// is not positive.
void move_to_first_key(const AttentionEntry& entry, AttentionInput& in);

/// (x, |x|^2/2, 1) and (-x, 1, |x|^2/2): the product of a row of each is |q - k|^2 / 2.
Tensor as_queries(const Tensor& x);
Tensor as_keys(const Tensor& x);

/// Columns of either, of an x of w columns.
constexpr Index columns_of_gaussian(Index w) { return w + 2; }

/// -d, clamped to at most 0 against rounding of d >= 0.
Tensor exponent(const Tensor& d);

/// exp(-scale |a_i - b_j|^2 / 2).  a (h, n, w), b (h, m, w) -> (h, n, m).
Tensor gaussian(const Tensor& a, const Tensor& b, double scale);

}  // namespace tsdiag::variants
