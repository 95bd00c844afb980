#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tsdiag/random.hpp"
#include "tsdiag/table.hpp"

/// Dispersion of a series logged in training, with its interval.
///
///     Dispersion found = dispersion(gradient_norms);
///     found.rsd.value, found.rsd.low, found.rsd.high
namespace tsdiag {

struct DispersionOptions {
    double confidence = 0.95;
    Index resamples = 2000;
    std::uint64_t seed = 0;
};

/// Summary of a series g_1 .. g_T.
struct Dispersion {
    Index count = 0, order = 0;  ///< order: of the autoregression that its interval rests on
    double mean = 0;
    double mean_error = 0;      ///< standard error of the mean, allowing for autocorrelation
    double standard_error = 0;  ///< of `rsd`; 0 where there is no interval
    Value rsd;  ///< std(g) / mean(g), with its interval; undefined: T < 2, mean <= 0
};

/// Relative standard deviation std(g) / mean(g), std with T - 1.  [DEVIL] Table 2, metric
/// `grad_rsd`
///
/// Its interval is that of log(rsd), studentised.  To first order log(rsd) is the mean of the
/// influence values
///
///     psi_t = ((g_t - m)^2 / s^2 - 1) / 2 - (g_t - m) / m
///
/// and its standard error is the root of their long-run variance over T, the mean square of their
/// projections on 8 cosines [MUELLER].  Its critical values are those of series drawn from a
/// Gaussian autoregression of log(g) (of g, where not all of it is positive) by a seeded generator:
/// the order by AICc, the coefficients bias-corrected and redrawn for each series, so that
/// uncertainty about the dependence widens the interval.  There is no interval below 20 numbers or
/// for a constant series, nor where it does not contain `rsd` (a scale that jumps); the note says
/// so.  The series is assumed stationary: a trend counts as variation and as dependence. Cost:
/// O(resamples T (order + 8)) time, O(T) memory a thread; 2000 resamples of 200 numbers take 0.02 s
/// of processor time, of 20 000 numbers a second.  Throws `NonFiniteError` for NaN and infinity,
/// `UsageError` for options out of range.
Dispersion dispersion(std::span<const double> g, const DispersionOptions& options = {});

/// rsd(a) / rsd(b) with the interval of the same method, the two series drawn independently.
/// Undefined where one has no interval, or rsd 0.
Value dispersion_ratio(std::span<const double> a, std::span<const double> b,
                       const DispersionOptions& options = {});

/// Last half of the series against the first: (mean difference) / (its standard error).  Beyond 3
/// the mean moves more than a stationary series of this dependence would.  nullopt below 20 numbers
/// or without variation.
std::optional<double> drift(std::span<const double> g);

}  // namespace tsdiag
