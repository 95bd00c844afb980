#include "kernel.hpp"

/// Reductions over rows: one block of threads per row.
namespace tsdiag::gpu {
namespace {

/// f(j) summed over the columns [first, last) by all threads of the block.
template <class F>
__device__ double sum_over(Index first, Index last, F f) {
    double s = 0;
    for (Index j = first + threadIdx.x; j < last; j += blockDim.x) s += f(j);
    return block_reduce(s, Sum());
}

template <class T>
__global__ void normalise_kernel(Rows<T> out, Rows<const T> a, const T* weight, const T* bias,
                                 double eps, bool centre) {
    const Index n = a.cols;
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T* x = a.row(i);
        T* y = out.row(i);
        const auto value = [&](Index j) { return double(x[j]); };
        const double mean = centre ? sum_over(0, n, value) / double(n) : 0;
        const auto mean_square = [&](double scale) {
            const double sum = sum_over(0, n, [&](Index j) {
                const double c = (double(x[j]) - mean) * scale;
                return c * c;
            });
            return sum / double(n);
        };
        double s = mean_square(1), scale = 1;
        // Squares of float64 may overflow or underflow; uniform over the block.
        if (s > 0x1p990 || (s < 0x1p-910 && eps < 0x1p-800)) {
            scale = s < 1 ? 0x1p600 : 0x1p-600;
            s = mean_square(scale);
        }
        const T m = T(mean), f = T(scale / sqrt(s + eps * scale * scale));
        for (Index j = threadIdx.x; j < n; j += blockDim.x)
            y[j] = (x[j] - m) * f * (weight != nullptr ? weight[j] : T(1)) +
                   (bias != nullptr ? bias[j] : T(0));
    }
}

template <class T>
__global__ void row_sum_kernel(Rows<T> out, Rows<const T> a) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T* x = a.row(i);
        const double s = sum_over(0, a.cols, [&](Index j) { return double(x[j]); });
        if (threadIdx.x == 0) *out.row(i) = T(s);
    }
}

template <class T>
__global__ void row_max_kernel(Rows<T> out, Rows<const T> a) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T* x = a.row(i);
        T top = x[0];
        for (Index j = threadIdx.x; j < a.cols; j += blockDim.x) top = x[j] > top ? x[j] : top;
        top = block_reduce(top, Maximum());
        if (threadIdx.x == 0) *out.row(i) = top;
    }
}

/// One thread per column: coalesced reads.
template <class T>
__global__ void column_sum_kernel(Rows<T> out, Rows<const T> a) {
    for (Index t = global_thread(); t < a.batch * a.cols; t += all_threads()) {
        const Index b = t / a.cols, j = t % a.cols;
        double s = 0;
        for (Index r = 0; r < a.rows; ++r) s += double(a.row(b, r)[j]);
        out.row(b, 0)[j] = T(s);
    }
}

template <class T>
__global__ void softmax_kernel(Rows<T> p, DeviceVisible visible) {
    for (Index i = blockIdx.x; i < p.batch * p.rows; i += gridDim.x) {
        T* x = p.row(i);
        const Range seen = visible_range(visible, i % p.rows, p.cols);
        for (Index j = threadIdx.x; j < p.cols; j += blockDim.x)
            if (j < seen.first || j >= seen.last) x[j] = T(0);
        if (seen.last <= seen.first) continue;  // uniform over the block
        T top = x[seen.first];
        for (Index j = seen.first + threadIdx.x; j < seen.last; j += blockDim.x)
            top = x[j] > top ? x[j] : top;
        top = block_reduce(top, Maximum());
        const double z = sum_over(seen.first, seen.last, [&](Index j) {
            x[j] = exp(x[j] - top);
            return double(x[j]);
        });
        const T inverse = T(1 / z);
        for (Index j = seen.first + threadIdx.x; j < seen.last; j += blockDim.x) x[j] *= inverse;
    }
}

