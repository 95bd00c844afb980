#include "arrays.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

template <class T>
Tensor widened(const RawTensor& array, Shape shape, const Backend& backend, Type type) {
    std::vector<T> values(std::size_t(array.count()));
    widen<T>(array, values);
    return Tensor::from_host(backend, shape, std::span<const T>(values), type);
}

std::string index_text(Index flat, std::span<const std::int64_t> shape) {
    std::vector<Index> index(shape.size());
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    return fmt::format("({})", fmt::join(index, ", "));
}

/// Throws where float32 would overflow, or where the largest element would be subnormal or 0 in
/// float32 without being 0.
void require_range(const RawTensor& array, std::string_view source) {
    std::vector<double> values(std::size_t(array.count()));
    widen<double>(array, values);
    std::size_t at = values.size();
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (const double size = std::abs(values[i]); std::isfinite(size) && size > largest) {
            largest = size;
            at = i;
        }
    using Narrow = std::numeric_limits<float>;
    if (largest == 0 || (largest <= Narrow::max() && largest >= Narrow::min())) return;
    throw NonFiniteError(fmt::format(
        "{}: element {} is {:.3g}, {} the range of float32, expected {:.2g} to {:.2g}; "
        "pass --dtype f64.",
        source, index_text(Index(at), array.shape), values[at],
        largest > 1 ? "beyond" : "like all others below", Narrow::min(), Narrow::max()));
}

/// Throws `NotAvailable` naming `source` for elements that cannot be read.
void require_readable(const RawTensor& array, std::string_view source) {
    if (array.dtype == DType::c64 || array.dtype == DType::c128)
        throw NotAvailable(
            fmt::format("{}: holds complex numbers, expected real ones; save x.real.", source));
    if (array.dtype == DType::other)
        throw NotAvailable(
            fmt::format("{}: has dtype {}, which cannot be read, expected real numbers.", source,
                        array.dtype_name));
}

template <class T>
Tensor taken(const Tensor& x, std::span<const Index> rows, std::span<const Index> cols) {
    const std::vector<T> from = x.to_host<T>();
    std::vector<T> to;
    to.reserve(std::size_t(x.batch()) * rows.size() * cols.size());
    for (Index b = 0; b < x.batch(); ++b)
        for (const Index r : rows)
            for (const Index c : cols)
                to.push_back(from[std::size_t((b * x.rows() + r) * x.cols() + c)]);
    const Shape shape{x.batch(), Index(rows.size()), Index(cols.size())};
    return Tensor::from_host(x.backend(), shape, std::span<const T>(to), x.type());
}

