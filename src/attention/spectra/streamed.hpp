#pragma once
#include <span>
#include <vector>

#include "stored.hpp"

/// Products with a P too large to keep: blocks of rows of all heads, computed and dropped.
namespace tsdiag::streamed {

/// Vectors are concatenated over heads: heads * n numbers.  Each product computes P once.
class Rows {
  public:
    /// Blocks of as many rows as `memory` bytes and the cache allow.
    Rows(const AttentionOperator& p, double memory);

    void multiply(std::span<const double> x, std::span<double> y) const;
    /// y = (Pi2 P)^T (Pi2 P) x.  The first call computes P once more, for its column sums.
    void centred_normal(std::span<const double> x, std::span<double> y) const;
    /// |Pi2 P|_F of each head.
    std::vector<double> centred_frobenius() const;
    /// P_ii of each head.
    std::vector<std::vector<double>> diagonals() const;

  private:
    template <class Use>
    void each_block(const Use& use) const;
    void sum_columns() const;

    const AttentionOperator& p_;
    Index block_;
    mutable std::vector<double> column_;  ///< P^T 1 of each head
};

}  // namespace tsdiag::streamed