template <class T>
__global__ void matvec_kernel(double* y, Rows<const T> a, const double* x) {
    constexpr int rows_at_once = block_size / warp_size;
    const Index lane = threadIdx.x % warp_size;
    const Index warp = Index(blockIdx.x) * rows_at_once + threadIdx.x / warp_size;
    for (Index i = warp; i < a.batch * a.rows; i += Index(gridDim.x) * rows_at_once) {
        const T* row = a.row(i);
        const double* v = x + quotient(i, a.rows) * a.cols;
        double s = 0;
        for (Index j = lane; j < a.cols; j += warp_size) s += double(row[j]) * v[j];
        for (int mask = warp_size / 2; mask > 0; mask /= 2)
            s += __shfl_xor_sync(0xFFFFFFFFU, s, mask);
        if (lane == 0) y[i] = s;
    }
}

template <class T>
__global__ void matvec_transposed_kernel(double* parts, Rows<const T> a, const double* x) {
    const Index chunks = chunks_of(a.rows);
    for (Index t = global_thread(); t < a.batch * chunks * a.cols; t += all_threads()) {
        const Index part = quotient(t, a.cols), j = t - part * a.cols;
        const Index b = quotient(part, chunks), begin = (part - b * chunks) * chunk_rows;
        const Index end = begin + chunk_rows < a.rows ? begin + chunk_rows : a.rows;
        double s = 0;
        for (Index r = begin; r < end; ++r) s += double(a.row(b, r)[j]) * x[b * a.rows + r];
        parts[t] = s;
    }
}

template <class T>
__global__ void squares_kernel(double* squares, Rows<const T> a) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T* x = a.row(i);
        const double s = sum_over(0, a.cols, [&](Index j) { return double(x[j]) * double(x[j]); });
        if (threadIdx.x == 0) squares[i] = s;
    }
}

template <class T>
__global__ void nonfinite_kernel(Index* found, Rows<const T> a) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T* x = a.row(i);
        Index at = a.cols;
        for (Index j = threadIdx.x; j < a.cols; j += blockDim.x)
            if (!(x[j] - x[j] == T(0)) && j < at) at = j;
        at = block_reduce(at, Minimum());
        if (threadIdx.x == 0) found[i] = at == a.cols ? -1 : at;
    }
}

}  // namespace

void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                    bool centre) {
    typed(out, [&]<class T>(T) {
        const T* w = weight != nullptr ? static_cast<const T*>(weight->data) : nullptr;
        const T* c = bias != nullptr ? static_cast<const T*>(bias->data) : nullptr;
        TSDIAG_LAUNCH(normalise_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      rows_of<T>(out), rows_of<const T>(a), w, c, eps, centre);
    });
}

void row_sum(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(row_sum_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      rows_of<T>(out), rows_of<const T>(a));
    });
}

void row_max(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(row_max_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      rows_of<T>(out), rows_of<const T>(a));
    });
}

void column_sum(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(column_sum_kernel<T>, grid_for(a.shape.batch * a.shape.cols), block_size,
                      rows_of<T>(out), rows_of<const T>(a));
    });
}

void softmax_rows(View p, DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(softmax_kernel<T>, grid_of_rows(p.shape.batch * p.shape.rows), block_size,
                      rows_of<T>(p), visible);
    });
}

void matvec(View y, View a, View x) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(matvec_kernel<T>, grid_for(a.shape.batch * a.shape.rows * warp_size),
                      block_size, static_cast<double*>(y.data), rows_of<const T>(a),
                      static_cast<const double*>(x.data));
    });
}

void matvec_transposed(double* parts, View a, View x) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(matvec_transposed_kernel<T>,
                      grid_for(a.shape.batch * chunks_of(a.shape.rows) * a.shape.cols), block_size,
                      parts, rows_of<const T>(a), static_cast<const double*>(x.data));
    });
}

void row_squares(double* squares, View a) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(squares_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      squares, rows_of<const T>(a));
    });
}

void row_nonfinite(Index* found, View a) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(nonfinite_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      found, rows_of<const T>(a));
    });
}

}  // namespace tsdiag::gpu
