#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "block_pool.hpp"
#include "cpu_kernels.hpp"
#include "onednn.hpp"
#include "rounded_product.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/memory.hpp"
#include "tsdiag/parallel.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace kernels {

const Table& table() {
#ifdef TSDIAG_X86
    static const Table& best = []() -> const Table& {
        __builtin_cpu_init();
        const bool second = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        const bool third = second && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
        // TSDIAG_ISA=base|avx2|avx512 limits the instruction set, for comparisons and tests.
        const char* wish = std::getenv("TSDIAG_ISA");
        const std::string_view isa = wish != nullptr ? wish : "avx512";
        if (third && isa == "avx512") return avx512::kernel_table;
        if (second && isa != "base") return avx2::kernel_table;
        return base::kernel_table;
    }();
    return best;
#else
    return base::kernel_table;
#endif
}

}  // namespace kernels

namespace {

/// Below this many elements, waking other threads costs more than the loop.
constexpr Index worth_threads = Index{1} << 17;

template <class T>
const kernels::Of<T>& functions() {
    if constexpr (std::is_same_v<T, float>)
        return kernels::table().f32;
    else
        return kernels::table().f64;
}

/// Calls f(T{}) with the element type of `v`.
template <class F>
decltype(auto) typed(const View& v, F f) {
    if (v.type == Type::f32) return f(float{});
    return f(double{});
}

/// f(batch, row) over all rows, in parallel where worthwhile.
template <class F>
void each_row(const Shape& s, F f) {
    const Index rows = s.batch * s.rows;
    const bool parallel = s.count() > worth_threads;
#pragma omp parallel for schedule(static) if (parallel)
    for (Index i = 0; i < rows; ++i) f(i / s.rows, i % s.rows);
}

/// Rows whose partial sums are added serially: results do not depend on the number of threads.
constexpr Index rows_per_sum = 64;

/// alpha op(a) op(b) as tiles, each made by one thread.  Tile sizes follow from one matrix, so
/// results are bitwise independent of the number of threads and of the batch.
template <class T>
class TiledProduct {
  public:
    TiledProduct(const MatrixProduct& product, T alpha)
        : of_(product),
          alpha_(alpha),
          vector_(of_.out.shape.rows == 1 || of_.out.shape.cols == 1),
          rows_(of_.out.shape.rows),
          cols_(of_.out.shape.cols) {
        // Not for vectors.  Tiles of one height, since Eigen rounds the last rows of a tile
        // differently.
        if (!by_library() && !vector_ && rows_ * cols_ * of_.inner / 16 >= worth_threads)
            rows_ = 96;
        if (by_library()) rows_ = part(rows_, 256, 8), cols_ = part(cols_, 192, 48);
        down_ = (of_.out.shape.rows + rows_ - 1) / rows_;
        across_ = (of_.out.shape.cols + cols_ - 1) / cols_;
    }

    Index tiles() const { return of_.out.shape.batch * down_ * across_; }
    /// Cost of the product as an equivalent number of loop elements.
    Index work() const { return of_.out.shape.count() * of_.inner / 16; }

    void make(Index tile) const {
        const Index batch = tile / (down_ * across_), at = tile % (down_ * across_);
        const Index i = at / across_ * rows_, j = at % across_ * cols_;
        const Index m = std::min(rows_, of_.out.shape.rows - i);
        const Index n = std::min(cols_, of_.out.shape.cols - j);
        const T* a = of_.a.row<T>(batch, 0) + (of_.first ? i : i * of_.a.row_stride);
        const T* b = of_.b.row<T>(batch / (of_.a.shape.batch / of_.b.shape.batch), 0) +
                     (of_.second ? j * of_.b.row_stride : j);
        T* c = of_.out.row<T>(batch, i) + j;
        if constexpr (std::is_same_v<T, float>)
            if (!vector_ &&
                onednn::multiply({of_.first, of_.second, m, n, of_.inner}, alpha_, a,
                                 of_.a.row_stride, b, of_.b.row_stride, c, of_.out.row_stride))
                return;
        functions<T>().gemm(of_.first, of_.second, m, n, of_.inner, alpha_, a, of_.a.row_stride, b,
                            of_.b.row_stride, c, of_.out.row_stride);
    }

