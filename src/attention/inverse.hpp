#pragma once
#include "options.hpp"

/// Inverses by iteration.
namespace tsdiag::variants {

/// x + a I of each head.
Tensor plus_identity(const Tensor& x, double a);

/// `steps` steps V <- V (13 I - K V (15 I - K V (7 I - K V))) / 4 from K^T over its largest column
/// sum, that of each head or of all heads of a sample, of which there are `heads`.  k (s heads, m,
/// m), entries >= 0.  Cost: 8 m^3 a step.  [NYSTROM]
Tensor iterated_inverse(const Tensor& k, Index steps, Index heads, bool each_head);
/// `steps` steps of that iteration for k (h, m, m) with entries of any sign, from k^T over its
/// largest sum of moduli of a column and that of a row, of each head: |k V - I|_2 < 1 where k is
/// regular.  c k has V / c.  Cost: 8 m^3 a step.
Tensor iterated_signed_inverse(const Tensor& k, Index steps);

/// FLOPs of either, of one k.
constexpr double inverse_flops(Index m, Index steps) {
    return 4 * double(steps) * product_flops(m, m, m);
}

}  // namespace tsdiag::variants
