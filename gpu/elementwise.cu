#include "kernel.hpp"

/// Maps: one thread per element.
namespace tsdiag::gpu {
namespace {

template <class T>
__device__ T exp_(T x) {
    return exp(x);
}
template <class T>
__device__ T erf_(T x) {
    return erf(x);
}
#define TSDIAG_UNARY_CASE(name, formula) \
    case Unary::name:                    \
        return formula;
#define TSDIAG_BINARY_CASE(name, formula) \
    case Binary::name:                    \
        return formula;

template <class T>
__device__ T apply(Unary op, T x) {
    switch (op) { TSDIAG_UNARY_FORMULAS(TSDIAG_UNARY_CASE) }
    return x;
}

template <class T>
__device__ T apply(Binary op, T x, T y) {
    switch (op) { TSDIAG_BINARY_FORMULAS(TSDIAG_BINARY_CASE) }
    return x;
}

#undef TSDIAG_UNARY_CASE
#undef TSDIAG_BINARY_CASE

template <class T>
__global__ void unary_kernel(Unary op, Rows<T> out, Rows<const T> a) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = quotient(i, out.cols), col = i - row * out.cols;
        out.row(row)[col] = apply(op, a.row(row)[col]);
    }
}

template <class T>
__global__ void binary_kernel(Binary op, Rows<T> out, Rows<const T> a, Rows<const T> b) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index line = quotient(i, out.cols), col = i - line * out.cols;
        const Index batch = quotient(line, out.rows), row = line - batch * out.rows;
        const T* y = b.row(b.batch == 1 ? 0 : batch, b.rows == 1 ? 0 : row);
        out.row(batch, row)[col] = apply(op, a.row(batch, row)[col], y[b.cols == 1 ? 0 : col]);
    }
}

template <class T>
__global__ void affine_kernel(Rows<T> out, Rows<const T> a, T alpha, T beta) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = quotient(i, out.cols), col = i - row * out.cols;
        out.row(row)[col] = alpha * a.row(row)[col] + beta;
    }
}

template <class T>
__global__ void gather_kernel(Rows<T> out, Rows<const T> table, const Index* rows) {
    const Index count = out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = quotient(i, out.cols), col = i - row * out.cols;
        out.row(0, row)[col] = table.row(0, rows[row])[col];
    }
}

template <class To, class From>
__global__ void convert_kernel(Rows<To> out, Rows<const From> a) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = quotient(i, out.cols), col = i - row * out.cols;
        out.row(row)[col] = To(a.row(row)[col]);
    }
}

template <class T>
__global__ void transpose_kernel(Rows<T> out, Rows<const T> a) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index line = quotient(i, out.cols), col = i - line * out.cols;
        const Index batch = quotient(line, out.rows), row = line - batch * out.rows;
        out.row(batch, row)[col] = a.row(batch, col)[row];
    }
}

/// Element (b h + k, i, c) of `apart` and (b, i, k w + c) of `beside`, to the first or from it.
template <class Apart, class Beside>
__global__ void heads_kernel(Rows<Apart> apart, Rows<Beside> beside) {
    const Index count = apart.batch * apart.rows * apart.cols, heads = apart.batch / beside.batch;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index line = quotient(i, apart.cols), col = i - line * apart.cols;
        const Index batch = quotient(line, apart.rows), row = line - batch * apart.rows;
        const Index sample = batch / heads, at = (batch - sample * heads) * apart.cols + col;
        if constexpr (std::is_const_v<Beside>)
            apart.row(batch, row)[col] = beside.row(sample, row)[at];
        else
            beside.row(sample, row)[at] = apart.row(batch, row)[col];
    }
}

/// One thread per column of a group.
template <class T>
__global__ void groups_kernel(Rows<T> out, Rows<const T> a, Groups groups) {
    for (Index t = global_thread(); t < groups.count * out.cols; t += all_threads()) {
        const Index g = quotient(t, out.cols), j = t - g * out.cols;
        T s = 0;
        for (Index k = groups.starts[g]; k < groups.starts[g + 1]; ++k)
            s += a.row(0, groups.order[k])[j];
        out.row(0, groups.rows[g])[j] += s;
    }
}

/// One thread per pair of columns of a row, for all batches: the angle is computed once.
template <class T>
__global__ void rotate_kernel(Rows<T> out, Rows<const T> a, const double* position,
                              const double* frequency, Index pairs, bool interleaved) {
    const Index rest = out.cols - 2 * pairs, per_row = pairs + rest;
    for (Index t = global_thread(); t < out.rows * per_row; t += all_threads()) {
        const Index r = t / per_row, p = t % per_row;
        if (p >= pairs) {
            for (Index b = 0; b < out.batch; ++b) out.row(b, r)[p + pairs] = a.row(b, r)[p + pairs];
            continue;
        }
        const double angle = position[r] * frequency[p];
        const T c = T(cos(angle)), s = T(sin(angle));
        const Index i = interleaved ? 2 * p : p, j = interleaved ? 2 * p + 1 : p + pairs;
        for (Index b = 0; b < out.batch; ++b) {
            const T u = a.row(b, r)[i], v = a.row(b, r)[j];
            out.row(b, r)[i] = u * c - v * s;
            out.row(b, r)[j] = v * c + u * s;
        }
    }
}

template <class T>
__global__ void hide_kernel(Rows<T> p, DeviceVisible visible) {
    const Index count = p.batch * p.rows * p.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = quotient(i, p.cols), col = i - row * p.cols;
        const Range seen = visible_range(visible, row % p.rows, p.cols);
        if (col < seen.first || col >= seen.last) p.row(row)[col] = T(0);
    }
}

