#pragma once
#include <limits>

namespace tsdiag {

/// The spacing of float64 at 1, twice the largest relative error of one rounding.
inline constexpr double ulp = std::numeric_limits<double>::epsilon();

}  // namespace tsdiag
