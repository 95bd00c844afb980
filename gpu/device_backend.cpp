#include "device_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "array.hpp"
#include "kernels.hpp"
#include "solver.hpp"

/// Backend on a device: only numbers leave it.
namespace tsdiag::gpu {
namespace {

/// Visible columns on the device for the duration of a call.
class VisibleOnDevice {
  public:
    explicit VisibleOnDevice(const Visible& visible)
        : first_(std::span<const Index>(visible.first)),
          last_(std::span<const Index>(visible.last)),
          everything_(visible.everything()) {}
    DeviceVisible get() const {
        return everything_ ? DeviceVisible() : DeviceVisible{first_.data(), last_.data()};
    }

  private:
    Array<Index> first_, last_;
    bool everything_;
};

bool contiguous(const View& v) {
    return (v.row_stride == v.shape.cols || v.shape.rows <= 1) &&
           (v.batch_stride == v.shape.rows * v.shape.cols || v.shape.batch <= 1);
}
std::size_t bytes_in(const View& v) { return std::size_t(v.shape.count()) * bytes_of(v.type); }
/// A contiguous view of the same elements at `data`.
View packed(const View& v, void* data) {
    return {data, v.shape, v.shape.rows * v.shape.cols, v.shape.cols, v.type};
}

double sum(const std::vector<double>& values) {
    double s = 0;
    for (const double v : values) s += v;
    return s;
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
        gpu::column_sum({y.data, {a.shape.batch, 1, n}, n, n, Type::f64},
                        {parts.data(), {a.shape.batch, chunks, n}, chunks * n, n, Type::f64});
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
    void split_heads(View out, View a) const override {
        if (begin(out)) gpu::split_heads(out, a);
    }
    void merge_heads(View out, View a) const override {
        if (begin(out)) gpu::merge_heads(out, a);
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
        if (begin(out)) gpu::column_sum(out, a);
    }
    void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
              double scale) const override {
        if (begin(out)) gpu::draw(out, law, seed, stream, offset, scale);
    }
    void adamw(View w, View m, View v, View g, const AdamWStep& step) const override {
        if (begin(w)) gpu::adamw(w, m, v, g, step);
    }
    void gather_rows(View out, View table, std::span<const Index> rows) const override {
        if (!begin(out)) return;
        const Array<Index> on_device(rows);
        gpu::gather_rows(out, table, on_device.data());
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
        const Array<Index> r{std::span<const Index>(of_group)}, s{std::span<const Index>(starts)},
            o{std::span<const Index>(order)};
        gpu::add_groups(out, a, {r.data(), s.data(), o.data(), std::ssize(of_group)});
    }
    void rotate(View out, View a, std::span<const double> position,
                std::span<const double> frequency, bool interleaved) const override {
        if (!begin(out)) return;
        const Array<double> p(position), f(frequency);
        gpu::rotate(out, a, p.data(), f.data(), Index(frequency.size()), interleaved);
    }
    void softmax_rows(View p, const Visible& visible) const override {
        if (!begin(p)) return;
        const VisibleOnDevice seen(visible);
        gpu::softmax_rows(p, seen.get());
    }
    void hide(View p, const Visible& visible) const override {
        if (visible.everything() || !begin(p)) return;
        const VisibleOnDevice seen(visible);
        gpu::hide(p, seen.get());
    }

    RowStatistics row_statistics(View p, const View* slope, bool divided, Index first,
                                 const Visible& visible) const override {
        select(index_);
        const auto rows = std::size_t(p.shape.batch * p.shape.rows);
        RowStatistics s;
        s.heads = p.shape.batch;
        s.rows = p.shape.rows;
        s.first = first;
        s.n = p.shape.cols;
        s.window.assign(std::size_t(s.heads * s.n), 0.0);
        const std::size_t count = slope != nullptr ? 9 : 7;
        const VisibleOnDevice seen(visible);
        const Array<double> all(count * rows);
        double* at[9] = {};
        for (std::size_t f = 0; f < count; ++f) at[f] = all.data() + f * rows;
        if (rows > 0)
            gpu::row_fields({at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8]}, p,
                            slope, divided, first, seen.get());
        const std::vector<double> values = all.host();
        auto next = values.begin();
        const auto take = [&](auto& field) {
            field.assign(next, next + std::ptrdiff_t(rows));
            next += std::ptrdiff_t(rows);
        };
        for (std::vector<double>* field : {&s.sum, &s.modulus, &s.negative}) take(*field);
        take(s.squares);
        for (std::vector<double>* field : {&s.entropy, &s.max_modulus, &s.diagonal}) take(*field);
        if (slope != nullptr) take(s.jacobian);
        if (slope != nullptr) take(s.jacobian_max);
        if (rows == 0) return s;
        const Index chunks = chunks_of(p.shape.rows);
        const Array<double> parts(s.window.size() * std::size_t(chunks));
        gpu::windows(parts.data(), p, first, seen.get());
        s.window = sum_of_chunks(parts, s.heads, chunks, s.n);
        return s;
    }

