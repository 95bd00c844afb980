#pragma once
#include "tsdiag/backend.hpp"

/// Launchers of the kernels, as plain functions.  Views and arrays are in device memory; sums are
/// in double, in an order independent of the device.
namespace tsdiag::gpu {

/// Visible on the device; null: every column.
struct DeviceVisible {
    const Index *first = nullptr, *last = nullptr;
};

// elementwise.cu
void unary(Unary op, View out, View a);
void binary(Binary op, View out, View a, View b);
void affine(View out, View a, double alpha, double beta);
void gather_rows(View out, View table, const Index* rows);
void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset, double scale);
void adamw(View w, View m, View v, View g, const AdamWStep& step);
void convert(View out, View a);
void transpose(View out, View a);
void split_heads(View out, View a);
void merge_heads(View out, View a);
/// Adds to row rows[g] of out the rows order[starts[g]], ..., order[starts[g + 1] - 1] of a.
struct Groups {
    const Index *rows, *starts, *order;
    Index count;
};
void add_groups(View out, View a, Groups groups);
void rotate(View out, View a, const double* position, const double* frequency, Index pairs,
            bool interleaved);
void hide(View p, DeviceVisible visible);

// rows.cu: a block of threads a row
void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                    bool centre);
void row_sum(View out, View a);
void row_max(View out, View a);
void column_sum(View out, View a);
void softmax_rows(View p, DeviceVisible visible);
/// y = a x, one warp per row.
void matvec(View y, View a, View x);
/// a^T x of each chunk of rows of a, (batch, chunks, cols): one thread per column.
void matvec_transposed(double* parts, View a, View x);
/// squares[b * rows + r] = |row|^2
void row_squares(double* squares, View a);
/// found[b * rows + r] = column of the first non-finite element, -1: none
void row_nonfinite(Index* found, View a);

// statistics.cu
/// The fields of RowStatistics, each (heads * rows), concatenated.
struct RowFields {
    double *sum, *modulus, *negative, *squares, *entropy, *max_modulus, *diagonal, *jacobian,
        *jacobian_max;
};
void row_fields(RowFields out, View p, const View* slope, bool divided, Index first,
                DeviceVisible visible);
/// Sums over all rows are sums over chunks of this many rows, on every device.
constexpr Index chunk_rows = 64;
constexpr Index chunks_of(Index rows) { return (rows + chunk_rows - 1) / chunk_rows; }
/// RowStatistics::window of each chunk of rows, (heads, chunks, n).
void windows(double* window, View p, Index first, DeviceVisible visible);
/// Of each chunk of rows, (chunks, d): column = sum_i x_ij, unit = sum_i x_ij / |x_i|; squares from
/// row_squares.
void state_sums(double* column, double* unit, View x, const double* squares);
/// centred[i] = |x_i - mean|^2
void centred_squares(double* centred, View x, const double* mean);

}  // namespace tsdiag::gpu
