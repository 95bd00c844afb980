#include "optimiser.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::training {
namespace {

/// The numbers of one update, the same for all elements.
struct Rule {
    double beta1, beta2, eps, factor;
    double rate1;   ///< rate / (1 - beta1^t)
    double fix2;    ///< 1 / (1 - beta2^t)
    double shrink;  ///< 1 - rate decay
};

/// One pass over memory that the host sees.
template <class T>
void in_place(T* w, T* m, T* v, const T* g, Index count, const Rule& r) {
    const T b1 = T(r.beta1), b2 = T(r.beta2), eps = T(r.eps), factor = T(r.factor);
    const T rate1 = T(r.rate1), fix2 = T(r.fix2), shrink = T(r.shrink);
#pragma omp parallel for simd schedule(static) if (count > (Index{1} << 17))
    for (Index i = 0; i < count; ++i) {
        const T x = factor * g[i];
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        w[i] = shrink * w[i] - rate1 * m[i] / (std::sqrt(fix2 * v[i]) + eps);
    }
}

/// The same by ops, wherever the elements are.
void by_ops(const Tensor& w, Optimiser::State& s, const Tensor& g, const Rule& r) {
    const Tensor x = scale(g, r.factor);
    s.m = add(scale(s.m, r.beta1), scale(x, 1 - r.beta1));
    s.v = add(scale(s.v, r.beta2), scale(map(Unary::square, x), 1 - r.beta2));
    const Tensor root = affine(map(Unary::sqrt, scale(s.v, r.fix2)), 1, r.eps);
    const Tensor next = subtract(scale(w, r.shrink), scale(divide(s.m, root), r.rate1));
    w.backend().unary(Unary::copy, w.view(), next.view());
}

template <class T>
T* elements(const Tensor& t) {
    return static_cast<T*>(t.view().data);
}

}  // namespace

Tensor Parameters::get(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
        throw FormatError(fmt::format("the model in training has no parameter '{}'", name));
    return found->second;
}

std::vector<std::string> Parameters::names() const {
    std::vector<std::string> out;
    for (const auto& [name, tensor] : tensors_) out.push_back(name);
    return out;
}

void Optimiser::update(const std::string& name, const Tensor& w, const Tensor& given, double factor,
                       double rate, Index t) {
    if (given.shape() != w.shape())
        throw ShapeError(fmt::format("'{}' and its gradient differ in shape", name));
    const Tensor g = contiguous(given);
    State& s = states_[name];
    if (!s.m.defined())
        s = {zeros(w.backend(), w.shape(), w.type()), zeros(w.backend(), w.shape(), w.type())};
    const Rule rule{.beta1 = adam_.beta1,
                    .beta2 = adam_.beta2,
                    .eps = adam_.eps,
                    .factor = factor,
                    .rate1 = rate / (1 - std::pow(adam_.beta1, double(t))),
                    .fix2 = 1 / (1 - std::pow(adam_.beta2, double(t))),
                    .shrink = decays(w) ? 1 - rate * adam_.decay : 1};
    const Index count = w.shape().count();
    if (!w.backend().host_memory())
        by_ops(w, s, g, rule);
    else if (w.type() == Type::f32)
        in_place(elements<float>(w), elements<float>(s.m), elements<float>(s.v), elements<float>(g),
                 count, rule);
    else
        in_place(elements<double>(w), elements<double>(s.m), elements<double>(s.v),
                 elements<double>(g), count, rule);
}

}  // namespace tsdiag::training
