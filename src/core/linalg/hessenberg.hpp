#pragma once
#include <complex>
#include <functional>
#include <vector>

#include "tsdiag/backend.hpp"

/// The eigenvalue problem of an upper Hessenberg matrix, row-major n x n, shared by Arnoldi and the
/// dense method.
namespace tsdiag::hessenberg {

/// All eigenvalues, a conjugate pair one after the other: double-shift QR with the deflation of
/// Ahues and Tisseur (LAPACK's dlahqr), eigenvalues only.
std::vector<std::complex<double>> eigenvalues(const std::vector<double>& h, Index n);

/// Residual and conditioning of an eigenvalue theta of H.
struct Certificate {
    double last =
        0;  ///< |e_n^T s|, s the unit right eigenvector: Arnoldi's residual over h_{n+1,n}
    Sensitivity sensitivity;
    std::complex<double> value = 0;  ///< the eigenvalue near theta
};
/// By inverse iteration.  Cost O(n^2).
Certificate certify(const std::vector<double>& h, Index n, std::complex<double> theta);

/// A unit y with y^H H = theta y^H nearly: by inverse iteration from a vector that depends on
/// `start`, so that a multiple eigenvalue gives several.  Cost O(n^2).
std::vector<std::complex<double>> left_vector(const std::vector<double>& h, Index n,
                                              std::complex<double> theta, Index start);

/// A unit x with H x = theta x nearly, real where theta is: by inverse iteration.  Cost O(n^2).
std::vector<std::complex<double>> right_vector(const std::vector<double>& h, Index n,
                                               std::complex<double> theta);

/// The eigenvalue of `rank`-th largest modulus.
struct Leading {
    double modulus = 0;
    std::complex<double> value = 0;
    double residual = 0;
    double radius = 0;     ///< condition * (residual + noise): first-order error of the modulus
    bool certain = false;  ///< radius <= accuracy modulus, and the next one cannot exceed it
    std::complex<double> first = 0;  ///< that of largest modulus
    double first_radius = 0;
};
/// Among `values`, a conjugate pair one after the other, of a matrix that is known up to a
/// perturbation of norm `noise`; `of(theta)` is asked for those that decide.
Leading leading_of(std::vector<std::complex<double>> values, Index rank, double noise,
                   double accuracy, const std::function<Sensitivity(std::complex<double>)>& of);
/// Of H, where A V = V H + coupling v e_n^T + a rounding of norm `noise`: the residual of theta is
/// coupling |e_n^T s|.
Leading leading_eigenvalue(const std::vector<double>& h, Index n, Index rank, double coupling,
                           double noise, double accuracy);

}  // namespace tsdiag::hessenberg
