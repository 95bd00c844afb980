#pragma once
#include <initializer_list>

#include "tsdiag/gradient.hpp"

/// Recording of ops.
namespace tsdiag {

struct Dependence {
    const Tensor& operand;
    Pullback pullback;  ///< called only where the operand is tracked
};

inline bool any_tracked(std::initializer_list<const Tensor*> operands) {
    for (const Tensor* t : operands)
        if (t->tracked()) return true;
    return false;
}

/// `out` recorded as the result of an op, with its present elements.
Tensor record(const Tensor& out, std::initializer_list<Dependence> on,
              std::vector<Tensor> saved = {}, bool save_result = false);

}  // namespace tsdiag
