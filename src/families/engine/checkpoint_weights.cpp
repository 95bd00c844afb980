#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "names.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/parallel.hpp"
#include "tsdiag/weights.hpp"

/// Weights read from a checkpoint, tensor by tensor.
namespace tsdiag {
namespace {

using families::text;

/// Elements along `axis` from `first` on, `count` of them.
RawTensor part(RawTensor raw, std::size_t axis, Index first, Index count) {
    raw.offset += first * raw.strides[axis];
    raw.shape[axis] = count;
    return raw;
}

/// raw (in, out) as rows of out: chunks of the file's rows are widened and transposed in cache.
template <class T>
void widen_transposed(const RawTensor& raw, std::span<T> out) {
    const Index in = raw.shape[0], columns = raw.shape[1];
    constexpr Index chunk = 32;
    in_parallel((in + chunk - 1) / chunk, [&](Index k) {
        const Index first = k * chunk, count = std::min(chunk, in - first);
        std::vector<T> rows(std::size_t(count * columns));
        widen(part(raw, 0, first, count), std::span<T>(rows));
        for (Index c = 0; c < columns; ++c)
            for (Index r = 0; r < count; ++r)
                out[std::size_t(c * in + first + r)] = rows[std::size_t(r * columns + c)];
    });
}

/// Rows of each head that are stored in pairs, in order.
template <class T>
void read_pairs(const RawTensor& raw, Index head, std::span<T> out) {
    const Index half = head / 2, row = raw.count() / raw.shape[0];
    for (Index first = 0; first < raw.shape[0]; first += head)
        for (const Index second : {Index{0}, Index{1}}) {
            RawTensor rows = part(raw, 0, first + second, half);
            rows.strides[0] *= 2;
            const auto size = std::size_t(half * row);
            widen(rows, out.first(size));
            out = out.subspan(size);
        }
}

/// Rows and columns exchanged: (in, out) as rows of out, which may lie one after the other.
template <class T>
void widen_turned(RawTensor raw, std::span<T> out) {
    if (raw.strides[0] != 1) return widen_transposed(raw, out);
    std::swap(raw.shape[0], raw.shape[1]);
    std::swap(raw.strides[0], raw.strides[1]);
    widen(raw, out);
}

/// The rows that `source` takes of `raw`, widened, in the order of the canonical tensor.
template <class T>
void read(const RawTensor& raw, const TensorSource& source, std::span<T> out) {
    const bool turned = source.transposed;
    if (source.paired_head > 0) return read_pairs(raw, source.paired_head, out);
    if (source.length == 0) return turned ? widen_turned(raw, out) : widen(raw, out);
    if (source.length == 1 && source.groups > 1) {  // rows a stride apart
        const std::size_t axis = turned ? 1 : 0;
        RawTensor rows = part(raw, axis, source.first, source.groups);
        rows.strides[axis] *= source.stride;
        return turned ? widen_turned(rows, out) : widen(rows, out);
    }
    const std::size_t size = out.size() / std::size_t(source.groups);
    for (Index g = 0; g < source.groups; ++g) {
        const Index first = g * source.stride + source.first;
        const RawTensor rows = part(raw, turned ? 1 : 0, first, source.length);
        const std::span<T> to = out.subspan(std::size_t(g) * size, size);
        turned ? widen_turned(rows, to) : widen(rows, to);
    }
}

/// The file position of element `index` (row-major) of a canonical tensor: "[3, 17]".
std::string place(Index index, const Parameter& p, const TensorSource& source,
                  const RawTensor& raw) {
    const std::string before = source.slice < 0 ? "" : fmt::format("{}, ", source.slice);
    const Index cols = p.vector ? 1 : p.shape.cols;
    Index row = index / cols;
    const Index col = index % cols;
    if (const Index head = source.paired_head; head > 0) {
        const Index in_head = row % head;
        row = row - in_head + in_head % (head / 2) * 2 + in_head / (head / 2);
    }
    if (source.length > 0)
        row = row / source.length * source.stride + source.first + row % source.length;
    if (source.transposed) return fmt::format("[{}{}, {}]", before, col, row);
    Index flat = row * cols + col;
    std::vector<Index> at(raw.shape.size());
    for (std::size_t k = at.size(); k-- > 0;) {
        at[k] = flat % std::max<Index>(raw.shape[k], 1);
        flat /= std::max<Index>(raw.shape[k], 1);
    }
    return fmt::format("[{}{}]", before, fmt::join(at, ", "));
}

bool floating(DType type) {
    switch (type) {
        case DType::f8_e4m3:
        case DType::f8_e5m2:
        case DType::f16:
        case DType::bf16:
        case DType::f32:
        case DType::f64:
        case DType::blocks:
        case DType::packed:
            return true;
        default:
            return false;
    }
}

class CheckpointWeights final : public Weights {
  public:
    CheckpointWeights(std::shared_ptr<const Checkpoint> file, const Architecture& architecture,
                      const Backend& backend, Type type, bool allow_nonfinite)
        : file_(std::move(file)),
          backend_(backend),
          type_(type),
          allow_nonfinite_(allow_nonfinite) {
        std::unordered_map<std::string, TensorSource> sources(architecture.tensors.begin(),
                                                              architecture.tensors.end());
        for (Parameter& p : parameters(architecture.spec)) {
            order_.push_back(p.name);
            TensorSource& source = sources[p.name];
            entries_.emplace(order_.back(), Entry{std::move(p), std::move(source)});
        }
        for (Parameter& p : head_parameters(architecture.spec)) {
            TensorSource& source = sources[p.name];
            std::string name = p.name;
            entries_.emplace(std::move(name), Entry{std::move(p), std::move(source)});
        }
    }

