#pragma once
#include <span>
#include <vector>

#include "tsdiag/random.hpp"
#include "tsdiag/tensor.hpp"

/// Stationary Gaussian autoregressions, fitted to a series and drawn again.
namespace tsdiag {

/// An autoregression of variance 1, by its reflection coefficients (partial autocorrelations), each
/// inside (-1, 1): any such numbers make it stationary.
struct Autoregression {
    std::vector<double> reflections;

    /// A stationary piece of it, from the beginning of `rng`'s stream.  Cost: size * order.
    void draw(std::span<double> out, const Rng& rng) const;
};

/// Burg's fit to y less its mean, of the order between 0 and min(10 log10 T, T / 10) with the least
/// AICc [Hurvich and Tsai 1989].  Cost: T * that.
Autoregression fit_autoregression(std::span<const double> y);

/// Autoregressions as uncertain as the fit: its reflections without their bias, plus the error that
/// a fit to a drawn series of the same length has, both as artanh.  The bias is that of `count`
/// fits [KILIAN].  Cost: count * T * order, side by side.
std::vector<Autoregression> redrawn(const Autoregression& fit, Index length, Index count,
                                    const Rng& rng);

}  // namespace tsdiag
