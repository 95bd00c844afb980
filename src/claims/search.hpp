#pragma once
#include <functional>
#include <vector>

#include "tsdiag/table.hpp"

namespace tsdiag::claim {

struct Best {
    std::vector<double> x;
    double value = 0;
    Index steps = 0;  ///< number of evaluations
};

/// The larger value first; ties by the points' order.
inline bool better(const Best& a, const Best& b) {
    return a.value != b.value ? a.value > b.value : a.x < b.x;
}

/// Climbs from `start` by the simplex method of Nelder and Mead with the coefficients of Gao and
/// Han (2012), which depend on the dimension; restarted around the best point until the
/// evaluations are used or a restart gains nothing.  `f` may be -infinity where it is undefined.
/// Deterministic.
Best climb(const std::function<double(const std::vector<double>&)>& f, std::vector<double> start,
           Index evaluations);

}  // namespace tsdiag::claim
