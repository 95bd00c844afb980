#include "layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tsdiag::checkpoint {
namespace {

constexpr std::int64_t largest_expanded = std::int64_t{1} << 26;

/// Offset of the last element plus one; nullopt on overflow or a negative stride or offset.
std::optional<std::int64_t> extent(const RawTensor& tensor) {
    std::optional<std::int64_t> end = plus(tensor.offset, 1);
    for (std::size_t k = 0; k < tensor.shape.size() && end; ++k) {
        if (tensor.strides[k] < 0) return std::nullopt;
        const auto reach = times(tensor.shape[k] - 1, tensor.strides[k]);
        end = reach ? plus(*end, *reach) : std::nullopt;
    }
    return tensor.offset < 0 ? std::nullopt : end;
}

}  // namespace

std::optional<std::int64_t> element_count(const std::vector<std::int64_t>& shape) {
    std::optional<std::int64_t> count = 1;
    for (const std::int64_t size : shape) {
        if (size < 0) return std::nullopt;
        if (count) count = times(*count, size);
    }
    return count;
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t k = shape.size(); k-- > 1;)
        strides[k - 1] = times(strides[k], std::max<std::int64_t>(shape[k], 1)).value_or(0);
    return strides;
}

std::vector<std::int64_t> column_major(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t k = 1; k < shape.size(); ++k)
        strides[k] = times(strides[k - 1], std::max<std::int64_t>(shape[k - 1], 1)).value_or(0);
    return strides;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

void check_layout(const RawTensor& tensor, std::size_t width, const std::string& where,
                  const std::string& what) {
    const auto fail = [&](const std::string& found) {
        refuse(where,
               fmt::format("{} {}. The file is damaged; download or save it again.", what, found));
    };
    if (tensor.shape.size() > most_dimensions || tensor.strides.size() != tensor.shape.size())
        fail(
            fmt::format("has {} sizes and {} strides, expected the same number of both, at most {}",
                        tensor.shape.size(), tensor.strides.size(), most_dimensions));
    const auto count = element_count(tensor.shape);
    if (!count)
        fail(fmt::format("has shape {}, expected sizes whose product fits 63 bits",
                         shape_text(tensor.shape)));
    if (*count == 0) return;
    constexpr std::size_t bits = 8;  // the least that an element of unknown size can have is one
    const auto held =
        std::int64_t(width == 0 ? tensor.bytes.size() * bits : tensor.bytes.size() / width);
    const auto end = extent(tensor);
    if (!end || *end > held)
        fail(fmt::format("of shape {}, strides {} and offset {} exceeds its storage of {} elements",
                         shape_text(tensor.shape), shape_text(tensor.strides), tensor.offset,
                         held));
    if (*count > held && *count > largest_expanded)
        fail(fmt::format("expands {} stored elements to {}, expected at most {}", held, *count,
                         largest_expanded));
}

}  // namespace tsdiag::checkpoint
