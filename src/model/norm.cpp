#include "norm.hpp"

#include <cmath>
#include <limits>

#include "linear.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

/// |x| / sqrt(d) of each row.  Its derivative at a row of zeros, which relu(S) V may be, is 0, as
/// in PyTorch.
Tensor root_mean_square(const Tensor& x) {
    const double least = x.type() == Type::f32 ? double(std::numeric_limits<float>::min())
                                               : std::numeric_limits<double>::min();
    return scale(map(Unary::sqrt, at_least(row_sum(multiply(x, x)), least)),
                 1 / std::sqrt(double(x.cols())));
}

Tensor scale_norm(const Tensor& x, const Tensor& g, double eps) {
    return multiply(divide(x, at_least(root_mean_square(x), eps)), g);
}

}  // namespace

Norm load_norm(const Weights& weights, const std::string& stem) {
    return {get_or_empty(weights, stem + ".weight"), get_or_empty(weights, stem + ".bias"),
            get_or_empty(weights, stem + ".g")};
}

Tensor unit_rows(const Tensor& x) {
    const Tensor floor = constant(x.backend(), 1e-24, x.type());
    const Tensor squares = zip(Binary::maximum, row_sum(multiply(x, x)), floor);
    return divide(x, map(Unary::sqrt, squares));
}

std::optional<RowNorm> as_row_norm(NormKind kind, const Norm& norm, double eps) {
    switch (kind) {
        case NormKind::layer:
            return RowNorm{norm.weight, norm.bias, eps, true};
        case NormKind::rms:
            return RowNorm{norm.weight, {}, eps, false};
        case NormKind::plain_layer:
            return RowNorm{{}, {}, eps, true};
        default:
            return {};
    }
}

Tensor normed(NormKind kind, const Tensor& x, const Norm& norm, double eps) {
    if (const auto row = as_row_norm(kind, norm, eps)) return normalise(x, *row);
    switch (kind) {
        case NormKind::simple_rms:
            return divide(x, affine(root_mean_square(x), 1, 1e-8));
        case NormKind::scale:
            return scale_norm(x, norm.g, eps);
        default:
            return x;
    }
}

}  // namespace tsdiag::model
