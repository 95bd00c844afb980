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

/// Blocks that are to fit on a multiprocessor: enough reads under way for its bandwidth.
#ifdef TSDIAG_EMULATED
#define TSDIAG_ROW_KERNEL __global__ void
#else
#define TSDIAG_ROW_KERNEL __global__ void __launch_bounds__(block_size, sizeof(T) == 4 ? 8 : 4)
#endif

/// The columns [first, last) of a row, which the threads of a block share.  In registers where a
/// thread has at most `most` of them: then the row is read once, with all reads under way at once.
template <class T>
class SharedRow {
  public:
    enum class Begin { read, unset };
    __device__ SharedRow(T* x, Index first, Index last, Begin begin = Begin::read)
        : x_(x + first), count_(last - first), kept_(last - first <= most * block_size) {
        if (!kept_ || begin == Begin::unset) return;
        TSDIAG_UNROLL
        for (int k = 0; k < most; ++k)
            if (column(k) < int(count_)) own_[k] = x_[column(k)];
    }
    /// f(j, x_j) of the thread's columns in ascending order, j from 0; f may change x_j, in memory
    /// only where it is not kept.
    template <class F>
    __device__ void each(F f) {
        if (kept_) {
            TSDIAG_UNROLL
            for (int k = 0; k < most; ++k)
                if (column(k) < int(count_)) f(Index(column(k)), own_[k]);
        } else {
            for (Index j = threadIdx.x; j < count_; j += block_size) f(j, x_[j]);
        }
    }
    /// f(x_j) summed over the row.
    template <class F>
    __device__ double sum(F f) {
        double s = 0;
        each([&](Index, auto& x) { s += f(x); });
        return block_reduce(s, Sum());
    }

  private:
    static constexpr int most = 32 / int(sizeof(T));
    static __device__ int column(int k) { return int(threadIdx.x) + k * block_size; }

    T* x_;
    Index count_;
    bool kept_;
    std::remove_const_t<T> own_[most];
};

