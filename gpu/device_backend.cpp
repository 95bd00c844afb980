#include "device_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "array.hpp"
#include "constants.hpp"
#include "kernels.hpp"
#include "numbers.hpp"
#include "solver.hpp"

/// Backend on a device: only numbers leave it.
namespace tsdiag::gpu {
namespace {

/// The first or the last visible columns as max(0, at + r step) or min(n, at + r step), step 0 or
/// 1; none where they are of no such kind.
struct Line {
    Index at, step;
};
template <class Limit>
std::optional<Line> line_of(const std::vector<Index>& values, std::size_t anchor, Limit limit) {
    for (const Index step : {0, 1}) {
        const Line line{values[anchor] - Index(anchor) * step, step};
        std::size_t r = 0;
        while (r < values.size() && values[r] == limit(line.at + Index(r) * step)) ++r;
        if (r == values.size()) return line;
    }
    return {};
}

/// Of a causal, windowed or full P two numbers each, else arrays.
DeviceVisible on_device(const Visible& visible, Index cols) {
    DeviceVisible out;
    if (visible.everything()) return out;
    const auto first = line_of(visible.first, visible.first.size() - 1,
                               [](Index i) { return std::max<Index>(0, i); });
    const auto last = line_of(visible.last, 0, [cols](Index i) { return std::min(cols, i); });
    if (first && last) {
        out.from = first->at, out.from_step = first->step;
        out.to = last->at, out.to_step = last->step;
        return out;
    }
    out.first = Constants::on_device(std::span(visible.first));
    out.last = Constants::on_device(std::span(visible.last));
    return out;
}

/// Use(part, first) of so many tensors at a time, of one type and rows and columns.
template <class Use>
void each_launch(std::span<const View> xs, const Use& use) {
    for (std::size_t first = 0; first < xs.size();) {
        Views part;
        const auto alike = [&](const View& x) {
            const View& one = xs[first];
            return x.type == one.type && x.shape.rows == one.shape.rows &&
                   x.shape.cols == one.shape.cols;
        };
        std::size_t next = first;
        while (next < xs.size() && part.count < Views::most && alike(xs[next]))
            part.at[part.count++] = xs[next++];
        use(part, first);
        first = next;
    }
}
/// The same of one type.
template <class Use>
void each_launch_of_a_type(std::span<const View> xs, const Use& use) {
    for (std::size_t first = 0; first < xs.size();) {
        Views part;
        std::size_t next = first;
        while (next < xs.size() && part.count < Views::most && xs[next].type == xs[first].type)
            part.at[part.count++] = xs[next++];
        use(part, first);
        first = next;
    }
}

bool contiguous(const View& v) {
    return (v.row_stride == v.shape.cols || v.shape.rows <= 1) &&
           (v.batch_stride == v.shape.rows * v.shape.cols || v.shape.batch <= 1);
}
std::size_t bytes_in(const View& v) { return std::size_t(v.shape.count()) * bytes_of(v.type); }
HeadParts parts_of(std::span<const Index> heads) {
    if (heads.size() > HeadParts::most)
        throw BrokenInvariant("more parts of heads than a kernel takes");
    HeadParts out;
    std::partial_sum(heads.begin(), heads.end(), out.ends);
    return out;
}
/// A contiguous view of the same elements at `data`.
View packed(const View& v, void* data) {
    return {data, v.shape, v.shape.rows * v.shape.cols, v.shape.cols, v.type};
}

class DeviceBackend final : public Backend {
  public:
    DeviceBackend(int index, Products products)
        : index_(index), products_(products), name_(fmt::format("cuda:{}", index)) {
        open(index);
        memory_ = all_bytes();
    }

    std::string_view name() const override { return name_; }
    bool host_memory() const override { return false; }
    std::string description() const override { return describe(index_); }
    std::string device_name() const override { return name_of(index_); }
    std::size_t memory() const override { return memory_; }
    std::size_t available() const override {
        select(index_);
        return free_bytes();
    }
    /// A few rows a processor suffice; more only take memory.
    double working_set() const override { return double(memory_) / 8; }
    void synchronise() const override {
        select(index_);
        gpu::synchronise();
    }

