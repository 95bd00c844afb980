#pragma once
#include "tsdiag/spec.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::model {

class Parameters;
/// Declares the class token and the parameters of the layers.
void declare_class_attention(const ModelSpec& spec, Parameters& to);
/// FLOPs of the matrix products, on `tokens` tokens of width d.
double class_attention_flops(const ClassSpec& spec, double d, double tokens);
/// Class token and tokens behind the class-attention layers of `spec`, which has some: x (s, n, d)
/// -> (s, n + 1, d), the class token first.  Formula: ClassSpec.  [XCIT] 3.4
Tensor class_attention(const ModelSpec& spec, const Weights& weights, const Tensor& x);

}  // namespace tsdiag::model
