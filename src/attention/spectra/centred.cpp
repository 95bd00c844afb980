#include "centred.hpp"

#include <algorithm>
#include <limits>
#include <span>

namespace tsdiag::centred {

Tensor squares(const Tensor& a) { return column_sum(row_sum(map(Unary::square, a))); }

Tensor times(const Tensor& a, const std::vector<double>& factors) {
    return multiply(a, Tensor::from_host(a.backend(), {a.batch(), 1, 1},
                                         std::span<const double>(factors), Type::f64));
}

namespace {

/// `a`, P centred; 0 where only rounding of P is left.
Tensor without_rounding(Tensor a, const Tensor& p) {
    constexpr double ulp = std::numeric_limits<double>::epsilon();
    const std::vector<double> left = squares(a).to_host<double>();
    const std::vector<double> whole = squares(p).to_host<double>();
    std::vector<double> keep;
    for (std::size_t k = 0; k < left.size(); ++k)
        keep.push_back(left[k] > 16 * ulp * ulp * whole[k] ? 1 : 0);
    if (std::ranges::find(keep, 0.0) == keep.end()) return a;
    return times(a, keep);
}

/// P Pi2
Tensor centred_rows(const Tensor& p) {
    return subtract(p, scale(row_sum(p), 1 / double(p.cols())));
}

}  // namespace

Tensor columns(const Tensor& p) {
    const Tensor wide = cast(p, Type::f64);
    return without_rounding(subtract_column_mean(wide), wide);
}

Tensor both(const Tensor& p) {
    const Tensor wide = cast(p, Type::f64);
    return without_rounding(centred_rows(subtract_column_mean(wide)), wide);
}

}  // namespace tsdiag::centred