Tensor taken(const Tensor& x, std::span<const Index> rows, std::span<const Index> cols) {
    return x.type() == Type::f32 ? taken<float>(x, rows, cols) : taken<double>(x, rows, cols);
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

RawTensor open_array(const std::filesystem::path& file) {
    const std::unique_ptr<Checkpoint> opened = open_checkpoint(file);
    if (opened->names().size() != 1)
        throw FormatError(fmt::format(
            "{}: contains {} arrays, expected one; save it with numpy.save as a .npy file.",
            file.string(), opened->names().size()));
    return opened->tensor(opened->names().front());
}

RawTensor element(const RawTensor& array, Index i) {
    RawTensor part = array;
    part.offset += i * array.strides.front();
    part.shape.erase(part.shape.begin());
    part.strides.erase(part.strides.begin());
    return part;
}

RawTensor head_of(const RawTensor& array, std::size_t axis, Index count) {
    RawTensor part = array;
    part.shape[axis] = count;
    return part;
}

std::vector<Index> integers(const RawTensor& array, std::string_view source) {
    constexpr double limit = 9007199254740992.0;  // 2^53: a double holds every integer up to here
    require_readable(array, source);
    std::vector<double> values(std::size_t(array.count()));
    widen<double>(array, values);
    std::vector<Index> whole;
    whole.reserve(values.size());
    for (const double v : values) {
        if (!(std::abs(v) <= limit) || v != std::floor(v))
            throw FormatError(fmt::format("{}: element {} is {}, expected an integer.", source,
                                          index_text(Index(whole.size()), array.shape), v));
        whole.push_back(Index(v));
    }
    return whole;
}

namespace {

bool fits_f32(double x) { return double(float(x)) == x; }
bool fits_bf16(double x) {
    return fits_f32(x) && (std::bit_cast<std::uint32_t>(float(x)) & 0xffffu) == 0;
}
/// 11 bits, down to 2^-24.
bool fits_f16(double x) {
    if (x == 0) return true;
    constexpr int bits = 11, least = -24, most = 16;
    int exponent = 0;
    std::frexp(x, &exponent);
    const double last = std::ldexp(1.0, std::max(exponent - bits, least));
    return exponent <= most && std::trunc(x / last) == x / last;
}

}  // namespace

DType precision_of(const RawTensor& array) {
    constexpr Index looked_at = 4096, fewest = 32;
    if (array.dtype != DType::f32 && array.dtype != DType::f64) return array.dtype;
    if (array.shape.size() < 2 || array.count() == 0) return array.dtype;
    RawTensor rows = array;
    while (rows.shape.size() > 2) rows = element(rows, 0);
    const Index cols = std::max<Index>(1, rows.shape[1]);
    // The last of each share of the rows: the first ones of a causal P are nearly all 0.
    const Index count = std::clamp<Index>(looked_at / cols, 1, rows.shape[0]);
    const Index every = rows.shape[0] / count;
    rows.offset += (every - 1) * rows.strides[0];
    rows.strides[0] *= every;
    rows = head_of(rows, 0, count);
    std::vector<double> values(std::size_t(rows.count()));
    widen<double>(rows, values);
    std::erase_if(values, [](double x) { return !std::isfinite(x); });
    const auto all = [&](bool (*fits)(double)) { return std::ranges::all_of(values, fits); };
    const DType found = all(fits_bf16)  ? DType::bf16
                        : all(fits_f16) ? DType::f16
                        : all(fits_f32) ? DType::f32
                                        : DType::f64;
    std::ranges::sort(values);
    const auto distinct = std::unique(values.begin(), values.end()) - values.begin();
    return distinct < fewest ? array.dtype : found;
}

void require_real(const RawTensor& array, std::string_view source) {
    require_readable(array, source);
    if (array.scales || array.packed || array.dtype > DType::i64) return;
    const bool two_bytes = array.dtype == DType::i16 || array.dtype == DType::u16;
    throw FormatError(fmt::format("{}: holds {}, expected floating-point numbers; {}.", source,
                                  name(array.dtype),
                                  two_bytes ? "if these are the bits of bfloat16, save "
                                              "x.view(torch.bfloat16).float()"
                                            : "save what these integers stand for"));
}

Tensor to_tensor(const RawTensor& array, Shape shape, const Backend& backend, Type type,
                 std::string_view source, bool allow_nonfinite) {
    require_real(array, source);
    Tensor x;
    if (const auto mapped = as_is<float>(array); type == Type::f32 && mapped)
        x = Tensor::borrow(backend, shape, *mapped, array.owner);
    else if (type == Type::f32)
        x = widened<float>(array, shape, backend, type);
    else
        x = widened<double>(array, shape, backend, type);
    if (type == Type::f32 && array.dtype == DType::f64) require_range(array, source);
    if (allow_nonfinite) return x;
    if (const Index bad = first_nonfinite(x); bad >= 0)
        throw NonFiniteError(
            fmt::format("{}: element {} is not finite, expected finite numbers; pass "
                        "--mask FILE where it is of padding, or --allow-nonfinite to continue.",
                        source, index_text(bad, array.shape)));
    return x;
}

Tensor take_rows(const Tensor& x, std::span<const Index> rows) {
    std::vector<Index> cols(std::size_t(x.cols()));
    for (std::size_t c = 0; c < cols.size(); ++c) cols[c] = Index(c);
    return taken(x, rows, cols);
}

Tensor take_rows_and_columns(const Tensor& p, std::span<const Index> kept) {
    return taken(p, kept, kept);
}

std::vector<Index> kept(const std::vector<bool>& keep, std::string_view source) {
    std::vector<Index> rows;
    for (std::size_t i = 0; i < keep.size(); ++i)
        if (keep[i]) rows.push_back(Index(i));
    if (rows.empty())
        throw FormatError(
            fmt::format("{}: hides all {} tokens of a sample, expected at least one 1 (= keep).",
                        source, keep.size()));
    return rows;
}

std::vector<std::vector<bool>> read_masks(const std::string& file, Index samples, Index n) {
    return masks_of(open_array(file), file, samples, n);
}

namespace {

/// Throws `FormatError` for a mask (n, n) of n samples that hides tokens and whose diagonal is 1:
/// it may say what each token sees, itself at least.
void refuse_mask_of_pairs(const std::vector<Index>& values, Index n, const std::string& source) {
    bool of_pairs = std::ranges::find(values, 0) != values.end();
    for (Index i = 0; i < n; ++i) of_pairs = of_pairs && values[std::size_t(i * n + i)] == 1;
    if (of_pairs)
        throw FormatError(fmt::format(
            "{0}: the mask is ({1}, {1}), which tokens each of {1} samples keeps, or, as its "
            "diagonal is 1, which of {1} tokens each token sees; save the former as ({1}, 1, 1, "
            "{1}), leave the latter out.",
            source, n));
}

}  // namespace

std::vector<std::vector<bool>> masks_of(RawTensor array, const std::string& source, Index samples,
                                        Index n) {
    const bool two_axes = array.shape.size() == 2;
    for (std::size_t axis = array.shape.size(); axis-- > 2;)  // (B, 1, 1, n), as in Transformers
        if (array.shape[axis - 1] == 1) {
            array.shape.erase(array.shape.begin() + std::ptrdiff_t(axis) - 1);
            array.strides.erase(array.strides.begin() + std::ptrdiff_t(axis) - 1);
        }
    const bool shared = array.shape.size() == 1;
    const bool fits =
        shared ? array.shape[0] == n
               : array.shape.size() == 2 && array.shape[0] == samples && array.shape[1] == n;
    if (!fits)
        throw ShapeError(
            fmt::format("{}: the mask is {}, expected ({}) or ({}, {}): samples, tokens.", source,
                        shape_text(array.shape), n, samples, n));
    const std::vector<Index> values = integers(array, source);
    if (two_axes && samples == n) refuse_mask_of_pairs(values, n, source);
    std::vector<std::vector<bool>> masks;
    for (Index s = 0; s < samples; ++s) {
        std::vector<bool> keep(std::size_t(n), false);
        for (Index i = 0; i < n; ++i) {
            const Index v = values[std::size_t(shared ? i : s * n + i)];
            if (v != 0 && v != 1)
                throw FormatError(fmt::format(
                    "{}: token {} of the mask is {}, expected 1 (keep) or 0.", source, i, v));
            keep[std::size_t(i)] = v == 1;
        }
        kept(keep, source);
        masks.push_back(std::move(keep));
    }
    return masks;
}

}  // namespace tsdiag
