#pragma once
#include <span>
#include <vector>

#include "stored.hpp"

/// Products by blocks of rows of all heads: of a P too large to keep, computed and dropped; of a P
/// that is kept, in place.  The members of its team, where it has one, share the panels; threads
/// have heads of their own, or, where these are fewer, share each head by rows and columns.  No bit
/// depends on either.
namespace tsdiag::streamed {

/// Vectors are concatenated over heads: heads * n numbers.  Each product reads P once, or computes
/// it.
class Rows {
  public:
    /// Blocks of as many rows as `memory` bytes and the cache allow.  `kept`: P is read from
    /// memory.
    Rows(const AttentionOperator& p, double memory, bool kept);

    void multiply(std::span<const double> x, std::span<double> y) const;
    /// y = (Pi2 P)^T (Pi2 P) x.  The first call computes P once more, for its column sums.
    /// Where `also` is given, image = P also in the same pass, P square.
    void centred_normal(std::span<const double> x, std::span<double> y,
                        std::span<const double> also = {}, std::span<double> image = {}) const;
    /// Of each head an upper bound of |Pi2 P|_2, or of |P|_2: the Frobenius norm.
    std::vector<double> norm_bounds(bool centred) const;
    /// P_ii of each head.
    std::vector<std::vector<double>> diagonals() const;

  private:
    /// use(head, its rows first, ..., first + count - 1), of the columns that some row sees.
    template <class Use>
    void in_block(Index first, Index count, const Use& use) const;
    void sum_columns() const;

    const AttentionOperator& p_;
    Tensor whole_;  ///< P, where it is kept
    Index block_;
    mutable std::vector<double> column_;  ///< P^T 1 of each head
};

}  // namespace tsdiag::streamed
