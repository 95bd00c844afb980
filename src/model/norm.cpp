#include "norm.hpp"

#include <cmath>

#include "linear.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

/// |x| / sqrt(d) of each row.
Tensor root_mean_square(const Tensor& x) {
    return scale(map(Unary::sqrt, row_sum(multiply(x, x))), 1 / std::sqrt(double(x.cols())));
}

Tensor scale_norm(const Tensor& x, const Tensor& g, double eps) {
    const Tensor least =
        Tensor::from_host(x.backend(), {1, 1, 1}, std::span<const double>(&eps, 1), x.type());
    return multiply(divide(x, zip(Binary::maximum, root_mean_square(x), least)), g);
}

}  // namespace

Norm load_norm(const Weights& weights, const std::string& stem) {
    return {get_or_empty(weights, stem + ".weight"), get_or_empty(weights, stem + ".bias"),
            get_or_empty(weights, stem + ".g")};
}

Tensor normed(NormKind kind, const Tensor& x, const Norm& norm, double eps) {
    switch (kind) {
        case NormKind::layer:
            return layer_norm(x, norm.weight, norm.bias, eps);
        case NormKind::rms:
            return rms_norm(x, norm.weight, eps);
        case NormKind::simple_rms:
            return divide(x, affine(root_mean_square(x), 1, 1e-8));
        case NormKind::scale:
            return scale_norm(x, norm.g, eps);
        case NormKind::none:
            break;
    }
    return x;
}

}  // namespace tsdiag::model
