#include "kernel.hpp"

/// Maps: one thread per element, or per some neighbours of a row.
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

template <class T>
__device__ T slope(Unary op, T x, T y) {
    switch (op) {
        TSDIAG_SLOPES_BY_ARGUMENT(TSDIAG_UNARY_CASE)
        TSDIAG_SLOPES_BY_VALUE(TSDIAG_UNARY_CASE)
    }
    return x;
}

#undef TSDIAG_UNARY_CASE
#undef TSDIAG_BINARY_CASE

template <class T, int width>
__global__ void unary_kernel(Unary op, Rows<T> out, Rows<const T> a) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> x = a.template load<width>(at);
        for (T& e : x.at) e = apply(op, e);
        out.store(at, x);
    });
}

template <class T, int width>
__global__ void fill_kernel(Rows<T> out, T value) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> x;
        for (T& e : x.at) e = value;
        out.store(at, x);
    });
}

template <class T, int width>
__global__ void unary_derivative_kernel(Unary op, Rows<T> out, Rows<const T> g, Rows<const T> x,
                                        Rows<const T> y) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> to = g.template load<width>(at), argument{}, value{};
        if (x.data != nullptr) argument = x.template load<width>(at);
        if (y.data != nullptr) value = y.template load<width>(at);
        for (int k = 0; k < width; ++k) to.at[k] *= slope(op, argument.at[k], value.at[k]);
        out.store(at, to);
    });
}

template <class T, int width>
__global__ void map_sum_kernel(Rows<T> out, Rows<const T> a, const T* bias, Unary op,
                               Rows<const T> added, Rows<T> kept) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> y = a.template load<width>(at);
        if (bias != nullptr) {
            const Pack<T, width> shift = load<width>(bias + at.col);
            for (int k = 0; k < width; ++k) y.at[k] += shift.at[k];
        }
        if (kept.data != nullptr) kept.store(at, y);
        for (T& e : y.at) e = apply(op, e);
        if (added.data != nullptr) {
            const Pack<T, width> more = added.template load<width>(at);
            for (int k = 0; k < width; ++k) y.at[k] += more.at[k];
        }
        out.store(at, y);
    });
}

template <class T, int width>
__global__ void copy_kernel(Several<T> to, Several<const T> from, Index packs) {
    for (Index i = global_thread(); i < packs; i += all_threads()) {
        const auto packs_of = [&](Index k) {
            return to.at[k].batch * to.at[k].rows * (to.at[k].cols / width);
        };
        Index k = 0, e = i;
        for (; e >= packs_of(k); ++k) e -= packs_of(k);
        const Index across = to.at[k].cols / width, line = quotient(e, across),
                    batch = quotient(line, to.at[k].rows);
        const Position at{batch, line - batch * to.at[k].rows, (e - line * across) * width};
        to.at[k].store(at, from.at[k].template load<width>(at));
    }
}

/// What an operand has for the elements at `at` where each of its extents is theirs or 1.
template <int width, class T>
__device__ __forceinline__ Pack<T, width> spread(const Rows<const T>& a, Position at) {
    const Position own{a.batch == 1 ? 0 : at.batch, a.rows == 1 ? 0 : at.row,
                       a.cols == 1 ? 0 : at.col};
    if (a.cols != 1) return a.template load<width>(own);
    Pack<T, width> same;
    for (T& e : same.at) e = *a.row(own.batch, own.row);
    return same;
}

template <class T, int width>
__global__ void expand_kernel(Rows<T> out, Rows<const T> a) {
    each_pack<width>(out, [&](Position at) { out.store(at, spread<width>(a, at)); });
}

template <class T, int width>
__global__ void binary_kernel(Binary op, Rows<T> out, Rows<const T> a, Rows<const T> b) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> x = a.template load<width>(at);
        const Pack<T, width> y = spread<width>(b, at);
        for (int k = 0; k < width; ++k) x.at[k] = apply(op, x.at[k], y.at[k]);
        out.store(at, x);
    });
}

template <class T, int width>
__global__ void affine_kernel(Rows<T> out, Rows<const T> a, T alpha, T beta) {
    each_pack<width>(out, [&](Position at) {
        Pack<T, width> x = a.template load<width>(at);
        for (T& e : x.at) e = alpha * e + beta;
        out.store(at, x);
    });
}

template <class T, int width>
__global__ void gather_kernel(Rows<T> out, Rows<const T> table, const Index* rows) {
    each_pack<width>(out, [&](Position at) {
        out.store(at, table.template load<width>({0, rows[at.row], at.col}));
    });
}

template <class To, class From, int width>
__global__ void convert_kernel(Rows<To> out, Rows<const From> a) {
    each_pack<width>(out, [&](Position at) {
        const Pack<From, width> x = a.template load<width>(at);
        Pack<To, width> y;
        for (int k = 0; k < width; ++k) y.at[k] = To(x.at[k]);
        out.store(at, y);
    });
}

