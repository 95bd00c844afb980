#include "tsdiag/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr Index least_count = 20, least_blocks = 10;

struct MeanAndVariance {
    double mean = 0, variance = 0;  ///< variance: divided by T
};

MeanAndVariance spread_of(std::span<const double> x) {
    MeanAndVariance out;
    for (const double v : x) out.mean += v;
    out.mean /= double(x.size());
    for (const double v : x) out.variance += (v - out.mean) * (v - out.mean);
    out.variance /= double(x.size());
    return out;
}

double log_rsd(const MeanAndVariance& s, std::size_t count) {
    return std::log(s.variance * double(count) / double(count - 1)) / 2 - std::log(s.mean);
}

void influence(std::span<const double> x, const MeanAndVariance& s, std::vector<double>& psi) {
    psi.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = x[i] - s.mean;
        psi[i] = (d * d / s.variance - 1) / 2 - d / s.mean;
    }
}

/// x over a power of two, so that its largest number is near 1 and no square leaves the range.
struct Scaled {
    std::vector<double> values;
    int exponent = 0;

    explicit Scaled(std::span<const double> x) : values(x.begin(), x.end()) {
        double top = 0;
        for (const double v : x) top = std::max(top, std::abs(v));
        std::frexp(top, &exponent);
        for (double& v : values) v = std::ldexp(v, -exponent);
    }
};

/// The standard error of the mean of x, whose own mean is taken away first, from all circular
/// blocks.
double error_of_mean(std::span<const double> x, Index block) {
    const double mean = spread_of(x).mean;
    const std::size_t n = x.size(), b = std::size_t(block);
    double squares = 0, sum = 0;
    for (std::size_t j = 0; j < b; ++j) sum += x[j] - mean;
    for (std::size_t i = 0; i < n; ++i) {
        squares += sum * sum;
        sum += x[(i + b) % n] - x[i];
    }
    return std::sqrt(squares / double(block)) / double(n);
}

/// log(rsd) of one series: its estimate, standard error, and draws of both under the bootstrap.
class Bootstrap {
  public:
    Bootstrap(std::span<const double> x, Index block) : x_(x), block_(block) {
        const MeanAndVariance s = spread_of(x);
        found.value = log_rsd(s, x.size());
        influence(x, s, psi_);
        found.error = error_of_mean(psi_, block);
    }
    struct Estimate {
        double value = 0, error = 0;
    };
    /// A resample; nothing where it has no variation.
    std::optional<Estimate> draw(Rng& rng) {
        const std::size_t n = x_.size(), b = std::size_t(block_);
        sample_.resize(n);
        for (std::size_t i = 0; i < n; i += b) {
            const std::size_t from = rng.below(n);
            for (std::size_t j = i; j < std::min(n, i + b); ++j)
                sample_[j] = x_[(from + j - i) % n];
        }
        const MeanAndVariance s = spread_of(sample_);
        if (!(s.variance > 0) || !(s.mean > 0)) return std::nullopt;
        influence(sample_, s, psi_);
        double squares = 0;
        for (std::size_t i = 0; i < n; i += b) {
            double sum = 0;
            for (std::size_t j = i; j < std::min(n, i + b); ++j) sum += psi_[j];
            squares += sum * sum;
        }
        return Estimate{log_rsd(s, n), std::sqrt(squares) / double(n)};
    }

    Estimate found;

  private:
    std::span<const double> x_;
    Index block_;
    std::vector<double> sample_, psi_;
};

/// The interval around `found` by studentised deviations; nothing where too few can be drawn.
std::optional<std::pair<double, double>> studentised(std::vector<double> deviations,
                                                     const Bootstrap::Estimate& found,
                                                     double confidence) {
    if (deviations.size() < 100) return std::nullopt;
    std::ranges::sort(deviations);
    const auto quantile = [&](double q) {
        return deviations[std::size_t(std::llround(q * double(deviations.size() - 1)))];
    };
    const double tail = (1 - confidence) / 2;
    const double low = std::exp(found.value - quantile(1 - tail) * found.error);
    const double high = std::exp(found.value - quantile(tail) * found.error);
    if (!std::isfinite(low) || !std::isfinite(high)) return std::nullopt;
    return std::pair(low, high);
}

void check_options(std::span<const double> g, const DispersionOptions& options) {
    if (!(options.confidence > 0 && options.confidence < 1))
        throw UsageError(
            fmt::format("dispersion: confidence {} is not inside (0, 1).", options.confidence));
    if (options.resamples < 100)
        throw UsageError(
            fmt::format("dispersion: {} resamples, expected at least 100.", options.resamples));
    if (options.block < 0)
        throw UsageError(
            fmt::format("dispersion: a block of {}, expected at least 1.", options.block));
    for (std::size_t i = 0; i < g.size(); ++i)
        if (!std::isfinite(g[i]))
            throw NonFiniteError(
                fmt::format("dispersion: number {} of the series is {}.", i, g[i]));
}

Index block_for(std::span<const double> g, Index wanted) {
    if (wanted > 0) return std::min<Index>(wanted, std::ssize(g));
    std::vector<double> psi;
    influence(g, spread_of(g), psi);
    return automatic_block(psi);
}

Rng generator(const DispersionOptions& options, std::string_view part) {
    return Rng(options.seed).fork("dispersion").fork(part);
}

}  // namespace

