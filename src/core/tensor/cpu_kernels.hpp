#pragma once
#include <cstddef>
#include <cstdint>

/// The loops of the CPU backend over raw memory, compiled once per instruction set
/// (cmake/parts.cmake), selected at program start.  Library types are not allowed here: see
/// tsdiag_kernels() for why.
namespace tsdiag {
using Index = std::int64_t;  // as in tensor.hpp
}

namespace tsdiag::kernels {

/// One row of P.  Results in double; see RowStatistics.
struct RowResult {
    double sum, modulus, negative, squares, entropy, max_modulus, jacobian, jacobian_max;
};

/// The nested-window sums of one head: gain by the e-th token of the window (docs/references.md).
struct WindowSums {
    double* left;   ///< n: token i - t of row i, while both sides have tokens
    double* right;  ///< n: token i + t
    double* spill;  ///< n: the e-th token once one side is exhausted
};

template <class T>
struct Of {
    /// c = alpha op(a) op(b), row-major, leading dimensions in elements.
    void (*gemm)(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
                 Index lda, const T* b, Index ldb, T* c, Index ldc);
    /// op is a tsdiag::Unary.
    void (*unary)(int op, const T* a, T* out, Index count);
    void (*softmax)(T* row, Index count);
    /// Visible part p[0..count) of row; slope null: none.  `divided` as in Backend::row_statistics.
    RowResult (*row_statistics)(const T* p, const T* slope, bool divided, Index count);
    /// Row i of n, columns [first, last) of which are visible; p points to column 0.
    void (*window)(const T* p, Index i, Index n, Index first, Index last, WindowSums sums);
    void (*normalise)(const T* a, const T* weight, const T* bias, T* out, Index count, double eps,
                      bool centre);
    /// Adds a row to column sums, and the row divided by its norm to unit column sums; returns the
    /// square of the norm.
    double (*accumulate_row)(const T* row, Index d, double* column_sum, double* unit_sum);
    /// Sum of (row - mean)^2.
    double (*centred_row)(const T* row, const double* mean, Index d);
    double (*squared_norm)(const T* a, Index count);
    double (*sum)(const T* a, Index count);
    /// Index of the first non-finite element, -1: none.
    Index (*first_nonfinite)(const T* a, Index count);
};

struct Table {
    const char* name;
    Of<float> f32;
    Of<double> f64;
    /// Philox blocks first .. first + count of (seed, stream): two doubles in (0, 1) each.
    void (*uniform)(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, Index count,
                    double* out);
    /// The same as two standard normals each.
    void (*normal)(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, Index count,
                   double* out);
    /// out[j] = sum over the groups g of columns [end[g - 1], end[g]) of step[g] |a - b_j|_1, for
    /// `count` rows b_j at `stride`; the ends are multiples of 32.
    void (*byte_distances)(const std::uint8_t* a, const std::uint8_t* b, Index count, Index stride,
                           const Index* end, const float* step, Index groups, float* out);
    /// out = factor a, rounded to the nearest bfloat16, of two as near to the even one.
    void (*bfloat16)(const float* a, float factor, std::uint16_t* out, Index count);
};

/// The best table for this CPU.
const Table& table();

namespace base {
extern const Table kernel_table;
}
namespace avx2 {
extern const Table kernel_table;
}
namespace avx512 {
extern const Table kernel_table;
}

}  // namespace tsdiag::kernels
