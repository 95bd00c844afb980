#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

/// An immutable array of rank 3, (batch, rows, cols), on a backend.
namespace tsdiag {

using Index = std::int64_t;
class Backend;
struct Record;

enum class Type { f32, f64 };
constexpr std::size_t bytes_of(Type t) { return t == Type::f32 ? 4 : 8; }

struct Shape {
    Index batch = 0, rows = 0, cols = 0;
    bool operator==(const Shape&) const = default;
    Index count() const { return batch * rows * cols; }
};

/// Memory as kernels see it: columns are adjacent, rows and batches at strides (in elements).
struct View {
    void* data = nullptr;
    Shape shape;
    Index batch_stride = 0, row_stride = 0;
    Type type = Type::f32;

    template <class T>
    T* row(Index b, Index r) const {
        return static_cast<T*>(data) + b * batch_stride + r * row_stride;
    }
};

/// A value: copying it shares the elements, which never change.  Views share them too.
/// Heads and samples are the batch axis.
class Tensor {
  public:
    Tensor() = default;  ///< empty: defined() is false

    bool defined() const { return backend_ != nullptr; }
    const Shape& shape() const { return view_.shape; }
    Index batch() const { return view_.shape.batch; }
    Index rows() const { return view_.shape.rows; }
    Index cols() const { return view_.shape.cols; }
    Type type() const { return view_.type; }
    const Backend& backend() const { return *backend_; }
    const View& view() const { return view_; }  ///< for kernels: read only
    bool contiguous() const;
    bool unique() const {
        return owner_.use_count() == 1;
    }  ///< no other tensor shares the elements

    /// Whether the tensor's computation is recorded; see gradient.hpp.
    bool tracked() const { return record_ != nullptr; }
    const std::shared_ptr<const Record>& record() const { return record_; }
    /// A tensor of these elements, shared, with `record` as its computation; null: not tracked.
    Tensor recorded(std::shared_ptr<const Record> record) const;
    Tensor detached() const { return recorded({}); }

    // Views of the same elements: no copy; of the full range this tensor itself.
    Tensor row_range(Index first, Index count) const;
    Tensor col_range(Index first, Index count) const;
    Tensor batch_range(Index first, Index count) const;
    /// (1, n, h*w) -> (h, n, w): head k is columns k*w to (k+1)*w.
    Tensor split_heads(Index heads) const;
    /// A view of these elements in their order as `shape`, which has as many; the tensor must be
    /// contiguous.
    Tensor reshape(Shape shape) const;
    /// `shape` of the elements of parts that lie one behind another in one memory, not tracked;
    /// empty where they do not.
    static Tensor joined(std::span<const Tensor> parts, Shape shape);

    /// Elements in (batch, row, col) order, converted to T on the host.  T: float or double.
    template <class T>
    std::vector<T> to_host() const;
    /// The single element of a (1, 1, 1) tensor.
    double item() const;

    /// Uninitialised memory of `shape` on `backend`, filled by one kernel call before it is shared.
    static Tensor empty(const Backend& backend, Shape shape, Type type);
    /// A copy of host memory, (batch, row, col) order, converted to `type`.
    static Tensor from_host(const Backend& backend, Shape shape, std::span<const float> values,
                            Type type);
    static Tensor from_host(const Backend& backend, Shape shape, std::span<const double> values,
                            Type type);
    /// Elements that `fill` writes in (batch, row, col) order: in place in host memory, else into a
    /// buffer to be uploaded.
    static Tensor filled(const Backend& backend, Shape shape,
                         const std::function<void(std::span<float>)>& fill);
    static Tensor filled(const Backend& backend, Shape shape,
                         const std::function<void(std::span<double>)>& fill);
    /// Host memory itself where `backend` can read it (the CPU), kept alive by `owner`; else a
    /// copy.
    static Tensor borrow(const Backend& backend, Shape shape, std::span<const float> values,
                         std::shared_ptr<const void> owner);

  private:
    View view_;
    const Backend* backend_ = nullptr;
    std::shared_ptr<const void> owner_;
    std::shared_ptr<const Record> record_;
};

}  // namespace tsdiag