    std::shared_ptr<void> allocate(std::size_t bytes) const override {
        select(index_);
        void* data = gpu::allocate(std::max<std::size_t>(bytes, 1));
        if (data == nullptr) throw out_of_memory(name_, bytes);
        return {data, [index = index_](void* p) {
                    try {
                        select(index);
                        release(p);
                    } catch (const Error&) {  // the device is lost, and its memory with it
                    }
                }};
    }

    void upload(View out, const void* host) const override {
        if (out.shape.count() == 0) return;
        select(index_);
        if (contiguous(out)) {
            to_device_staged(out.data, host, bytes_in(out));
        } else {
            const Array<std::byte> whole(bytes_in(out));
            to_device_staged(whole.data(), host, bytes_in(out));
            gpu::unary(Unary::copy, out, packed(out, whole.data()));
        }
        gpu::synchronise();
    }

    void download(void* host, View in) const override {
        if (in.shape.count() == 0) return;
        select(index_);
        if (contiguous(in)) return to_host(host, in.data, bytes_in(in));
        const Array<std::byte> whole(bytes_in(in));
        gpu::unary(Unary::copy, packed(in, whole.data()), in);
        to_host(host, whole.data(), bytes_in(in));
    }

    void matmul(View out, View a, View b, Transpose t, double alpha) const override {
        if (out.shape.count() == 0) return;
        select(index_);
        Product p;
        p.type = out.type;
        p.products = products_;
        p.transpose_a = t == Transpose::first;
        p.transpose_b = t == Transpose::second;
        p.m = out.shape.rows;
        p.n = out.shape.cols;
        p.k = p.transpose_a ? a.shape.rows : a.shape.cols;
        p.alpha = alpha;
        p.row_a = a.row_stride, p.row_b = b.row_stride, p.row_c = out.row_stride;
        p.batch_a = a.batch_stride, p.batch_c = out.batch_stride;
        const Index group = a.shape.batch / b.shape.batch;  // batches of a that share one of b
        const auto at = [](const View& v, Index batch) {
            return static_cast<std::byte*>(v.data) +
                   batch * v.batch_stride * Index(bytes_of(v.type));
        };
        if (group == 1) {
            p.batch_b = b.batch_stride;
            p.count = out.shape.batch;
            p.a = a.data, p.b = b.data, p.c = out.data;
            return multiply(p);
        }
        p.count = group;
        for (Index j = 0; j < b.shape.batch; ++j) {
            p.a = at(a, j * group), p.b = at(b, j), p.c = at(out, j * group);
            multiply(p);
        }
    }

    void matvec(View y, View a, View x, bool transposed) const override {
        if (!begin(y)) return;
        if (!transposed) return gpu::matvec(y, a, x);
        const Index chunks = chunks_of(a.shape.rows), n = a.shape.cols;
        const Array<double> parts(std::size_t(a.shape.batch * chunks * n));
        gpu::matvec_transposed(parts.data(), a, x);
        add_columns({y.data, {a.shape.batch, 1, n}, n, n, Type::f64},
                    {parts.data(), {a.shape.batch, chunks, n}, chunks * n, n, Type::f64});
    }

