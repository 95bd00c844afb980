#include "tsdiag/tensor.hpp"

#include <fmt/format.h>

#include "record.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

View dense_view(void* data, Shape shape, Type type) {
    return {data, shape, shape.rows * shape.cols, shape.cols, type};
}

std::byte* at(const View& v, Index elements) {
    return static_cast<std::byte*>(v.data) + elements * Index(bytes_of(v.type));
}

void require_range(const char* what, Index first, Index count, Index extent) {
    if (first < 0 || count < 0 || first > extent - count)
        throw ShapeError(
            fmt::format("{} {} to {} of a tensor with {}", what, first, first + count, extent));
}

/// Whether a range is the tensor itself.  On a CPU a recorded one is another step of the
/// computation all the same, since the order of steps is that of the sums of derivatives.
bool is_whole(const Tensor& t, Index count, Index extent) {
    return count == extent && !(t.tracked() && t.backend().host_memory());
}

template <class From, class To>
std::vector<To> converted(std::span<const From> values) {
    return std::vector<To>(values.begin(), values.end());
}

/// `view` of the elements of `whole` from (batch, row, col) on.
Tensor recorded_range(const Tensor& view, const Tensor& whole, Index batch, Index row, Index col) {
    if (!whole.tracked()) return view;
    if (!whole.backend().host_memory())  // the sweep joins the parts
        return record(view, {{whole, [](const Tensor& g, const Saved&) { return g; },
                              Corner{batch, row, col}}});
    return record(view, {{whole, [=, shape = whole.shape()](const Tensor& g, const Saved&) {
                              return place(g, shape, batch, row, col);
                          }}});
}

}  // namespace

Tensor Tensor::recorded(std::shared_ptr<const Record> record) const {
    Tensor t = *this;
    t.record_ = std::move(record);
    return t;
}

bool Tensor::contiguous() const {
    const bool rows_adjacent = view_.row_stride == view_.shape.cols || view_.shape.rows <= 1;
    return rows_adjacent &&
           (view_.batch_stride == view_.shape.rows * view_.shape.cols || view_.shape.batch <= 1);
}

Tensor Tensor::row_range(Index first, Index count) const {
    require_range("rows", first, count, rows());
    if (is_whole(*this, count, rows())) return *this;
    Tensor t = detached();
    t.view_.data = at(view_, first * view_.row_stride);
    t.view_.shape.rows = count;
    return recorded_range(t, *this, 0, first, 0);
}

Tensor Tensor::col_range(Index first, Index count) const {
    require_range("columns", first, count, cols());
    if (is_whole(*this, count, cols())) return *this;
    Tensor t = detached();
    t.view_.data = at(view_, first);
    t.view_.shape.cols = count;
    return recorded_range(t, *this, 0, 0, first);
}

Tensor Tensor::batch_range(Index first, Index count) const {
    require_range("batches", first, count, batch());
    if (is_whole(*this, count, batch())) return *this;
    Tensor t = detached();
    t.view_.data = at(view_, first * view_.batch_stride);
    t.view_.shape.batch = count;
    return recorded_range(t, *this, first, 0, 0);
}

Tensor Tensor::split_heads(Index heads) const {
    if (batch() != 1 || heads < 1 || cols() % heads != 0)
        throw ShapeError(fmt::format("{} heads do not divide a ({}, {}, {}) tensor", heads, batch(),
                                     rows(), cols()));
    Tensor t = detached();
    t.view_.shape = {heads, rows(), cols() / heads};
    t.view_.batch_stride = cols() / heads;
    if (!tracked()) return t;
    return tsdiag::record(t,
                          {{*this, [](const Tensor& g, const Saved&) { return merge_heads(g); }}});
}

Tensor Tensor::reshape(Shape shape) const {
    check(contiguous(), "reshape of a tensor that is not contiguous");
    if (shape.count() != view_.shape.count())
        throw ShapeError(fmt::format("({}, {}, {}) has {} elements and cannot become ({}, {}, {})",
                                     batch(), rows(), cols(), view_.shape.count(), shape.batch,
                                     shape.rows, shape.cols));
    Tensor t = detached();
    t.view_ = dense_view(view_.data, shape, type());
    if (!tracked()) return t;
    return tsdiag::record(t, {{*this, [from = this->shape()](const Tensor& g, const Saved&) {
                                   return tsdiag::contiguous(g).reshape(from);
                               }}});
}

