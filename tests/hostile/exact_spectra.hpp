#pragma once
#include <algorithm>
#include <optional>

#include "support/naive.hpp"

/// The spectral numbers of a small matrix from its entries as exact numbers, by 100 digits and
/// more: an oracle for what the library certifies.  It shares no code with the library.
namespace tsdiag::test {

/// A number for which there is more than one reading where rows sum to 1 only up to rounding: the
/// least and the largest of them.  Each is right to some 1e-13, and 0 only where it is exactly 0.
struct Readings {
    double least = 0, largest = 0;
    double spread() const { return largest > 0 ? (largest - least) / largest : 0; }
};

/// |lambda_2|.  `stochastic`: the spectral radius of Pi2 P Pi2, and the second largest modulus of
/// P: equal where rows sum to 1 exactly.  Else the second largest modulus of P alone.  None where
/// 800 digits do not settle it.
std::optional<Readings> exact_second(const naive::Matrix& p, bool stochastic);

/// |Pi2 P|_2
double exact_delta(const naive::Matrix& p);

/// |P - 1 pi^T| in l2(pi).  Where rows do not sum to 1 exactly: for pi the stationary vector of P
/// with a diagonal that makes them do so, or the left Perron vector of P, and of P - 1 pi^T, or (I
/// - 1 pi^T) P.  None where pi is not unique or not positive, by the zeros of P.
struct ExactContraction {
    Readings norm;
    double log10_least = 0;  ///< of the least entry of pi
};
std::optional<ExactContraction> exact_contraction(const naive::Matrix& p);

/// 1/2 max_ij sum_k |P_ik - P_jk|
double exact_dobrushin(const naive::Matrix& p);

/// Whether all rows sum to exactly 1.
bool sums_to_one(const naive::Matrix& p);

}  // namespace tsdiag::test
