#pragma once
#include <complex>
#include <optional>
#include <vector>

#include "tsdiag/backend.hpp"

/// Dense eigenvalue problems of one n x n matrix on the selected device, by cuSOLVER.  Matrices are
/// contiguous and in float64.  The library is column-major, so it sees transposes, which have the
/// same eigenvalues and the same condition numbers.  Throws `OutOfMemory`, and `NotAvailable` where
/// the library is not installed.
namespace tsdiag::gpu {

/// Bytes on the device that each of the functions below takes at most beside a, a copy of it
/// included.  Opens the library.
std::size_t workspace(Index n);

/// Overwrite a.  None where the library's iteration did not converge.
std::optional<std::vector<std::complex<double>>> eigenvalues(double* a, Index n);
std::optional<std::vector<double>> symmetric_eigenvalues(double* a, Index n);

/// By inverse iteration with a complex LU factorisation of A - theta, two steps to either side.
/// `norm`: |A|_F.
Sensitivity sensitivity(const double* a, Index n, std::complex<double> theta, double norm);

}  // namespace tsdiag::gpu
