#include "linear.hpp"

#include "tsdiag/ops.hpp"

namespace tsdiag::model {

Tensor get_or_empty(const Weights& weights, const std::string& name) {
    return weights.has(name) ? weights.get(name) : Tensor();
}

Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }

Linear load_linear(const Weights& weights, const std::string& stem) {
    return {get_or_empty(weights, stem + ".weight"), get_or_empty(weights, stem + ".bias")};
}

}  // namespace tsdiag::model
