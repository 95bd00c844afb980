#pragma once
#include "tsdiag/tensor.hpp"

/// Loops over rows that the dense and Krylov methods share.
namespace tsdiag::products {

double dot(const double* x, const double* y, Index n);
/// A += p x^T + q y^T; rows of A at `stride`.
void rank_two_update(double* a, Index rows, Index cols, Index stride, const double* p,
                     const double* x, const double* q, const double* y);
/// Householder from the left on three rows: r_i -= t_i (r_0 + v1 r_1 + v2 r_2), t = tau (1, v1,
/// v2).
void reflect_rows(double* r0, double* r1, double* r2, Index n, double tau, double v1, double v2);

}  // namespace tsdiag::products
