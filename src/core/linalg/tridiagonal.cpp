#include "tridiagonal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp.hpp"

namespace tsdiag::tridiagonal {
namespace {

constexpr double tiny = std::numeric_limits<double>::min();

/// The number of eigenvalues above x: positive pivots of T - x.
Index count_above(std::span<const double> diagonal, std::span<const double> off, double x) {
    Index count = 0;
    double pivot = 1;
    for (std::size_t j = 0; j < diagonal.size(); ++j) {
        const double b = j == 0 ? 0 : off[j - 1];
        pivot = diagonal[j] - x - b * (b / pivot);
        if (std::abs(pivot) < tiny) pivot = -tiny;
        count += pivot > 0;
    }
    return count;
}

}  // namespace

double eigenvalue(std::span<const double> diagonal, std::span<const double> off, Index k) {
    double low = 0, high = 0;  // Gershgorin
    for (std::size_t j = 0; j < diagonal.size(); ++j) {
        const double radius =
            (j > 0 ? std::abs(off[j - 1]) : 0) + (j + 1 < diagonal.size() ? std::abs(off[j]) : 0);
        low = j == 0 ? diagonal[j] - radius : std::min(low, diagonal[j] - radius);
        high = j == 0 ? diagonal[j] + radius : std::max(high, diagonal[j] + radius);
    }
    const double scale = std::max(std::abs(low), std::abs(high));
    while (high - low > ulp * std::max({std::abs(low), std::abs(high), ulp * scale})) {
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        (count_above(diagonal, off, middle) > k ? low : high) = middle;
    }
    return low + (high - low) / 2;
}

double last_component(std::span<const double> diagonal, std::span<const double> off, double theta) {
    // Upwards from the last row: stable, since the vector of an extreme eigenvalue grows in this
    // direction.
    double below = 0, here = 1, last = 1, sum = 1;
    for (std::size_t j = diagonal.size() - 1; j > 0; --j) {
        const double coupling = off[j - 1];
        if (coupling == 0) break;
        const double rest = j + 1 < diagonal.size() ? off[j] * below : 0;
        const double above = ((theta - diagonal[j]) * here - rest) / coupling;
        below = here;
        here = above;
        sum += here * here;
        if (sum > 1e200) {
            const double factor = 1e-100;
            below *= factor, here *= factor, last *= factor, sum *= factor * factor;
        }
    }
    return last / std::sqrt(sum);
}

}  // namespace tsdiag::tridiagonal
