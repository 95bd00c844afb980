#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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

/// On a device those of the row, the weight and the bias, of which `wants` tells who is asked for,
/// in two passes; `arrived` (Pullbacks) is added to that of the row.
std::vector<Tensor> pull_at_once(const Tensor& g, const Saved& s, Tensor& arrived, double eps,
                                 bool centre, const std::array<bool, 3>& wants) {
    const Tensor &x = s.operands[0], &w = s.operands[1];
    if (!ops::in_one_pass({&g, &x, &w, &arrived}) || x.shape().count() == 0) return {};
    const Tensor added = wants[0] ? std::exchange(arrived, {}) : Tensor();
    const Index rows = x.batch() * x.rows(), groups = norm_groups(rows);
    const bool sums = wants[1] || wants[2];
    Tensor by_x = Tensor::empty(g.backend(), g.shape(), g.type());
    const Tensor parts =
        sums ? Tensor::empty(g.backend(), {2, groups, x.cols()}, g.type()) : Tensor();
    g.backend().norm_derivative(by_x.view(), ops::view_or_null(parts), g.view(), x.view(),
                                ops::view_or_null(w), ops::view_or_null(added), eps, centre);
    std::vector<Tensor> out;
    if (wants[0]) out.push_back(by_x);
    if (!sums) return out;
    const Tensor both = column_sum(parts);
    if (wants[1]) out.push_back(both.batch_range(0, 1));
    if (wants[2]) out.push_back(both.batch_range(1, 1));
    return out;
}

void require_vectors(const Tensor& x, const RowNorm& norm) {
    for (const Tensor* t : {&norm.weight, &norm.bias})
        if (t->defined()) {
            ops::same_kind("norm", x, *t);
            if (t->shape() != Shape{1, 1, x.cols()}) ops::misfit("norm", x, *t);
        }
}

}  // namespace

Tensor normalise(const Tensor& x, const RowNorm& norm) {
    require_vectors(x, norm);
    Tensor out = Tensor::empty(x.backend(), x.shape(), x.type());
    x.backend().normalise_rows(out.view(), x.view(), ops::view_or_null(norm.weight),
                               ops::view_or_null(norm.bias), norm.eps, norm.centre);
    return ops::recorded_norm(out, x, norm);
}

Tensor ops::recorded_norm(const Tensor& out, const Tensor& x, const RowNorm& norm) {
    const auto& [weight, bias, eps, centre] = norm;
    require_vectors(x, norm);
    if (!any_tracked({&x, &weight, &bias})) return out;
    const Shape vector{1, 1, x.cols()};
    const auto by_row = [eps, centre](const Tensor& g, const Saved& s) {
        const Tensor& w = s.operands[1];
        return pull_to_row(w.defined() ? multiply(g, w) : g, s.operands[0], eps, centre);
    };
    const auto by_weight = [eps, centre, vector](const Tensor& g, const Saved& s) {
        return reduce_to(multiply(g, unit(s.operands[0], eps, centre)), vector);
    };
    const auto by_bias = [vector](const Tensor& g, const Saved&) { return reduce_to(g, vector); };
    const std::array<bool, 3> wants{x.tracked(), weight.tracked(), bias.tracked()};
    const auto together = [eps, centre, wants](const Tensor& g, const Saved& s, Tensor& arrived) {
        return pull_at_once(g, s, arrived, eps, centre, wants);
    };
    return record(out, {{x, by_row}, {weight, by_weight}, {bias, by_bias}}, {x, weight}, false,
                  together);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    return normalise(x, {weight, bias, eps, true});
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    return normalise(x, {weight, {}, eps, false});
}

}  // namespace tsdiag
