#include "kernel.hpp"

/// Work of n^3 operations on each matrix of a stack.
namespace tsdiag::gpu {
namespace {

#ifdef TSDIAG_EMULATED
constexpr int wide_block = 2 * block_size;
#else
constexpr int wide_block = 512;  // at most 128 registers a thread: a processor takes one such block
#endif

__device__ __forceinline__ double larger(double a, double b) { return a < b ? b : a; }
__device__ __forceinline__ double modulus(double x) { return x < 0 ? -x : x; }

/// A block for each matrix, a warp a row: Householder's reduction from the last row on, as
/// `symmetric::reduce` but for the order of sums.  An update by a reflection and the product with
/// the next share a pass over all rows before it.
__global__ void tridiagonal_kernel(double* out, Rows<double> a, Work) {
    constexpr int warps = wide_block / warp_size, at_once = 4;
    __shared__ double memory[4][most_tridiagonal];
    double *v = memory[0], *u = memory[1], *w = memory[2], *y = memory[3];
    const Index n = a.rows, b = blockIdx.x;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    double *diagonal = out + b * (2 * n - 1), *off = diagonal + n;
    for (Index j = threadIdx.x; j < n; j += wide_block) v[j] = w[j] = 0;
    __syncthreads();
    for (Index i = n - 1; i > 0; --i) {
        const double *last = a.row(b, i), vi = v[i], wi = w[i];
        double top = 0;
        for (Index j = threadIdx.x; j <= i; j += wide_block) {
            const double x = last[j] - (vi * w[j] + wi * v[j]);
            if (j == i)
                diagonal[i] = x;
            else
                u[j] = x;
            if (j + 1 < i) top = larger(top, modulus(x));
        }
        top = block_reduce<wide_block>(top, Maximum());
        const double alpha = u[i - 1];
        double squares = 0;
        if (top > 0)
            for (Index j = threadIdx.x; j + 1 < i; j += wide_block)
                squares += (u[j] / top) * (u[j] / top);
        squares = block_reduce<wide_block>(squares, Sum());
        const bool reflects = top > 0;
        const double beta = reflects ? -copysign(hypot(alpha, top * sqrt(squares)), alpha) : alpha;
        const double tau = reflects ? (beta - alpha) / beta : 0;
        for (Index j = threadIdx.x; j < i; j += wide_block)
            u[j] = !reflects ? 0 : j + 1 < i ? u[j] / (alpha - beta) : 1;
        if (threadIdx.x == 0) off[i - 1] = beta;
        __syncthreads();
        for (Index r = warp; r < i; r += warps) {
            double* row = a.row(b, r);
            const double vr = v[r], wr = w[r];
            double s = 0;
            for (Index j = lane; j < i; j += at_once * warp_size) {
                double x[at_once] = {};
                TSDIAG_UNROLL
                for (int k = 0; k < at_once; ++k)
                    if (const Index at = j + k * warp_size; at < i) x[k] = row[at];
                TSDIAG_UNROLL
                for (int k = 0; k < at_once; ++k) {
                    const Index at = j + k * warp_size;
                    if (at >= i) continue;
                    x[k] -= vr * w[at] + wr * v[at];
                    row[at] = x[k];
                    s += x[k] * u[at];
                }
            }
            s = warp_sum(s);
            if (lane == 0) y[r] = s;
        }
        __syncthreads();
        double along = 0;
        for (Index j = threadIdx.x; j < i; j += wide_block) along += u[j] * y[j];
        const double overlap = tau * tau / 2 * block_reduce<wide_block>(along, Sum());
        // (1 - tau u u^T) A (1 - tau u u^T) = A - u w^T - w u^T
        for (Index j = threadIdx.x; j < i; j += wide_block) w[j] = tau * y[j] - overlap * u[j];
        double* const next = v;
        v = u;
        u = next;
        __syncthreads();
    }
    if (threadIdx.x == 0) diagonal[0] = a.row(b, 0)[0] - 2 * v[0] * w[0];
}

constexpr int side = 32;  ///< rows of a tile, and columns of it that are held at a time

/// A block for the pairs of two tiles of rows, each of which is summed as by
/// `largest_row_distance`, to the last bit.  A thread has `down` rows of one tile and `across` of
/// the other.
template <class T>
__global__ void distances_kernel(Counter* largest, Rows<const T> a, Work) {
    constexpr int across = 4, threads_across = side / across,
                  threads_down = block_size / threads_across, down = side / threads_down;
    constexpr int lanes = 4;                       // sums of a pair
    __shared__ double of_rows[2][side][side + 1];  // no two rows in one bank
    const Index m = a.rows, n = a.cols, tiles = tiles_of_rows(m), whole = n - n % lanes;
    const Index b = quotient(blockIdx.x, tiles * tiles), pair = blockIdx.x - b * tiles * tiles,
                first = quotient(pair, tiles), second = pair - first * tiles;
    if (second > first) return;
    const int x = threadIdx.x % threads_across, y = threadIdx.x / threads_across;
    double s[down][across][lanes] = {};
    for (Index begin = 0; begin < n; begin += side) {
        for (int i = threadIdx.x; i < 2 * side * side; i += block_size) {
            const int which = i / (side * side), r = i / side % side, c = i % side;
            const Index row = (which == 0 ? first : second) * side + r, col = begin + c;
            of_rows[which][r][c] = row < m && col < n ? double(a.row(b, row)[col]) : 0;
        }
        __syncthreads();
        TSDIAG_UNROLL
        for (int c = 0; c < side; ++c) {
            double own[down], other[across];
            for (int i = 0; i < down; ++i) own[i] = of_rows[0][y + i * threads_down][c];
            for (int j = 0; j < across; ++j) other[j] = of_rows[1][x + j * threads_across][c];
            const bool rest = begin + c >= whole;  // summed with the first
            for (int i = 0; i < down; ++i)
                for (int j = 0; j < across; ++j) {
                    const double d = modulus(own[i] - other[j]);
                    if (rest)
                        s[i][j][0] += d;
                    else
                        s[i][j][c % lanes] += d;
                }
        }
        __syncthreads();  // before the tiles are overwritten
    }
    double most = 0;
    for (int i = 0; i < down; ++i)
        for (int j = 0; j < across; ++j) {
            const bool are = first * side + y + i * threads_down < m &&
                             second * side + x + j * threads_across < m;
            const double d = (s[i][j][0] + s[i][j][1]) + (s[i][j][2] + s[i][j][3]);
            if (are) most = larger(most, d);
        }
    most = block_reduce(most, Maximum());
    // Bits of numbers that are not negative are in their order.
    if (threadIdx.x == 0) atomicMax(largest + b, __builtin_bit_cast(Counter, most));
}

}  // namespace

void tridiagonals(double* out, View a) {
    const auto n = double(a.shape.rows);
    TSDIAG_LAUNCH(tridiagonal_kernel, a.shape.batch, wide_block, out, rows_of<double>(a),
                  Work{double(a.shape.batch) * n * n * n / 3});
}

void row_distances(Counter* largest, View a) {
    const Index tiles = tiles_of_rows(a.shape.rows);
    const auto m = double(a.shape.rows);
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(distances_kernel<T>, a.shape.batch * tiles * tiles, block_size, largest,
                      rows_of<const T>(a),
                      Work{double(a.shape.batch) * m * m / 2 * double(a.shape.cols)});
    });
}

}  // namespace tsdiag::gpu
