#include "linear.hpp"

#include "tsdiag/ops.hpp"

namespace tsdiag::model {

Tensor get_or_empty(const Weights& weights, const std::string& name) {
    return weights.has(name) ? weights.get(name) : Tensor();
}

Tensor at_least(const Tensor& x, double bound) {
    return zip(Binary::maximum, x, constant(x.backend(), bound, x.type()));
}

Tensor rows_of_each(const Tensor& x, const std::vector<Index>& rows) {
    std::vector<Index> all;
    all.reserve(std::size_t(x.batch()) * rows.size());
    for (Index s = 0; s < x.batch(); ++s)
        for (const Index r : rows) all.push_back(s * x.rows() + r);
    const Tensor flat = contiguous(x).reshape({1, x.batch() * x.rows(), x.cols()});
    return gather_rows(flat, all).reshape({x.batch(), std::ssize(rows), x.cols()});
}

Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }
Tensor Linear::heads(const Tensor& x, Index heads) const {
    return linear_heads(x, weight, bias, heads);
}
Tensor Linear::mapped(const Tensor& x, Unary op, const Tensor& added) const {
    return linear_map(x, weight, bias, op, added);
}

Linear load_linear(const Weights& weights, const std::string& stem) {
    return {get_or_empty(weights, stem + ".weight"), get_or_empty(weights, stem + ".bias")};
}

}  // namespace tsdiag::model