Tensor Tensor::joined(std::span<const Tensor> parts, Shape shape) {
    Index count = 0;
    for (const Tensor& p : parts) {
        const Tensor& first = parts.front();
        const bool behind = p.owner_ == first.owner_ && p.type() == first.type() &&
                            p.contiguous() && p.view_.data == at(first.view_, count);
        if (!behind) return {};
        count += p.shape().count();
    }
    if (count != shape.count()) return {};
    Tensor t = parts.front().detached();
    t.view_ = dense_view(t.view_.data, shape, t.type());
    return t;
}

template <class T>
std::vector<T> Tensor::to_host() const {
    if (!defined()) return {};
    const std::size_t count = std::size_t(view_.shape.count());
    if (type() == Type::f32) {
        std::vector<float> host(count);
        backend_->download(host.data(), view_);
        if constexpr (std::is_same_v<T, float>)
            return host;
        else
            return converted<float, T>(host);
    }
    std::vector<double> host(count);
    backend_->download(host.data(), view_);
    if constexpr (std::is_same_v<T, double>)
        return host;
    else
        return converted<double, T>(host);
}
template std::vector<float> Tensor::to_host<float>() const;
template std::vector<double> Tensor::to_host<double>() const;

double Tensor::item() const {
    check(view_.shape == Shape{1, 1, 1}, "item() of a tensor with more than one element");
    return to_host<double>()[0];
}

Tensor Tensor::empty(const Backend& backend, Shape shape, Type type) {
    check(shape.batch >= 0 && shape.rows >= 0 && shape.cols >= 0, "negative extent");
    Tensor t;
    t.backend_ = &backend;
    std::shared_ptr<void> memory = backend.allocate(std::size_t(shape.count()) * bytes_of(type));
    t.view_ = dense_view(memory.get(), shape, type);
    t.owner_ = std::move(memory);
    return t;
}

namespace {
template <class From>
Tensor upload_as(const Backend& backend, Shape shape, std::span<const From> values, Type type) {
    check(Index(values.size()) == shape.count(), "from_host: values do not fill the shape");
    Tensor t = Tensor::empty(backend, shape, type);
    const bool same = (type == Type::f32) == std::is_same_v<From, float>;
    if (same)
        backend.upload(t.view(), values.data());
    else if (type == Type::f32)
        backend.upload(t.view(), converted<From, float>(values).data());
    else
        backend.upload(t.view(), converted<From, double>(values).data());
    return t;
}

template <class T>
Tensor fill_whole(const Backend& backend, Shape shape,
                  const std::function<void(std::span<T>)>& fill) {
    const auto count = std::size_t(shape.count());
    Tensor t = Tensor::empty(backend, shape, std::is_same_v<T, float> ? Type::f32 : Type::f64);
    if (backend.host_memory()) {
        fill(std::span<T>(static_cast<T*>(t.view().data), count));
        return t;
    }
    std::vector<T> values(count);
    fill(values);
    backend.upload(t.view(), values.data());
    return t;
}
}  // namespace

Tensor Tensor::filled(const Backend& backend, Shape shape,
                      const std::function<void(std::span<float>)>& fill) {
    return fill_whole(backend, shape, fill);
}
Tensor Tensor::filled(const Backend& backend, Shape shape,
                      const std::function<void(std::span<double>)>& fill) {
    return fill_whole(backend, shape, fill);
}

Tensor Tensor::from_host(const Backend& backend, Shape shape, std::span<const float> values,
                         Type type) {
    return upload_as(backend, shape, values, type);
}
Tensor Tensor::from_host(const Backend& backend, Shape shape, std::span<const double> values,
                         Type type) {
    return upload_as(backend, shape, values, type);
}

Tensor Tensor::borrow(const Backend& backend, Shape shape, std::span<const float> values,
                      std::shared_ptr<const void> owner) {
    if (!backend.host_memory()) return from_host(backend, shape, values, Type::f32);
    check(Index(values.size()) == shape.count(), "borrow: values do not fill the shape");
    Tensor t;
    t.backend_ = &backend;
    t.view_ = dense_view(const_cast<float*>(values.data()), shape,
                         Type::f32);  // tensors are never written to
    t.owner_ = std::move(owner);
    return t;
}

}  // namespace tsdiag