/// Tiles of 32 x 32 pass through shared memory, so that both sides are read and written by rows.
template <class T>
__global__ void transpose_kernel(Rows<T> out, Rows<const T> a) {
    __shared__ T tile[warp_size][warp_size + 1];
    constexpr int step = block_size / warp_size;
    const Index down = (out.rows + warp_size - 1) / warp_size,
                right = (out.cols + warp_size - 1) / warp_size;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    for (Index t = blockIdx.x; t < out.batch * down * right; t += gridDim.x) {
        const Index batch = t / (down * right), at = t - batch * down * right;
        const Index row = at / right * warp_size, col = at % right * warp_size;  // of out
        for (int i = warp; i < warp_size; i += step)
            if (col + i < out.cols && row + lane < out.rows)
                tile[i][lane] = a.row(batch, col + i)[row + lane];
        __syncthreads();
        for (int i = warp; i < warp_size; i += step)
            if (row + i < out.rows && col + lane < out.cols)
                out.row(batch, row + i)[col + lane] = tile[lane][i];
        __syncthreads();  // before the tile is overwritten
    }
}

/// Heads that lie beside each other, apart.
template <class T, int width>
__global__ void heads_kernel(Rows<T> apart, Rows<const T> beside, const T* bias, HeadParts parts) {
    const Index samples = beside.batch;
    each_pack<width>(apart, [&](Position at) {
        Index before = 0, p = 0;  // heads of the parts before
        while (at.batch >= samples * parts.ends[p]) before = parts.ends[p++];
        const Index inside = at.batch - samples * before, own = parts.ends[p] - before;
        const Index sample = quotient(inside, own);
        const Index col = (before + inside - sample * own) * apart.cols + at.col;
        Pack<T, width> x = beside.template load<width>({sample, at.row, col});
        if (bias != nullptr) {
            const Pack<T, width> shift = load<width>(bias + col);
            for (int k = 0; k < width; ++k) x.at[k] += shift.at[k];
        }
        apart.store(at, x);
    });
}

/// Heads of several tensors beside each other.
template <class T, int width>
__global__ void merge_kernel(Rows<T> beside, Several<const T> parts, HeadParts heads) {
    const Index columns = parts.at[0].cols;
    each_pack<width>(beside, [&](Position at) {
        const Index head = quotient(at.col, columns);
        Index before = 0, p = 0;  // heads of the parts before
        while (head >= heads.ends[p]) before = heads.ends[p++];
        const Index own = heads.ends[p] - before;
        beside.store(at, parts.at[p].template load<width>(
                             {at.batch * own + head - before, at.row, at.col - head * columns}));
    });
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
__global__ void draw_kernel(Rows<T> to, Law law, std::uint64_t seed, std::uint64_t stream,
                            double offset, double scale) {
    T* out = to.data;
    const Index count = to.batch * to.rows * to.cols;
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
struct Updates {
    struct Tensor {
        T *w, *m, *v;
        const T* g;
        AdamWStep step;
    } at[most_updates];
    Index ends[most_updates];  ///< of each tensor among the elements of all
    int count;

    double elements() const { return double(ends[count - 1]); }
    double bytes() const { return 7 * elements() * double(sizeof(T)); }
};

template <class T>
__global__ void adamw_kernel(Updates<T> all, Index count) {
    int k = 0;
    for (Index i = global_thread(); i < count; i += all_threads()) {
        while (i >= all.ends[k]) ++k;
        const typename Updates<T>::Tensor& t = all.at[k];
        const AdamWStep& s = t.step;
        const T b1 = T(s.beta1), b2 = T(s.beta2), eps = T(s.eps);
        const T rate = T(s.rate), unbias = T(s.unbias), shrink = T(s.shrink);
        const Index e = i - (k == 0 ? 0 : all.ends[k - 1]);
        const T x = T(s.factor) * t.g[e];
        const T first = b1 * t.m[e] + (1 - b1) * x, second = b2 * t.v[e] + (1 - b2) * x * x;
        t.m[e] = first;
        t.v[e] = second;
        t.w[e] = shrink * t.w[e] - rate * first / (sqrt(unbias * second) + eps);
    }
}

/// An operand that is spread along rows is read element by element.
const View* of_columns(const View& a) { return a.shape.cols == 1 ? nullptr : &a; }

}  // namespace

void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
          double scale) {
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(draw_kernel<T>, grid_for((out.shape.count() + 1) / 2), block_size,
                      rows_of<T>(out), law, seed, stream, offset, scale);
    });
}

void adamw(std::span<const AdamWUpdate> updates) {
    typed(updates.front().w, [&]<class T>(T) {
        Updates<T> all{};
        Index count = 0;
        for (std::size_t k = 0; k < updates.size(); ++k) {
            const AdamWUpdate& u = updates[k];
            all.at[k] = {static_cast<T*>(u.w.data), static_cast<T*>(u.m.data),
                         static_cast<T*>(u.v.data), static_cast<const T*>(u.g.data), u.step};
            all.ends[k] = count += u.w.shape.count();
        }
        all.count = int(updates.size());
        TSDIAG_LAUNCH(adamw_kernel<T>, grid_for(count), block_size, all, count);
    });
}

void fill(View out, double value) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out}, [&](auto width) {
            TSDIAG_LAUNCH((fill_kernel<T, width>), grid_for(out.shape.count() / width), block_size,
                          rows_of<T>(out), T(value));
        });
    });
}