    StateMoments state_moments(View x) const override {
        select(index_);
        const Index n = x.shape.rows, d = x.shape.cols;
        StateMoments m;
        m.n = n;
        m.d = d;
        if (n == 0 || d == 0) return m;
        const auto squares = Array<double>(std::size_t(n));
        gpu::row_squares(squares.data(), x);
        const std::vector<double> of_row = squares.host();
        m.squared = sum(of_row);
        m.least_row = *std::ranges::min_element(of_row);
        m.zero_row = m.least_row == 0;
        const Index chunks = chunks_of(n);
        const auto parts = std::size_t(chunks * d);
        const Array<double> column(parts), unit(parts);
        gpu::state_sums(column.data(), unit.data(), x, squares.data());
        std::vector<double> mean = sum_of_chunks(column, 1, chunks, d);
        double mean_part = 0;
        for (double& c : mean) {
            mean_part += c * c / double(n);
            c /= double(n);
        }
        m.mean_part = mean_part;
        for (const double u : sum_of_chunks(unit, 1, chunks, d)) m.unit_sum += u * u;
        const Array<double> on_device{std::span<const double>(mean)};
        gpu::centred_squares(squares.data(), x, on_device.data());
        m.centred = sum(squares.host());
        return m;
    }

    double squared_norm(View x) const override {
        if (!begin(x)) return 0;
        const Array<double> squares(std::size_t(x.shape.batch * x.shape.rows));
        gpu::row_squares(squares.data(), x);
        return sum(squares.host());
    }

    Index first_nonfinite(View x) const override {
        if (!begin(x)) return -1;
        const Array<Index> found(std::size_t(x.shape.batch * x.shape.rows));
        gpu::row_nonfinite(found.data(), x);
        const std::vector<Index> columns = found.host();
        for (std::size_t i = 0; i < columns.size(); ++i)
            if (columns[i] >= 0) return Index(i) * x.shape.cols + columns[i];
        return -1;
    }

    std::optional<std::vector<std::complex<double>>> eigenvalues(View a) const override {
        const Array<double> scratch = copied(a);
        return gpu::eigenvalues(scratch.data(), a.shape.rows);
    }
    Sensitivity sensitivity(View a, std::complex<double> theta) const override {
        const double norm = std::sqrt(squared_norm(a));
        if (contiguous(a)) return gpu::sensitivity(a.row<double>(0, 0), a.shape.rows, theta, norm);
        const Array<double> whole = copied(a);
        return gpu::sensitivity(whole.data(), a.shape.rows, theta, norm);
    }
    std::optional<std::vector<double>> symmetric_eigenvalues(View a) const override {
        const Array<double> scratch = copied(a);
        return gpu::symmetric_eigenvalues(scratch.data(), a.shape.rows);
    }

  private:
    Array<double> copied(const View& a) const {
        select(index_);
        Array<double> out(std::size_t(a.shape.count()));
        gpu::unary(Unary::copy, packed(a, out.data()), a);
        return out;
    }

    /// (batch, chunks, n) summed over the chunks, on the host.
    static std::vector<double> sum_of_chunks(const Array<double>& parts, Index batch, Index chunks,
                                             Index n) {
        const Array<double> sums(std::size_t(batch * n));
        gpu::column_sum({sums.data(), {batch, 1, n}, n, n, Type::f64},
                        {parts.data(), {batch, chunks, n}, chunks * n, n, Type::f64});
        return sums.host();
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
