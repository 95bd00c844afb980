#pragma once
#include <optional>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// What PEFT's LoRA and DoRA make of a matrix W, of m outputs and n inputs.  [LORA] (3), [DORA] (5)
struct LowRank {
    RawTensor weight;                    ///< W, (m, n), or (n, m) where it is turned
    RawTensor a, b;                      ///< (r, n) and (m, r)
    std::optional<RawTensor> magnitude;  ///< of DoRA, (m)
    double scale = 1;
    bool turned = false;  ///< stored (inputs, outputs)
};

/// The matrix in the place of W: W + scale B A, and of DoRA its output o times
/// magnitude(o) / |(W + scale B A)_o|, the norm over its inputs.  Sums are in double, in the order
/// of the rank, and rounded once.  Nothing is computed before elements are read: then O(r) an
/// element, and of DoRA O(m n r) once for the norms.  Shapes are checked by the caller.
RawTensor low_rank_sum(LowRank parts);

}  // namespace tsdiag::checkpoint