/// Two elements per thread, as in src/core/tensor/cpu_kernels.cpp.
__device__ void philox_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t block,
                            double& a, double& b) {
    std::uint32_t c0 = std::uint32_t(block), c1 = std::uint32_t(block >> 32),
                  c2 = std::uint32_t(stream), c3 = std::uint32_t(stream >> 32);
    philox_block(c0, c1, c2, c3, std::uint32_t(seed), std::uint32_t(seed >> 32));
    // The upper 52 bits of each half, centred in their interval of (0, 1).
    const std::uint64_t u = (std::uint64_t{c1} << 32 | c0) >> 12,
                        v = (std::uint64_t{c3} << 32 | c2) >> 12;
    a = double(u) * 0x1p-52 + 0x1p-53;
    b = double(v) * 0x1p-52 + 0x1p-53;
}

template <class T>
__global__ void draw_kernel(T* out, Index count, Law law, std::uint64_t seed, std::uint64_t stream,
                            double offset, double scale) {
    for (Index i = global_thread(); 2 * i < count; i += all_threads()) {
        double a, b;
        philox_pair(seed, stream, std::uint64_t(i), a, b);
        if (law == Law::normal) {  // Box-Muller
            const double radius = sqrt(-2 * log(a)), turn = 6.283185307179586477 * b;
            a = radius * cos(turn);
            b = radius * sin(turn);
        }
        out[2 * i] = T(offset + scale * a);
        if (2 * i + 1 < count) out[2 * i + 1] = T(offset + scale * b);
    }
}

template <class T>
__global__ void adamw_kernel(T* w, T* m, T* v, const T* g, Index count, AdamWStep s) {
    const T b1 = T(s.beta1), b2 = T(s.beta2), eps = T(s.eps), factor = T(s.factor);
    const T rate = T(s.rate), unbias = T(s.unbias), shrink = T(s.shrink);
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const T x = factor * g[i];
        const T first = b1 * m[i] + (1 - b1) * x, second = b2 * v[i] + (1 - b2) * x * x;
        m[i] = first;
        v[i] = second;
        w[i] = shrink * w[i] - rate * first / (sqrt(unbias * second) + eps);
    }
}

}  // namespace

void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
          double scale) {
    typed(out, [&]<class T>(T) {
        const Index count = out.shape.count();
        TSDIAG_LAUNCH(draw_kernel<T>, grid_for((count + 1) / 2), block_size,
                      static_cast<T*>(out.data), count, law, seed, stream, offset, scale);
    });
}

void adamw(View w, View m, View v, View g, const AdamWStep& step) {
    typed(w, [&]<class T>(T) {
        TSDIAG_LAUNCH(adamw_kernel<T>, grid_for(w.shape.count()), block_size,
                      static_cast<T*>(w.data), static_cast<T*>(m.data), static_cast<T*>(v.data),
                      static_cast<const T*>(g.data), w.shape.count(), step);
    });
}

void unary(Unary op, View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(unary_kernel<T>, grid_for(out.shape.count()), block_size, op, rows_of<T>(out),
                      rows_of<const T>(a));
    });
}

void binary(Binary op, View out, View a, View b) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(binary_kernel<T>, grid_for(out.shape.count()), block_size, op,
                      rows_of<T>(out), rows_of<const T>(a), rows_of<const T>(b));
    });
}

void affine(View out, View a, double alpha, double beta) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(affine_kernel<T>, grid_for(out.shape.count()), block_size, rows_of<T>(out),
                      rows_of<const T>(a), T(alpha), T(beta));
    });
}

void gather_rows(View out, View table, const Index* rows) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(gather_kernel<T>, grid_for(out.shape.count()), block_size, rows_of<T>(out),
                      rows_of<const T>(table), rows);
    });
}

void convert(View out, View a) {
    typed(out, [&]<class To>(To) {
        typed(a, [&]<class From>(From) {
            TSDIAG_LAUNCH((convert_kernel<To, From>), grid_for(out.shape.count()), block_size,
                          rows_of<To>(out), rows_of<const From>(a));
        });
    });
}

void transpose(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(transpose_kernel<T>, grid_for(out.shape.count()), block_size, rows_of<T>(out),
                      rows_of<const T>(a));
    });
}

void split_heads(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH((heads_kernel<T, const T>), grid_for(out.shape.count()), block_size,
                      rows_of<T>(out), rows_of<const T>(a));
    });
}

void merge_heads(View out, View a) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH((heads_kernel<const T, T>), grid_for(out.shape.count()), block_size,
                      rows_of<const T>(a), rows_of<T>(out));
    });
}

void add_groups(View out, View a, Groups groups) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(groups_kernel<T>, grid_for(groups.count * out.shape.cols), block_size,
                      rows_of<T>(out), rows_of<const T>(a), groups);
    });
}

void rotate(View out, View a, const double* position, const double* frequency, Index pairs,
            bool interleaved) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(rotate_kernel<T>, grid_for(out.shape.rows * (out.shape.cols - pairs)),
                      block_size, rows_of<T>(out), rows_of<const T>(a), position, frequency, pairs,
                      interleaved);
    });
}

void hide(View p, DeviceVisible visible) {
    typed(p, [&]<class T>(T) {
        TSDIAG_LAUNCH(hide_kernel<T>, grid_for(p.shape.count()), block_size, rows_of<T>(p),
                      visible);
    });
}

}  // namespace tsdiag::gpu
