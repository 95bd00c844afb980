#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/tensor.hpp"

/// Arrays of files, as inputs and traces need them.
namespace tsdiag {

/// "(2, 64, 512)"
std::string shape_text(std::span<const std::int64_t> shape);

/// The only array of a .npy file.
RawTensor open_array(const std::filesystem::path& file);

/// Element `i` of the first axis: a view of the same bytes.
RawTensor element(const RawTensor& array, Index i);
/// The first `count` elements of axis `axis`: a view of the same bytes.
RawTensor head_of(const RawTensor& array, std::size_t axis, Index count);

/// The elements as integers; throws `FormatError` naming `source` for a fraction or a value beyond
/// 2^53.
std::vector<Index> integers(const RawTensor& array, std::string_view source);

/// Throws `FormatError` naming `source` for integers and booleans, which only code numbers.
void require_real(const RawTensor& array, std::string_view source);

/// The coarsest type that holds the elements that are looked at, of some rows: that of the
/// computation, where an array of float32 or float64 has numbers of fewer bits.  The type of the
/// array where these are too few to tell.
DType precision_of(const RawTensor& array);

/// The elements of `array`, real numbers, as a tensor of `shape` (equal count), without a copy
/// where possible. Throws `NonFiniteError` naming `source` and the index of the first NaN or
/// infinity, unless allowed.
Tensor to_tensor(const RawTensor& array, Shape shape, const Backend& backend, Type type,
                 std::string_view source, bool allow_nonfinite);

/// Rows `rows` of each batch, in that order.
Tensor take_rows(const Tensor& x, std::span<const Index> rows);
/// Rows and columns `kept` of each batch.
Tensor take_rows_and_columns(const Tensor& p, std::span<const Index> kept);

/// Indices where `keep` is true; throws `FormatError` naming `source` where there is none.
std::vector<Index> kept(const std::vector<bool>& keep, std::string_view source);

/// The mask of each sample, from a .npy file of (n), (S, n) or (S, 1, 1, n) zeros and ones; n as
/// expected.  An (n) mask serves all.
std::vector<std::vector<bool>> read_masks(const std::string& file, Index samples, Index n);
/// The mask of each of `samples` samples of n tokens, from an array (n), (S, n) or (S, 1, 1, n) of
/// zeros and ones.  Throws `ShapeError` or `FormatError` naming `source` for any other, and for one
/// of n samples, (n, n), that may say what each token sees.
std::vector<std::vector<bool>> masks_of(RawTensor array, const std::string& source, Index samples,
                                        Index n);

}  // namespace tsdiag
