#pragma once
#include <vector>

#include "tsdiag/tensor.hpp"

namespace tsdiag::symmetric {

struct Tridiagonal {
    std::vector<double> diagonal, off;
};

/// Q^T A Q of a symmetric matrix, row-major n x n, n >= 1, of which the lower triangle is read.
/// Cost 4/3 n^3, in one pass over the remaining triangle for each row: the update by a reflection
/// and the product with the next share it.
Tridiagonal reduce(std::vector<double> a, Index n);

}  // namespace tsdiag::symmetric
