#pragma once
#include <span>
#include <vector>

#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::spectra {
struct Problem;
}

/// Spectral radii by repeated squaring: products of whole stacks, with only two numbers per matrix
/// transferred to the host.
namespace tsdiag::squaring {

/// Beyond, s n^3 products cost more than Krylov's m n^2.
constexpr Index largest = 1024;

/// The spectral radius rho of each matrix A of a stack, (h, n, n) in float64, of rank < n (as a
/// centred one has).  Gelfand's formula with k = 2^s, s = 0, 1, ...:
///
///     (|tr A^k| / (n - 1))^(1/k) <= rho <= |A^k|_F^(1/k)
///
/// until the bracket is narrower than accuracy/1000.  Rounding is not in the bracket, and where A
/// is far from normal it breaks it; the first-order guard
///
///     |A^k|_F / |tr A^k| 2^-53 sqrt(n) max_j 2^-(j+1) (|A^(2^j)|_F / rho^(2^j))^2
///
/// must be below accuracy/10, else `converged` is false and the bracket is all that is known.
/// Method "squaring", `residual` the width of the bracket, `iterations` the squarings. Cost 2 n^3 a
/// squaring and matrix, some 32 of them; memory 3 stacks.
///
/// `errors`: of each A, the 2-norm of what may be wrong with it; times the estimate |A^k|_F / |tr
/// A^k| of the condition number it is part of the guard.
std::vector<Estimate> spectral_radii(Tensor a, double accuracy = usual_accuracy,
                                     std::span<const double> errors = {});

/// Whether it is the method for the heads of a problem.
bool applies(const spectra::Problem& problem);

/// |lambda_2| of each row-stochastic P, (h, n, n): the spectral radius of Pi2 P Pi2.  `errors`:
/// those of its means.
std::vector<Estimate> second_eigenvalue(const Tensor& p, double accuracy = usual_accuracy,
                                        std::span<const double> errors = {});
/// |Pi2 P|_2 of each P, (h, n, n): the root of the spectral radius of (Pi2 P)^T (Pi2 P).
std::vector<Estimate> centred_norm(const Tensor& p, double accuracy = usual_accuracy,
                                   std::span<const double> errors = {});

}  // namespace tsdiag::squaring
