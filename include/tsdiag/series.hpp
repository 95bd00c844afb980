#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tsdiag/random.hpp"
#include "tsdiag/table.hpp"

/// How much a series of a training varies, and how far that can be trusted.
///
///     Dispersion found = dispersion(gradient_norms);
///     found.rsd.value, found.rsd.low, found.rsd.high
namespace tsdiag {

struct DispersionOptions {
    double confidence = 0.95;
    Index resamples = 2000;
    std::uint64_t seed = 0;
    Index block = 0;  ///< neighbours that stay together; 0: by `automatic_block`
};

/// A series g_1 .. g_T in a few numbers.
struct Dispersion {
    Index count = 0, block = 0;
    double mean = 0;
    double mean_error = 0;  ///< standard error of the mean, neighbours not taken for independent
    double standard_error = 0;  ///< of `rsd`; 0 where there is no interval
    Value rsd;  ///< std(g) / mean(g), with its interval; undefined: T < 2, mean <= 0
};

/// Relative standard deviation std(g) / mean(g), std with T - 1.  [DEVIL] Table 2, metric
/// `grad_rsd`
///
/// Its interval is that of a studentised circular block bootstrap of log(rsd): blocks of
/// `automatic_block` neighbours, drawn from a seeded generator.  To first order log(rsd) is the
/// mean of the influence values
///
///     psi_t = ((g_t - m)^2 / s^2 - 1) / 2 - (g_t - m) / m
///
/// so its standard error is that of their block means.  Studentised, because in a dependent series
/// the sample's deviation is too small on average, and a percentile interval is too small twice.
/// There is no interval below 20 numbers, for a constant series, or where fewer than 10 blocks fit;
/// the note says so.  The series is taken for stationary: a trend counts as variation.
/// Cost: O(resamples T) time, O(T) memory.  Throws `NonFiniteError` for NaN and infinity,
/// `UsageError` for options out of range.
Dispersion dispersion(std::span<const double> g, const DispersionOptions& options = {});

/// rsd(a) / rsd(b) with the interval of the same bootstrap, the two series resampled independently.
/// Undefined where one has no interval, or rsd 0.
Value dispersion_ratio(std::span<const double> a, std::span<const double> b,
                       const DispersionOptions& options = {});

/// The length of blocks for the circular bootstrap of a mean, from the autocovariances under a
/// flat-top window: Politis and White, "Automatic block-length selection for the dependent
/// bootstrap" (2004), corrected by Patton, Politis and White (2009); at most
/// min(3 sqrt(T), T / 3), at least 1.
Index automatic_block(std::span<const double> x);

/// Numbers in the last half of the series against the first: (mean difference) / (its standard
/// error).  Beyond 3 the mean moves more than a stationary series of this dependence would.
/// Nothing below 20 numbers or without variation.
std::optional<double> drift(std::span<const double> g);

}  // namespace tsdiag
