#include "kernel.hpp"

/// Maps: a thread an element.
namespace tsdiag::gpu {
namespace {

template <class T>
__device__ T apply(Unary op, T x) {
    const T one = 1;
    switch (op) {
        case Unary::copy:
            return x;
        case Unary::negate:
            return -x;
        case Unary::relu:
            return x > 0 ? x : T(0);
        case Unary::gelu:
            return T(0.5) * x * (one + erf(x * T(0.70710678118654752440)));
        case Unary::gelu_tanh: {  // 0.5 (1 + tanh u) = sigmoid(2u)
            const T u = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
            return x / (one + exp(T(-2) * u));
        }
        case Unary::gelu_quick:
            return x / (one + exp(T(-1.702) * x));
        case Unary::silu:
            return x / (one + exp(-x));
        case Unary::tanh:
            return tanh(x);
        case Unary::sigmoid:
            return one / (one + exp(-x));
        case Unary::exp:
            return exp(x);
        case Unary::elu:
            return x > 0 ? x : expm1(x);
        case Unary::elu_plus_one:
            return x > 0 ? x + one : exp(x);
        case Unary::square:
            return x * x;
        case Unary::sqrt:
            return sqrt(x);
        case Unary::reciprocal:
            return one / x;
        case Unary::sine:
            return sin(x);
        case Unary::cosine:
            return cos(x);
        case Unary::log:
            return log(x);
        case Unary::step:
            return x > 0 ? one : T(0);
        case Unary::normal_cdf:
            return T(0.5) * (one + erf(x * T(0.70710678118654752440)));
    }
    return x;
}

template <class T>
__device__ T apply(Binary op, T x, T y) {
    switch (op) {
        case Binary::add:
            return x + y;
        case Binary::subtract:
            return x - y;
        case Binary::multiply:
            return x * y;
        case Binary::divide:
            return x / y;
        case Binary::maximum:
            return x < y ? y : x;
    }
    return x;
}

template <class T>
__global__ void unary_kernel(Unary op, Rows<T> out, Rows<const T> a) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = i / out.cols, col = i % out.cols;
        out.row(row)[col] = apply(op, a.row(row)[col]);
    }
}

template <class T>
__global__ void binary_kernel(Binary op, Rows<T> out, Rows<const T> a, Rows<const T> b) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index batch = i / out.cols / out.rows, row = i / out.cols % out.rows,
                    col = i % out.cols;
        const T* y = b.row(b.batch == 1 ? 0 : batch, b.rows == 1 ? 0 : row);
        out.row(batch, row)[col] = apply(op, a.row(batch, row)[col], y[b.cols == 1 ? 0 : col]);
    }
}

template <class T>
__global__ void affine_kernel(Rows<T> out, Rows<const T> a, T alpha, T beta) {
    const Index count = out.batch * out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        const Index row = i / out.cols, col = i % out.cols;
        out.row(row)[col] = alpha * a.row(row)[col] + beta;
    }
}

template <class T>
__global__ void gather_kernel(Rows<T> out, Rows<const T> table, const Index* rows) {
    const Index count = out.rows * out.cols;
    for (Index i = global_thread(); i < count; i += all_threads())
        out.row(0, i / out.cols)[i % out.cols] = table.row(0, rows[i / out.cols])[i % out.cols];
}

template <class T>
__global__ void scatter_kernel(Rows<T> out, Rows<const T> a, const Index* rows) {
    for (Index j = global_thread(); j < out.cols; j += all_threads()) {
        for (Index r = 0; r < out.rows; ++r) out.row(0, r)[j] = T(0);
        for (Index r = 0; r < a.rows; ++r) out.row(0, rows[r])[j] += a.row(0, r)[j];
    }
}

/// A thread a pair of columns of one row, in all batches: the angle is found once.
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
        const T c = static_cast<T>(cos(angle)), s = static_cast<T>(sin(angle));
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
        const Index row = i / p.cols, col = i % p.cols;
        const Range seen = visible_range(visible, row % p.rows, p.cols);
        if (col < seen.first || col >= seen.last) p.row(row)[col] = T(0);
    }
}

}  // namespace

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
                      rows_of<const T>(a), static_cast<T>(alpha), static_cast<T>(beta));
    });
}

void gather_rows(View out, View table, const Index* rows) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(gather_kernel<T>, grid_for(out.shape.count()), block_size, rows_of<T>(out),
                      rows_of<const T>(table), rows);
    });
}

void scatter_add_rows(View out, View a, const Index* rows) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(scatter_kernel<T>, grid_for(out.shape.cols), block_size, rows_of<T>(out),
                      rows_of<const T>(a), rows);
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
