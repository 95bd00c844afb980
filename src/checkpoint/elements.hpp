#pragma once
#include <algorithm>
#include <array>
#include <type_traits>

#include "bytes.hpp"
#include "tsdiag/checkpoint.hpp"

/// The elements of a RawTensor as numbers: one type for each stored form, and one loop over
/// strides.
namespace tsdiag::checkpoint {

/// Elements stored as C++ numbers.
template <class T>
struct Plain {
    using Stored = T;
    static T value(T stored) { return stored; }
};
struct Boolean {
    using Stored = std::uint8_t;
    static float value(Stored stored) { return stored != 0 ? 1.0f : 0.0f; }
};
struct BFloat16 {
    using Stored = std::uint16_t;
    static float value(Stored stored) { return std::bit_cast<float>(std::uint32_t(stored) << 16); }
};
/// Exponent and mantissa are moved into those of a float and the bias is corrected by a product,
/// which is exact for subnormal numbers too; infinities and NaN get the float's exponent.
struct Float16 {
    using Stored = std::uint16_t;
    static float value(Stored stored) {
        const std::uint32_t magnitude = (stored & 0x7fffu) << 13;
        const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
        const std::uint32_t infinite = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
        const std::uint32_t sign = (stored & 0x8000u) << 16;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | infinite | sign);
    }
};
/// e5m2 is the upper byte of a float16.
struct Float8E5M2 {
    using Stored = std::uint8_t;
    static float value(Stored stored) { return Float16::value(std::uint16_t(stored << 8)); }
};
/// e4m3 ("fn"): bias 7, no infinities; all ones is NaN.
struct Float8E4M3 {
    using Stored = std::uint8_t;
    static float value(Stored stored) {
        const std::uint32_t sign = (stored & 0x80u) << 24;
        const std::uint32_t magnitude = (stored & 0x7fu) << 20;
        const float scaled = std::bit_cast<float>(magnitude) * 0x1p120f;
        const std::uint32_t bits =
            (stored & 0x7fu) == 0x7fu ? 0x7fc00000u : std::bit_cast<std::uint32_t>(scaled);
        return std::bit_cast<float>(bits | sign);
    }
};

/// e8m0: 2^(e - 127), all ones NaN.  [OCP-MX]
struct Float8E8M0 {
    using Stored = std::uint8_t;
    static float value(Stored stored) {
        if (stored == 0xff) return std::bit_cast<float>(0x7fc00000u);
        return stored == 0 ? 0x1p-127f : std::bit_cast<float>(std::uint32_t{stored} << 23);
    }
};

/// Throws `NotAvailable` naming the type of `tensor`.
[[noreturn]] void unreadable(const RawTensor& tensor);

/// Calls `f` with the element type of `tensor`; throws `NotAvailable` where it cannot be read.
template <class F>
void with_element(const RawTensor& tensor, F&& f) {
    // clang-format off
    switch (tensor.dtype) {
        case DType::boolean: return f(Boolean());
        case DType::u8: return f(Plain<std::uint8_t>());
        case DType::i8: return f(Plain<std::int8_t>());
        case DType::u16: return f(Plain<std::uint16_t>());
        case DType::i16: return f(Plain<std::int16_t>());
        case DType::u32: return f(Plain<std::uint32_t>());
        case DType::i32: return f(Plain<std::int32_t>());
        case DType::u64: return f(Plain<std::uint64_t>());
        case DType::i64: return f(Plain<std::int64_t>());
        case DType::f8_e4m3: return f(Float8E4M3());
        case DType::f8_e5m2: return f(Float8E5M2());
        case DType::f8_e8m0: return f(Float8E8M0());
        case DType::f16: return f(Float16());
        case DType::bf16: return f(BFloat16());
        case DType::f32: return f(Plain<float>());
        case DType::f64: return f(Plain<double>());
        case DType::c64:
        case DType::c128:
        case DType::blocks:  // see for_each_piece
        case DType::packed:
        case DType::other:
            break;
    }
    // clang-format on
    unreadable(tensor);
}

template <class T>
T byte_swapped(T value) {
    auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    std::reverse(bytes.begin(), bytes.end());
    return std::bit_cast<T>(bytes);
}

