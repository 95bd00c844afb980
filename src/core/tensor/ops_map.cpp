#include <cmath>
#include <numbers>

#include "ops_check.hpp"
#include "record.hpp"
#include "tsdiag/ops.hpp"

/// Element-wise functions and their derivatives.
namespace tsdiag {
namespace {

/// s(k x) + k x s(k x) (1 - s(k x)), the derivative of x s(k x), s the logistic function.
Tensor gated_slope(const Tensor& x, double k) {
    const Tensor s = map(Unary::sigmoid, scale(x, k));
    return add(s, multiply(multiply(scale(x, k), s), affine(s, -1, 1)));
}

/// x s(u), u = 2 c (x + a x^3), has the derivative s + x s (1 - s) u'.
Tensor gelu_tanh_slope(const Tensor& x) {
    const double c = 2 * std::sqrt(2 / std::numbers::pi), a = 0.044715;
    const Tensor square = map(Unary::square, x);
    const Tensor s = map(Unary::sigmoid, multiply(scale(x, c), affine(square, a, 1)));
    const Tensor slope = affine(square, 3 * a * c, c);
    return add(s, multiply(multiply(multiply(x, s), affine(s, -1, 1)), slope));
}

Tensor normal_density(const Tensor& x) {
    return scale(map(Unary::exp, scale(map(Unary::square, x), -0.5)),
                 1 / std::sqrt(2 * std::numbers::pi));
}

/// exp(min(x, 0)): no overflow in the branch not taken.
Tensor exp_below_zero(const Tensor& x) {
    return map(Unary::exp, scale(map(Unary::relu, scale(x, -1)), -1));
}

/// 1 / (2 y), y = sqrt(x); at 0 it is large instead of infinite, so that 0 times it is 0.
Tensor sqrt_slope(const Tensor& y) {
    const Tensor least = constant(y.backend(), 1e-30, y.type());
    return scale(map(Unary::reciprocal, zip(Binary::maximum, y, least)), 0.5);
}

bool reads_result(Unary op) {
    switch (op) {
        case Unary::tanh:
        case Unary::sigmoid:
        case Unary::exp:
        case Unary::sqrt:
        case Unary::reciprocal:
            return true;
        default:
            return false;
    }
}

/// The derivative at x, y being the function's value.
Tensor slope(Unary op, const Tensor& x, const Tensor& y) {
    switch (op) {
        case Unary::copy:
        case Unary::negate:
        case Unary::step:  // constant: see `pull`
        case Unary::sine:
        case Unary::cosine:  // see `recorded_wave`
            break;
        case Unary::relu:
            return map(Unary::step, x);
        case Unary::gelu:
            return add(map(Unary::normal_cdf, x), multiply(x, normal_density(x)));
        case Unary::gelu_tanh:
            return gelu_tanh_slope(x);
        case Unary::gelu_quick:
            return gated_slope(x, 1.702);
        case Unary::silu:
            return gated_slope(x, 1);
        case Unary::tanh:
            return affine(map(Unary::square, y), -1, 1);
        case Unary::sigmoid:
            return multiply(y, affine(y, -1, 1));
        case Unary::exp:
            return y;
        case Unary::elu:
        case Unary::elu_plus_one:
            return exp_below_zero(x);
        case Unary::square:
            return scale(x, 2);
        case Unary::sqrt:
            return sqrt_slope(y);
        case Unary::reciprocal:
            return scale(map(Unary::square, y), -1);
        case Unary::log:
            return map(Unary::reciprocal, x);
        case Unary::normal_cdf:
            return normal_density(x);
    }
    return {};
}

Tensor pull(Unary op, const Tensor& g, const Saved& saved) {
    if (op == Unary::copy) return g;
    if (op == Unary::negate) return scale(g, -1);
    if (op == Unary::step) return scale(g, 0);
    const Tensor x = saved.operands.empty() ? Tensor() : saved.operands[0];
    if (ops::in_one_pass({&g, &x, &saved.result})) {
        Tensor out = Tensor::empty(g.backend(), g.shape(), g.type());
        const View none{};
        g.backend().unary_derivative(op, out.view(), g.view(), x.defined() ? x.view() : none,
                                     saved.result.defined() ? saved.result.view() : none);
        return out;
    }
    return multiply(g, slope(op, x, saved.result));
}

/// The sine or cosine of x, `value`, where `other` is the other one: derivatives of every order are
/// made of these two.
Tensor recorded_wave(Unary op, const Tensor& x, const Tensor& value, const Tensor& other) {
    const auto pullback = [=](const Tensor& g, const Saved& saved) {
        const bool sine = op == Unary::sine;
        const Tensor slope =
            recorded_wave(sine ? Unary::cosine : Unary::sine, saved.operands[0], other, value);
        return multiply(g, sine ? slope : scale(slope, -1));
    };
    return record(value, {{x, pullback}}, {x});
}

}  // namespace

Tensor map(Unary op, const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().unary(op, out.view(), a.view());
    return ops::recorded_map(op, out, a);
}

Tensor ops::recorded_map(Unary op, const Tensor& out, const Tensor& a) {
    if (!a.tracked()) return out;
    if (op == Unary::sine || op == Unary::cosine)
        return recorded_wave(op, a, out,
                             map(op == Unary::sine ? Unary::cosine : Unary::sine, a.detached()));
    const bool constant = op == Unary::copy || op == Unary::negate || op == Unary::step;
    const bool by_result = reads_result(op);
    std::vector<Tensor> saved;
    if (!constant && !by_result) saved.push_back(a);
    return record(out, {{a, [op](const Tensor& g, const Saved& s) { return pull(op, g, s); }}},
                  std::move(saved), by_result);
}

}  // namespace tsdiag