    void fill(View out, double value) const override {
        if (!begin(out)) return;
        if (value == 0 && contiguous(out)) return clear(out.data, bytes_in(out));
        gpu::fill(out, value);
    }
    void map_sum(View out, View a, const View* bias, Unary op, const View* added,
                 const View* kept) const override {
        if (begin(out)) gpu::map_sum(out, a, bias, op, added, kept);
    }
    void copy(std::span<const View> to, std::span<const View> from) const override {
        select(index_);
        each_launch_of_a_type(to, [&](const Views& part, std::size_t first) {
            Views sources;
            while (sources.count < part.count) {
                sources.at[sources.count] = from[first + std::size_t(sources.count)];
                ++sources.count;
            }
            gpu::copy(part, sources);
        });
    }
    void expand(View out, View a) const override {
        if (begin(out)) gpu::expand(out, a);
    }
    bool fuses() const override { return true; }
    void sum_rows(View sum, const View* branch, const View* normed, View a, const View* bias,
                  View added, const View* weight, const View* shift, double eps,
                  bool centre) const override {
        if (begin(sum))
            gpu::sum_rows(sum, branch, normed, a, bias, added, weight, shift, eps, centre);
    }
    void unary_derivative(Unary op, View out, View g, View x, View y) const override {
        if (begin(out)) gpu::unary_derivative(op, out, g, x, y);
    }
    void softmax_derivative(View out, View g, View y) const override {
        if (begin(out)) gpu::softmax_derivative(out, g, y);
    }
    void norm_derivative(View out, const View* parts, View g, View x, const View* weight,
                         const View* added, double eps, bool centre) const override {
        if (begin(out)) gpu::norm_derivative(out, parts, g, x, weight, added, eps, centre);
    }
    void unary(Unary op, View out, View a) const override {
        if (begin(out)) gpu::unary(op, out, a);
    }
    void convert(View out, View a) const override {
        if (begin(out)) gpu::convert(out, a);
    }
    void transpose(View out, View a) const override {
        if (begin(out)) gpu::transpose(out, a);
    }
    void split_heads(View out, View a, const View* bias,
                     std::span<const Index> heads) const override {
        if (begin(out)) gpu::split_heads(out, a, bias, parts_of(heads));
    }
    void merge_heads(View out, std::span<const View> parts) const override {
        if (parts.size() > HeadParts::most)
            throw BrokenInvariant("more parts of heads than a kernel takes");
        Views all;
        for (const View& part : parts) all.at[all.count++] = part;
        if (begin(out)) gpu::merge_heads(out, all);
    }
    void binary(Binary op, View out, View a, View b) const override {
        if (begin(out)) gpu::binary(op, out, a, b);
    }
    void affine(View out, View a, double alpha, double beta) const override {
        if (begin(out)) gpu::affine(out, a, alpha, beta);
    }
    void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                        bool centre) const override {
        if (begin(out)) gpu::normalise_rows(out, a, weight, bias, eps, centre);
    }
    void row_sum(View out, View a) const override {
        if (begin(out)) gpu::row_sum(out, a);
    }
    void row_max(View out, View a) const override {
        if (begin(out)) gpu::row_max(out, a);
    }
    void column_sum(View out, View a) const override {
        if (begin(out)) add_columns(out, a);
    }
    void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
              double scale) const override {
        if (begin(out)) gpu::draw(out, law, seed, stream, offset, scale);
    }
    void adamw(std::span<const AdamWUpdate> updates) const override {
        for (std::size_t first = 0; first < updates.size();) {
            const auto rest = updates.subspan(first);
            std::size_t count = 1;
            while (count < std::min(rest.size(), most_updates) &&
                   rest[count].w.type == rest[0].w.type)
                ++count;
            if (begin(rest[0].w)) gpu::adamw(rest.first(count));
            first += count;
        }
    }
    void gather_rows(View out, View table, std::span<const Index> rows) const override {
        if (!begin(out)) return;
        gpu::gather_rows(out, table, Constants::on_device(rows));
    }
    void scatter_add_rows(View out, View a, std::span<const Index> rows) const override {
        if (!begin(out)) return;
        clear(out.data, bytes_in(out));
        std::vector<Index> order(rows.size()), starts, of_group;  // those of a row in their order
        std::iota(order.begin(), order.end(), 0);
        std::ranges::sort(order, {}, [&](Index i) { return std::pair(rows[std::size_t(i)], i); });
        for (std::size_t k = 0; k < order.size(); ++k) {
            const Index row = rows[std::size_t(order[k])];
            if (!of_group.empty() && of_group.back() == row) continue;
            starts.push_back(Index(k));
            of_group.push_back(row);
        }
        if (of_group.empty()) return;
        starts.push_back(Index(order.size()));
        const auto groups = std::ssize(of_group);
        std::vector<Index> all = of_group;  // one upload
        all.insert(all.end(), starts.begin(), starts.end());
        all.insert(all.end(), order.begin(), order.end());
        const Index* r = Constants::on_device(std::span<const Index>(all));
        gpu::add_groups(out, a, {r, r + groups, r + groups + std::ssize(starts), groups});
    }
    void rotate(View out, View a, std::span<const double> position,
                std::span<const double> frequency, bool interleaved) const override {
        if (!begin(out)) return;
        gpu::rotate(out, a, Constants::on_device(position), Constants::on_device(frequency),
                    Index(frequency.size()), interleaved);
    }
    void softmax_rows(View p, const Visible& visible) const override {
        if (begin(p)) gpu::softmax_rows(p, on_device(visible, p.shape.cols));
    }
    void hide(View p, const Visible& visible) const override {
        if (!visible.everything() && begin(p)) gpu::hide(p, on_device(visible, p.shape.cols));
    }