  private:
    bool by_library() const { return std::is_same_v<T, float> && !vector_ && onednn::is_here(); }
    /// Size of equal parts (but the last) of `count`, as few as possible of at most `most`: a
    /// multiple of `step`, as the kernels need.
    static Index part(Index count, Index most, Index step) {
        const Index parts = (count + most - 1) / most, even = (count + parts - 1) / parts;
        return std::min(count, (even + step - 1) / step * step);
    }

    MatrixProduct of_;
    T alpha_;
    bool vector_;
    Index rows_, cols_, down_ = 0, across_ = 0;
};

/// Of all tensors; no ordering between threads is needed.
std::atomic<std::size_t> live_bytes = 0, peak_bytes = 0;

void count_taken(std::size_t bytes) {
    const std::size_t now = live_bytes += bytes;
    for (std::size_t peak = peak_bytes; now > peak && !peak_bytes.compare_exchange_weak(peak, now);)
        ;
}

template <class T>
void adamw_in_place(View weights, View first, View second, View gradient, const AdamWStep& s) {
    T *w = weights.row<T>(0, 0), *m = first.row<T>(0, 0), *v = second.row<T>(0, 0);
    const T* g = gradient.row<T>(0, 0);
    const Index count = weights.shape.count();
    const T b1 = T(s.beta1), b2 = T(s.beta2), eps = T(s.eps), factor = T(s.factor);
    const T rate = T(s.rate), unbias = T(s.unbias), shrink = T(s.shrink);
#pragma omp parallel for simd schedule(static) if (count > worth_threads)
    for (Index i = 0; i < count; ++i) {
        const T x = factor * g[i];
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        w[i] = shrink * w[i] - rate * m[i] / (std::sqrt(unbias * v[i]) + eps);
    }
}

class CpuBackend final : public Backend {
  public:
    explicit CpuBackend(Products products) : products_(products) {}
    std::string_view name() const override { return "cpu"; }
    bool host_memory() const override { return true; }

    std::string description() const override {
        const std::string library = onednn::version();
        std::string products = library.empty() ? "Eigen" : library;
        if (products_ == Products::bf16)
            products += ", their factors rounded to bfloat16";
        else if (onednn::has_bfloat16())
            products += " (--fast bf16: in bfloat16)";
        return fmt::format("{} threads, {} kernels, float32 products by {}, float64 by Eigen",
                           omp_get_max_threads(), kernels::table().name, products);
    }

    std::size_t memory() const override { return process_memory(); }
    std::size_t available() const override { return memory(); }
    double working_set() const override { return 8 << 20; }
    void synchronise() const override {}

    std::shared_ptr<void> allocate(std::size_t bytes) const override {
        void* p = BlockPool::of_tensors().take(bytes);
        if (p == nullptr)
            throw OutOfMemory(fmt::format(
                "out of memory: {} bytes were requested; lower --tokens or --memory", bytes));
        count_taken(bytes);
        return {p, [bytes](void* q) {
                    live_bytes -= bytes;
                    BlockPool::of_tensors().give(q, bytes);
                }};
    }
    void upload(View out, const void* host) const override {
        std::memcpy(out.data, host, std::size_t(out.shape.count()) * bytes_of(out.type));
    }
    void download(void* host, View in) const override {
        typed(in, [&]<class T>(T) {
            T* to = static_cast<T*>(host);
            each_row(in.shape, [&](Index b, Index r) {
                std::copy_n(in.row<T>(b, r), in.shape.cols,
                            to + (b * in.shape.rows + r) * in.shape.cols);
            });
        });
    }

