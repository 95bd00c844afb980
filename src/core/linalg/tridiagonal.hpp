#pragma once
#include <span>

#include "tsdiag/tensor.hpp"

/// Eigenvalues of a symmetric tridiagonal matrix T by bisection with Sturm sequences.
namespace tsdiag::tridiagonal {

/// The k-th largest eigenvalue, k = 0, 1, ...; `off` has one element less than `diagonal`.
double eigenvalue(std::span<const double> diagonal, std::span<const double> off, Index k);

/// |last component| of the unit eigenvector of an extreme eigenvalue.
double last_component(std::span<const double> diagonal, std::span<const double> off, double theta);

}  // namespace tsdiag::tridiagonal
