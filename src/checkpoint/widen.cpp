#include <fmt/format.h>

#include "elements.hpp"
#include "layout.hpp"
#include "owner.hpp"

namespace tsdiag {
namespace checkpoint {

void unreadable(const RawTensor& tensor) {
    throw NotAvailable(
        fmt::format("a tensor of shape {} has dtype {}, which cannot be read, expected a real "
                    "number type (bool, integers, f8 e4m3/e5m2/e8m0, f16, bf16, f32, f64). "
                    "Convert it before saving.",
                    shape_text(tensor.shape), tensor.dtype_name));
}

}  // namespace checkpoint

template <class T>
void widen(const RawTensor& tensor, std::span<T> out) {
    if (std::int64_t(out.size()) != tensor.count())
        throw ShapeError(fmt::format(
            "a tensor of shape {} has {} elements, expected {}, the size of the destination.",
            checkpoint::shape_text(tensor.shape), tensor.count(), out.size()));
    checkpoint::verify(tensor);
    T* to = out.data();
    checkpoint::for_each_piece<T>(
        tensor, [&](std::int64_t offset, std::int64_t count, std::int64_t stride, auto widen) {
            widen(offset, count, stride, to);
            to += count;
        });
}
template void widen(const RawTensor&, std::span<float>);
template void widen(const RawTensor&, std::span<double>);

template <class T>
std::optional<std::span<const T>> as_is(const RawTensor& tensor) {
    constexpr DType wanted = sizeof(T) == 4 ? DType::f32 : DType::f64;
    if (tensor.dtype != wanted || tensor.big_endian || !tensor.contiguous()) return std::nullopt;
    const std::int64_t count = tensor.count();
    if (count == 0) return std::span<const T>();
    const std::byte* begin = tensor.bytes.data() + tensor.offset * std::int64_t(sizeof(T));
    if (reinterpret_cast<std::uintptr_t>(begin) % alignof(T) != 0) return std::nullopt;
    checkpoint::verify(tensor);
    return std::span<const T>(reinterpret_cast<const T*>(begin), std::size_t(count));
}
template std::optional<std::span<const float>> as_is(const RawTensor&);
template std::optional<std::span<const double>> as_is(const RawTensor&);

}  // namespace tsdiag
