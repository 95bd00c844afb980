#pragma once
#include <vector>

#include "tsdiag/attention.hpp"

/// Spectra of P = left right^T through matrices of its rank m.
namespace tsdiag::factors {

/// Whether the factors are worth using: m < n/4.
bool wanted(const Structure& known);

/// Of each head, P not causal: the non-zero spectrum of P is that of right^T left; of a stochastic
/// P without its eigenvalue 1, that of right^T Pi2 left.  Cost O(n m^2 + m^3).
std::vector<Estimate> second_eigenvalue(const Factors& p, bool stochastic,
                                        double accuracy = usual_accuracy);

/// |Pi2 P|_2 of each head, P not causal: its square is the largest eigenvalue of
/// (left^T Pi2 left) (right^T right).  Cost O(n m^2 + m^3).
std::vector<Estimate> centred_norm(const Factors& p, double accuracy = usual_accuracy);

/// Sums over all rows of each head, causal: of the lower triangle.  The derivative, where `slope`,
/// is that of P_ij = S_ij / z_i with 1/z = inverse (h, n, 1), or of P = S where that is empty.
/// Cost O(n m^2).
RowTotals row_totals(const Factors& p, bool causal, bool slope, const Tensor& inverse);

/// |Pi2 P|_2 of each head, P the lower triangle: Golub-Kahan on products by prefix sums, each of
/// cost O(n m).
std::vector<Estimate> causal_centred_norm(const Factors& p, double tolerance, Index products);

/// The diagonal of P of each head.  Cost O(n m).
std::vector<std::vector<double>> diagonals(const Factors& p);

}  // namespace tsdiag::factors
