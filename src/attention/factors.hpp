#pragma once
#include <vector>

#include "tsdiag/attention.hpp"

/// Spectra of P = left right^T through matrices of its rank m.
namespace tsdiag::factors {

/// Is the small way worth it: m < n/4, or P of more than `memory` bytes?
bool wanted(const AttentionOperator& p, const Structure& known, double memory);

/// Of each head, P not causal: the non-zero spectrum of P is that of right^T left; of a stochastic
/// P without its eigenvalue 1, that of right^T Pi2 left.  Cost O(n m^2 + m^3).
std::vector<Estimate> second_eigenvalue(const Factors& p, bool stochastic);

/// |Pi2 P|_2 of each head, P not causal: its square is the largest eigenvalue of
/// (left^T Pi2 left) (right^T right).  Cost O(n m^2 + m^3).
std::vector<Estimate> centred_norm(const Factors& p);

/// The diagonal of P of each head.  Cost O(n m).
std::vector<std::vector<double>> diagonals(const Factors& p);

}  // namespace tsdiag::factors