    bool has(std::string_view name) const override { return entries_.contains(std::string(name)); }
    std::vector<std::string> names() const override { return order_; }

    Tensor get(std::string_view name) const override {
        const Entry& e = entry(name);
        const RawTensor raw = open(e.source.file_name, e.source.slice);
        if (e.source.concat.empty()) require_shape(e, raw);
        if (std::optional<Tensor> same = borrowed(e, raw)) return finite(*same, e, raw);
        const Tensor copy = type_ == Type::f32 ? copied<float>(e, raw) : copied<double>(e, raw);
        return finite(copy, e, raw);
    }

    Tensor rows(std::string_view name, std::span<const Index> rows) const override {
        const Entry& e = entry(name);
        if (e.source.transposed || e.source.length > 0 || e.source.paired_head > 0 ||
            !e.source.concat.empty())
            return Weights::rows(name, rows);
        const RawTensor raw = open(e.source.file_name, e.source.slice);
        require_shape(e, raw);
        if (raw.shape.size() != 2) return Weights::rows(name, rows);
        return type_ == Type::f32 ? some_rows<float>(e, raw, rows)
                                  : some_rows<double>(e, raw, rows);
    }

    void release() const override {
        const std::lock_guard lock(mutex_);
        for (const RawTensor& raw : touched_) release_pages(raw);
        touched_.clear();
    }

  private:
    struct Entry {
        Parameter parameter;
        TensorSource source;
    };

    const Entry& entry(std::string_view name) const {
        const auto found = entries_.find(std::string(name));
        if (found == entries_.end())
            throw FormatError(
                fmt::format("{}: the model has no parameter '{}'", file_->source(), name));
        return found->second;
    }

    RawTensor open(const std::string& file_name, Index slice = -1) const {
        RawTensor raw = families::slice_of(file_->tensor(file_name), slice);
        if (!floating(raw.dtype) && !raw.scales)
            throw FormatError(
                fmt::format("{}: weight '{}' has dtype {}, expected floating-point weights (f8, "
                            "f16, bf16, f32, f64) or quantised ones whose values are known",
                            file_->source(), file_name, raw.dtype_name));
        const std::lock_guard lock(mutex_);
        touched_.push_back(raw);
        return raw;
    }

    void require_shape(const Entry& e, const RawTensor& raw) const {
        const std::vector<Index> expected = families::file_shape(e.parameter, e.source);
        if (raw.shape != expected)
            throw FormatError(fmt::format("{}: tensor '{}' is {}, expected {}", file_->source(),
                                          e.source.file_name, text(raw.shape), text(expected)));
    }

    /// The file's own memory, where it has the requested type and layout.
    std::optional<Tensor> borrowed(const Entry& e, const RawTensor& raw) const {
        const TensorSource& s = e.source;
        if (type_ != Type::f32 || s.transposed || !s.concat.empty() || s.groups > 1 ||
            s.paired_head > 0 || s.plus != 0)
            return std::nullopt;
        const RawTensor taken = s.length > 0 ? part(raw, 0, s.first, s.length) : raw;
        const auto same = as_is<float>(taken);
        if (!same) return std::nullopt;
        return Tensor::borrow(backend_, e.parameter.shape, *same, raw.owner);
    }

