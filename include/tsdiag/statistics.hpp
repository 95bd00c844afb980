#pragma once
#include <vector>

#include "tsdiag/tensor.hpp"

/// Results of one pass over rows of matrices P, or over a state X.
namespace tsdiag {

/// The columns that a row may see: [first[i], last[i]) for row i of a block; the same for all
/// matrices. Empty vectors: everything.  Causal, windowed and block-diagonal ones are of this kind.
struct Visible {
    std::vector<Index> first, last;
    bool everything() const { return first.empty(); }
};

/// Sums of squares of doubles, without overflow or underflow.
using Wide = long double;

/// Of rows of each P; vectors are (heads * rows), head-major.  Restricted to the visible columns
/// (outside them P is 0).
///
/// `folded`: one number a head in place of its rows, their sum; of `sum` that farthest from 1, NaN
/// before all; of `jacobian_max` the largest.  `diagonal` and `window` are as they were.
struct RowStatistics {
    bool folded = false;
    Index heads = 0, rows = 0;
    Index first = 0, n = 0;            ///< row i has its own token in column first + i of n
    std::vector<double> sum, modulus;  ///< sum_j P_ij, sum_j |P_ij|
    std::vector<double> negative;      ///< sum over negative entries of |P_ij|
    std::vector<Wide> squares;         ///< sum_j P_ij^2
    std::vector<double> entropy;       ///< -sum_j P_ij log P_ij over positive entries, nats
    std::vector<double> max_modulus;   ///< max_j |P_ij|
    std::vector<double> diagonal;      ///< P_i,first+i
    std::vector<Wide> jacobian;        ///< |dP_i/dS_i|_F^2; empty where there is no slope
    std::vector<double> jacobian_max;  ///< max_{j,k} |dP_ij/dS_ik|; empty where there is no slope
    /// (heads, n): sum over the rows of what a window of L columns around column i, shifted at a
    /// border, gains when it grows to L + 1, L = 0 .. n-1.  Windows are nested.
    std::vector<double> window;

    Index numbers() const { return folded ? 1 : rows; }  ///< a head
};
/// Folds them.
RowStatistics fold(const RowStatistics& rows);

/// Sums over the elements of a state X (n x d).  [TSE] Def. 1.1, (1)
struct StateMoments {
    Index n = 0, d = 0;
    Wide squared = 0;       ///< |X|_F^2
    Wide mean_part = 0;     ///< |Pi1 X|_F^2 = |column sums|^2 / n
    Wide centred = 0;       ///< |Pi2 X|_F^2, from the centred rows
    double unit_sum = 0;    ///< |sum_i x_i / |x_i||^2
    bool zero_row = false;  ///< some row is 0: unit_sum is undefined
    double least_row = 0;   ///< min_i |x_i|^2 as a double, may underflow or overflow
};

}  // namespace tsdiag
