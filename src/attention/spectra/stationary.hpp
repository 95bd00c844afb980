#pragma once
#include <cmath>
#include <limits>

/// Power iteration to the stationary vector pi of P: where it is tried, and when it has ended.
namespace tsdiag::stationary {

/// Steps, and the least sum_j min_i P_ij.  At each step that part of a distribution is forgotten
/// (Doeblin), so that two of them come nearer by 1 less it, and a change of pi that is only
/// rounding is its error.
constexpr int most_steps = 120;
constexpr double least_forgotten = 1e-3;
/// The relative error of entries of pi.
constexpr double accuracy = 1e-14;

/// Whether that is reached, from the largest relative change of an entry by the last step and by
/// the one before it: what remains is the change times rate / (1 - rate).
inline bool reached(double change, double before) {
    const double rate = change / before;
    return (std::isfinite(before) && rate < 1 && change * rate / (1 - rate) < accuracy) ||
           change <= 4 * std::numeric_limits<double>::epsilon();
}

}  // namespace tsdiag::stationary