    Later<RowStatistics> row_statistics(View p, const View* slope, bool divided, Index first,
                                        const Visible& visible) const override {
        return statistics(p, slope, divided, first, visible, false);
    }
    Later<RowStatistics> row_totals(View p, const View* slope, bool divided, Index first,
                                    const Visible& visible) const override {
        return statistics(p, slope, divided, first, visible, true);
    }

    Later<std::vector<StateMoments>> state_moments(std::span<const View> xs) const override {
        using All = std::vector<StateMoments>;
        select(index_);
        All all;
        std::vector<std::pair<std::size_t, Numbers::Slice>> found;  // with the first state
        each_launch(xs, [&](const Views& part, std::size_t) {
            const Index n = part.at[0].shape.rows, d = part.at[0].shape.cols;
            const std::size_t begin = all.size();
            for (Index k = 0; k < part.count; ++k)
                for (Index b = 0; b < part.at[k].shape.batch; ++b) all.push_back({.n = n, .d = d});
            const std::size_t states = all.size() - begin;
            if (n == 0 || d == 0 || states == 0) return;
            Numbers& numbers = Numbers::of_thread();
            found.emplace_back(begin, numbers.results(states * sizeof(Moments) / sizeof(double)));
            const Numbers::Slice counters = numbers.counters(states);
            const Array<double> parts(states * std::size_t(chunks_of(n) * (3 * d + 3)));
            gpu::state_moments(found.back().second.device_as<Moments>(), parts.data(),
                               counters.device_as<Counter>(), part);
        });
        return Later<All>([all, found]() mutable {
            for (std::size_t i = 0; i < found.size(); ++i) {
                const auto& [begin, slice] = found[i];
                const std::size_t end = i + 1 < found.size() ? found[i + 1].first : all.size();
                const auto* m = reinterpret_cast<const Moments*>(slice.host());
                for (std::size_t k = begin; k < end && all[k].n > 0 && all[k].d > 0; ++k, ++m) {
                    all[k].squared = m->squared;
                    all[k].mean_part = m->mean_part;
                    all[k].centred = m->centred;
                    all[k].unit_sum = m->unit_sum;
                    all[k].least_row = m->least_row;
                    all[k].zero_row = m->least_row == 0;
                }
            }
            return all;
        });
    }

    Later<std::vector<double>> squared_norms(std::span<const View> xs) const override {
        select(index_);
        Numbers& numbers = Numbers::of_thread();
        const Numbers::Slice found = numbers.results(xs.size());
        each_launch_of_a_type(xs, [&](const Views& part, std::size_t first) {
            const Numbers::Slice counters = numbers.counters(std::size_t(part.count));
            const Array<double> parts(std::size_t(part.count * parts_of_sum(elements_of(part))));
            gpu::squared_norms(found.device() + first, parts.data(), counters.device_as<Counter>(),
                               part);
        });
        return Later<std::vector<double>>([found, count = xs.size()] {
            return std::vector<double>(found.host(), found.host() + count);
        });
    }

    Later<std::vector<double>> squares_and_traces(View a) const override {
        if (!begin(a)) return std::vector<double>(std::size_t(2 * a.shape.batch));
        Numbers& numbers = Numbers::of_thread();
        const auto count = std::size_t(a.shape.batch);
        const Numbers::Slice found = numbers.results(2 * count), counters = numbers.counters(count);
        const Array<double> parts(2 * count *
                                  std::size_t(parts_of_sum(a.shape.rows * a.shape.cols)));
        gpu::squares_and_traces(found.device(), parts.data(), counters.device_as<Counter>(), a);
        return Later<std::vector<double>>(
            [found, count] { return std::vector<double>(found.host(), found.host() + 2 * count); });
    }

    Later<std::vector<Index>> first_nonfinite(std::span<const View> xs) const override {
        select(index_);
        const Numbers::Slice found = Numbers::of_thread().flags(xs.size());
        each_launch_of_a_type(xs, [&](const Views& part, std::size_t first) {
            gpu::first_nonfinite(found.device_as<Counter>() + first, part);
        });
        return Later<std::vector<Index>>([found, count = xs.size()] {
            std::vector<Index> out(count);
            for (std::size_t k = 0; k < count; ++k) {
                const auto left = std::bit_cast<Counter>(found.host()[k]);
                out[k] = left == 0 ? -1 : Index(last_element - left);
            }
            return out;
        });
    }

