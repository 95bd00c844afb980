#include "kernel.hpp"

/// Statistics of rows of P, and moments of states.
namespace tsdiag::gpu {
namespace {

constexpr Index most_rows_of_chunk = 256;  ///< whose squares are held at a time
constexpr double infinite = std::numeric_limits<double>::infinity();

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
    /// No branches: lanes would take turns.
    __device__ void add(double x, double logarithm, double g) {
        const double m = modulus_of(x);
        sum += x;
        modulus += m;
        negative += x < 0 ? m : 0;
        entropy -= x > 0 ? x * logarithm : 0;
        own = larger(own, modulus_of(g * (1 - x)));
        keep_larger(m, x, g);
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
        keep_larger(other.top, other.top_value, other.top_slope);
    }
    /// Keeps apart x or the entry that was; aside, an entry of none is 0.
    __device__ void keep_larger(double m, double x, double g) {
        const bool is = m > top;
        set_aside(is ? top_value : x, is ? top_slope : g);
        top = is ? m : top;
        top_value = is ? x : top_value;
        top_slope = is ? g : top_slope;
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

/// What the statistics of one row are.
struct RowResult {
    double sum, modulus, negative, squares, entropy, max_modulus, jacobian, jacobian_max;
};

/// Of row i of the concatenated heads, by one warp; every lane has them.
template <class T>
__device__ RowResult row_result(const Rows<const T>& p, const Rows<const T>& slope, bool divided,
                                DeviceVisible visible, Index i) {
    constexpr int at_once = 4;  // reads that are under way
    const Index lane = threadIdx.x % warp_size;
    const T* x = p.row(i);
    // For softmax the slope is P itself, read once.
    const T* g = slope.data == nullptr || slope.data == p.data ? x : slope.row(i);
    const Range seen = visible_range(visible, i % p.rows, p.cols);
    Fields f;
    for (Index j = seen.first + lane; j < seen.last; j += at_once * warp_size) {
        T v[at_once] = {}, s[at_once] = {};
        TSDIAG_UNROLL
        for (int k = 0; k < at_once; ++k)
            if (const Index at = j + k * warp_size; at < seen.last) v[k] = x[at], s[k] = g[at];
        TSDIAG_UNROLL
        for (int k = 0; k < at_once; ++k)
            if (j + k * warp_size < seen.last) f.add(v[k], v[k] > T(0) ? log(v[k]) : T(0), s[k]);
    }
    for (int mask = warp_size / 2; mask > 0; mask /= 2) f.join(from_lane(f, mask));
    const double top = f.top < 0 ? 0 : f.top, squares = f.rest + top * top;
    RowResult r{f.sum, f.modulus, f.negative, squares, f.entropy, top, 0, 0};
    const double s = f.top_slope, left = 1 - f.top_value, steep = modulus_of(s);
    r.jacobian = divided ? f.below + (squares * f.slopes - f.both) + s * s * (left * left + f.rest)
                         : f.slopes + s * s;
    r.jacobian_max = divided
                         ? Fields::larger(f.own, Fields::larger(f.steepest * top, steep * f.second))
                         : Fields::larger(f.steepest, steep);
    return r;
}

/// Whichever sum is farther from 1, NaN before all.
__device__ double farther(double a, double b) {
    return a != a || modulus_of(a - 1) >= modulus_of(b - 1) ? a : b;
}
/// As `fold` of RowStatistics.
__device__ void join(RowResult& all, const RowResult& row) {
    all.sum = farther(all.sum, row.sum);
    all.modulus += row.modulus;
    all.negative += row.negative;
    all.squares += row.squares;
    all.entropy += row.entropy;
    all.max_modulus += row.max_modulus;
    all.jacobian += row.jacobian;
    all.jacobian_max = Fields::larger(all.jacobian_max, row.jacobian_max);
}
constexpr RowResult of_no_rows{1, 0, 0, 0, 0, 0, 0, 0};

/// As number i of the fields.
__device__ void write(const RowFields& out, Index i, const RowResult& r) {
    out.sum[i] = r.sum;
    out.modulus[i] = r.modulus;
    out.negative[i] = r.negative;
    out.squares[i] = r.squares;
    out.entropy[i] = r.entropy;
    out.max_modulus[i] = r.max_modulus;
    if (out.jacobian == nullptr) return;
    out.jacobian[i] = r.jacobian;
    out.jacobian_max[i] = r.jacobian_max;
}

/// A block for a chunk of rows of a head, a warp per row.  `folded`: the last block of a head adds
/// up what all have left.
template <class T, bool folded>
__global__ void row_fields_kernel(RowFields out, double* parts, Counter* counters, Rows<const T> p,
                                  Rows<const T> slope, bool divided, Index first,
                                  DeviceVisible visible) {
    constexpr int warps = block_size / warp_size;
    __shared__ RowResult of_warp[warps];
    const Index n = p.cols, each = rows_of_fields(n), chunks = (p.rows + each - 1) / each;
    const Index b = quotient(blockIdx.x, chunks), chunk = blockIdx.x - b * chunks;
    const Index begin = chunk * each, end = begin + each < p.rows ? begin + each : p.rows;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    RowResult own = of_no_rows;
    for (Index r = begin + warp; r < end; r += warps) {
        const Index i = b * p.rows + r;
        const RowResult row = row_result(p, slope, divided, visible, i);
        join(own, row);
        if (lane != 0) continue;
        out.diagonal[i] = first + r < n ? double(p.row(b, r)[first + r]) : 0.0;
        if constexpr (!folded) write(out, i, row);
    }
    if constexpr (folded) {
        if (lane == 0) of_warp[warp] = own;
        __syncthreads();
        auto* of_chunks = reinterpret_cast<RowResult*>(parts) + b * chunks;
        if (threadIdx.x == 0) {
            for (int w = 1; w < warps; ++w) join(own, of_warp[w]);
            of_chunks[chunk] = own;
        }
        if (!last_to_arrive(counters + b, chunks) || threadIdx.x != 0) return;
        RowResult all = of_no_rows;
        for (Index c = 0; c < chunks; ++c) join(all, of_chunks[c]);
        write(out, b, all);
        counters[b] = 0;
    }
}

/// The column that enters the nested window of row i of n as its token e (docs/references.md).
__device__ __forceinline__ int window_column(int i, int e, int n) {
    const int before = i, after = n - 1 - i, both = before < after ? before : after;
    if (e <= 2 * both) return e % 2 == 1 ? i - (e + 1) / 2 : i + e / 2;
    return before < after ? e : n - 1 - e;
}

/// A thread per window token of a head: its columns in all rows.
template <class T>
__global__ void windows_kernel(double* window, Rows<const T> p, Index first,
                               DeviceVisible visible) {
    const Index n = p.cols, blocks = (n + blockDim.x - 1) / blockDim.x;
    const Index b = quotient(blockIdx.x, blocks),
                e = (blockIdx.x - b * blocks) * blockDim.x + threadIdx.x;
    if (e >= n) return;
    const bool everything = visible.first == nullptr && visible.from <= 0 &&
                            visible.from_step == 0 && visible.to >= n && visible.to_step == 0;
    double s = 0;
    TSDIAG_UNROLL_BY_8
    for (Index r = 0; r < p.rows; ++r) {
        const Index j = window_column(int(first + r), int(e), int(n));
        const double x = double(p.row(b, r)[j]);
        const Range seen = everything ? Range{0, n} : visible_range(visible, r, n);
        s += j >= seen.first && j < seen.last ? x : 0;
    }
    window[b * n + e] = s;
}

/// Sums of a chunk of rows of a state: of each column those of x, of x / |x_i| and of x - x_0, then
/// |x|^2, |x - x_0|^2 and the least |x_i|^2.
///
/// |Pi2 X|^2 = sum_i |x_i - x_0|^2 - n |mean - x_0|^2 loses at most a factor n + 1 of accuracy,
/// since |Pi2 X|^2 >= |x_0 - mean|^2; the differences of nearly equal tokens are exact.
template <class T>
__device__ void chunk_sums(double* part, const Rows<const T>& x, Index b, Index begin, Index end) {
    __shared__ double of_row[most_rows_of_chunk];
    const Index d = x.cols;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const T* origin = x.row(b, 0);
    double all = 0, apart = 0, least = infinite;
    for (Index first = begin; first < end; first += most_rows_of_chunk) {
        const Index after = first + most_rows_of_chunk, last = after < end ? after : end;
        for (Index r = first + warp; r < last; r += block_size / warp_size) {
            double s = 0, c = 0;
            for (Index j = lane; j < d; j += warp_size) {
                const double v = x.row(b, r)[j], off = v - double(origin[j]);
                s += v * v;
                c += off * off;
            }
            for (int mask = warp_size / 2; mask > 0; mask /= 2) {
                s += __shfl_xor_sync(0xFFFFFFFFU, s, mask);
                c += __shfl_xor_sync(0xFFFFFFFFU, c, mask);
            }
            if (lane != 0) continue;
            of_row[r - first] = s;
            all += s;
            apart += c;
            least = s < least ? s : least;
        }
        __syncthreads();
        for (Index j = threadIdx.x; j < d; j += blockDim.x) {
            double sum = 0, unit = 0, off = 0;
            for (Index r = first; r < last; ++r) {
                const double v = x.row(b, r)[j], square = of_row[r - first];
                sum += v;
                if (square > 0) unit += v / sqrt(square);
                off += v - double(origin[j]);
            }
            const bool fresh = first == begin;
            part[j] = fresh ? sum : part[j] + sum;
            part[d + j] = fresh ? unit : part[d + j] + unit;
            part[2 * d + j] = fresh ? off : part[2 * d + j] + off;
        }
        __syncthreads();  // before of_row is overwritten
    }
    all = block_reduce(all, Sum());
    apart = block_reduce(apart, Sum());
    least = block_reduce(least, Minimum());
    if (threadIdx.x != 0) return;
    part[3 * d] = all;
    part[3 * d + 1] = apart;
    part[3 * d + 2] = least;
}

/// A block for a chunk of rows of a state, the last of which adds up those of all.
template <class T>
__global__ void state_moments_kernel(Moments* out, double* parts, Counter* counters,
                                     Several<const T> xs) {
    const Index n = xs.at[0].rows, d = xs.at[0].cols, chunks = chunks_of(n), width = 3 * d + 3;
    const Index state = quotient(blockIdx.x, chunks), chunk = blockIdx.x - state * chunks;
    Index k = 0, b = state;
    for (; b >= xs.at[k].batch; ++k) b -= xs.at[k].batch;
    const Index begin = chunk * rows_of_chunk(n), after = begin + rows_of_chunk(n);
    double* own = parts + state * chunks * width;
    chunk_sums(own + chunk * width, xs.at[k], b, begin, after < n ? after : n);
    if (!last_to_arrive(counters + state, chunks)) return;
    double mean_part = 0, unit_sum = 0, shift = 0;
    for (Index j = threadIdx.x; j < d; j += blockDim.x) {
        double sum = 0, unit = 0, off = 0;
        for (Index c = 0; c < chunks; ++c) {
            sum += own[c * width + j];
            unit += own[c * width + d + j];
            off += own[c * width + 2 * d + j];
        }
        mean_part += sum * sum / double(n);
        unit_sum += unit * unit;
        shift += off * off / double(n);
    }
    mean_part = block_reduce(mean_part, Sum());
    unit_sum = block_reduce(unit_sum, Sum());
    shift = block_reduce(shift, Sum());
    if (threadIdx.x != 0) return;
    double squared = 0, apart = 0, least = infinite;
    for (Index c = 0; c < chunks; ++c) {
        const double* last = own + c * width + 3 * d;
        squared += last[0];
        apart += last[1];
        least = last[2] < least ? last[2] : least;
    }
    const double centred = apart - shift;
    out[state] = {squared, mean_part, centred < 0 ? 0 : centred, unit_sum, least};
    counters[state] = 0;
}

}  // namespace

void row_fields(RowFields out, double* parts, Counter* counters, View p, const View* slope,
                bool divided, Index first, DeviceVisible visible) {
    const Index each = rows_of_fields(p.shape.cols);
    typed(p, [&]<class T>(T) {
        const auto launch = [&](auto in_one) {
            TSDIAG_LAUNCH(
                (row_fields_kernel<T, in_one>), p.shape.batch * ((p.shape.rows + each - 1) / each),
                block_size, out, parts, counters, rows_of<const T>(p),
                rows_of<const T>(slope != nullptr ? *slope : View()), divided, first, visible);
        };
        if (parts != nullptr)
            launch(std::true_type());
        else
            launch(std::false_type());
    });
}

void windows(double* window, View p, Index first, DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(windows_kernel<T>,
                      p.shape.batch * ((p.shape.cols + block_size - 1) / block_size), block_size,
                      window, rows_of<const T>(p), first, visible);
    });
}

void state_moments(Moments* out, double* parts, Counter* counters, const Views& xs) {
    Index states = 0;
    for (Index k = 0; k < xs.count; ++k) states += xs.at[k].shape.batch;
    typed(xs.at[0], [&]<class T>(T) {
        TSDIAG_LAUNCH(state_moments_kernel<T>, states * chunks_of(xs.at[0].shape.rows), block_size,
                      out, parts, counters, several<const T>(xs));
    });
}

}  // namespace tsdiag::gpu
