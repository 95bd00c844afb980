#pragma once
#include <memory>

#include "options.hpp"

/// Base of every attention that is a product of tall matrices and is never materialised.
namespace tsdiag::variants {

struct FactorRule {
    /// Each row is divided by its sum z.  The sum is taken in double, once.
    bool divide = false;
    double floor = 0;  ///< added to each column sum of right before
    double least = 0;  ///< a smaller sum is replaced by it
    /// left and right are >= 0: then a row whose sum is 0 is a row of zeros.
    bool nonnegative = false;
    /// The reason where there are no logits S = left right^T with a(S) = S.
    std::string_view why_no_slope = {};
};

/// P = left right^T, causal: its lower triangle.  left (h, n, m), right (h', n, m), h' divides h.
///
/// P v and P^T w cost O(n m c) where no rows are needed; causal: by prefix sums.  Throws
/// `NonFiniteError` where features of either sign sum to 0 in a row to be divided by that sum.
std::unique_ptr<AttentionOperator> factored_attention(const AttentionEntry& entry, Tensor left,
                                                      Tensor right, bool causal,
                                                      const FactorRule& rule);

}  // namespace tsdiag::variants
