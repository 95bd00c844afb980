#pragma once
#include <complex>
#include <span>
#include <vector>

#include "hessenberg.hpp"

/// Intervals that hold against exact arithmetic, of eigenvalue moduli of one matrix.
namespace tsdiag::inclusion {

/// A = Q H Q^T, H upper Hessenberg, Q a product of reflections 1 - tau v v^T.
struct Reduced {
    Index n = 0;
    std::vector<double> h;    ///< row-major
    std::vector<double> v;    ///< row k is the k-th v, 0 up to column k
    std::vector<double> tau;  ///< n - 2
};

struct Interval {
    double low = 0, high = 0;
};

/// An interval that contains the `rank`-th largest modulus of the eigenvalues of every matrix
/// within `error`, in the 2-norm, of the row-major n x n matrix A.  `values`: its eigenvalues as
/// computed, in any order; wrong ones widen the interval, and nothing else.  [0, |A|_F + error]
/// where no more can be said.
///
/// With an orthogonal Q whose first k columns span (nearly) the left invariant subspace of the k
/// leading eigenvalues, Q^T A Q = [M, E; G, C] and E is only rounding.  A matrix H > 0 with
/// H - (C/c)^T H (C/c) >= s > 0 (Stein; checked by Cholesky) shows that all eigenvalues of C are
/// below c and |(z - C)^-1| <= 2 |H| / (c s) outside that circle.  So exactly k eigenvalues of A
/// are there, and they are those of M perturbed by at most |E| |G| 2 |H| / (c s): Bauer and Fike's
/// theorem with the eigenvectors of M, or Elsner's, gives their discs.  Cost about 60 n^3.
Interval modulus(std::span<const double> a, const Reduced& reduced,
                 std::vector<std::complex<double>> values, Index rank, double error,
                 double accuracy);

}  // namespace tsdiag::inclusion
