#include "kernel.hpp"

/// Statistics of rows of P, and moments of states.
namespace tsdiag::gpu {
namespace {

__device__ __forceinline__ double modulus_of(double x) { return x < 0 ? -x : x; }

/// Statistics of a row in one pass.  The entry with the largest modulus is kept apart, so that the
/// Jacobian does not cancel; parts of a row are merged by `join`.
struct Fields {
    double sum = 0, modulus = 0, negative = 0, entropy = 0;
    double rest = 0;  ///< sum of p^2; this and the following exclude the entry kept apart
    double below = 0, slopes = 0, both = 0;         ///< sums of g^2 (1 - p)^2, g^2, g^2 p^2
    double steepest = 0, second = 0;                ///< largest |g|, |p|
    double own = 0;                                 ///< largest |g (1 - p)|, of all entries
    double top = -1, top_value = 0, top_slope = 0;  ///< the entry kept apart: |p|, p, g; -1: none

    __device__ void set_aside(double x, double g) {
        const double left = 1 - x, squared = g * g;
        rest += x * x;
        below += squared * left * left;
        slopes += squared;
        both += squared * x * x;
        steepest = larger(steepest, modulus_of(g));
        second = larger(second, modulus_of(x));
    }
    __device__ void add(double x, double logarithm, double g) {
        const double m = modulus_of(x);
        sum += x;
        modulus += m;
        if (x < 0) negative += m;
        if (x > 0) entropy -= x * logarithm;
        own = larger(own, modulus_of(g * (1 - x)));
        if (m > top) {
            if (top >= 0) set_aside(top_value, top_slope);
            top = m, top_value = x, top_slope = g;
        } else {
            set_aside(x, g);
        }
    }
    __device__ void join(const Fields& other) {
        sum += other.sum;
        modulus += other.modulus;
        negative += other.negative;
        entropy += other.entropy;
        rest += other.rest;
        below += other.below;
        slopes += other.slopes;
        both += other.both;
        steepest = larger(steepest, other.steepest);
        second = larger(second, other.second);
        own = larger(own, other.own);
        if (other.top < 0) return;
        if (other.top > top) {
            if (top >= 0) set_aside(top_value, top_slope);
            top = other.top, top_value = other.top_value, top_slope = other.top_slope;
        } else {
            set_aside(other.top_value, other.top_slope);
        }
    }