/// Widens `count` elements that are `stride` elements apart, the first at `from`.
template <class Element, class T>
void widen_run(const std::byte* from, std::int64_t count, std::int64_t stride, bool swapped,
               T* to) {
    using Stored = typename Element::Stored;
    constexpr auto width = std::int64_t(sizeof(Stored));
    if (swapped) {
        for (std::int64_t i = 0; i < count; ++i)
            to[i] = T(Element::value(byte_swapped(load<Stored>(from + i * stride * width))));
    } else if (stride == 1) {
        for (std::int64_t i = 0; i < count; ++i)
            to[i] = T(Element::value(load<Stored>(from + i * width)));
    } else {
        for (std::int64_t i = 0; i < count; ++i)
            to[i] = T(Element::value(load<Stored>(from + i * stride * width)));
    }
}

/// Calls `f(offset, count, stride)` for runs of elements whose concatenation is the row-major
/// order.
template <class F>
void for_each_run(const RawTensor& tensor, F&& f) {
    const std::int64_t count = tensor.count();
    if (count == 0) return;
    if (tensor.contiguous()) return f(tensor.offset, count, std::int64_t{1});
    const std::size_t last = tensor.shape.size() - 1;
    std::vector<std::int64_t> at(tensor.shape.size(), 0);
    std::int64_t offset = tensor.offset;
    for (;;) {
        f(offset, tensor.shape[last], tensor.strides[last]);
        std::size_t k = last;
        for (; k > 0; --k) {
            offset += tensor.strides[k - 1];
            if (++at[k - 1] < tensor.shape[k - 1]) break;
            offset -= at[k - 1] * tensor.strides[k - 1];
            at[k - 1] = 0;
        }
        if (k == 0) return;
    }
}

/// Widens `count` elements of a quantised tensor that are `stride` elements apart from element
/// `offset` on; each block is decoded once where they are in order.
template <class T>
void decode_run(const RawTensor& tensor, std::int64_t offset, std::int64_t count,
                std::int64_t stride, T* to) {
    constexpr std::int64_t largest_block = 256;
    const BlockType& blocks = *tensor.blocks;
    std::array<float, largest_block> values;
    check(blocks.elements <= largest_block, "a block fits the buffer");
    for (std::int64_t i = 0, decoded = -1; i < count;) {
        const std::int64_t at = offset + i * stride;
        const std::int64_t block = at / blocks.elements, first = at % blocks.elements;
        if (block != decoded)
            blocks.decode(tensor.bytes.data() + block * blocks.bytes, values.data());
        decoded = block;
        const std::int64_t some = stride == 1 ? std::min(count - i, blocks.elements - first) : 1;
        for (std::int64_t k = 0; k < some; ++k) to[i + k] = T(values[std::size_t(first + k)]);
        i += some;
    }
}

/// Multiplies `count` elements that are `stride` stored elements apart from element `offset` on.
template <class T>
void scale_run(const BlockScales& scales, std::int64_t offset, std::int64_t count,
               std::int64_t stride, T* to) {
    RawTensor row = scales.factors;
    row.shape[0] = 1;
    std::vector<double> factors(std::size_t(row.shape[1]));
    for (std::int64_t i = 0, read = -1; i < count;) {
        const std::int64_t at = offset + i * stride;
        const std::int64_t column = at % scales.columns;
        const std::int64_t block = at / scales.columns / scales.block_rows;
        if (block != read) {
            row.offset = scales.factors.offset + block * scales.factors.strides[0];
            widen(row, std::span(factors));
            for (double& factor : factors) factor *= scales.unit;
            read = block;
        }
        const double factor = factors[std::size_t(column / scales.block_columns)];
        const std::int64_t left =
            std::min(scales.columns - column, scales.block_columns - column % scales.block_columns);
        const std::int64_t some = stride == 1 ? std::min(count - i, left) : 1;
        for (std::int64_t k = 0; k < some; ++k) to[i + k] = T(double(to[i + k]) * factor);
        i += some;
    }
}

