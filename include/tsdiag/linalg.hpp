#pragma once
#include <complex>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/backend.hpp"

/// Eigenvalues and singular values as plain functions whose results carry their residuals.
namespace tsdiag {

/// A computed number and its error information.
struct Estimate {
    double value = 0;
    std::string method;    ///< "diagonal", "dense", "arnoldi", "golub-kahan", "factors", ...
    double residual = 0;   ///< |A v - theta v| for a unit v (or its analogue); 0 for direct methods
    Index iterations = 0;  ///< products with A
    bool converged = true;
    std::optional<double> low = {},
                          high = {};  ///< an interval for the value where it is not certified
    bool on_host = false;  ///< of a matrix on a device: computed from a copy of it on the host
};

/// A square or rectangular linear map given by its products: y = A x, x = A^T y.  `transpose` may
/// be empty.
struct LinearMap {
    Index rows = 0, cols = 0;
    std::function<void(std::span<const double> x, std::span<double> y)> apply, transpose;
    /// y = A^T A x where one pass over A gives it; may be empty.
    std::function<void(std::span<const double> x, std::span<double> y)> normal = {};
    /// The largest rounding error of A x, |x| = 1, where it is more than that of its entries, of a
    /// mean that cancels say; of a stack that of each.  Empty: none.
    std::vector<double> rounding = {};
};
/// Of products of a matrix with rows of n entries and the Frobenius norm `norm`: sums have at most
/// n / 8 + 8 additions in a row, on every backend.
constexpr double rounding_of_products(Index n, double norm) {
    return std::numeric_limits<double>::epsilon() / 2 * (double(n) / 8 + 8) * norm;
}

/// Default relative error up to which a value is called converged.
constexpr double usual_accuracy = 1e-6;

/// Row-major n x n: all eigenvalues (Householder, then double-shift QR; no balancing).  Throws
/// `NonFiniteError` where an entry is not finite.  Cost O(n^3): 0.1 s at n = 512.
std::vector<std::complex<double>> eigenvalues(std::span<const double> a, Index n);
/// How well theta is determined as one of them.  Cost O(n^3).
Sensitivity sensitivity(std::span<const double> a, Index n, std::complex<double> theta);
/// Row-major symmetric n x n: all eigenvalues, ascending.  Throws as `eigenvalues`.  Cost O(n^3).
std::vector<double> symmetric_eigenvalues(std::span<const double> a, Index n);
/// Of each batch of symmetric matrices (b, n, n) in float64, contiguous, which are overwritten: all
/// eigenvalues, ascending.  Of n up to `Backend::most_tridiagonal` a device reduces all at once and
/// 2 n numbers of each leave it; none of a matrix with a non-finite entry, and where its library
/// did not converge.
std::vector<std::vector<double>> symmetric_eigenvalues(const Tensor& stack);
/// Row-major symmetric n x n, of which the lower triangle is read: `Backend::tridiagonals`.
std::vector<double> tridiagonal_of(std::vector<double> a, Index n);
/// Row-major m x n: singular values in descending order.  Cost O(mn min(m,n)).
std::vector<double> singular_values(std::span<const double> a, Index m, Index n);

/// The `rank`-th largest eigenvalue modulus (1: the spectral radius) of a row-major n x n matrix,
/// by `eigenvalues`.  Method "dense".  `converged`: the relative error is proven to be at most
/// `accuracy`, for every matrix within `error` of A in the 2-norm; otherwise low and high hold the
/// modulus of all of these.  Both are proven against exact arithmetic: the leading eigenvalues are
/// separated from the others by an orthogonal similarity, a Stein inequality bounds the others, and
/// the theorems of Bauer and Fike and of Elsner those (src/core/linalg/inclusion.hpp).  Cost: as
/// `eigenvalues`, and about 60 n^3 in matrix products.
Estimate dense_eigenvalue(std::span<const double> a, Index n, Index rank = 1,
                          double accuracy = usual_accuracy, double error = 0);

/// The `rank`-th largest eigenvalue modulus of a matrix (1, n, n) in float64, by the dense solver
/// of its backend; only numbers leave a device.  `converged` is of first order, no proof: the
/// condition number 1/|y^H x| times the sum of rounding error and residual (a library may balance
/// the matrix first, and its backward error is then not relative to |A|), of the leading ones and
/// the next.  Otherwise low and high are Elsner's bound for that error.  None where the solver did
/// not converge.  Throws `OutOfMemory`.
std::optional<Estimate> dense_eigenvalue(const Tensor& a, Index rank = 1,
                                         double accuracy = usual_accuracy, double error = 0);
/// |A|_2 of a matrix (1, m, n) in float64 on any backend, and of all within `error` of it in the
/// 2-norm: the root of the largest eigenvalue of A^T A.  Method "dense".  `converged`: (m + 4 n)
/// 2^-52 |A|_F^2, a bound for the rounding errors of product and solver, and `error` change the
/// value by at most `accuracy` (Weyl's theorem); else low and high are what they allow.
std::optional<Estimate> dense_norm(const Tensor& a, double accuracy = usual_accuracy,
                                   double error = 0);
/// The same of an A with m rows from all eigenvalues of A^T A in float64, ascending, at least one.
Estimate dense_norm(std::span<const double> squares, Index m, double accuracy = usual_accuracy,
                    double error = 0);

/// The `rank`-th largest eigenvalue modulus of a square map (1: the spectral radius): Arnoldi
/// without restart, two Gram-Schmidt passes, until the residuals of the leading Ritz pairs are
/// below `tolerance` times the modulus, and, weighted with the condition numbers, neither their
/// error exceeds `accuracy` nor can the next Ritz value exceed it; at two checks in a row.  A test
/// of first order, no proof.  Strongly non-normal maps fail it (triangular P: use its diagonal).
/// Where it was not passed after `max_products`, `converged` is false and `low` is 0.  Rank 2: an
/// eigenvalue counts as often as it is one.  A Krylov space has one vector of each, so where the
/// leading one is real and the next is smaller, a second search, of as many products at most, from
/// another start on what is orthogonal to the leading vector has to find one of the two; that is
/// lambda_2 (Saad, "Numerical Methods for Large Eigenvalue Problems", 2011, 4.2 and 6.2.3).
Estimate spectral_radius(const LinearMap& a, double tolerance = 1e-8, Index max_products = 384,
                         Index rank = 1, double accuracy = usual_accuracy);

/// The largest singular value: Golub-Kahan-Lanczos in the form of Lanczos on A^T A, with full
/// reorthogonalisation, until r / (2 value^2), r the residual of A^T A, is below `tolerance`: then
/// a singular value is as near as that.  That none is greater is tested by the iteration, not
/// proven. `low` of an unconverged value is a lower bound.  `residual` is r / value.
Estimate largest_singular_value(const LinearMap& a, double tolerance = 1e-8,
                                Index max_products = 384);

/// `count` maps that are applied together: x and y hold one vector after the other (count * n
/// numbers). For operators whose product covers all heads at once; finished maps still receive
/// vectors.
std::vector<Estimate> spectral_radii(const LinearMap& stack, Index count, double tolerance = 1e-8,
                                     Index max_products = 384, Index rank = 1,
                                     double accuracy = usual_accuracy);
std::vector<Estimate> largest_singular_values(const LinearMap& stack, Index count,
                                              double tolerance = 1e-8, Index max_products = 384);

/// A square map and the map A^T A of one stack of matrices, where one pass over them gives a
/// product with both: y = square x, v = normal u.
struct SharedPass {
    LinearMap square, normal;
    std::function<void(std::span<const double> x, std::span<double> y, std::span<const double> u,
                       std::span<double> v)>
        both;
};
struct RadiiAndNorms {
    std::vector<Estimate> radii, norms;
};
/// `spectral_radii` of the square map and `largest_singular_values` of the other, to the last bit,
/// in step; when one of them is finished, the products are those of the other alone.
RadiiAndNorms radii_and_norms(const SharedPass& stack, Index count, double tolerance,
                              Index radius_products, Index norm_products, Index rank,
                              double accuracy);

/// The spectral radius (or the modulus of rank `rank`) of each A of a stack (count, n, n) on a
/// device that `fuses`, or of Pi2 A Pi2, and |Pi2 A|_2 or |A|_2, A (count, m, n): `spectral_radii`
/// and `largest_singular_values` in step, with one pass over A a product.  The host reads the
/// coefficients of eight products at once, and solves the small problems of all A on its threads.
/// Throws `NonFiniteError` where they are not finite.
struct StackedSearch {
    Index radius_products = 0, norm_products = 0;  ///< at most; 0: not sought
    bool centred = true;                           ///< the radii are those of Pi2 A Pi2
    bool centred_norms = true;                     ///< the norms are those of Pi2 A
    Index rank = 1;
    double tolerance = 1e-8, accuracy = usual_accuracy;
    std::span<const double> rounding = {};  ///< of each, as in LinearMap
};
RadiiAndNorms radii_and_norms(const Tensor& stack, const StackedSearch& search);

/// `count` square maps of tensors on any backend: y = A x, both (count, n, 1) in float64.
struct StackMap {
    const Backend& backend;
    Index count = 0, n = 0;
    std::function<Tensor(const Tensor& x)> apply;
    bool centred = false;  ///< the map is Pi2 A Pi2
};
/// The `rank`-th largest eigenvalue modulus of each map by Arnoldi's method, and the largest
/// singular value of each A, whose map is A^T A, by Lanczos's, with the basis on the maps' backend:
/// per product and vector few numbers leave the device.  Memory: max_products vectors.
std::vector<Estimate> spectral_radii(const StackMap& stack, double tolerance = 1e-8,
                                     Index max_products = 384, Index rank = 1,
                                     double accuracy = usual_accuracy);
std::vector<Estimate> largest_singular_values(const StackMap& stack, double tolerance = 1e-8,
                                              Index max_products = 384);

/// The `rank`-th largest eigenvalue modulus, and the largest singular value of A, whose map is
/// A^T A, by the library Spectra: Arnoldi and Lanczos with implicit restarts, on at most 128
/// vectors of which rank + 1 are kept (with fewer, wrong values have passed its test).  An
/// implementation independent of the others: `converged` is Spectra's own test at `tolerance`,
/// which `residual`, recomputed, may exceed 1e3 times; no condition number is used, and a multiple
/// eigenvalue is met again only as its restarts round.  Method "spectra".  Not converged:
/// `value` is 0 and meaningless.  At least `least_restarted` rows.
constexpr Index least_restarted = 8;
Estimate restarted_eigenvalue(const LinearMap& a, double tolerance = 1e-10, Index rank = 1);
Estimate restarted_singular_value(const LinearMap& a, double tolerance = 1e-10);

// Products with one row-major matrix in host memory (a View of one batch, float32 or float64), in
// double.

/// y = A x.  Where `also` is given, image = A also in the same pass.
void multiply(const View& a, std::span<const double> x, std::span<double> y,
              std::span<const double> also = {}, std::span<double> image = {});
/// y += alpha A^T x
void add_transposed(const View& a, double alpha, std::span<const double> x, std::span<double> y);
/// y = A^T W (u - 1 w^T u / w^T 1), u = A x, W = diag(w): (Pi2 A)^T (Pi2 A) x where w = 1. `column`
/// is A^T w. One pass over A, and no cancellation where A is nearly of rank one.
void normal_product(const View& a, std::span<const double> w, std::span<const double> column,
                    std::span<const double> x, std::span<double> y);
/// Contribution to it of some rows of A: y += A^T W (A x - mean); returns `sum` plus the sum of
/// W (A x - mean).  By blocks of rows, all but the last of a multiple of 4, the result is bitwise
/// that of one call.
double add_normal_product(const View& rows, std::span<const double> w, double mean,
                          std::span<const double> x, std::span<double> y, double sum,
                          std::span<const double> also = {}, std::span<double> image = {});
/// sum_kl a_ik G_kl c_i|k-l| b_il for each row i of a, b and c (1, rows, m), G symmetric, at least
/// m x m; all float64.  Cost 2 rows m^2 multiplications.
std::vector<double> toeplitz_forms(const View& g, const View& a, const View& b, const View& c);
/// max_ij sum_k |A_ik - A_jk| of a finite A, accurate to rounding in double.  Cost n^2 d / 2 sums
/// of absolute differences of bytes, which leave few pairs; n^2 d / 2 in double where all rows are
/// equally far.
double largest_row_distance(const View& a);

/// Of one row: sum_j p_j^2 w_j, sum_j p_j^2 t_j, sum_j p_j t_j, sum_j p_j^2, sum_j e_j u_j and
/// sum_j e_j^2 w_j, with t = u + shift.
struct SpreadSums {
    double first = 0, cross = 0, own = 0, squares = 0, moved = 0, size = 0;
    /// sum_j p_j^2 |x_j - z|^2 where w_j = |x_j|^2, t_j = x_j . z and z = sum_j p_j x_j.
    double value() const { return first - 2 * cross + squares * own; }
    /// Its terms' moduli: rounding errors are relative to this.
    double gross() const {
        return first + 2 * (cross < 0 ? -cross : cross) + squares * (own < 0 ? -own : own);
    }
};
/// Of the rows of p, e and u, (h, b, m) of one type in host memory, summed in double.  w and shift
/// (h', 1, m or more) in float64, h' divides h; no data: no shift.
std::vector<SpreadSums> spread_sums(const View& p, const View& e, const View& u, const View& w,
                                    const View& shift);

}  // namespace tsdiag
