#include "optimiser.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::training {
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

void Optimiser::update(const Parameters& parameters,
                       const std::vector<std::pair<std::string, Tensor>>& gradients, double factor,
                       double rate, Index t) {
    if (gradients.empty()) return;
    std::vector<Tensor> kept;
    std::vector<AdamWUpdate> all;
    for (const auto& [name, given] : gradients) {
        const Tensor w = parameters.get(name);
        if (given.shape() != w.shape())
            throw ShapeError(fmt::format("'{}' and its gradient differ in shape", name));
        const Tensor& g = kept.emplace_back(contiguous(given));
        State& s = states_[name];
        if (!s.m.defined())
            s = {zeros(w.backend(), w.shape(), w.type()), zeros(w.backend(), w.shape(), w.type())};
        all.push_back({w.view(),
                       s.m.view(),
                       s.v.view(),
                       g.view(),
                       {.beta1 = adam_.beta1,
                        .beta2 = adam_.beta2,
                        .eps = adam_.eps,
                        .factor = factor,
                        .rate = rate / (1 - std::pow(adam_.beta1, double(t))),
                        .unbias = 1 / (1 - std::pow(adam_.beta2, double(t))),
                        .shrink = decays(w) ? 1 - rate * adam_.decay : 1}});
    }
    kept.front().backend().adamw(all);
}

}  // namespace tsdiag::training