/// A window into the rows of a packed matrix, decoded when elements outside of it are asked for.
/// T: float or double.
template <class T>
class Window {
  public:
    explicit Window(const PackedMatrix& matrix) : matrix_(matrix) {}

    /// Makes elements `offset` .. `offset + stride (count - 1)` readable where they are part of a
    /// row or of a column; returns how many of them are: at least one.
    std::int64_t reach(std::int64_t offset, std::int64_t count, std::int64_t stride) {
        const std::int64_t columns = matrix_.columns();
        const std::int64_t row = offset / columns, column = offset % columns;
        const bool down = stride == columns;
        const std::int64_t across = down ? 1 : stride == 1 ? count : (count - 1) * stride + 1;
        if (column + across <= columns) {  // within a row, or down a column
            const std::int64_t rows = down ? count : 1;
            const bool fits = row >= row_ && row + rows <= row_ + rows_ && column >= column_ &&
                              column + across <= column_ + columns_;
            if (!fits && down)
                load(row, rows, column, std::min(columns - column, side));
            else if (!fits)
                load(row, rows, column, across);
            return count;
        }
        if (stride != 1) return reach(offset, (columns - column - 1) / stride + 1, stride);
        if (column > 0) return reach(offset, columns - column, 1);
        const std::int64_t rows = std::min(count / columns, std::max(side, most / columns));
        load(row, rows, 0, columns);
        return rows * columns;
    }

    /// `count` elements that `reach` has made readable, or a part of them.
    void read(std::int64_t offset, std::int64_t count, std::int64_t stride, T* to) const {
        const std::int64_t columns = matrix_.columns();
        const std::int64_t row = offset / columns - row_, column = offset % columns - column_;
        const T* from = values_.data() + row * columns_ + column;
        if (stride == 1) return void(std::copy_n(from, count, to));
        const std::int64_t step = stride == columns ? columns_ : stride;
        for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * step];
    }

  private:
    static constexpr std::int64_t side = 64, most = 1 << 16;

    void load(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
        values_.resize(std::size_t(rows * columns));
        if constexpr (std::is_same_v<T, double>)
            matrix_.decode_double(row, rows, column, columns, values_.data());
        else
            matrix_.decode(row, rows, column, columns, values_.data());
        row_ = row, rows_ = rows, column_ = column, columns_ = columns;
    }

    const PackedMatrix& matrix_;
    std::int64_t row_ = 0, rows_ = 0, column_ = 0, columns_ = 0;
    std::vector<T> values_;
};

/// Calls `f(offset, count, stride, widen)` for the runs of a tensor; `widen(offset, count, stride,
/// to)` gives the numbers of a run or of a part of one.  Throws `NotAvailable` where the type
/// cannot be read.
template <class T, class F>
void for_each_piece(const RawTensor& tensor, F&& f) {
    const auto each = [&](auto widen) {
        for_each_run(tensor, [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
            f(offset, count, stride, widen);
        });
    };
    if (tensor.dtype == DType::blocks)
        return each([&](std::int64_t offset, std::int64_t count, std::int64_t stride, T* to) {
            decode_run(tensor, offset, count, stride, to);
        });
    if (tensor.dtype == DType::packed) {
        Window<T> window(*tensor.packed);
        const auto read = [&](std::int64_t offset, std::int64_t count, std::int64_t stride, T* to) {
            window.read(offset, count, stride, to);
        };
        return for_each_run(tensor,
                            [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
                                while (count > 0) {
                                    const std::int64_t some = window.reach(offset, count, stride);
                                    f(offset, some, stride, read);
                                    offset += some * stride;
                                    count -= some;
                                }
                            });
    }
    with_element(tensor, [&](auto element) {
        using Element = decltype(element);
        constexpr auto width = std::int64_t(sizeof(typename Element::Stored));
        each([&](std::int64_t offset, std::int64_t count, std::int64_t stride, T* to) {
            widen_run<Element>(tensor.bytes.data() + offset * width, count, stride,
                               tensor.big_endian, to);
            if (tensor.scales) scale_run(*tensor.scales, offset, count, stride, to);
        });
    });
}

}  // namespace tsdiag::checkpoint
