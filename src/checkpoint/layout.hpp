#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "tsdiag/checkpoint.hpp"

/// Layouts of arrays: counts, strides, and their validation.
namespace tsdiag::checkpoint {

/// Tensors of more dimensions are refused.
inline constexpr std::size_t most_dimensions = 64;

/// Product of the sizes; nullopt where one is negative or the product exceeds 64 bits.
std::optional<std::int64_t> element_count(const std::vector<std::int64_t>& shape);

/// The strides of a row-major (`last` fastest) or column-major array without gaps.
std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape);
std::vector<std::int64_t> column_major(const std::vector<std::int64_t>& shape);

/// "(2, 3)"
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Throws `FormatError` unless all elements of `tensor` lie inside its bytes (`width` bytes each)
/// and an expanded view is of a manageable size.  `where` names the file, `what` the tensor.
void check_layout(const RawTensor& tensor, std::size_t width, const std::string& where,
                  const std::string& what);

}  // namespace tsdiag::checkpoint
