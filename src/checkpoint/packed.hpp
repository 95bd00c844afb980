#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.hpp"
#include "layout.hpp"
#include "said.hpp"
#include "tsdiag/checkpoint.hpp"

/// Matrices that a file stores as codes of few bits: what their layouts share.
namespace tsdiag::checkpoint {

/// A matrix put together from tensors of the file.
struct Unpacked {
    std::string name;  ///< of the weight
    RawTensor tensor;
    std::vector<std::string> used;  ///< no tensors of the model by themselves
};

/// Puts the matrix together whose codes are the tensor `codes`.  Throws `FormatError`.
using Unpack = std::function<Unpacked(const Checkpoint& file, const std::string& codes)>;

/// How a library stores matrices in few bits.
struct PackedLayout {
    std::string_view title;   ///< for docs/formats.md
    std::string_view method;  ///< `quant_method`
    std::string_view codes;   ///< how the names of the codes end
    /// Null where the configuration `said` is not understood in whole, or is of another layout.
    Unpack (*obey)(const Json& said);
};

/// In the order in which they are tried.
std::span<const PackedLayout* const> packed_layouts();

/// The tensors of a packed matrix: its codes `name`, which ends in `ending`, and those beside them,
/// as they are taken one by one.
class PackedTensors {
  public:
    PackedTensors(const Checkpoint& file, const std::string& name, std::string_view ending)
        : file_(file), name_(name), stem_(name.substr(0, name.size() - ending.size())) {
        used_.push_back(name);
    }

    const std::string& stem() const { return stem_; }
    bool has(std::string_view ending) const { return file_.has(stem_ + std::string(ending)); }
    /// Row-major, little-endian, from the beginning of its bytes on.  Throws `FormatError` where it
    /// is missing, has another shape, or none of the types.
    RawTensor take(std::string_view ending, std::initializer_list<DType> types,
                   const std::vector<std::int64_t>& shape);
    /// As `take`, of any shape of so many dimensions that has elements.
    RawTensor open(std::string_view ending, std::initializer_list<DType> types,
                   std::size_t dimensions);
    /// One number.
    float number(std::string_view ending);
    /// Its numbers.
    std::vector<float> numbers(std::string_view ending, const std::vector<std::int64_t>& shape);
    /// The group of each column, from 0 on.
    std::vector<std::int32_t> order(std::string_view ending, std::int64_t columns,
                                    std::int64_t groups);
    /// It says nothing of the weights.
    void pass(std::string_view ending);

    [[noreturn]] void refuse(const std::string& found) const;
    std::vector<std::string> used() && { return std::move(used_); }

  private:
    RawTensor taken(std::string_view ending, std::initializer_list<DType> types);

    const Checkpoint& file_;
    const std::string& name_;
    std::string stem_;
    std::vector<std::string> used_;
};

/// A packed tensor of this shape, described as `what`.
RawTensor packed_tensor(std::shared_ptr<const PackedMatrix> matrix, std::vector<std::int64_t> shape,
                        std::string what);

/// Word `i` of a tensor of 32-bit integers.
inline std::uint32_t word(const std::byte* words, std::int64_t i) {
    return load<std::uint32_t>(words + 4 * i);
}
/// Code `i` of a stream of codes of `bits` bits, the least significant first, in words that are
/// `stride` words apart.
inline std::uint32_t code(const std::byte* words, std::int64_t stride, int bits, std::int64_t i) {
    const std::int64_t at = i * bits, shift = at % 32;
    std::uint64_t both = word(words, at / 32 * stride);
    if (shift + bits > 32) both |= std::uint64_t{word(words, (at / 32 + 1) * stride)} << 32;
    return std::uint32_t(both >> shift) & ((1u << bits) - 1);
}

/// Codes `first` .. `first + count` of one word, the least significant first; returns the end.
inline std::uint8_t* unpack_word(std::uint32_t word, int bits, std::int64_t first,
                                 std::int64_t count, std::uint8_t* out) {
    word >>= bits * first;
    for (std::int64_t k = 0; k < count; ++k, word >>= bits)
        *out++ = std::uint8_t(word & ((1u << bits) - 1));
    return out;
}

/// Integers of `bits` bits in groups of columns of a row: element (i, j) is
/// (code - zero(i, g)) scale(i, g), where g is the group of column j.
class GroupedIntegers : public PackedMatrix {
  public:
    struct Groups {
        std::int64_t count = 1, size = 1;  ///< `size` columns each, the last may have fewer
        std::vector<std::int32_t> of;      ///< where not empty: the group of each column
    };

    void decode(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                float* out) const override;

  protected:
    GroupedIntegers(std::int64_t columns, std::vector<RawTensor> parts, int bits, Groups groups)
        : PackedMatrix(columns, std::move(parts), 0.5 / ((1 << bits) - 1)),
          bits_(bits),
          groups_(std::move(groups)) {}
    int bits() const { return bits_; }
    const Groups& groups() const { return groups_; }

    /// Codes of a part of the matrix, row by row.
    virtual void codes(std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns, std::uint8_t* out) const = 0;
    /// Scales and zero points of rows, one a group, row by row.
    virtual void scales(std::int64_t row, std::int64_t rows, float* out) const = 0;
    virtual void zeros(std::int64_t row, std::int64_t rows, float* out) const = 0;

  private:
    void apply(const std::uint8_t* codes, const float* scale, const float* zero,
               std::int64_t column, std::int64_t columns, float* out) const;

    int bits_;
    Groups groups_;
};

/// Numbers of four bits, two a byte, whose codes name one of 16 levels; blocks of `block` elements
/// in the order of rows have a scale: element i is level(code i) scale(i / block).
class ScaledLevels final : public PackedMatrix {
  public:
    /// Scales of `count` blocks from block `first` on.
    using Scales = std::function<void(std::int64_t first, std::int64_t count, float* out)>;

    /// `high_first`: the first of two elements is in the upper half of their byte.
    ScaledLevels(std::int64_t columns, std::vector<RawTensor> parts,
                 const std::array<float, 16>& levels, bool high_first, std::int64_t block,
                 Scales scales);

    void decode(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                float* out) const override;

  private:
    void run(std::int64_t first, std::int64_t count, std::span<float> scales, float* out) const;

    std::array<float, 16> levels_;
    bool high_first_;
    std::int64_t block_;
    Scales scales_;
};

/// The numbers of e2m1: a sign, two bits of exponent, one of mantissa.  [OCP-MX]
inline constexpr std::array<float, 16> e2m1{0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                            -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

}  // namespace tsdiag::checkpoint
