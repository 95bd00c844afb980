#include "kernel.hpp"

/// Steps of Krylov iterations of a stack of matrices.
namespace tsdiag::gpu {
namespace {

constexpr int warps_of_block = block_size / warp_size;
constexpr double rounding = std::numeric_limits<double>::epsilon();

/// f(j) of j < n by one warp, in this order in each lane.
template <class F>
__device__ double warp_sum_over(Index n, F f) {
    double s = 0;
    for (Index j = threadIdx.x % warp_size; j < n; j += warp_size) s += f(j);
    return warp_sum(s);
}
template <class F>
__device__ double block_sum_over(Index n, F f) {
    double s = 0;
    for (Index j = threadIdx.x; j < n; j += block_size) s += f(j);
    return block_reduce(s, Sum());
}

/// The mean of a u, from the sums of the columns of a.
__device__ double mean_of(const double* column, const double* u, Index cols, Index rows) {
    return block_sum_over(cols, [&](Index j) { return column[j] * u[j]; }) / double(rows);
}

/// A block for some rows of a matrix, a warp a row, which is read from memory once; the last block
/// adds up z.  A lane has at most `across` columns.
template <class T, int across>
__global__ void krylov_kernel(Rows<double> y, Rows<double> z, double* parts, Counter* counters,
                              Rows<const T> a, Rows<const double> x, Rows<const double> u,
                              Rows<const double> column) {
    __shared__ double total[across * warp_size];
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const Index n = a.cols, chunks = krylov_chunks(a.rows);
    const Index b = quotient(blockIdx.x, chunks), chunk = blockIdx.x - b * chunks;
    const Index begin = chunk * rows_of_krylov_block, after = begin + rows_of_krylov_block;
    const Index end = after < a.rows ? after : a.rows;
    const double* at_x = y.data != nullptr ? x.row(b, 0) : nullptr;
    const double* at_u = z.data != nullptr ? u.row(b, 0) : nullptr;
    const double mean = at_u != nullptr ? mean_of(column.row(b, 0), at_u, n, a.rows) : 0;
    double own[across] = {}, left = 0;
    for (Index r = begin + warp; r < end; r += warps_of_block) {
        const T* row = a.row(b, r);
        double s = 0, v = 0;
        TSDIAG_UNROLL
        for (int k = 0; k < across; ++k) {
            const Index j = lane + k * warp_size;
            if (j >= n) continue;
            const double e = row[j];
            if (at_x != nullptr) s += e * at_x[j];
            if (at_u != nullptr) v += e * at_u[j];
        }
        if (at_x != nullptr) {
            s = warp_sum(s);
            if (lane == 0) y.row(b, 0)[r] = s;
        }
        if (at_u == nullptr) continue;
        v = warp_sum(v) - mean;
        left += v;
        TSDIAG_UNROLL
        for (int k = 0; k < across; ++k)
            if (const Index j = lane + k * warp_size; j < n) own[k] += v * double(row[j]);
    }
    if (at_u == nullptr) return;
    for (int w = 0; w < warps_of_block; ++w) {
        TSDIAG_UNROLL
        for (int k = 0; k < across; ++k) {
            const int j = lane + k * warp_size;
            if (warp == w) total[j] = w == 0 ? own[k] : total[j] + own[k];
        }
        __syncthreads();
    }
    left = block_reduce(lane == 0 ? left : 0.0, Sum());
    double* of_matrix = parts + b * chunks * (n + 1);
    for (Index j = threadIdx.x; j < n; j += block_size) of_matrix[chunk * (n + 1) + j] = total[j];
    if (threadIdx.x == 0) of_matrix[chunk * (n + 1) + n] = left;
    if (!last_to_arrive(counters + b, chunks)) return;
    double all_left = 0;
    for (Index c = 0; c < chunks; ++c) all_left += of_matrix[c * (n + 1) + n];
    all_left /= double(a.rows);
    for (Index j = threadIdx.x; j < n; j += block_size) {
        double s = 0;
        for (Index c = 0; c < chunks; ++c) s += of_matrix[c * (n + 1) + j];
        z.row(b, 0)[j] = s - column.row(b, 0)[j] * all_left;
    }
    if (threadIdx.x == 0) counters[b] = 0;
}

/// y = a x, and v = a u less its mean, of longer rows.
template <class T>
__global__ void krylov_rows_kernel(Rows<double> y, Rows<double> v, Rows<const T> a,
                                   Rows<const double> x, Rows<const double> u,
                                   Rows<const double> column) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const Index chunks = krylov_chunks(a.rows);
    const Index b = quotient(blockIdx.x, chunks), chunk = blockIdx.x - b * chunks;
    const Index begin = chunk * rows_of_krylov_block, after = begin + rows_of_krylov_block;
    const double* at_x = y.data != nullptr ? x.row(b, 0) : nullptr;
    const double* at_u = v.data != nullptr ? u.row(b, 0) : nullptr;
    const double mean = at_u != nullptr ? mean_of(column.row(b, 0), at_u, a.cols, a.rows) : 0;
    for (Index r = begin + warp; r < after && r < a.rows; r += warps_of_block) {
        const T* row = a.row(b, r);
        double s = 0, t = 0;
        TSDIAG_UNROLL_BY_8
        for (Index j = lane; j < a.cols; j += warp_size) {
            const double e = row[j];
            if (at_x != nullptr) s += e * at_x[j];
            if (at_u != nullptr) t += e * at_u[j];
        }
        s = warp_sum(s), t = warp_sum(t);
        if (lane != 0) continue;
        if (at_x != nullptr) y.row(b, 0)[r] = s;
        if (at_u != nullptr) v.row(b, 0)[r] = t - mean;
    }
}

/// z from a^T v of each chunk of rows, (b, chunks, n), and what rounding has left of v's mean.
__global__ void krylov_sum_kernel(Rows<double> z, Rows<const double> parts, Rows<const double> v,
                                  Rows<const double> column) {
    const Index n = z.cols, blocks = (n + block_size - 1) / block_size;
    const Index b = quotient(blockIdx.x, blocks);
    const Index j = (blockIdx.x - b * blocks) * block_size + threadIdx.x;
    const double* own = v.row(b, 0);
    const double left = block_sum_over(v.cols, [&](Index i) { return own[i]; }) / double(v.cols);
    if (j >= n) return;
    double s = 0;
    for (Index c = 0; c < parts.rows; ++c) s += parts.row(b, c)[j];
    z.row(b, 0)[j] = s - column.row(b, 0)[j] * left;
}

/// A block for each basis.
__global__ void extend_kernel(Rows<double> basis, Rows<double> column, Rows<double> image,
                              Index centred) {
    __shared__ double part[most_krylov_vectors];
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const Index b = blockIdx.x, n = basis.cols, size = basis.rows - 1;
    double* w = image.row(b, 0);
    double* found = column.row(b, 0);
    const auto norm = [&] { return sqrt(block_sum_over(n, [&](Index j) { return w[j] * w[j]; })); };
    double before = norm();
    bool nothing = false;
    if (b < centred) {
        const double whole = before;
        const double mean = block_sum_over(n, [&](Index j) { return w[j]; }) / double(n);
        for (Index j = threadIdx.x; j < n; j += block_size) w[j] -= mean;
        __syncthreads();
        before = norm();
        nothing = before <= 4 * rounding * whole;
    }
    for (int pass = 0; pass < 2; ++pass) {
        for (Index k = warp; k < size; k += warps_of_block) {
            const double* v = basis.row(b, k);
            const double s = warp_sum_over(n, [&](Index j) { return v[j] * w[j]; });
            if (lane == 0) part[k] = s;
        }
        __syncthreads();
        for (Index j = threadIdx.x; j < n; j += block_size) {
            double s = 0;
            for (Index k = 0; k < size; ++k) s += part[k] * basis.row(b, k)[j];
            w[j] -= s;
        }
        for (Index k = threadIdx.x; k < size; k += block_size)
            found[k] = nothing ? 0 : pass == 0 ? part[k] : found[k] + part[k];
        __syncthreads();  // before part is overwritten
    }
    double rest = norm();
    if (nothing || rest <= 8 * rounding * before || size >= n) rest = 0;
    for (Index j = threadIdx.x; j < n; j += block_size)
        basis.row(b, size)[j] = rest > 0 ? w[j] / rest : 0;
    if (threadIdx.x == 0) found[size] = rest;
}

/// Some blocks for each matrix, the last of which adds up: the sum of squares, and 1 for an entry
/// that is 0, 2 for rows that differ.
template <class T>
__global__ void survey_kernel(double* out, double* parts, Counter* counters, Rows<const T> a) {
    const Index blocks = parts_of_sum(a.rows * a.cols), b = quotient(blockIdx.x, blocks),
                part = blockIdx.x - b * blocks;
    const T* first = a.row(b, 0);
    double s = 0;
    int zero = 0, differ = 0;
    for (Index r = part; r < a.rows; r += blocks) {
        const T* row = a.row(b, r);
        for (Index j = threadIdx.x; j < a.cols; j += block_size) {
            s += double(row[j]) * double(row[j]);
            if (row[j] == T(0)) zero = 1;
            if (row[j] != first[j]) differ = 1;
        }
    }
    s = block_reduce(s, Sum());
    zero = block_reduce(zero, Maximum());
    differ = block_reduce(differ, Maximum());
    double* own = parts + 3 * b * blocks;
    if (threadIdx.x == 0) own[3 * part] = s, own[3 * part + 1] = zero, own[3 * part + 2] = differ;
    if (!last_to_arrive(counters + b, blocks) || threadIdx.x != 0) return;
    double squares = 0, any_zero = 0, any_differ = 0;
    for (Index p = 0; p < blocks; ++p) {
        squares += own[3 * p];
        any_zero = Maximum()(any_zero, own[3 * p + 1]);
        any_differ = Maximum()(any_differ, own[3 * p + 2]);
    }
    out[2 * b] = squares;
    out[2 * b + 1] = any_zero + 2 * any_differ;
    counters[b] = 0;
}

Rows<double> vectors(const View* v) { return rows_of<double>(v != nullptr ? *v : View()); }

}  // namespace

