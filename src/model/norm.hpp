#pragma once
#include <optional>
#include <string>

#include "tsdiag/ops.hpp"
#include "tsdiag/spec.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::model {

/// The parameters of a norm; those that its kind lacks are empty.
struct Norm {
    Tensor weight, bias, g;
};
/// `stem`.weight, `stem`.bias, `stem`.g, as far as present.
Norm load_norm(const Weights& weights, const std::string& stem);
/// NormKind::none: x itself.
Tensor normed(NormKind kind, const Tensor& x, const Norm& norm, double eps);
/// x / max(|x|, 1e-12) of each row.
Tensor unit_rows(const Tensor& x);
/// The norm as an op on rows; nullopt where its kind is none of those.
std::optional<RowNorm> as_row_norm(NormKind kind, const Norm& norm, double eps);

}  // namespace tsdiag::model