    __device__ static double larger(double a, double b) { return a < b ? b : a; }
};

/// The value of the lane `mask` away (butterfly).
__device__ Fields from_lane(const Fields& own, int mask) {
    Fields other;
    const auto take = [mask](double value) { return __shfl_xor_sync(0xFFFFFFFFU, value, mask); };
    other.sum = take(own.sum);
    other.modulus = take(own.modulus);
    other.negative = take(own.negative);
    other.entropy = take(own.entropy);
    other.rest = take(own.rest);
    other.below = take(own.below);
    other.slopes = take(own.slopes);
    other.both = take(own.both);
    other.steepest = take(own.steepest);
    other.second = take(own.second);
    other.own = take(own.own);
    other.top = take(own.top);
    other.top_value = take(own.top_value);
    other.top_slope = take(own.top_slope);
    return other;
}

/// One warp per row.
template <class T>
__global__ void fields_kernel(RowFields out, Rows<const T> p, Rows<const T> slope, bool divided,
                              Index first, DeviceVisible visible) {
    constexpr int rows_at_once = block_size / warp_size;
    const Index lane = threadIdx.x % warp_size;
    const Index warp = Index(blockIdx.x) * rows_at_once + threadIdx.x / warp_size;
    for (Index i = warp; i < p.batch * p.rows; i += Index(gridDim.x) * rows_at_once) {
        const T* x = p.row(i);
        // For softmax the slope is P itself, read once.
        const T* g = slope.data == nullptr || slope.data == p.data ? x : slope.row(i);
        const Range seen = visible_range(visible, i % p.rows, p.cols);
        Fields f;
        for (Index j = seen.first + lane; j < seen.last; j += warp_size) {
            const T v = x[j];
            f.add(v, v > T(0) ? log(v) : T(0), g[j]);
        }
        for (int mask = warp_size / 2; mask > 0; mask /= 2) f.join(from_lane(f, mask));
        if (lane != 0) continue;
        const double top = f.top < 0 ? 0 : f.top, squares = f.rest + top * top;
        const Index own = first + i % p.rows;
        out.sum[i] = f.sum;
        out.modulus[i] = f.modulus;
        out.negative[i] = f.negative;
        out.squares[i] = squares;
        out.entropy[i] = f.entropy;
        out.max_modulus[i] = top;
        out.diagonal[i] = own < p.cols ? double(x[own]) : 0.0;
        if (slope.data == nullptr) continue;
        const double s = f.top_slope, left = 1 - f.top_value, steep = modulus_of(s);
        if (divided) {
            out.jacobian[i] =
                f.below + (squares * f.slopes - f.both) + s * s * (left * left + f.rest);
            out.jacobian_max[i] =
                Fields::larger(f.own, Fields::larger(f.steepest * top, steep * f.second));
        } else {
            out.jacobian[i] = f.slopes + s * s;
            out.jacobian_max[i] = Fields::larger(f.steepest, steep);
        }
    }
}

/// The column that enters the nested window of row i of n as its token e (docs/references.md).
__device__ __forceinline__ Index window_column(Index i, Index e, Index n) {
    const Index before = i, after = n - 1 - i, both = before < after ? before : after;
    if (e <= 2 * both) return e % 2 == 1 ? i - (e + 1) / 2 : i + e / 2;
    return before < after ? e : n - 1 - e;
}

/// One thread per window token of a head, over a chunk of rows: (heads, chunks, n).
template <class T>
__global__ void windows_kernel(double* window, Rows<const T> p, Index first,
                               DeviceVisible visible) {
    const Index chunks = chunks_of(p.rows);
    for (Index t = global_thread(); t < p.batch * chunks * p.cols; t += all_threads()) {
        const Index part = quotient(t, p.cols), e = t - part * p.cols;
        const Index b = quotient(part, chunks), begin = (part - b * chunks) * chunk_rows;
        const Index end = begin + chunk_rows < p.rows ? begin + chunk_rows : p.rows;
        double s = 0;
        for (Index r = begin; r < end; ++r) {
            const Index j = window_column(first + r, e, p.cols);
            const Range seen = visible_range(visible, r, p.cols);
            if (j >= seen.first && j < seen.last) s += double(p.row(b, r)[j]);
        }
        window[t] = s;
    }
}

/// One thread per column of a chunk of rows: (chunks, d).
template <class T>
__global__ void state_sums_kernel(double* column, double* unit, Rows<const T> x,
                                  const double* squares) {
    const Index chunks = chunks_of(x.rows);
    for (Index t = global_thread(); t < chunks * x.cols; t += all_threads()) {
        const Index chunk = quotient(t, x.cols), j = t - chunk * x.cols;
        const Index begin = chunk * chunk_rows;
        const Index end = begin + chunk_rows < x.rows ? begin + chunk_rows : x.rows;
        double c = 0, u = 0;
        for (Index i = begin; i < end; ++i) {
            const double v = x.row(0, i)[j];
            c += v;
            if (squares[i] > 0) u += v / sqrt(squares[i]);
        }
        column[t] = c;
        unit[t] = u;
    }
}

template <class T>
__global__ void centred_kernel(double* centred, Rows<const T> x, const double* mean) {
    for (Index i = blockIdx.x; i < x.rows; i += gridDim.x) {
        const T* row = x.row(i);
        double s = 0;
        for (Index j = threadIdx.x; j < x.cols; j += blockDim.x) {
            const double c = double(row[j]) - mean[j];
            s += c * c;
        }
        s = block_reduce(s, Sum());
        if (threadIdx.x == 0) centred[i] = s;
    }
}

}  // namespace

void row_fields(RowFields out, View p, const View* slope, bool divided, Index first,
                DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(fields_kernel<T>, grid_for(p.shape.batch * p.shape.rows * warp_size),
                      block_size, out, rows_of<const T>(p),
                      rows_of<const T>(slope != nullptr ? *slope : View()), divided, first,
                      visible);
    });
}

void windows(double* window, View p, Index first, DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(windows_kernel<T>,
                      grid_for(p.shape.batch * chunks_of(p.shape.rows) * p.shape.cols), block_size,
                      window, rows_of<const T>(p), first, visible);
    });
}

void state_sums(double* column, double* unit, View x, const double* squares) {
    typed(x, [&]<class T>(T) {
        TSDIAG_LAUNCH(state_sums_kernel<T>, grid_for(chunks_of(x.shape.rows) * x.shape.cols),
                      block_size, column, unit, rows_of<const T>(x), squares);
    });
}

void centred_squares(double* centred, View x, const double* mean) {
    typed(x, [&]<class T>(T) {
        TSDIAG_LAUNCH(centred_kernel<T>, grid_of_rows(x.shape.rows), block_size, centred,
                      rows_of<const T>(x), mean);
    });
}

}  // namespace tsdiag::gpu