/// What a norm subtracts from a row and multiplies it by.
template <class T>
struct Standard {
    T mean, inverse;
    __device__ T operator()(T x) const { return (x - mean) * inverse; }
};
template <class T>
__device__ Standard<std::remove_const_t<T>> standard_of(SharedRow<T>& row, Index n, double eps,
                                                        bool centre) {
    const double mean = centre ? row.sum([](T x) { return double(x); }) / double(n) : 0;
    const auto mean_square = [&](double scale) {
        const double sum = row.sum([&](T x) {
            const double c = (double(x) - mean) * scale;
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
    using Number = std::remove_const_t<T>;
    return {Number(mean), Number(scale / sqrt(s + eps * scale * scale))};
}

template <class T>
TSDIAG_ROW_KERNEL normalise_kernel(Rows<T> out, Rows<const T> a, const T* weight, const T* bias,
                                   double eps, bool centre) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        SharedRow<const T> row(a.row(i), 0, a.cols);
        T* y = out.row(i);
        const Standard<T> unit = standard_of(row, a.cols, eps, centre);
        row.each([&](Index j, T x) {
            y[j] = unit(x) * (weight != nullptr ? weight[j] : T(1)) +
                   (bias != nullptr ? bias[j] : T(0));
        });
    }
}

template <class T>
TSDIAG_ROW_KERNEL sum_rows_kernel(Rows<T> sum, Rows<T> branch, Rows<T> normed, Rows<const T> a,
                                  const T* bias, Rows<const T> added, const T* weight,
                                  const T* shift, double eps, bool centre) {
    for (Index i = blockIdx.x; i < a.batch * a.rows; i += gridDim.x) {
        const T *x = a.row(i), *more = added.row(i);
        T *s = sum.row(i), *own = branch.data != nullptr ? branch.row(i) : nullptr;
        SharedRow<T> row(s, 0, a.cols, SharedRow<T>::Begin::unset);
        row.each([&](Index j, T& y) {
            const T e = x[j] + (bias != nullptr ? bias[j] : T(0));
            if (own != nullptr) own[j] = e;
            y = more[j] + e;
        });
        row.each([&](Index j, T y) { s[j] = y; });
        if (normed.data == nullptr) continue;
        const Standard<T> unit = standard_of(row, a.cols, eps, centre);
        T* to = normed.row(i);
        row.each([&](Index j, T y) {
            to[j] = unit(y) * (weight != nullptr ? weight[j] : T(1)) +
                    (shift != nullptr ? shift[j] : T(0));
        });
    }
}

/// A block for a group of rows, whose columns its threads add up.
template <class T>
__global__ void norm_derivative_kernel(Rows<T> out, Rows<T> parts, Rows<const T> g, Rows<const T> a,
                                       const T* weight, Rows<const T> added, double eps,
                                       bool centre) {
    const Index n = a.cols, rows = a.batch * a.rows, groups = norm_groups(rows);
    for (Index t = blockIdx.x; t < groups; t += gridDim.x) {
        const Index begin = t * rows_of_norm_group, after = begin + rows_of_norm_group;
        for (Index i = begin; i < after && i < rows; ++i) {
            const T *x = a.row(i), *pull = g.row(i);
            const T* more = added.data != nullptr ? added.row(i) : nullptr;
            T* y = out.row(i);
            SharedRow<const T> row(x, 0, n);
            const Standard<T> unit = standard_of(row, n, eps, centre);
            const auto h = [&](Index j) {
                return pull[j] * (weight != nullptr ? weight[j] : T(1));
            };
            const auto mean = [&](auto f) { return T(sum_over(0, n, f) / double(n)); };
            const T along = mean([&](Index j) { return double(h(j)) * double(unit(x[j])); });
            const T level = centre ? mean([&](Index j) { return double(h(j)); }) : T(0);
            for (Index j = threadIdx.x; j < n; j += blockDim.x) {
                const T own = (h(j) - level - unit(x[j]) * along) * unit.inverse;
                y[j] = more != nullptr ? more[j] + own : own;
                if (parts.data == nullptr) continue;
                T *by_weight = parts.row(0, t) + j, *by_bias = parts.row(1, t) + j;
                *by_weight = (i == begin ? T(0) : *by_weight) + pull[j] * unit(x[j]);
                *by_bias = (i == begin ? T(0) : *by_bias) + pull[j];
            }
        }
    }
}

template <class T>
TSDIAG_ROW_KERNEL softmax_derivative_kernel(Rows<T> out, Rows<const T> g, Rows<const T> y) {
    for (Index i = blockIdx.x; i < y.batch * y.rows; i += gridDim.x) {
        const T* pull = g.row(i);
        SharedRow<const T> row(y.row(i), 0, y.cols);
        T* to = out.row(i);
        double s = 0;
        row.each([&](Index j, T p) { s += double(pull[j]) * double(p); });
        const T mean = T(block_reduce(s, Sum()));
        row.each([&](Index j, T p) { to[j] = p * (pull[j] - mean); });
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

/// A block for 32 neighbouring columns and a share of the rows, which its warps divide: reads are
/// coalesced, and tall matrices keep a device busy.  The last block of the columns adds up.
#ifdef TSDIAG_EMULATED
constexpr int column_block = block_size;
#else
constexpr int column_block = 512;
#endif
template <class T>
__global__ void column_sum_kernel(Rows<T> out, double* parts, Counter* counters, Rows<const T> a) {
    constexpr int warps = column_block / warp_size;
    static_assert(columns_of_group == warp_size);
    __shared__ double of_warp[warps][warp_size];
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const Index groups = column_groups(a.cols), shares = shares_of_rows(a.rows);
    const Index t = quotient(blockIdx.x, shares), share = blockIdx.x - t * shares;
    const Index b = quotient(t, groups), j = (t - b * groups) * warp_size + lane;
    const Index each = (a.rows + shares - 1) / shares, begin = share * each;
    const Index end = begin + each < a.rows ? begin + each : a.rows;
    double s = 0;
    for (Index r = begin + warp; j < a.cols && r < end; r += warps) s += double(a.row(b, r)[j]);
    of_warp[warp][lane] = s;
    __syncthreads();
    if (warp == 0)
        for (int w = 1; w < warps; ++w) s += of_warp[w][lane];
    if (shares > 1) {
        double* own = parts + t * shares * warp_size + lane;
        if (warp == 0) own[share * warp_size] = s;
        if (!last_to_arrive(counters + t, shares)) return;
        s = 0;
        if (warp == 0)
            for (Index k = 0; k < shares; ++k) s += own[k * warp_size];
        if (threadIdx.x == 0) counters[t] = 0;
    }
    if (warp == 0 && j < a.cols) out.row(b, 0)[j] = T(s);
}

template <class T>
TSDIAG_ROW_KERNEL softmax_kernel(Rows<T> p, DeviceVisible visible) {
    for (Index i = blockIdx.x; i < p.batch * p.rows; i += gridDim.x) {
        T* x = p.row(i);
        const Range seen = visible_range(visible, i % p.rows, p.cols);
        for (Index j = threadIdx.x; j < p.cols; j += blockDim.x)
            if (j < seen.first || j >= seen.last) x[j] = T(0);
        if (seen.last <= seen.first) continue;  // uniform over the block
        SharedRow<T> row(x, seen.first, seen.last);
        T top = x[seen.first];
        row.each([&](Index, T e) { top = e > top ? e : top; });
        top = block_reduce(top, Maximum());
        const double z = row.sum([&](T& e) {
            e = exp(e - top);
            return double(e);
        });
        const T inverse = T(1 / z);
        T* out = x + seen.first;
        row.each([&](Index j, T e) { out[j] = e * inverse; });
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
        const Index b = quotient(part, chunks), begin = (part - b * chunks) * rows_of_chunk(a.rows);
        const Index rest = a.rows - begin, own = rows_of_chunk(a.rows);
        const Index end = begin + (own < rest ? own : rest);
        double s = 0;
        for (Index r = begin; r < end; ++r) s += double(a.row(b, r)[j]) * x[b * a.rows + r];
        parts[t] = s;
    }
}

/// Some blocks for each x, the last of which adds up what they have found.
template <class T>
__global__ void squares_kernel(double* squares, double* parts, Counter* counters,
                               Several<const T> xs, Index blocks) {
    const Index k = quotient(blockIdx.x, blocks), part = blockIdx.x - k * blocks;
    const Rows<const T>& x = xs.at[k];
    const Index count = x.batch * x.rows * x.cols;
    double s = 0;
    for (Index i = part * blockDim.x + threadIdx.x; i < count; i += blocks * blockDim.x) {
        const Index row = quotient(i, x.cols);
        const double v = x.row(row)[i - row * x.cols];
        s += v * v;
    }
    s = block_reduce(s, Sum());
    double* own = parts + k * blocks;
    if (threadIdx.x == 0) own[part] = s;
    if (!last_to_arrive(counters + k, blocks)) return;
    if (threadIdx.x != 0) return;
    double all = 0;
    for (Index p = 0; p < blocks; ++p) all += own[p];
    squares[k] = all;
    counters[k] = 0;
}

template <class T>
__global__ void traces_kernel(double* sums, double* parts, Counter* counters, Rows<const T> a) {
    const Index blocks = parts_of_sum(a.rows * a.cols), b = quotient(blockIdx.x, blocks),
                part = blockIdx.x - b * blocks;
    double s = 0, t = 0;
    for (Index r = part; r < a.rows; r += blocks) {
        const T* row = a.row(b, r);
        for (Index j = threadIdx.x; j < a.cols; j += blockDim.x)
            s += double(row[j]) * double(row[j]);
        if (threadIdx.x == 0) t += double(row[r]);
    }
    s = block_reduce(s, Sum());
    t = block_reduce(t, Sum());
    double* own = parts + 2 * b * blocks;
    if (threadIdx.x == 0) own[2 * part] = s, own[2 * part + 1] = t;
    if (!last_to_arrive(counters + b, blocks)) return;
    if (threadIdx.x > 1) return;
    double all = 0;
    for (Index p = 0; p < blocks; ++p) all += own[2 * p + threadIdx.x];
    sums[2 * b + threadIdx.x] = all;
    if (threadIdx.x == 0) counters[b] = 0;
}

template <class T>
__global__ void nonfinite_kernel(Counter* found, Several<const T> xs, Index rows) {
    for (Index i = blockIdx.x; i < rows; i += gridDim.x) {
        Index k = 0, row = i;
        for (; row >= xs.at[k].batch * xs.at[k].rows; ++k) row -= xs.at[k].batch * xs.at[k].rows;
        const T* x = xs.at[k].row(row);
        const Index cols = xs.at[k].cols;
        Index at = cols;
        for (Index j = threadIdx.x; j < cols; j += blockDim.x)
            if (!(x[j] - x[j] == T(0)) && j < at) at = j;
        if (at < cols) atomicMax(found + k, last_element - (row * cols + at));  // rare
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

void sum_rows(View sum, const View* branch, const View* normed, View a, const View* bias,
              View added, const View* weight, const View* shift, double eps, bool centre) {
    typed(sum, [&]<class T>(T) {
        const auto vector = [](const View* v) {
            return v != nullptr ? static_cast<const T*>(v->data) : nullptr;
        };
        const auto rows = [](const View* v) { return rows_of<T>(v != nullptr ? *v : View()); };
        TSDIAG_LAUNCH(sum_rows_kernel<T>, grid_of_rows(a.shape.batch * a.shape.rows), block_size,
                      rows_of<T>(sum), rows(branch), rows(normed), rows_of<const T>(a),
                      vector(bias), rows_of<const T>(added), vector(weight), vector(shift), eps,
                      centre);
    });
}

void norm_derivative(View out, const View* parts, View g, View x, const View* weight,
                     const View* added, double eps, bool centre) {
    typed(out, [&]<class T>(T) {
        const T* w = weight != nullptr ? static_cast<const T*>(weight->data) : nullptr;
        TSDIAG_LAUNCH(norm_derivative_kernel<T>,
                      grid_of_rows(norm_groups(x.shape.batch * x.shape.rows)), block_size,
                      rows_of<T>(out), rows_of<T>(parts != nullptr ? *parts : View()),
                      rows_of<const T>(g), rows_of<const T>(x), w,
                      rows_of<const T>(added != nullptr ? *added : View()), eps, centre);
    });
}

void softmax_derivative(View out, View g, View y) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(softmax_derivative_kernel<T>, grid_of_rows(y.shape.batch * y.shape.rows),
                      block_size, rows_of<T>(out), rows_of<const T>(g), rows_of<const T>(y));
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

void column_sum(View out, double* parts, Counter* counters, View a) {
    typed(out, [&]<class T>(T) {
        const Index blocks =
            a.shape.batch * column_groups(a.shape.cols) * shares_of_rows(a.shape.rows);
        TSDIAG_LAUNCH(column_sum_kernel<T>, blocks, column_block, rows_of<T>(out), parts, counters,
                      rows_of<const T>(a));
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

void squared_norms(double* squares, double* parts, Counter* counters, const Views& xs) {
    typed(xs.at[0], [&]<class T>(T) {
        const Index blocks = parts_of_sum(elements_of(xs));
        TSDIAG_LAUNCH(squares_kernel<T>, xs.count * blocks, block_size, squares, parts, counters,
                      several<const T>(xs), blocks);
    });
}

void squares_and_traces(double* sums, double* parts, Counter* counters, View a) {
    typed(a, [&]<class T>(T) {
        TSDIAG_LAUNCH(traces_kernel<T>, a.shape.batch * parts_of_sum(a.shape.rows * a.shape.cols),
                      block_size, sums, parts, counters, rows_of<const T>(a));
    });
}

void first_nonfinite(Counter* found, const Views& xs) {
    Index rows = 0;
    for (Index k = 0; k < xs.count; ++k) rows += xs.at[k].shape.batch * xs.at[k].shape.rows;
    if (rows == 0) return;
    typed(xs.at[0], [&]<class T>(T) {
        TSDIAG_LAUNCH(nonfinite_kernel<T>, grid_of_rows(rows), block_size, found,
                      several<const T>(xs), rows);
    });
}

}  // namespace tsdiag::gpu
