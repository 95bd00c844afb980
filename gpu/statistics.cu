#include "kernel.hpp"

/// Statistics of rows of P, and moments of states.
namespace tsdiag::gpu {
namespace {

template <class T>
__device__ __forceinline__ double modulus_of(T x) {
    return static_cast<double>(x < T(0) ? -x : x);
}

/// f(j) over the columns [first, last) by all threads of the block, put together by `combine`.
template <class Combine, class F>
__device__ double over(Index first, Index last, Combine combine, F f) {
    double s = 0;
    for (Index j = first + threadIdx.x; j < last; j += blockDim.x) s = combine(s, f(j));
    return block_reduce(s, combine);
}

/// |dP_i/dS_i|_F^2 and its largest entry, for a row divided by its sum.  The entry with the largest
/// modulus is set apart, so that nothing cancels.
template <class T>
__device__ void divided_jacobian(const T* p, const T* slope, Range seen, double squares, double top,
                                 double& jacobian, double& largest) {
    Index at = seen.last - 1;
    for (Index j = seen.first + threadIdx.x; j < seen.last; j += blockDim.x)
        if (modulus_of(p[j]) == top && j < at) at = j;
    at = block_reduce(at, Minimum());
    const auto apart = [&](auto f) { return [=](Index j) { return j == at ? 0.0 : f(j); }; };
    const double total = over(seen.first, seen.last, Sum(), apart([=](Index j) {
                                  const double x = p[j], g = slope[j], rest = 1 - x;
                                  return g * g * (rest * rest + (squares - x * x));
                              }));
    const double others =
        over(seen.first, seen.last, Sum(),
             apart([=](Index j) { return static_cast<double>(p[j]) * static_cast<double>(p[j]); }));
    const double own = over(seen.first, seen.last, Maximum(), [=](Index j) {
        return modulus_of(static_cast<double>(slope[j]) * (1 - static_cast<double>(p[j])));
    });
    const double steepest = over(seen.first, seen.last, Maximum(),
                                 apart([=](Index j) { return modulus_of(slope[j]); }));
    const double second =
        over(seen.first, seen.last, Maximum(), apart([=](Index j) { return modulus_of(p[j]); }));
    const double g = slope[at], rest = 1 - static_cast<double>(p[at]);
    jacobian = total + g * g * (rest * rest + others);
    largest = Maximum()(own, Maximum()(steepest * top, modulus_of(g) * second));
}

template <class T>
__device__ void row_jacobian(const T* p, const T* slope, bool divided, Range seen, double squares,
                             double top, double& jacobian, double& largest) {
    jacobian = largest = 0;
    if (seen.last <= seen.first) return;
    if (divided) return divided_jacobian(p, slope, seen, squares, top, jacobian, largest);
    jacobian = over(seen.first, seen.last, Sum(), [=](Index j) {
        return static_cast<double>(slope[j]) * static_cast<double>(slope[j]);
    });
    largest = over(seen.first, seen.last, Maximum(), [=](Index j) { return modulus_of(slope[j]); });
}

template <class T>
__global__ void fields_kernel(RowFields out, Rows<const T> p, Rows<const T> slope, bool divided,
                              Index first, DeviceVisible visible) {
    for (Index i = blockIdx.x; i < p.batch * p.rows; i += gridDim.x) {
        const T* x = p.row(i);
        const Range seen = visible_range(visible, i % p.rows, p.cols);
        const auto sum = [&](auto f) { return over(seen.first, seen.last, Sum(), f); };
        const double total = sum([=](Index j) { return static_cast<double>(x[j]); });
        const double modulus = sum([=](Index j) { return modulus_of(x[j]); });
        const double negative = sum([=](Index j) { return x[j] < T(0) ? modulus_of(x[j]) : 0.0; });
        const double squares =
            sum([=](Index j) { return static_cast<double>(x[j]) * static_cast<double>(x[j]); });
        const double entropy = sum([=](Index j) {
            const double v = x[j];
            return v > 0 ? -v * log(v) : 0.0;
        });
        const double top =
            over(seen.first, seen.last, Maximum(), [=](Index j) { return modulus_of(x[j]); });
        double jacobian = 0, largest = 0;
        if (slope.data != nullptr)
            row_jacobian(x, slope.row(i), divided, seen, squares, top, jacobian, largest);
        if (threadIdx.x != 0) continue;
        const Index own = first + i % p.rows;
        out.sum[i] = total;
        out.modulus[i] = modulus;
        out.negative[i] = negative;
        out.squares[i] = squares;
        out.entropy[i] = entropy;
        out.max_modulus[i] = top;
        out.diagonal[i] = own < p.cols ? static_cast<double>(x[own]) : 0.0;
        if (slope.data == nullptr) continue;
        out.jacobian[i] = jacobian;
        out.jacobian_max[i] = largest;
    }
}

/// The column that the nested window of row i of n takes in as its token e (docs/references.md).
__device__ __forceinline__ Index window_column(Index i, Index e, Index n) {
    const Index before = i, after = n - 1 - i, both = before < after ? before : after;
    if (e <= 2 * both) return e % 2 == 1 ? i - (e + 1) / 2 : i + e / 2;
    return before < after ? e : n - 1 - e;
}

/// A thread a token of the window of one head, over all rows.
template <class T>
__global__ void windows_kernel(double* window, Rows<const T> p, Index first,
                               DeviceVisible visible) {
    for (Index t = global_thread(); t < p.batch * p.cols; t += all_threads()) {
        const Index b = t / p.cols, e = t % p.cols;
        double s = 0;
        for (Index r = 0; r < p.rows; ++r) {
            const Index j = window_column(first + r, e, p.cols);
            const Range seen = visible_range(visible, r, p.cols);
            if (j >= seen.first && j < seen.last) s += static_cast<double>(p.row(b, r)[j]);
        }
        window[t] = s;
    }
}

/// A thread a column.
template <class T>
__global__ void state_sums_kernel(double* column, double* unit, Rows<const T> x,
                                  const double* squares) {
    for (Index j = global_thread(); j < x.cols; j += all_threads()) {
        double c = 0, u = 0;
        for (Index i = 0; i < x.rows; ++i) {
            const double v = x.row(0, i)[j];
            c += v;
            if (squares[i] > 0) u += v / sqrt(squares[i]);
        }
        column[j] = c;
        unit[j] = u;
    }
}

template <class T>
__global__ void centred_kernel(double* centred, Rows<const T> x, const double* mean) {
    for (Index i = blockIdx.x; i < x.rows; i += gridDim.x) {
        const T* row = x.row(i);
        const double s = over(0, x.cols, Sum(), [=](Index j) {
            const double c = static_cast<double>(row[j]) - mean[j];
            return c * c;
        });
        if (threadIdx.x == 0) centred[i] = s;
    }
}

}  // namespace

void row_fields(RowFields out, View p, const View* slope, bool divided, Index first,
                DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(fields_kernel<T>, grid_of_rows(p.shape.batch * p.shape.rows), block_size, out,
                      rows_of<const T>(p), rows_of<const T>(slope != nullptr ? *slope : View()),
                      divided, first, visible);
    });
}

void windows(double* window, View p, Index first, DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(windows_kernel<T>, grid_for(p.shape.batch * p.shape.cols), block_size, window,
                      rows_of<const T>(p), first, visible);
    });
}

void state_sums(double* column, double* unit, View x, const double* squares) {
    typed(x, [&]<class T>(T) {
        TSDIAG_LAUNCH(state_sums_kernel<T>, grid_for(x.shape.cols), block_size, column, unit,
                      rows_of<const T>(x), squares);
    });
}

void centred_squares(double* centred, View x, const double* mean) {
    typed(x, [&]<class T>(T) {
        TSDIAG_LAUNCH(centred_kernel<T>, grid_of_rows(x.shape.rows), block_size, centred,
                      rows_of<const T>(x), mean);
    });
}

}  // namespace tsdiag::gpu
