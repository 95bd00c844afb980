#pragma once
#include <string>
#include <vector>

#include "tsdiag/ops.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::model {

/// The parameter `name`; empty where the model has none.
Tensor get_or_empty(const Weights& weights, const std::string& name);

/// max(x, bound), entry by entry.
Tensor at_least(const Tensor& x, double bound);

/// These rows of every sample of x (s, n, d).
Tensor rows_of_each(const Tensor& x, const std::vector<Index>& rows);

/// x weight^T + bias; empty where the layer has no such map.
struct Linear {
    Tensor weight, bias;
    Tensor operator()(const Tensor& x) const;
    /// Its output as heads, (s h, n, w).
    Tensor heads(const Tensor& x, Index heads) const;
    /// op(x weight^T + bias) + added; `added` may be empty.
    Tensor mapped(const Tensor& x, Unary op, const Tensor& added = {}) const;
};
/// `stem`.weight and `stem`.bias.
Linear load_linear(const Weights& weights, const std::string& stem);

}  // namespace tsdiag::model
