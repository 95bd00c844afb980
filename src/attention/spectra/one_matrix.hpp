#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tsdiag/attention.hpp"

/// Spectra of one matrix in host memory.  `accuracy`: the relative error allowed for a converged
/// value, by residual, rounding and condition numbers.
namespace tsdiag::one_matrix {

constexpr Index dense_below = 128;   // measured: from here Arnoldi is faster
constexpr Index dense_limit = 2048;  // beyond, what Arnoldi cannot certify stays an interval
constexpr Index arnoldi_products = 384, lanczos_products = 640;

/// Tolerance of residuals; that of a singular value enters its error squared.
constexpr double residual_for(double accuracy) { return accuracy / 10; }

/// A value found without iteration.
Estimate exact(double value, const char* method);

double entry(const View& p, Index i, Index j);
bool rows_are_equal(const View& p);

/// The rank-th largest eigenvalue modulus of P, or of Pi2 P Pi2, which on a stochastic P has the
/// spectrum 0, lambda_2, ..., lambda_n.
struct Which {
    bool deflated;
    Index rank;
    double error = 0;  ///< in the 2-norm: a value is certain for every matrix as near to P
};
inline Which second_of(const Structure& known) {
    return {known.row_stochastic, known.row_stochastic ? 1 : 2};
}

/// That of products with P and a unit vector: `rounding_of_products`.
double rounding_of(const View& p);

// Solvers.  An unconverged value has an upper bound.
Estimate by_arnoldi(const View& p, const Which& which, double accuracy);
Estimate by_dense(const View& p, const Which& which, double accuracy);
Estimate by_library(const View& p, const Which& which, double accuracy);

/// A value that passed a test, by a proof: certain only where that agrees, else its interval.
Estimate confirmed(Estimate tested, const Estimate& proven, double accuracy);

/// An upper bound of |A|_2, A = P less its column means, `column` the sums of its columns, or P
/// itself where they are 0: |A|_F, and what rounding may have taken from it.
double norm_bound(const View& p, std::span<const double> column);

/// An upper bound of the row sums of P; of what counts as a stochastic P of n columns, whose sums
/// may be off by what `given_attention` allows or by the rounding of a softmax.  It bounds the
/// eigenvalues of Pi2 P Pi2, P >= 0: no x of mean 0 has the largest less the smallest entry of P x
/// beyond this times that of x.
double largest_row_sum(const View& p);
double largest_row_sum(Type type, Index n);

/// An upper bound of all eigenvalue moduli of P, or of all but the eigenvalue 1 of a stochastic P.
double second_bound(const View& p, bool deflated);

/// |Pi2 P|_2 by Lanczos, by all singular values, and by the library Spectra.
Estimate centred_norm(const View& p, double accuracy);
/// `by_arnoldi` and `centred_norm` of a square P, to the last bit, in one pass over P a product.
struct SecondAndNorm {
    Estimate second, norm;
};
SecondAndNorm second_and_norm(const View& p, const Which& which, double accuracy);
/// By all singular values: proven to be right to accuracy / 10, or an interval.
Estimate dense_norm(const View& p, double accuracy);
/// |A|_2 of every row-major matrix within `error` of `a`, in the 2-norm, to `accuracy`:
/// `dense_norm` of tensors, whatever the size of the entries.
Estimate norm_of(std::span<const double> a, Index rows, Index cols, double accuracy, double error);
Estimate library_norm(const View& p);

/// How the diagonal blocks of a matrix are solved: by the requested solver, or "auto".
struct Solving {
    double accuracy;
    std::string_view asked = "auto";
};

/// |lambda_2(P)| where exact zeros make several communicating classes of P, or a period; else none.
std::optional<Estimate> by_classes(const View& p, bool stochastic, const Solving& how);

/// Pi2 x; 0 where only rounding is left.
void centre(std::span<double> x);
/// Appends moduli of P that include the two largest, each from a class of its own.
void add_leading(const View& p, const Solving& how, std::vector<Estimate>& moduli);
/// The second largest of moduli found separately: it lies between the second largest of their lower
/// bounds and that of their upper bounds, whichever are certain.
Estimate second_largest(const std::vector<Estimate>& moduli, double accuracy, const char* method);

}  // namespace tsdiag::one_matrix
