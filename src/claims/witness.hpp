#pragma once
#include <functional>

#include "variables.hpp"

namespace tsdiag::claim {

/// `value` rounded to `digits` significant decimal digits.
double rounded(double value, int digits);

/// Simplifies a witness for checking by hand: scales each variable to entries of at most 1, then
/// replaces entry by entry with the simplest number (0, 1, whole, half, one digit, two ...) for
/// which `strength` stays above `least`.  Returns the point with six digits an entry at most, or
/// nullopt where six digits do not suffice.
std::optional<Variables> plain_witness(const Variables& found,
                                       const std::function<double(const Variables&)>& strength,
                                       double least);

}  // namespace tsdiag::claim
