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

/// A View inside kernels.
template <class T>
struct Rows {
    T* data;
    Index batch, rows, cols, batch_stride, row_stride;

    __device__ T* row(Index b, Index r) const { return data + b * batch_stride + r * row_stride; }
    /// Row `i` of the concatenated batches.
    __device__ T* row(Index i) const {
        const Index b = quotient(i, rows);
        return row(b, i - b * rows);
    }
};

template <class T>
Rows<T> rows_of(const View& v) {
    return {static_cast<T*>(v.data), v.shape.batch, v.shape.rows, v.shape.cols,
            v.batch_stride,          v.row_stride};
}

/// Calls f(T{}) with the element type of `v`.
template <class F>
void typed(const View& v, F f) {
    if (v.type == Type::f32)
        f(float{});
    else
        f(double{});
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
template <class V, class Combine>
__device__ V block_reduce(V value, Combine combine) {
    __shared__ V of_warp[block_size / warp_size];
    for (int mask = warp_size / 2; mask > 0; mask /= 2)
        value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, mask));
    if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = value;
    __syncthreads();
    V all = of_warp[0];
    for (int w = 1; w < block_size / warp_size; ++w) all = combine(all, of_warp[w]);
    __syncthreads();  // before of_warp is overwritten
    return all;
}

struct Range {
    Index first, last;
};
__device__ __forceinline__ Range visible_range(DeviceVisible visible, Index row, Index cols) {
    if (visible.first == nullptr) return {0, cols};
    return {visible.first[row], visible.last[row]};
}

}  // namespace tsdiag::gpu
