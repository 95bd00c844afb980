#pragma once
#include "tsdiag/tensor.hpp"

/// Loops over rows that the dense and Krylov methods share.
namespace tsdiag::products {

double dot(const double* x, const double* y, Index n);
/// A += p x^T + q y^T; rows of A at `stride`.
void rank_two_update(double* a, Index rows, Index cols, Index stride, const double* p,
                     const double* x, const double* q, const double* y);
/// 1 - tau (1, v1, v2)^T (1, v1, v2); `pair`: without the third component.
struct Reflection {
    double tau = 0, v1 = 0, v2 = 0;
    bool pair = false;
};
/// From the left: on n columns of the rows at a, a + stride, a + 2 stride.
void reflect_rows(double* a, Index stride, Index n, Reflection r);
/// From the right: on columns 0, 1, 2 of `rows` rows.
void reflect_columns(double* a, Index stride, Index rows, Reflection r);

}  // namespace tsdiag::products
