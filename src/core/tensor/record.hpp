#pragma once
#include <initializer_list>

#include "tsdiag/gradient.hpp"

/// Recording of ops.
namespace tsdiag {

struct Dependence {
    const Tensor& operand;
    Pullback pullback;  ///< called only where the operand is tracked
    std::optional<Corner> part = {};
};

inline bool any_tracked(std::initializer_list<const Tensor*> operands) {
    for (const Tensor* t : operands)
        if (t->tracked()) return true;
    return false;
}

/// `out` recorded as the result of an op, with its present elements.
Tensor record(const Tensor& out, std::span<const Dependence> on, std::vector<Tensor> saved = {},
              bool save_result = false, Pullbacks together = {});
/// With the derivative of its only operand from parts.
Tensor record(const Tensor& out, const Dependence& on, PartsPullback of_parts);
inline Tensor record(const Tensor& out, std::initializer_list<Dependence> on,
                     std::vector<Tensor> saved = {}, bool save_result = false,
                     Pullbacks together = {}) {
    return record(out, std::span(on.begin(), on.size()), std::move(saved), save_result,
                  std::move(together));
}

}  // namespace tsdiag