    void krylov_products(const View* y, const View* z, View a, View x, View u,
                         View column) const override {
        if (!begin(a)) return;
        const Index heads = a.shape.batch, m = a.shape.rows, n = a.shape.cols;
        if (n <= short_krylov_row) {
            const Index chunks = z != nullptr ? krylov_chunks(m) : 0;
            const Array<double> parts(std::size_t(heads * chunks * (n + 1)));
            Counter* counters = nullptr;
            if (z != nullptr)
                counters = Numbers::of_thread().counters(std::size_t(heads)).device_as<Counter>();
            return gpu::krylov_products(y, z, parts.data(), counters, a, x, u, column);
        }
        if (z == nullptr) return gpu::krylov_rows(y, z, a, x, u, column);
        const Array<double> between(std::size_t(heads * m));
        const Array<double> parts(std::size_t(heads * chunks_of(m) * n));
        const View v{between.data(), {heads, 1, m}, m, m, Type::f64};
        gpu::krylov_rows(y, &v, a, x, u, column);
        gpu::matvec_transposed(parts.data(), a, v);
        gpu::krylov_sum(*z,
                        {parts.data(), {heads, chunks_of(m), n}, chunks_of(m) * n, n, Type::f64}, v,
                        column);
    }
    void extend_basis(View basis, View column, View image, Index centred) const override {
        if (basis.shape.rows > most_krylov_vectors)
            throw BrokenInvariant("more vectors of a basis than a kernel takes");
        if (begin(basis)) gpu::extend_basis(basis, column, image, centred);
    }
    Later<std::vector<Survey>> survey(View a) const override {
        const auto count = std::size_t(a.shape.batch);
        if (!begin(a)) return std::vector<Survey>(count, {.equal_rows = true});
        Numbers& numbers = Numbers::of_thread();
        const Numbers::Slice found = numbers.results(2 * count), counters = numbers.counters(count);
        const Array<double> parts(3 * count *
                                  std::size_t(parts_of_sum(a.shape.rows * a.shape.cols)));
        gpu::survey(found.device(), parts.data(), counters.device_as<Counter>(), a);
        return Later<std::vector<Survey>>([found, count] {
            std::vector<Survey> out;
            for (std::size_t b = 0; b < count; ++b) {
                const int code = int(found.host()[2 * b + 1]);
                out.push_back({found.host()[2 * b], code % 2 == 1, code < 2});
            }
            return out;
        });
    }

    Later<std::vector<double>> row_distances(View a) const override {
        const auto count = std::size_t(a.shape.batch);
        if (!begin(a)) return std::vector<double>(count);
        const Numbers::Slice found = Numbers::of_thread().flags(count);
        gpu::row_distances(found.device_as<Counter>(), a);
        return Later<std::vector<double>>(
            [found, count] { return std::vector<double>(found.host(), found.host() + count); });
    }
    Later<std::vector<double>> numbers_of(View a) const override {
        if (!begin(a)) return std::vector<double>();
        const auto count = std::size_t(a.shape.count());
        const Numbers::Slice found = Numbers::of_thread().results(count);
        View out = packed(a, found.device());
        out.type = Type::f64;
        gpu::convert(out, a);
        return Later<std::vector<double>>(
            [found, count] { return std::vector<double>(found.host(), found.host() + count); });
    }
    Later<std::vector<double>> tridiagonals(View a) const override {
        if (a.shape.rows > most_tridiagonal)
            throw BrokenInvariant("more rows of a symmetric matrix than a kernel takes");
        if (!begin(a)) return std::vector<double>();
        const auto count = std::size_t(a.shape.batch * (2 * a.shape.rows - 1));
        const Numbers::Slice found = Numbers::of_thread().results(count);
        gpu::tridiagonals(found.device(), a);
        return Later<std::vector<double>>(
            [found, count] { return std::vector<double>(found.host(), found.host() + count); });
    }