    template <class T>
    Tensor copied(const Entry& e, const RawTensor& raw) const {
        Tensor copy = Tensor::filled(backend_, e.parameter.shape, [&](std::span<T> values) {
            if (e.source.concat.empty())
                read(raw, e.source, values);
            else
                stack(e, raw, values);
            if (e.source.plus != 0)
                for (T& value : values) value += T(e.source.plus);
        });
        if (e.source.concat.empty() && e.source.length == 0)  // else its pages are reused
            release_pages(raw);
        return copy;
    }

    template <class T>
    void stack(const Entry& e, const RawTensor& head, std::span<T> out) const {
        std::vector<RawTensor> parts{head};
        for (const std::string& more : e.source.concat) parts.push_back(open(more));
        Index count = 0;
        for (const RawTensor& p : parts) {
            count += p.count();
            if (p.shape.empty() || p.shape.back() != e.parameter.shape.cols) count = -1;
            if (count < 0) break;
        }
        if (count != e.parameter.shape.count())
            throw FormatError(fmt::format("{}: tensors '{}', '{}' do not stack to ({}, {})",
                                          file_->source(), e.source.file_name,
                                          fmt::join(e.source.concat, "', '"),
                                          e.parameter.shape.rows, e.parameter.shape.cols));
        for (const RawTensor& p : parts) {
            const auto size = std::size_t(p.count());
            widen(p, out.first(size));
            out = out.subspan(size);
        }
    }

    template <class T>
    Tensor some_rows(const Entry& e, const RawTensor& raw, std::span<const Index> rows) const {
        const auto cols = std::size_t(e.parameter.shape.cols);
        std::vector<T> values(rows.size() * cols);
        constexpr std::size_t seldom = 8;  // rows between page releases: one may map megabytes
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (i % seldom == 0) release_pages(raw);
            if (rows[i] < 0 || rows[i] >= e.parameter.shape.rows)
                throw UsageError(fmt::format("row {} of '{}' was requested, but it has {} rows",
                                             rows[i], e.source.file_name, e.parameter.shape.rows));
            const std::span<T> to = std::span<T>(values).subspan(i * cols, cols);
            widen(part(raw, 0, rows[i], 1), to);
            const auto bad = std::find_if(to.begin(), to.end(), [](T v) { return v - v != 0; });
            if (bad != to.end())
                nonfinite(e.source.file_name, raw,
                          fmt::format("[{}, {}]", rows[i], bad - to.begin()));
        }
        return Tensor::from_host(backend_, {1, Index(rows.size()), e.parameter.shape.cols},
                                 std::span<const T>(values), type_);
    }

    Tensor finite(Tensor t, const Entry& e, const RawTensor& raw) const {
        const Index bad = first_nonfinite(t);
        if (bad >= 0)
            nonfinite(e.source.file_name, raw,
                      e.source.concat.empty()
                          ? place(bad, e.parameter, e.source, raw)
                          : fmt::format("element {} of the stacked tokens", bad));
        return t;
    }

    void nonfinite(const std::string& file_name, const RawTensor& raw,
                   const std::string& where) const {
        if (allow_nonfinite_) return;
        const bool narrowed = type_ == Type::f32 && raw.dtype == DType::f64;
        throw NonFiniteError(
            fmt::format("{}: tensor '{}' is NaN or infinite at {}{}; pass --allow-nonfinite to run "
                        "the model anyway",
                        file_->source(), file_name, where,
                        narrowed ? ", or outside the range of float32 (pass --dtype f64)" : ""));
    }

    std::shared_ptr<const Checkpoint> file_;
    const Backend& backend_;
    Type type_;
    bool allow_nonfinite_;
    std::vector<std::string> order_;
    std::unordered_map<std::string, Entry> entries_;
    mutable std::mutex mutex_;  ///< guards the rest: another thread may read the next layer
    mutable std::vector<RawTensor> touched_;
};

}  // namespace

std::unique_ptr<Weights> checkpoint_weights(std::shared_ptr<const Checkpoint> file,
                                            const Architecture& architecture,
                                            const Backend& backend, Type type,
                                            bool allow_nonfinite) {
    return std::make_unique<CheckpointWeights>(std::move(file), architecture, backend, type,
                                               allow_nonfinite);
}

}  // namespace tsdiag