Index automatic_block(std::span<const double> x) {
    const Index n = std::ssize(x);
    if (n < 4) return 1;
    const double mean = spread_of(x).mean;
    const Index run = std::max<Index>(5, Index(std::ceil(std::sqrt(std::log10(double(n))))));
    const Index longest = std::min(n - 1, Index(std::ceil(std::sqrt(double(n)))) + run);
    std::vector<double> covariance(std::size_t(longest) + 1);
    for (Index k = 0; k <= longest; ++k)
        for (Index t = k; t < n; ++t)
            covariance[std::size_t(k)] +=
                (x[std::size_t(t)] - mean) * (x[std::size_t(t - k)] - mean) / double(n);
    const double variance = covariance[0];
    if (!(variance > 0)) return 1;
    for (double& c : covariance) c /= variance;
    const double limit = 2 * std::sqrt(std::log10(double(n)) / double(n));
    // The last lag before `run` insignificant ones; else the last significant one.
    Index last = 0, quiet = 0;
    for (Index k = 1; k <= longest && quiet < run; ++k) {
        const bool significant = std::abs(covariance[std::size_t(k)]) >= limit;
        quiet = significant ? 0 : quiet + 1;
        if (significant) last = k;
    }
    const Index window = std::min(2 * std::max<Index>(last, 1), longest);
    double level = covariance[0], slope = 0;
    for (Index k = 1; k <= window; ++k) {
        const double share = double(k) / double(window);
        const double weight = share <= 0.5 ? 1 : 2 * (1 - share);
        level += 2 * weight * covariance[std::size_t(k)];
        slope += 2 * weight * double(k) * covariance[std::size_t(k)];
    }
    const double limit_block = std::ceil(std::min(3 * std::sqrt(double(n)), double(n) / 3));
    if (!(level > 0)) return 1;
    const double block = std::cbrt(1.5 * slope * slope / (level * level) * double(n));
    return Index(std::clamp(std::ceil(block), 1.0, limit_block));
}

Dispersion dispersion(std::span<const double> given, const DispersionOptions& options) {
    check_options(given, options);
    const Scaled scaled(given);
    const std::span<const double> g = scaled.values;
    Dispersion out;
    out.count = std::ssize(g);
    if (out.count < 2) {
        out.rsd = undefined("fewer than two numbers");
        return out;
    }
    const MeanAndVariance s = spread_of(g);
    out.mean = std::ldexp(s.mean, scaled.exponent);
    if (!(s.mean > 0)) {
        out.rsd = undefined("the mean is not positive");
        return out;
    }
    // Differences below rounding are none.
    if (std::sqrt(s.variance) <= 4 * std::numeric_limits<double>::epsilon() * s.mean) {
        out.rsd = Value(0.0);
        out.rsd.note = "a constant series has no interval";
        return out;
    }
    const double rsd = std::exp(log_rsd(s, g.size()));
    out.rsd = Value(rsd);
    out.block = block_for(g, options.block);
    out.mean_error = std::ldexp(error_of_mean(g, out.block), scaled.exponent);
    if (out.count < least_count || out.count < least_blocks * out.block) {
        out.rsd.note = out.count < least_count
                           ? fmt::format("{} numbers carry no interval", out.count)
                           : fmt::format("fewer than {} blocks of {} neighbours: no interval",
                                         least_blocks, out.block);
        return out;
    }
    Bootstrap bootstrap(g, out.block);
    Rng rng = generator(options, "one");
    std::vector<double> deviations;
    for (Index r = 0; r < options.resamples; ++r)
        if (const auto drawn = bootstrap.draw(rng); drawn && drawn->error > 0)
            deviations.push_back((drawn->value - bootstrap.found.value) / drawn->error);
    const auto interval = studentised(std::move(deviations), bootstrap.found, options.confidence);
    if (!interval) {
        out.rsd.note = "too few resamples vary: no interval";
        return out;
    }
    out.standard_error = rsd * bootstrap.found.error;
    std::tie(out.rsd.low, out.rsd.high) = *interval;
    return out;
}

Value dispersion_ratio(std::span<const double> a, std::span<const double> b,
                       const DispersionOptions& options) {
    const Dispersion first = dispersion(a, options), second = dispersion(b, options);
    if (!first.rsd.low || !second.rsd.low) return undefined("one of the series has no interval");
    const Scaled one(a), other(b);
    Bootstrap over(one.values, first.block), under(other.values, second.block);
    const Bootstrap::Estimate found{over.found.value - under.found.value,
                                    std::hypot(over.found.error, under.found.error)};
    Rng rng_a = generator(options, "over"), rng_b = generator(options, "under");
    std::vector<double> deviations;
    for (Index r = 0; r < options.resamples; ++r) {
        const auto x = over.draw(rng_a), y = under.draw(rng_b);
        if (!x || !y) continue;
        const double error = std::hypot(x->error, y->error);
        if (error > 0) deviations.push_back((x->value - y->value - found.value) / error);
    }
    Value out(std::exp(found.value));
    const auto interval = studentised(std::move(deviations), found, options.confidence);
    if (!interval) return undefined("too few resamples vary");
    std::tie(out.low, out.high) = *interval;
    return out;
}

std::optional<double> drift(std::span<const double> given) {
    const Scaled scaled(given);
    const std::span<const double> g = scaled.values;
    const std::size_t half = g.size() / 2;
    if (std::ssize(g) < least_count) return std::nullopt;
    const std::span<const double> first = g.first(half), last = g.last(half);
    const auto error = [](std::span<const double> x) {
        return error_of_mean(x, automatic_block(x));
    };
    const double both = std::hypot(error(first), error(last));
    if (!(both > 0)) return std::nullopt;
    return (spread_of(last).mean - spread_of(first).mean) / both;
}

}  // namespace tsdiag
