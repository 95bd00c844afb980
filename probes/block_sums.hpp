#pragma once
#include <optional>
#include <span>
#include <vector>

#include "projection_derivative.hpp"
#include "tsdiag/ops.hpp"

/// |dP_i/dW_Q|^2 and |dP_i/dW_K|^2 (projection_derivative.hpp) summed over blocks of rows, for a
/// device: of all heads of all samples by operations on tensors alone, so that what is asked of
/// the device does not grow with the samples, and two numbers a head and block are read.
namespace tsdiag::probe {

/// Rows [first, first + count) of P.
struct RowRange {
    Index first = 0, count = 0;
};

/// Of each head its blocks in turn.
class BlockSums {
  public:
    /// `numbers`: value and gross of each; `exponents`: both are 2^exponent times these.
    BlockSums(Later<std::vector<double>> numbers, std::vector<int> exponents)
        : numbers_(std::move(numbers)), exponents_(std::move(exponents)) {}

    /// Of block `block` of `blocks` of a head, the heads of all samples counted.  `gross`: the
    /// rounding error is some eps of it.  Waits for the device.
    RowSpread::Sum of(Index head, Index block, Index blocks) const;

  private:
    mutable Later<std::vector<double>> numbers_;
    std::vector<int> exponents_;
};

/// Of e, with X (samples, n, d) and the heads of each sample in turn, and without keys of a memory.
/// None where q/k norms of projections below 2^-100 or above 2^100 might leave the range of double.
/// Cost: that of the derivatives' `norms`, in float64; memory: some twelve blocks of P, and the
/// Gram matrices of the samples where they are used.
std::optional<BlockSums> query_sums_later(const Attention& e, std::span<const RowRange> blocks);
std::optional<BlockSums> key_sums_later(const Attention& e, std::span<const RowRange> blocks);

}  // namespace tsdiag::probe
