#pragma once
#include <span>
#include <vector>

#include "tsdiag/random.hpp"
#include "tsdiag/tensor.hpp"

/// Stationary Gaussian autoregressions: fit and simulation.
namespace tsdiag {

/// An autoregression of variance 1, by its reflection coefficients (partial autocorrelations), each
/// inside (-1, 1), which makes it stationary.
struct Autoregression {
    std::vector<double> reflections;

    /// A stationary sample path, from the beginning of `rng`'s stream.  Cost: size * order.
    void draw(std::span<double> out, const Rng& rng) const;
};

/// Burg's fit to centred y, of the order between 0 and min(10 log10 T, T / 10) with the least AICc
/// [Hurvich and Tsai 1989].  Cost: T * that.
Autoregression fit_autoregression(std::span<const double> y);

/// Autoregressions that reflect the uncertainty of the fit: its bias-corrected reflections plus the
/// error of a fit to a simulated series of the same length, both as artanh.  The bias is that of
/// `count` fits [KILIAN].  Cost: count * T * order, in parallel.
std::vector<Autoregression> redrawn(const Autoregression& fit, Index length, Index count,
                                    const Rng& rng);

}  // namespace tsdiag