    std::optional<std::size_t> dense_workspace(Index n) const override {
        select(index_);
        try {
            return gpu::workspace(n);
        } catch (const OutOfMemory&) {
            return std::nullopt;
        } catch (const NotAvailable&) {  // said where a problem is to be solved
            return std::nullopt;
        }
    }
    std::optional<std::vector<std::complex<double>>> eigenvalues(View a) const override {
        const Array<double> scratch = copied(a);
        return gpu::eigenvalues(scratch.data(), a.shape.rows);
    }
    Sensitivity sensitivity(View a, std::complex<double> theta) const override {
        const double norm = std::sqrt(squared_norms(std::span(&a, 1)).get().front());
        if (contiguous(a)) return gpu::sensitivity(a.row<double>(0, 0), a.shape.rows, theta, norm);
        const Array<double> whole = copied(a);
        return gpu::sensitivity(whole.data(), a.shape.rows, theta, norm);
    }
    std::optional<std::vector<double>> symmetric_eigenvalues(View a) const override {
        const Array<double> scratch = copied(a);
        return gpu::symmetric_eigenvalues(scratch.data(), a.shape.rows);
    }

  private:
    static void add_columns(View out, View a) {
        const Index groups = a.shape.batch * column_groups(a.shape.cols),
                    shares = shares_of_rows(a.shape.rows);
        if (shares == 1) return gpu::column_sum(out, nullptr, nullptr, a);
        const Array<double> parts(std::size_t(groups * shares * columns_of_group));
        const Numbers::Slice counters = Numbers::of_thread().counters(std::size_t(groups));
        gpu::column_sum(out, parts.data(), counters.device_as<Counter>(), a);
    }

    Array<double> copied(const View& a) const {
        select(index_);
        Array<double> out(std::size_t(a.shape.count()));
        gpu::unary(Unary::copy, packed(a, out.data()), a);
        return out;
    }

    Later<RowStatistics> statistics(View p, const View* slope, bool divided, Index first,
                                    const Visible& visible, bool folded) const {
        select(index_);
        RowStatistics s;
        s.folded = folded;
        s.heads = p.shape.batch;
        s.rows = p.shape.rows;
        s.first = first;
        s.n = p.shape.cols;
        const auto rows = std::size_t(s.heads * s.rows), each = std::size_t(s.heads * s.numbers()),
                   windows = std::size_t(s.heads * s.n);
        const std::size_t fields = slope != nullptr ? 8 : 6, count = rows + windows + fields * each;
        if (rows == 0 || s.n == 0) {
            take_fields(s, std::vector<double>(count).data(), slope != nullptr);
            return s;
        }
        const DeviceVisible seen = on_device(visible, s.n);
        Numbers& numbers = Numbers::of_thread();
        const Numbers::Slice all = numbers.results(count);
        double* at[8] = {};
        for (std::size_t f = 0; f < fields; ++f) at[f] = all.device() + rows + windows + f * each;
        const RowFields out{all.device(), at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
        if (folded) {
            const Index blocks = (s.rows + rows_of_fields(s.n) - 1) / rows_of_fields(s.n);
            const Array<double> parts(std::size_t(s.heads * blocks * folded_fields));
            const Numbers::Slice counters = numbers.counters(std::size_t(s.heads));
            gpu::row_fields(out, parts.data(), counters.device_as<Counter>(), p, slope, divided,
                            first, seen);
        } else {
            gpu::row_fields(out, nullptr, nullptr, p, slope, divided, first, seen);
        }
        gpu::windows(all.device() + rows, p, first, seen);
        return Later<RowStatistics>([s, all, has_slope = slope != nullptr]() mutable {
            take_fields(s, all.host(), has_slope);
            return std::move(s);
        });
    }
    /// In the order of `statistics`.
    static void take_fields(RowStatistics& s, const double* next, bool has_slope) {
        const auto take = [&](auto& field, Index count) {
            field.assign(next, next + count);
            next += count;
        };
        const Index each = s.heads * s.numbers();
        take(s.diagonal, s.heads * s.rows);
        take(s.window, s.heads * s.n);
        for (std::vector<double>* field : {&s.sum, &s.modulus, &s.negative}) take(*field, each);
        take(s.squares, each);
        for (std::vector<double>* field : {&s.entropy, &s.max_modulus}) take(*field, each);
        if (!has_slope) return;
        take(s.jacobian, each);
        take(s.jacobian_max, each);
    }

    /// Selects the device; false where there is nothing to do.
    bool begin(const View& v) const {
        select(index_);
        return v.shape.count() > 0;
    }

    int index_;
    Products products_;
    std::string name_;
    std::size_t memory_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_backend(int index, Products products) {
    return std::make_unique<DeviceBackend>(index, products);
}

}  // namespace tsdiag::gpu
