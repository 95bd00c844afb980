#pragma once
#include "tsdiag/model.hpp"

namespace tsdiag::model {

/// Class token and tokens behind the class-attention layers of `spec`, which has some: x (s, n, d)
/// -> (s, n + 1, d), the class token first.  Formula: ClassSpec.  [XCIT] 3.4
Tensor class_attention(const ModelSpec& spec, const Weights& weights, const Tensor& x);

}  // namespace tsdiag::model