    void matmul(View out, View a, View b, Transpose t, double alpha) const override {
        if (out.shape.count() == 0) return;
        if (products_ == Products::bf16 && out.type == Type::f32 && RoundedProduct::serves(out, a))
            return round_and_multiply({{out, a, b, t}, float(alpha)});
        typed(out, [&]<class T>(T) {
            const TiledProduct<T> product({out, a, b, t}, T(alpha));
            const Index tiles = product.tiles();
#pragma omp parallel for schedule(dynamic) if (tiles > 1 && product.work() > worth_threads)
            for (Index i = 0; i < tiles; ++i) product.make(i);
        });
    }

    void matvec(View y, View a, View x, bool transposed) const override {
        const auto vector = [](const View& v, Index b) {
            return std::span(v.row<double>(b, 0), std::size_t(v.shape.rows));
        };
#pragma omp parallel for schedule(static) if (a.shape.count() > worth_threads)
        for (Index b = 0; b < a.shape.batch; ++b) {
            View one = a;
            one.data =
                static_cast<std::byte*>(a.data) + b * a.batch_stride * Index(bytes_of(a.type));
            one.shape.batch = 1;
            if (!transposed) {
                multiply(one, vector(x, b), vector(y, b));
            } else {
                std::ranges::fill(vector(y, b), 0.0);
                add_transposed(one, 1, vector(x, b), vector(y, b));
            }
        }
    }

