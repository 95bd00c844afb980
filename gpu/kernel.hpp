#pragma once
#include "device.hpp"
#include "kernels.hpp"

/// Shared by the kernels.
namespace tsdiag::gpu {

#ifdef TSDIAG_EMULATED
constexpr int block_size = 64;  // two warps show what four do, in half the time
#else
constexpr int block_size = 128;
#endif
constexpr int warp_size = 32;

/// i / n.  32-bit numbers, nearly all, divide several times as fast.
__device__ __forceinline__ Index quotient(Index i, Index n) {
    if (((i | n) >> 32) == 0) return Index(std::uint32_t(i) / std::uint32_t(n));
    return i / n;
}

struct Position {
    Index batch, row, col;
};
/// `width` neighbours of a row, read or written at once.
template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
    T at[width];
};

/// A View inside kernels.
template <class T>
struct Rows {
    T* data;
    Index batch, rows, cols, batch_stride, row_stride;

    double elements() const {
        return data == nullptr ? 0 : double(batch) * double(rows) * double(cols);
    }
    double bytes() const { return elements() * double(sizeof(T)); }
    __device__ T* row(Index b, Index r) const { return data + b * batch_stride + r * row_stride; }
    /// Row `i` of the concatenated batches.
    __device__ T* row(Index i) const {
        const Index b = quotient(i, rows);
        return row(b, i - b * rows);
    }
    template <int width>
    __device__ Pack<std::remove_const_t<T>, width> load(Position p) const {
        return *reinterpret_cast<const Pack<std::remove_const_t<T>, width>*>(row(p.batch, p.row) +
                                                                             p.col);
    }
    template <int width>
    __device__ void store(Position p, const Pack<T, width>& x) const {
        *reinterpret_cast<Pack<T, width>*>(row(p.batch, p.row) + p.col) = x;
    }
};
template <int width, class T>
__device__ __forceinline__ Pack<T, width> load(const T* x) {
    return *reinterpret_cast<const Pack<T, width>*>(x);
}

template <class T>
Rows<T> rows_of(const View& v) {
    return {static_cast<T*>(v.data), v.shape.batch, v.shape.rows, v.shape.cols,
            v.batch_stride,          v.row_stride};
}

/// Views inside kernels.
template <class T>
struct Several {
    Rows<T> at[Views::most];
    Index count;

    double elements() const {
        double all = 0;
        for (Index k = 0; k < count; ++k) all += at[k].elements();
        return all;
    }
    double bytes() const { return elements() * double(sizeof(T)); }
};
template <class T>
Several<T> several(const Views& views) {
    Several<T> all{};
    all.count = views.count;
    for (Index k = 0; k < views.count; ++k) all.at[k] = rows_of<T>(views.at[k]);
    return all;
}

/// Calls f(T{}) with the element type of `v`.
template <class F>
void typed(const View& v, F f) {
    if (v.type == Type::f32)
        f(float{});
    else
        f(double{});
}

/// Whether rows of these may be read and written so many elements at a time; null and empty ones
/// may.
inline bool fit_packs(Index width, std::initializer_list<const View*> views) {
    for (const View* v : views)
        if (v != nullptr && v->data != nullptr &&
            (v->shape.cols % width != 0 || v->row_stride % width != 0 ||
             v->batch_stride % width != 0 ||
             reinterpret_cast<std::uintptr_t>(v->data) % (std::size_t(width) * bytes_of(v->type)) !=
                 0))
            return false;
    return true;
}
/// Calls f with the number of elements that a thread takes at a time: 16 bytes of the Largest type
/// where all views allow it, else one.  A device reaches its bandwidth only with these.
template <class Largest, class F>
void by_packs(std::initializer_list<const View*> views, F f) {
    constexpr int most = 16 / int(sizeof(Largest));
    if (fit_packs(most, views))
        f(std::integral_constant<int, most>());
    else
        f(std::integral_constant<int, 1>());
}

/// Blocks for `count` elements, limited to what keeps a device busy: kernels stride over the rest.
inline std::int64_t grid_for(Index count) {
    constexpr Index most = 65535;
    const Index blocks = (count + block_size - 1) / block_size;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}
inline std::int64_t grid_of_rows(Index rows) {
    constexpr Index most = (Index{1} << 31) - 1;
    return rows < most ? rows : most;
}

__device__ __forceinline__ Index global_thread() {
    return Index(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ Index all_threads() { return Index(gridDim.x) * blockDim.x; }

/// f(position) of each pack of `out`, by all threads.
template <int width, class T, class F>
__device__ __forceinline__ void each_pack(const Rows<T>& out, F f) {
    const Index across = out.cols / width, count = out.batch * out.rows * across;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index line = quotient(i, across), batch = quotient(line, out.rows);
        f(Position{batch, line - batch * out.rows, (i - line * across) * width});
    }
}

struct Sum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a + b;
    }
};
struct Maximum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return a < b ? b : a;
    }
};
struct Minimum {
    template <class V>
    __device__ V operator()(V a, V b) const {
        return b < a ? b : a;
    }
};

/// Reduces the values of all threads; every thread of the block gets the result.
template <int threads = block_size, class V, class Combine>
__device__ V block_reduce(V value, Combine combine) {
    __shared__ V of_warp[threads / warp_size];
    for (int mask = warp_size / 2; mask > 0; mask /= 2)
        value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, mask));
    if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = value;
    __syncthreads();
    V all = of_warp[0];
    for (int w = 1; w < threads / warp_size; ++w) all = combine(all, of_warp[w]);
    __syncthreads();  // before of_warp is overwritten
    return all;
}

/// Every lane gets it.
__device__ __forceinline__ double warp_sum(double s) {
    for (int mask = warp_size / 2; mask > 0; mask /= 2) s += __shfl_xor_sync(0xFFFFFFFFU, s, mask);
    return s;
}

struct Range {
    Index first, last;
};
__device__ __forceinline__ Range visible_range(DeviceVisible visible, Index row, Index cols) {
    if (visible.first != nullptr) return {visible.first[row], visible.last[row]};
    const Index from = visible.from + row * visible.from_step,
                to = visible.to + row * visible.to_step;
    return {from < 0 ? 0 : from, to < cols ? to : cols};
}

/// Whether this block is the last of `count` to arrive, which then sees what the others have
/// written.  Once a kernel, by every thread.
__device__ __forceinline__ bool last_to_arrive(Counter* counter, Index count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counter, Counter{1}) + 1 == Counter(count);
    __syncthreads();
    __threadfence();
    return last;
}

}  // namespace tsdiag::gpu
