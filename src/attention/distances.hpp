#pragma once
#include <functional>
#include <vector>

#include "options.hpp"

/// Terms of logits by how far apart two tokens are.
namespace tsdiag::variants {

/// A table has a row for each distance i - j, or each class of distances, of query i and key j.
class Distances {
  public:
    /// `row`: of the table, for a distance between two tokens of the input.
    Distances(const AttentionInput& input, const std::function<Index(Index distance)>& row);

    /// Those rows of the table that occur, ascending, at most 2 n - 1.
    const std::vector<Index>& rows() const { return rows_; }

    // Below, r is the place of row(i - j) among rows(), i one of [first, first + count).

    /// t_r of each head: t (1, rows, h) -> (h, count, n).
    Tensor of_table(const Tensor& t, Index first, Index count) const;
    /// x_ir of each head: x (h, count, rows) -> (h, count, n).
    Tensor of_queries(const Tensor& x, Index first, Index count) const;
    /// y_jr of each head: y = by_columns of (h, n, rows) -> (h, count, n).
    Tensor of_keys(const Tensor& y, Index first, Index count) const;
    /// (h, r, c) -> (1, r c, h).
    static Tensor by_columns(const Tensor& x);

  private:
    Index place(Index i, Index j) const;

    std::vector<Index> at_;     ///< position of each token
    std::vector<Index> rows_;   ///< of the table
    std::vector<Index> place_;  ///< of the row of distance t at t + the longest distance
};

}  // namespace tsdiag::variants
