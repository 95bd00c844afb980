#pragma once
#include <optional>

#include "variables.hpp"

/// Matrices whose rows, or rows and columns, sum to one, from unconstrained numbers.
namespace tsdiag::claim {

/// diag(x) exp(L + L^T) diag(x) with x > 0 and rows that sum to 1: symmetric, and so doubly
/// stochastic.  nullopt where rounding prevents the row sums.  L: n x n.  O(n^3) a step of Newton's
/// method on the convex 1/2 sum_ij exp(K_ij + y_i + y_j) - sum_i y_i, y = log x.
std::optional<Matrix> symmetric_stochastic(const Matrix& L);
/// diag(x) exp(L) diag(y) with rows and columns that sum to 1; nullopt as above.
std::optional<Matrix> doubly_stochastic(const Matrix& L);

/// Violation by P of row sums of 1 and entries of at least 0.
double stochastic_miss(const Matrix& P);
/// Violation by P of row and column sums of 1 and of entries of at least 0.
double doubly_stochastic_miss(const Matrix& P);

}  // namespace tsdiag::claim