void unary_derivative(Unary op, View out, View g, View x, View y) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &g, &x, &y}, [&](auto width) {
            TSDIAG_LAUNCH((unary_derivative_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, op, rows_of<T>(out), rows_of<const T>(g), rows_of<const T>(x),
                          rows_of<const T>(y));
        });
    });
}

void map_sum(View out, View a, const View* bias, Unary op, const View* added, const View* kept) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &a, bias, added, kept}, [&](auto width) {
            TSDIAG_LAUNCH((map_sum_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, rows_of<T>(out), rows_of<const T>(a),
                          bias != nullptr ? static_cast<const T*>(bias->data) : nullptr, op,
                          rows_of<const T>(added != nullptr ? *added : View()),
                          rows_of<T>(kept != nullptr ? *kept : View()));
        });
    });
}

void copy(const Views& to, const Views& from) {
    typed(to.at[0], [&]<class T>(T) {
        constexpr int most = 16 / int(sizeof(T));
        Index count = 0;
        bool fit = true;
        for (Index k = 0; k < to.count; ++k) {
            count += to.at[k].shape.count();
            fit = fit && fit_packs(most, {&to.at[k], &from.at[k]});
        }
        const auto launch = [&](auto width) {
            TSDIAG_LAUNCH((copy_kernel<T, width>), grid_for(count / width), block_size,
                          several<T>(to), several<const T>(from), count / width);
        };
        if (fit)
            launch(std::integral_constant<int, most>());
        else
            launch(std::integral_constant<int, 1>());
    });
}

void expand(View out, View a) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, of_columns(a)}, [&](auto width) {
            TSDIAG_LAUNCH((expand_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, rows_of<T>(out), rows_of<const T>(a));
        });
    });
}

void unary(Unary op, View out, View a) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &a}, [&](auto width) {
            TSDIAG_LAUNCH((unary_kernel<T, width>), grid_for(out.shape.count() / width), block_size,
                          op, rows_of<T>(out), rows_of<const T>(a));
        });
    });
}

void binary(Binary op, View out, View a, View b) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &a, of_columns(b)}, [&](auto width) {
            TSDIAG_LAUNCH((binary_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, op, rows_of<T>(out), rows_of<const T>(a),
                          rows_of<const T>(b));
        });
    });
}

void affine(View out, View a, double alpha, double beta) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &a}, [&](auto width) {
            TSDIAG_LAUNCH((affine_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, rows_of<T>(out), rows_of<const T>(a), T(alpha), T(beta));
        });
    });
}

void gather_rows(View out, View table, const Index* rows) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &table}, [&](auto width) {
            TSDIAG_LAUNCH((gather_kernel<T, width>), grid_for(out.shape.count() / width),
                          block_size, rows_of<T>(out), rows_of<const T>(table), rows);
        });
    });
}

void convert(View out, View a) {
    typed(out, [&]<class To>(To) {
        typed(a, [&]<class From>(From) {
            using Larger = std::conditional_t<sizeof(To) < sizeof(From), From, To>;
            by_packs<Larger>({&out, &a}, [&](auto width) {
                TSDIAG_LAUNCH((convert_kernel<To, From, width>),
                              grid_for(out.shape.count() / width), block_size, rows_of<To>(out),
                              rows_of<const From>(a));
            });
        });
    });
}

void transpose(View out, View a) {
    const Index tiles = ((out.shape.rows + warp_size - 1) / warp_size) *
                        ((out.shape.cols + warp_size - 1) / warp_size);
    typed(out, [&]<class T>(T) {
        TSDIAG_LAUNCH(transpose_kernel<T>, grid_of_rows(out.shape.batch * tiles), block_size,
                      rows_of<T>(out), rows_of<const T>(a));
    });
}

void split_heads(View out, View a, const View* bias, HeadParts parts) {
    typed(out, [&]<class T>(T) {
        by_packs<T>({&out, &a, bias}, [&](auto width) {
            TSDIAG_LAUNCH((heads_kernel<T, width>), grid_for(out.shape.count() / width), block_size,
                          rows_of<T>(out), rows_of<const T>(a),
                          bias != nullptr ? static_cast<const T*>(bias->data) : nullptr, parts);
        });
    });
}

void merge_heads(View out, const Views& parts) {
    HeadParts heads;
    Index count = 0;
    for (Index p = 0; p < parts.count; ++p)
        heads.ends[p] = count += parts.at[p].shape.batch / out.shape.batch;
    typed(out, [&]<class T>(T) {
        constexpr int most = 16 / int(sizeof(T));
        bool fit = fit_packs(most, {&out});
        for (Index p = 0; p < parts.count; ++p) fit = fit && fit_packs(most, {&parts.at[p]});
        const auto launch = [&](auto width) {
            TSDIAG_LAUNCH((merge_kernel<T, width>), grid_for(out.shape.count() / width), block_size,
                          rows_of<T>(out), several<const T>(parts), heads);
        };
        if (fit)
            launch(std::integral_constant<int, most>());
        else
            launch(std::integral_constant<int, 1>());
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