void krylov_products(const View* y, const View* z, double* parts, Counter* counters, View a, View x,
                     View u, View column) {
    typed(a, [&]<class T>(T) {
        const auto launch = [&](auto across) {
            TSDIAG_LAUNCH((krylov_kernel<T, across()>), a.shape.batch * krylov_chunks(a.shape.rows),
                          block_size, vectors(y), vectors(z), parts, counters, rows_of<const T>(a),
                          rows_of<const double>(x), rows_of<const double>(u),
                          rows_of<const double>(column));
        };
        if (a.shape.cols <= 4 * warp_size)
            launch(std::integral_constant<int, 4>());
        else if (a.shape.cols <= 16 * warp_size)
            launch(std::integral_constant<int, 16>());
        else
            launch(std::integral_constant<int, short_krylov_row / warp_size>());
    });
}

void krylov_rows(const View* y, const View* v, View a, View x, View u, View column) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(krylov_rows_kernel<T>, a.shape.batch * krylov_chunks(a.shape.rows),
                      block_size, vectors(y), vectors(v), rows_of<const T>(a),
                      rows_of<const double>(x), rows_of<const double>(u),
                      rows_of<const double>(column));
    });
}

void krylov_sum(View z, View parts, View v, View column) {
    TSDIAG_LAUNCH(krylov_sum_kernel, z.shape.batch * ((z.shape.cols + block_size - 1) / block_size),
                  block_size, rows_of<double>(z), rows_of<const double>(parts),
                  rows_of<const double>(v), rows_of<const double>(column));
}

void extend_basis(View basis, View column, View image, Index centred) {
    TSDIAG_LAUNCH(extend_kernel, basis.shape.batch, block_size, rows_of<double>(basis),
                  rows_of<double>(column), rows_of<double>(image), centred);
}

void survey(double* out, double* parts, Counter* counters, View a) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(survey_kernel<T>, a.shape.batch * parts_of_sum(a.shape.rows * a.shape.cols),
                      block_size, out, parts, counters, rows_of<const T>(a));
    });
}

}  // namespace tsdiag::gpu
