#pragma once
#include <functional>
#include <vector>

#include "support/near.hpp"
#include "tsdiag/gradient.hpp"
#include "tsdiag/random.hpp"

/// Gradients against central differences, in float64.
namespace tsdiag::test {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

inline Tensor drawn(Shape shape, std::uint64_t seed, double mean = 0, double deviation = 1) {
    std::vector<double> values(std::size_t(shape.count()));
    Rng(seed).fill_normal(std::span<double>(values), mean, deviation);
    return Tensor::from_host(cpu(), shape, std::span<const double>(values), Type::f64);
}

inline Tensor total(const Tensor& x) { return reduce_to(x, {1, 1, 1}); }
inline Tensor inner(const Tensor& a, const Tensor& b) { return total(multiply(a, b)); }
inline Tensor one() { return affine(zeros(cpu(), {1, 1, 1}, Type::f64), 1, 1); }

constexpr double difference_step = 1e-5;

/// Truncation is h^2 times a third derivative, of order 1 to 1000 here; rounding that of the sum
/// of `magnitude`, over h.
inline Tolerance differences(double magnitude) {
    const double h = difference_step;
    return {.relative = 1e3 * h * h,
            .absolute = 1e2 * h * h + 8 * epsilon(Type::f64) * magnitude / h,
            .reason = "central differences"};
}

inline double modulus(const Tensor& x) {
    double sum = 0;
    for (const double v : x.to_host<double>()) sum += std::abs(v);
    return sum;
}

inline Inputs moved(Inputs x, std::size_t which, const Tensor& direction, double step) {
    x[which] = add(x[which], scale(direction, step));
    return x;
}

inline Inputs variables(const Inputs& x) {
    Inputs out;
    for (const Tensor& t : x) out.push_back(variable(t));
    return out;
}

inline Inputs gradient_of(const Function& f, const Inputs& x, const Tensor& u) {
    const Inputs v = variables(x);
    return grad(f(v), u, v);
}

/// d/dt <u, f(x + t d)> for a random u, and three random d of each input.
inline void expect_gradient(const Function& f, const Inputs& x) {
    const Tensor y = f(x);
    EXPECT_FALSE(y.tracked());
    const Tensor u = drawn(y.shape(), 91);
    const Inputs g = gradient_of(f, x, u);
    const Tolerance tolerance = differences(modulus(multiply(y, u)));
    for (std::size_t k = 0; k < x.size(); ++k) {
        ASSERT_EQ(g[k].shape(), x[k].shape());
        for (const std::uint64_t seed : {1, 2, 3}) {
            const Tensor d = drawn(x[k].shape(), seed);
            const auto at = [&](double t) { return dot(f(moved(x, k, d, t)), u); };
            const double h = difference_step;
            EXPECT_CLOSE(dot(g[k], d), (at(h) - at(-h)) / (2 * h), tolerance) << "input " << k;
        }
    }
}

/// The derivative of <grad <u, f>, d> against the differences of grad along d.
inline void expect_second_gradient(const Function& f, const Inputs& x) {
    const Tensor u = drawn(f(x).shape(), 92);
    for (std::size_t k = 0; k < x.size(); ++k) {
        const Tensor d = drawn(x[k].shape(), 7);
        const Inputs v = variables(x);
        const Inputs first = grad(f(v), u, v, true);
        EXPECT_FALSE(grad(f(v), u, v)[k].tracked());
        const Tensor slope = inner(first[k], d);
        const Inputs second = grad(slope, one(), v);
        const double h = difference_step;
        const Inputs high = gradient_of(f, moved(x, k, d, h), u),
                     low = gradient_of(f, moved(x, k, d, -h), u);
        for (std::size_t j = 0; j < x.size(); ++j)
            EXPECT_TENSOR_NEAR(second[j], scale(subtract(high[j], low[j]), 1 / (2 * h)),
                               differences(modulus(high[j])))
                << "inputs " << k << ", " << j;
    }
}

}  // namespace tsdiag::test
