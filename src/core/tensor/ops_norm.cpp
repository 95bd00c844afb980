#include <algorithm>
#include <cmath>

#include "ops_check.hpp"
#include "record.hpp"

/// Norms over rows.
namespace tsdiag {
namespace {

Tensor unit(const Tensor& x, double eps, bool centre) {
    return centre ? layer_norm(x, {}, {}, eps) : rms_norm(x, {}, eps);
}

Tensor row_mean(const Tensor& x) { return scale(row_sum(x), 1.0 / double(x.cols())); }

/// 1 / sqrt(mean square + eps) of each row, of the centred row if `centre`.
Tensor inverse_deviation(const Tensor& x, double eps, bool centre) {
    const int own = exponent_of(x), exponent = eps > 0 ? std::max(0, own) : own;
    const double scale = std::ldexp(1.0, -exponent);
    const Tensor near = without_exponent(x, exponent);
    const Tensor from = centre ? subtract(near, row_mean(near)) : near;
    const Tensor square = affine(row_mean(map(Unary::square, from)), 1, eps * scale * scale);
    return without_exponent(map(Unary::reciprocal, map(Unary::sqrt, square)), exponent);
}

/// With u the normalised row, h = g w and r the inverse deviation:
/// r (h - mean h - u mean(h u)), without mean h where rows are not centred.
Tensor pull_to_row(const Tensor& h, const Tensor& x, double eps, bool centre) {
    const Tensor u = unit(x, eps, centre);
    Tensor inner = subtract(h, multiply(u, row_mean(multiply(h, u))));
    if (centre) inner = subtract(inner, row_mean(h));
    return multiply(inner, inverse_deviation(x, eps, centre));
}

Tensor normalise(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                 bool centre) {
    const Shape vector{1, 1, x.cols()};
    for (const Tensor* t : {&weight, &bias})
        if (t->defined()) {
            ops::same_kind("norm", x, *t);
            if (t->shape() != vector) ops::misfit("norm", x, *t);
        }
    Tensor out = Tensor::empty(x.backend(), x.shape(), x.type());
    x.backend().normalise_rows(out.view(), x.view(), weight.defined() ? &weight.view() : nullptr,
                               bias.defined() ? &bias.view() : nullptr, eps, centre);
    if (!any_tracked({&x, &weight, &bias})) return out;
    const auto by_row = [eps, centre](const Tensor& g, const Saved& s) {
        const Tensor& w = s.operands[1];
        return pull_to_row(w.defined() ? multiply(g, w) : g, s.operands[0], eps, centre);
    };
    const auto by_weight = [eps, centre, vector](const Tensor& g, const Saved& s) {
        return reduce_to(multiply(g, unit(s.operands[0], eps, centre)), vector);
    };
    const auto by_bias = [vector](const Tensor& g, const Saved&) { return reduce_to(g, vector); };
    return record(out, {{x, by_row}, {weight, by_weight}, {bias, by_bias}}, {x, weight});
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    return normalise(x, weight, bias, eps, true);
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    return normalise(x, weight, {}, eps, false);
}

}  // namespace tsdiag
