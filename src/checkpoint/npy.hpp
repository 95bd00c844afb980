#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "bytes.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

inline constexpr std::string_view npy_magic = "\x93NUMPY";
/// Bytes to read for the header: upper bound on the header of any regular array.
inline constexpr std::uint64_t longest_npy_header = 1 << 17;

struct NumpyType {
    DType dtype = DType::other;
    std::size_t width = 0;  ///< bytes per element; 0: not known, or none
    bool big_endian = false;
};
/// "<f4", ">i8", "|b1", ...; bfloat16 is "|V2".
NumpyType numpy_type(std::string_view descr);

struct NpyHeader {
    RawTensor tensor;         ///< all but bytes and owner
    std::size_t begin = 0;    ///< of the data
    std::uint64_t bytes = 0;  ///< of the data
};
/// Reads the header at the beginning of `head`.  `size` is that of the whole file or entry, which
/// must be header and data exactly.  Throws `FormatError`, also for arrays of Python objects (dtype
/// |O) and of elements without bytes (<U0, |V0): of these a few bytes could hold any number.
NpyHeader read_npy_header(Bytes head, std::uint64_t size, const std::string& where);

/// The array stored in `content`, a file or an entry.
RawTensor npy_tensor(NpyHeader header, Bytes content, std::shared_ptr<const void> owner);

}  // namespace tsdiag::checkpoint
