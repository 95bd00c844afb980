#pragma once
#include <limits>
#include <span>

#include "tsdiag/backend.hpp"

/// Launchers of the kernels, as plain functions.  Views and arrays are in device memory; sums are
/// in double, in an order independent of the device.
namespace tsdiag::gpu {

/// Visible on the device: row r sees columns max(0, from + r from_step) to min(n, to + r to_step),
/// or those of the arrays, where there are any.
struct DeviceVisible {
    const Index *first = nullptr, *last = nullptr;
    Index from = 0, from_step = 0, to = std::numeric_limits<Index>::max(), to_step = 0;
};
/// Several tensors of one type for one launch.
struct Views {
    static constexpr Index most = 24;
    View at[most];
    Index count = 0;
};
/// Of a launch whose last block finishes what the others have left: initially 0, 0 for the next.
using Counter = unsigned long long;

// elementwise.cu
void fill(View out, double value);
void unary(Unary op, View out, View a);
void unary_derivative(Unary op, View out, View g, View x, View y);
void map_sum(View out, View a, const View* bias, Unary op, const View* added, const View* kept);
/// As many of one as of the other.
void copy(const Views& to, const Views& from);
void expand(View out, View a);
void binary(Binary op, View out, View a, View b);
void affine(View out, View a, double alpha, double beta);
void gather_rows(View out, View table, const Index* rows);
void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset, double scale);
/// Of one type, at most `most_updates`.
constexpr std::size_t most_updates = 32;
void adamw(std::span<const AdamWUpdate> updates);
void convert(View out, View a);
void transpose(View out, View a);
/// The last head of each part of a batch of heads, as in Backend::split_heads.
struct HeadParts {
    static constexpr std::size_t most = Backend::most_parts;
    Index ends[most] = {};
};
void split_heads(View out, View a, const View* bias, HeadParts parts);
/// At most HeadParts::most of them.
void merge_heads(View out, const Views& parts);
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
void softmax_derivative(View out, View g, View y);
void sum_rows(View sum, const View* branch, const View* normed, View a, const View* bias,
              View added, const View* weight, const View* shift, double eps, bool centre);
void norm_derivative(View out, const View* parts, View g, View x, const View* weight,
                     const View* added, double eps, bool centre);
void row_sum(View out, View a);
void row_max(View out, View a);
/// Columns that a block sums, and blocks that share their rows, on every device.
constexpr Index columns_of_group = 32;
constexpr Index column_groups(Index cols) {
    return (cols + columns_of_group - 1) / columns_of_group;
}
constexpr Index shares_of_rows(Index rows) {
    constexpr Index each = 512, most = 64;
    return rows <= 2 * each ? 1 : rows / each < most ? rows / each : most;
}
/// Where rows have several shares: a part for each column of each block, a counter for each group.
void column_sum(View out, double* parts, Counter* counters, View a);
void softmax_rows(View p, DeviceVisible visible);
/// y = a x, one warp per row.
void matvec(View y, View a, View x);
/// a^T x of each chunk of rows of a, (batch, chunks, cols): one thread per column.
void matvec_transposed(double* parts, View a, View x);
/// Blocks that share a sum over so many elements, on every device.
constexpr Index parts_of_sum(Index elements) {
    constexpr Index each = 4096, most = 64;
    const Index even = (elements + each - 1) / each;
    return even < 1 ? 1 : even < most ? even : most;
}
/// The largest of the tensors.
constexpr Index elements_of(const Views& xs) {
    Index largest = 0;
    for (Index k = 0; k < xs.count; ++k)
        largest = largest < xs.at[k].shape.count() ? xs.at[k].shape.count() : largest;
    return largest;
}
/// squares[k] = |x_k|^2; parts: parts_of_sum(elements_of(xs)) doubles, counters: one each.
void squared_norms(double* squares, double* parts, Counter* counters, const Views& xs);
/// sums[2 b], sums[2 b + 1] = |a_b|_F^2, tr a_b; parts: 2 parts_of_sum(n^2) a batch.
void squares_and_traces(double* sums, double* parts, Counter* counters, View a);
/// found[k], initially 0: `last_element` less the row-major index of the first non-finite element
/// of x_k; 0: none.
constexpr Counter last_element = ~Counter{0};
void first_nonfinite(Counter* found, const Views& xs);

