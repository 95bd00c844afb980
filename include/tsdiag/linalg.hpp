#pragma once
#include <complex>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/tensor.hpp"

/// Eigenvalues and singular values as plain functions whose results carry their residuals.
namespace tsdiag {

/// A number found by an algorithm, and how far it can be trusted.
struct Estimate {
    double value = 0;
    std::string method;    ///< "diagonal", "dense", "arnoldi", "golub-kahan", "factors", ...
    double residual = 0;   ///< |A v - theta v| for a unit v (or its analogue); 0 for direct methods
    Index iterations = 0;  ///< products with A
    bool converged = true;
    std::optional<double> low,
        high;  ///< an interval that holds the value where it is not certified
};

/// A square or rectangular linear map given by its products: y = A x, x = A^T y.  `transpose` may
/// be empty.
struct LinearMap {
    Index rows = 0, cols = 0;
    std::function<void(std::span<const double> x, std::span<double> y)> apply, transpose;
};

/// Row-major n x n: all eigenvalues (Eigen, balanced QR).  Cost O(n^3).
std::vector<std::complex<double>> eigenvalues(std::span<const double> a, Index n);
/// Row-major m x n: singular values in descending order.  Cost O(mn min(m,n)).
std::vector<double> singular_values(std::span<const double> a, Index m, Index n);

/// The largest eigenvalue modulus of a square map: Arnoldi without restart, two Gram-Schmidt
/// passes, until the residual of the dominant Ritz pair is below `tolerance` times its modulus. Not
/// for strongly non-normal maps (triangular P: use its diagonal).  Never silently wrong:
/// `converged` is false where the residual was not reached.
Estimate spectral_radius(const LinearMap& a, double tolerance = 1e-8, Index max_products = 384);

/// The largest singular value: Golub-Kahan-Lanczos with full reorthogonalisation.
Estimate largest_singular_value(const LinearMap& a, double tolerance = 1e-8,
                                Index max_products = 384);

}  // namespace tsdiag
