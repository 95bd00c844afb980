#pragma once
#include <span>
#include <vector>

#include "tsdiag/linalg.hpp"

/// Spectra of one matrix in host memory.  `accuracy`: the relative error that a converged value may
/// have, as far as residual, rounding and conditions tell.
namespace tsdiag::one_matrix {

constexpr Index dense_below = 128;   // measured: from here on Arnoldi is faster
constexpr Index dense_limit = 2048;  // beyond, what Arnoldi cannot certify stays an interval
constexpr Index arnoldi_products = 384, lanczos_products = 640;

/// Of residuals, for what they make of a value; that of a singular value enters squared.
constexpr double residual_for(double accuracy) { return accuracy / 10; }

/// A value that needed no iteration.
Estimate exact(double value, const char* method);

/// |lambda_2(P)|, by the communicating classes of P where exact zeros make several.
Estimate second_eigenvalue(const View& p, bool stochastic, double accuracy);
/// |Pi2 P|_2
Estimate centred_norm(const View& p, double accuracy);

/// Pi2 x; all of it is rounding where nothing is left, and then it is 0.
void centre(std::span<double> x);
/// Appends the moduli of P among which the two largest are, each from a class of its own.
void add_leading(const View& p, double accuracy, std::vector<Estimate>& moduli);
/// The second largest of moduli found one by one: it lies between the second largest of their lower
/// bounds and that of their upper bounds, whichever are certain.
Estimate second_largest(const std::vector<Estimate>& moduli, double accuracy, const char* method);

}  // namespace tsdiag::one_matrix