// krylov.cu
/// Rows that a block multiplies, and the length up to which it reads them once, on every device.
constexpr Index rows_of_krylov_block = 32, short_krylov_row = 1024;
constexpr Index krylov_chunks(Index rows) {
    return (rows + rows_of_krylov_block - 1) / rows_of_krylov_block;
}
/// Backend::krylov_products of rows of at most `short_krylov_row`; for z parts, (batch, chunks,
/// cols + 1), and counters, one a matrix.
void krylov_products(const View* y, const View* z, double* parts, Counter* counters, View a, View x,
                     View u, View column);
/// y = a x, and v = a u less its mean, of rows of any length; then z, `parts` (batch, chunks, cols)
/// those of a^T v.
void krylov_rows(const View* y, const View* v, View a, View x, View u, View column);
void krylov_sum(View z, View parts, View v, View column);
/// Backend::extend_basis, of at most so many vectors.
constexpr Index most_krylov_vectors = 1024;
void extend_basis(View basis, View column, View image, Index centred);
/// out[2 b], out[2 b + 1] = |a_b|_F^2, and 1 where an entry of a_b is 0 plus 2 where rows differ;
/// parts: 3 parts_of_sum(rows cols) a batch.
void survey(double* out, double* parts, Counter* counters, View a);

// dense.cu
/// What a launch computes, where that is no multiple of its operands (requests.hpp).
struct Work {
    double count;
    double elements() const { return count; }
};
/// Backend::tridiagonals, n at most `most_tridiagonal`.
constexpr Index most_tridiagonal = Backend::most_tridiagonal;
void tridiagonals(double* out, View a);
/// largest[b], initially 0: the bits of Backend::row_distances.
constexpr Index tiles_of_rows(Index rows) { return (rows + 31) / 32; }
void row_distances(Counter* largest, View a);

// statistics.cu
/// The fields of RowStatistics.
struct RowFields {
    double* diagonal;  ///< (heads * rows); the others, unless folded, as well
    double *sum, *modulus, *negative, *squares, *entropy, *max_modulus, *jacobian, *jacobian_max;
};
/// Sums over all rows are sums over at most `most_chunks` chunks of rows, on every device.
constexpr Index most_chunks = 64;
constexpr Index rows_of_chunk(Index rows) {
    constexpr Index least = 16;
    const Index even = (rows + most_chunks - 1) / most_chunks;
    return even < least ? least : even;
}
constexpr Index chunks_of(Index rows) {
    return (rows + rows_of_chunk(rows) - 1) / rows_of_chunk(rows);
}
/// Rows of a head that a block takes: few where they are long, so that one head keeps a device
/// busy.
constexpr Index rows_of_fields(Index cols) { return cols < 4096 ? 16 : 4; }
/// With `parts`, (heads, blocks, folded_fields), and counters, one a head, they are folded: (heads)
/// but for the diagonal.
constexpr Index folded_fields = 8;
void row_fields(RowFields out, double* parts, Counter* counters, View p, const View* slope,
                bool divided, Index first, DeviceVisible visible);
/// RowStatistics::window, (heads, n).
void windows(double* window, View p, Index first, DeviceVisible visible);
/// StateMoments of each batch of each x, all of one shape but for the batch.
struct Moments {
    double squared, mean_part, centred, unit_sum, least_row;
};
/// parts: (states, chunks, 3 d + 3); counters: one a state.
void state_moments(Moments* out, double* parts, Counter* counters, const Views& xs);

}  // namespace tsdiag::gpu