    void unary(Unary op, View out, View a) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index b, Index r) {
                functions<T>().unary(int(op), a.row<T>(b, r), out.row<T>(b, r), out.shape.cols);
            });
        });
    }

    void convert(View out, View a) const override {
        typed(out, [&]<class To>(To) {
            typed(a, [&]<class From>(From) {
                each_row(out.shape, [&](Index b, Index r) {
                    std::transform(a.row<From>(b, r), a.row<From>(b, r) + a.shape.cols,
                                   out.row<To>(b, r), [](From x) { return To(x); });
                });
            });
        });
    }

    void transpose(View out, View a) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index b, Index r) {
                T* to = out.row<T>(b, r);
                for (Index c = 0; c < out.shape.cols; ++c) to[c] = a.row<T>(b, c)[r];
            });
        });
    }

    /// Sample and first column of batch b of heads.
    struct HeadAt {
        Index sample, col;
    };
    static HeadAt head_at(Index b, Index samples, Index width, std::span<const Index> heads) {
        Index before = 0, p = 0;
        while (b - samples * before >= samples * heads[std::size_t(p)])
            before += heads[std::size_t(p++)];
        const Index own = heads[std::size_t(p)], inside = b - samples * before;
        return {inside / own, (before + inside % own) * width};
    }
    void split_heads(View out, View a, const View* bias,
                     std::span<const Index> heads) const override {
        typed(out, [&]<class T>(T) {
            const Index w = out.shape.cols;
            each_row(out.shape, [&](Index b, Index r) {
                const auto [sample, at] = head_at(b, a.shape.batch, w, heads);
                const T* x = a.row<T>(sample, r) + at;
                T* y = out.row<T>(b, r);
                if (bias != nullptr)
                    combine(Binary::add, y, x, bias->row<T>(0, 0) + at, false, w);
                else
                    std::copy_n(x, w, y);
            });
        });
    }

    void merge_heads(View out, std::span<const View> parts) const override {
        typed(out, [&]<class T>(T) {
            Index before = 0;
            for (const View& part : parts) {
                const Index w = part.shape.cols, own = part.shape.batch / out.shape.batch;
                each_row(part.shape, [&](Index b, Index r) {
                    std::copy_n(part.row<T>(b, r), w,
                                out.row<T>(b / own, r) + (before + b % own) * w);
                });
                before += own;
            }
        });
    }

    void fill(View out, double value) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index b, Index r) {
                std::fill_n(out.row<T>(b, r), out.shape.cols, T(value));
            });
        });
    }
    void expand(View out, View a) const override {
        fill(out, 0);
        binary(Binary::add, out, out, a);
    }
    void copy(std::span<const View> to, std::span<const View> from) const override {
        for (std::size_t k = 0; k < to.size(); ++k) unary(Unary::copy, to[k], from[k]);
    }
    void map_sum(View out, View a, const View* bias, Unary op, const View* added,
                 const View* kept) const override {
        if (bias != nullptr) binary(Binary::add, out, a, *bias);
        if (kept != nullptr) unary(Unary::copy, *kept, bias != nullptr ? out : a);
        unary(op, out, bias != nullptr ? out : a);
        if (added != nullptr) binary(Binary::add, out, out, *added);
    }

    void binary(Binary op, View out, View a, View b) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index batch, Index r) {
                const T* x = a.row<T>(batch, r);
                const T* y = b.row<T>(b.shape.batch == 1 ? 0 : batch, b.shape.rows == 1 ? 0 : r);
                combine(op, out.row<T>(batch, r), x, y, b.shape.cols == 1, out.shape.cols);
            });
        });
    }

    void affine(View out, View a, double alpha, double beta) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index b, Index r) {
                const T* x = a.row<T>(b, r);
                T* y = out.row<T>(b, r);
                for (Index j = 0; j < out.shape.cols; ++j) y[j] = T(alpha) * x[j] + T(beta);
            });
        });
    }

    void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                        bool centre) const override {
        typed(out, [&]<class T>(T) {
            const T* w = weight != nullptr ? weight->row<T>(0, 0) : nullptr;
            const T* c = bias != nullptr ? bias->row<T>(0, 0) : nullptr;
            each_row(out.shape, [&](Index b, Index r) {
                functions<T>().normalise(a.row<T>(b, r), w, c, out.row<T>(b, r), out.shape.cols,
                                         eps, centre);
            });
        });
    }

    void row_sum(View out, View a) const override {
        typed(out, [&]<class T>(T) {
            each_row(a.shape, [&](Index b, Index r) {
                *out.row<T>(b, r) = T(functions<T>().sum(a.row<T>(b, r), a.shape.cols));
            });
        });
    }

    void row_max(View out, View a) const override {
        typed(out, [&]<class T>(T) {
            each_row(a.shape, [&](Index b, Index r) {
                const T* x = a.row<T>(b, r);
                *out.row<T>(b, r) = *std::max_element(x, x + a.shape.cols);
            });
        });
    }

    void column_sum(View out, View a) const override {
        typed(out, [&]<class T>(T) {
            const Index cols = a.shape.cols;
#pragma omp parallel for schedule(static) if (a.shape.count() > worth_threads)
            for (Index b = 0; b < a.shape.batch; ++b) {
                std::vector<double> total(std::size_t(cols), 0.0);
                for (Index r = 0; r < a.shape.rows; ++r) {
                    const T* x = a.row<T>(b, r);
                    for (Index j = 0; j < cols; ++j) total[std::size_t(j)] += double(x[j]);
                }
                std::transform(total.begin(), total.end(), out.row<T>(b, 0),
                               [](double x) { return T(x); });
            }
        });
    }

    void gather_rows(View out, View table, std::span<const Index> rows) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape, [&](Index, Index r) {
                std::copy_n(table.row<T>(0, rows[std::size_t(r)]), out.shape.cols,
                            out.row<T>(0, r));
            });
        });
    }

    void scatter_add_rows(View out, View a, std::span<const Index> rows) const override {
        typed(out, [&]<class T>(T) {
            each_row(out.shape,
                     [&](Index, Index r) { std::fill_n(out.row<T>(0, r), out.shape.cols, T(0)); });
            for (Index r = 0; r < a.shape.rows; ++r) {
                const T* x = a.row<T>(0, r);
                T* y = out.row<T>(0, rows[std::size_t(r)]);
                for (Index j = 0; j < a.shape.cols; ++j) y[j] += x[j];
            }
        });
    }

    void rotate(View out, View a, std::span<const double> position,
                std::span<const double> frequency, bool interleaved) const override {
        const Index pairs = Index(frequency.size());
        typed(out, [&]<class T>(T) {
#pragma omp parallel for schedule(static) if (out.shape.count() > worth_threads)
            for (Index r = 0; r < out.shape.rows; ++r) {
                std::vector<double> cosine(frequency.size()), sine(frequency.size());
                for (std::size_t p = 0; p < frequency.size(); ++p) {
                    const double angle = position[std::size_t(r)] * frequency[p];
                    cosine[p] = std::cos(angle);
                    sine[p] = std::sin(angle);
                }
                for (Index b = 0; b < out.shape.batch; ++b) {
                    const T* x = a.row<T>(b, r);
                    T* y = out.row<T>(b, r);
                    for (Index p = 0; p < pairs; ++p) {
                        const Index i = interleaved ? 2 * p : p,
                                    j = interleaved ? 2 * p + 1 : p + pairs;
                        const T c = T(cosine[std::size_t(p)]);
                        const T s = T(sine[std::size_t(p)]);
                        const T u = x[i], v = x[j];
                        y[i] = u * c - v * s;
                        y[j] = v * c + u * s;
                    }
                    std::copy(x + 2 * pairs, x + out.shape.cols, y + 2 * pairs);
                }
            }
        });
    }

    void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
              double scale) const override {
        typed(out, [&]<class T>(T) {
            const std::span<T> values(static_cast<T*>(out.data), std::size_t(out.shape.count()));
            const Rng rng(seed, stream);
            if (law == Law::normal)
                rng.fill_normal(values, offset, scale);
            else
                rng.fill_uniform(values, offset, offset + scale);
        });
    }
    void adamw(std::span<const AdamWUpdate> updates) const override {
        for (const auto& [w, m, v, g, step] : updates)
            typed(w, [&]<class T>(T) { adamw_in_place<T>(w, m, v, g, step); });
    }
    void softmax_rows(View p, const Visible& visible) const override {
        typed(p, [&]<class T>(T) {
            each_row(p.shape, [&](Index b, Index r) {
                const auto [first, last] = range(visible, r, p.shape.cols);
                T* row = p.row<T>(b, r);
                std::fill(row, row + first, T(0));
                if (last > first) functions<T>().softmax(row + first, last - first);
                std::fill(row + last, row + p.shape.cols, T(0));
            });
        });
    }

    void hide(View p, const Visible& visible) const override {
        if (visible.everything()) return;
        typed(p, [&]<class T>(T) {
            each_row(p.shape, [&](Index b, Index r) {
                const auto [first, last] = range(visible, r, p.shape.cols);
                T* row = p.row<T>(b, r);
                std::fill(row, row + first, T(0));
                std::fill(row + last, row + p.shape.cols, T(0));
            });
        });
    }

    bool fuses() const override { return false; }
    void sum_rows(View, const View*, const View*, View, const View*, View, const View*, const View*,
                  double, bool) const override {
        composed();
    }
    void unary_derivative(Unary, View, View, View, View) const override { composed(); }
    void softmax_derivative(View, View, View) const override { composed(); }
    void norm_derivative(View, const View*, View, View, const View*, const View*, double,
                         bool) const override {
        composed();
    }
    void krylov_products(const View*, const View*, View, View, View, View) const override {
        composed();
    }
    void extend_basis(View, View, View, Index) const override { composed(); }

    Later<RowStatistics> row_statistics(View p, const View* slope, bool divided, Index first,
                                        const Visible& visible) const override {
        return typed(p,
                     [&]<class T>(T) { return statistics<T>(p, slope, divided, first, visible); });
    }

    Later<RowStatistics> row_totals(View p, const View* slope, bool divided, Index first,
                                    const Visible& visible) const override {
        return fold(row_statistics(p, slope, divided, first, visible).get());
    }

    Later<std::vector<StateMoments>> state_moments(std::span<const View> xs) const override {
        std::vector<StateMoments> out;
        for (View x : xs)
            for (Index b = 0; b < x.shape.batch; ++b) {
                View one = x;
                one.data =
                    static_cast<std::byte*>(x.data) + b * x.batch_stride * Index(bytes_of(x.type));
                one.shape.batch = 1;
                out.push_back(typed(one, [&]<class T>(T) { return moments<T>(one); }));
            }
        return out;
    }

    Later<std::vector<double>> squared_norms(std::span<const View> xs) const override {
        std::vector<double> out;
        for (const View& x : xs)
            out.push_back(typed(x, [&]<class T>(T) {
                double total = 0;
                for (Index b = 0; b < x.shape.batch; ++b)
                    for (Index r = 0; r < x.shape.rows; ++r)
                        total += functions<T>().squared_norm(x.row<T>(b, r), x.shape.cols);
                return total;
            }));
        return out;
    }

    Later<std::vector<double>> squares_and_traces(View a) const override {
        std::vector<double> out;
        for (Index b = 0; b < a.shape.batch; ++b)
            typed(a, [&]<class T>(T) {
                double squares = 0, trace = 0;
                for (Index r = 0; r < a.shape.rows; ++r) {
                    squares += functions<T>().squared_norm(a.row<T>(b, r), a.shape.cols);
                    trace += double(a.row<T>(b, r)[r]);
                }
                out.insert(out.end(), {squares, trace});
            });
        return out;
    }

    Later<std::vector<Index>> first_nonfinite(std::span<const View> xs) const override {
        std::vector<Index> out;
        for (const View& x : xs)
            out.push_back(typed(x, [&]<class T>(T) { return nonfinite_element<T>(x); }));
        return out;
    }
    Later<std::vector<Survey>> survey(View a) const override {
        std::vector<Survey> out(std::size_t(a.shape.batch), {.equal_rows = true});
        typed(a, [&]<class T>(T) {
            for (Index b = 0; b < a.shape.batch; ++b)
                for (Index r = 0; r < a.shape.rows; ++r) {
                    Survey& one = out[std::size_t(b)];
                    const T *row = a.row<T>(b, r), *first = a.row<T>(b, 0);
                    for (Index j = 0; j < a.shape.cols; ++j) {
                        one.squares += double(row[j]) * double(row[j]);
                        one.has_zero = one.has_zero || row[j] == T(0);
                        one.equal_rows = one.equal_rows && row[j] == first[j];
                    }
                }
        });
        return out;
    }

    Later<std::vector<double>> row_distances(View a) const override {
        std::vector<double> out(std::size_t(a.shape.batch));
        in_parallel(a.shape.batch,
                    [&](Index b) { out[std::size_t(b)] = largest_row_distance(of_batch(a, b)); });
        return out;
    }
    Later<std::vector<double>> numbers_of(View a) const override {
        auto all = std::vector<double>(std::size_t(a.shape.count()));
        typed(a, [&]<class T>(T) {
            auto at = all.begin();
            for (Index b = 0; b < a.shape.batch; ++b)
                for (Index r = 0; r < a.shape.rows; ++r)
                    at = std::copy_n(a.row<T>(b, r), a.shape.cols, at);
        });
        return all;
    }
    Later<std::vector<double>> tridiagonals(View a) const override {
        const Index n = a.shape.rows;
        std::vector<double> out(std::size_t(a.shape.batch * std::max<Index>(0, 2 * n - 1)));
        in_parallel(a.shape.batch, [&](Index b) {
            std::ranges::copy(tridiagonal_of(elements(of_batch(a, b)), n),
                              out.begin() + b * (2 * n - 1));
        });
        return out;
    }

    std::optional<std::size_t> dense_workspace(Index n) const override {
        return std::size_t(8 * n * n) * sizeof(double);  // of the QR algorithm, and the copies
    }
    std::optional<std::vector<std::complex<double>>> eigenvalues(View a) const override {
        return tsdiag::eigenvalues(elements(a), a.shape.rows);
    }
    Sensitivity sensitivity(View a, std::complex<double> theta) const override {
        return tsdiag::sensitivity(elements(a), a.shape.rows, theta);
    }
    std::optional<std::vector<double>> symmetric_eigenvalues(View a) const override {
        return tsdiag::symmetric_eigenvalues(elements(a), a.shape.rows);
    }

  private:
    static void round_and_multiply(const RoundedProduct& product) {
        if (product.work() > worth_threads)
            return in_parallel(product.jobs(), [&](Index job) { product.make(job); });
        for (Index job = 0; job < product.jobs(); ++job) product.make(job);
    }
    static View of_batch(View a, Index b) {
        typed(a, [&]<class T>(T) { a.data = a.row<T>(b, 0); });
        a.shape.batch = 1;
        return a;
    }
    std::vector<double> elements(const View& a) const {
        auto all = std::vector<double>(std::size_t(a.shape.count()));
        download(all.data(), a);
        return all;
    }

    [[noreturn]] static void composed() {
        throw BrokenInvariant("the CPU's derivatives are composed of other kernels");
    }

    template <class T>
    static Index nonfinite_element(const View& x) {
        const Index rows = x.shape.batch * x.shape.rows;
        Index found = rows * x.shape.cols;
#pragma omp parallel for schedule(static) reduction(min \
                                                    : found) if (x.shape.count() > worth_threads)
        for (Index i = 0; i < rows; ++i) {
            const Index at = functions<T>().first_nonfinite(
                x.row<T>(i / x.shape.rows, i % x.shape.rows), x.shape.cols);
            if (at >= 0) found = std::min(found, i * x.shape.cols + at);
        }
        return found == rows * x.shape.cols ? Index{-1} : found;
    }

    static std::pair<Index, Index> range(const Visible& visible, Index row, Index cols) {
        if (visible.everything()) return {0, cols};
        return {visible.first[std::size_t(row)], visible.last[std::size_t(row)]};
    }

    template <class T>
    static void combine(Binary op, T* out, const T* left, const T* right, bool single,
                        Index count) {
        const auto with = [&](auto f) {
            if (single) {
                const T s = *right;
                for (Index j = 0; j < count; ++j) out[j] = f(left[j], s);
            } else {
                for (Index j = 0; j < count; ++j) out[j] = f(left[j], right[j]);
            }
        };
        switch (op) {
#define TSDIAG_CASE(name, formula) \
    case Binary::name:             \
        return with([](T x, T y) { return formula; });
            TSDIAG_BINARY_FORMULAS(TSDIAG_CASE)
#undef TSDIAG_CASE
        }
    }

    template <class T>
    static RowStatistics statistics(View p, const View* slope, bool divided, Index first,
                                    const Visible& visible) {
        const Index h = p.shape.batch, rows = p.shape.rows, n = p.shape.cols;
        RowStatistics s;
        s.heads = h;
        s.rows = rows;
        s.first = first;
        s.n = n;
        for (std::vector<double>* v :
             {&s.sum, &s.modulus, &s.negative, &s.entropy, &s.max_modulus, &s.diagonal})
            v->resize(std::size_t(h * rows));
        s.squares.resize(std::size_t(h * rows));
        if (slope != nullptr) {
            s.jacobian.resize(std::size_t(h * rows));
            s.jacobian_max.resize(std::size_t(h * rows));
        }
        each_row({h, rows, n}, [&](Index b, Index r) {
            const auto [from, to] = range(visible, r, n);
            const T* row = p.row<T>(b, r);
            const T* g = slope != nullptr ? slope->row<T>(b, r) + from : nullptr;
            const kernels::RowResult x =
                to > from ? functions<T>().row_statistics(row + from, g, divided, to - from)
                          : kernels::RowResult{};
            const auto i = std::size_t(b * rows + r);
            s.sum[i] = x.sum;
            s.modulus[i] = x.modulus;
            s.negative[i] = x.negative;
            s.squares[i] = x.squares;
            s.entropy[i] = x.entropy;
            s.max_modulus[i] = x.max_modulus;
            s.diagonal[i] = first + r < n ? double(row[first + r]) : 0.0;
            if (slope != nullptr) {
                s.jacobian[i] = x.jacobian;
                s.jacobian_max[i] = x.jacobian_max;
            }
        });
        accumulate_windows<T>(s, p, visible);
        return s;
    }

    /// Tasks of (head, group of rows): neither their number nor the sum depends on the threads.
    template <class T>
    static void accumulate_windows(RowStatistics& s, View p, const Visible& visible) {
        const Index n = s.n, groups = s.heads >= 8 ? 1 : std::clamp<Index>(s.rows / 32, 1, 8);
        const Index per = (s.rows + groups - 1) / groups;
        const auto size = std::size_t(n);
        std::vector<std::vector<double>> part(std::size_t(s.heads * groups));
#pragma omp parallel for schedule(static) if (p.shape.count() > worth_threads)
        for (Index task = 0; task < s.heads * groups; ++task) {
            std::vector<double>& v = part[std::size_t(task)];
            v.assign(3 * size, 0.0);
            const kernels::WindowSums sums{v.data(), v.data() + size, v.data() + 2 * size};
            const Index head = task / groups, begin = task % groups * per,
                        end = std::min(s.rows, begin + per);
            for (Index r = begin; r < end; ++r) {
                const auto [from, to] = range(visible, r, n);
                functions<T>().window(p.row<T>(head, r), s.first + r, n, from, to, sums);
            }
        }
        s.window.assign(std::size_t(s.heads) * size, 0.0);
        for (Index task = 0; task < s.heads * groups; ++task) {
            const std::vector<double>& v = part[std::size_t(task)];
            double* out = s.window.data() + task / groups * n;
            for (std::size_t e = 0; e < size; ++e) {
                out[e] += v[2 * size + e];
                if (e > 0)
                    out[e] +=
                        v[(e % 2 == 1 ? 0 : size) + (e + 1) / 2];  // odd steps grow to the left
            }
        }
    }

    template <class T>
    static StateMoments moments(View x) {
        const Index n = x.shape.rows, d = x.shape.cols,
                    groups = (n + rows_per_sum - 1) / rows_per_sum;
        const auto width = std::size_t(d);
        StateMoments m;
        m.n = n;
        m.d = d;
        std::vector<double> sums(2 * width * std::size_t(groups), 0.0);
        auto squares = std::vector<double>(std::size_t(n));
#pragma omp parallel for schedule(static) if (n * d > worth_threads)
        for (Index g = 0; g < groups; ++g) {
            double* column = sums.data() + 2 * g * d;
            for (Index r = g * rows_per_sum; r < std::min(n, (g + 1) * rows_per_sum); ++r)
                squares[std::size_t(r)] =
                    functions<T>().accumulate_row(x.row<T>(0, r), d, column, column + d);
        }
        std::vector<double> mean(width, 0.0), unit(width, 0.0);
        for (Index g = 0; g < groups; ++g)
            for (std::size_t j = 0; j < width; ++j) {
                mean[j] += sums[std::size_t(2 * g) * width + j];
                unit[j] += sums[std::size_t(2 * g + 1) * width + j];
            }
        double squared = 0, mean_part = 0, outside = 0;
        m.least_row = n > 0 ? squares.front() : 0;
        for (const double s : squares) {
            squared += s;
            m.least_row = std::min(m.least_row, s);
            m.zero_row = m.zero_row || s == 0;
        }
        for (std::size_t j = 0; j < width; ++j) {
            mean_part += mean[j] * mean[j] / double(n);
            m.unit_sum += unit[j] * unit[j];
            mean[j] /= double(n);
        }
        auto centred = std::vector<double>(std::size_t(n));
#pragma omp parallel for schedule(static) if (n * d > worth_threads)
        for (Index r = 0; r < n; ++r)
            centred[std::size_t(r)] = functions<T>().centred_row(x.row<T>(0, r), mean.data(), d);
        for (const double c : centred) outside += c;
        m.squared = squared;
        m.mean_part = mean_part;
        m.centred = outside;
        return m;
    }

    Products products_;
};

}  // namespace

const Backend& cpu() {
    static const CpuBackend backend(Products::exact);
    return backend;
}

const Backend* rounding_cpu() {
    if (!onednn::has_bfloat16()) return nullptr;
    static const CpuBackend backend(Products::bf16);
    return &backend;
}

TensorBytes cpu_bytes() { return {live_bytes, peak_bytes}; }
void restart_cpu_peak() { peak_bytes = live_bytes.load(); }

}  // namespace tsdiag
