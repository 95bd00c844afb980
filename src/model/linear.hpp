#pragma once
#include <string>

#include "tsdiag/model.hpp"

namespace tsdiag::model {

/// The parameter `name`; empty where the model has none.
Tensor get_or_empty(const Weights& weights, const std::string& name);

/// x weight^T + bias; empty where the layer has no such map.
struct Linear {
    Tensor weight, bias;
    Tensor operator()(const Tensor& x) const;
};
/// `stem`.weight and `stem`.bias.
Linear load_linear(const Weights& weights, const std::string& stem);

}  // namespace tsdiag::model
