#include "tsdiag/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <tuple>

#include "sieve.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/parallel.hpp"

namespace tsdiag {
namespace {

constexpr Index least_count = 20;

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

/// Differences below rounding count as zero.
bool is_constant(const MeanAndVariance& s) {
    return std::sqrt(s.variance) <= 4 * std::numeric_limits<double>::epsilon() * std::abs(s.mean);
}

/// log of std / mean, std with T - 1.
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

/// x divided by a power of two, so that its largest number is near 1 and squares do not overflow.
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

/// The standard error of a mean of T dependent numbers, by a series estimator of their long-run
/// variance: the mean square of 8 projections on cosines, which are orthogonal to constants and
/// nearly independent under serial dependence.  About Student's t with 8 degrees of freedom.  There
/// are T - 1 such cosines: below 9 numbers it is their deviation over sqrt(T).
class ErrorOfMean {
  public:
    explicit ErrorOfMean(std::size_t count)
        : count_(count), used_(std::min(waves, count - 1)), weights_(waves * count) {
        const double step = std::numbers::pi / double(count), size = std::sqrt(2 / double(count));
        for (std::size_t t = 0; t < count; ++t)
            for (std::size_t j = 0; j < used_; ++j)
                weights_[t * waves + j] = size * std::cos(step * double(j + 1) * (double(t) + 0.5));
    }
    double operator()(std::span<const double> x) const {
        std::array<double, waves> sums{};
        for (std::size_t t = 0; t < count_; ++t)
            for (std::size_t j = 0; j < waves; ++j) sums[j] += weights_[t * waves + j] * x[t];
        double squares = 0;
        for (const double sum : sums) squares += sum * sum;
        return std::sqrt(squares / double(used_ * count_));
    }

  private:
    static constexpr std::size_t waves = 8;
    std::size_t count_, used_;
    std::vector<double> weights_;
};

struct LogRsd {
    double value = 0, error = 0;
};

/// log(rsd) of a series and its standard error; nullopt where it has none.
std::optional<LogRsd> estimate(std::span<const double> x, const ErrorOfMean& error_of_mean,
                               std::vector<double>& psi) {
    const MeanAndVariance s = spread_of(x);
    if (!(s.variance > 0) || !(s.mean > 0)) return std::nullopt;
    influence(x, s, psi);
    const LogRsd found{log_rsd(s, x.size()), error_of_mean(psi)};
    if (!std::isfinite(found.value) || !(found.error > 0)) return std::nullopt;
    return found;
}

/// Simulates series like a given one: a Gaussian autoregression of its logarithm, or of itself
/// where not all of it is positive.
class Sieve {
  public:
    Sieve(std::span<const double> x, const Rng& rng)
        : count_(x.size()), error_of_mean_(x.size()), rng_(rng.fork("series")) {
        positive_ = std::ranges::all_of(x, [](double v) { return v > 0; });
        std::vector<double> y(x.begin(), x.end());
        if (positive_)
            for (double& v : y) v = std::log(v);
        const MeanAndVariance s = spread_of(y);
        mean_ = s.mean, deviation_ = std::sqrt(s.variance);
        const Autoregression fit = fit_autoregression(y);
        order = std::ssize(fit.reflections);
        models_ = redrawn(fit, Index(count_), 256, rng.fork("models"));
        std::vector<double> psi;
        found = estimate(x, error_of_mean_, psi);
    }

    /// log(rsd) of simulated series r less that of the model, with its standard error.
    std::optional<LogRsd> deviation(Index r) const {
        std::vector<double> x(count_), psi;
        const std::size_t model = std::size_t(r) % models_.size();
        models_[model].draw(x, rng_.fork(std::uint64_t(r)));
        // exp(y - max y) has the rsd of exp(y) and does not overflow
        const double top = positive_ ? std::ranges::max(x) : 0;
        for (double& v : x)
            v = positive_ ? std::exp(deviation_ * (v - top)) : mean_ + deviation_ * v;
        std::optional<LogRsd> drawn = estimate(x, error_of_mean_, psi);
        if (drawn) drawn->value -= law();
        return drawn;
    }

    std::optional<LogRsd> found;
    Index order = 0;

  private:
    /// log(rsd) of the model: of exp(N(m, v)) it is log(exp(v) - 1) / 2.
    double law() const {
        const double v = deviation_ * deviation_;
        return positive_ ? (v + std::log(-std::expm1(-v))) / 2 : std::log(deviation_ / mean_);
    }

    std::size_t count_;
    ErrorOfMean error_of_mean_;
    Rng rng_;
    std::vector<Autoregression> models_;
    double mean_ = 0, deviation_ = 0;
    bool positive_ = false;
};

/// Studentised deviations of simulated series; those without an error are dropped.
std::vector<double> studentised_draws(
    Index resamples, const std::function<std::optional<LogRsd>(Index)>& deviation) {
    auto all = std::vector<std::optional<double>>(std::size_t(resamples));
    in_parallel(resamples, [&](Index r) {
        if (const std::optional<LogRsd> drawn = deviation(r))
            all[std::size_t(r)] = drawn->value / drawn->error;
    });
    std::vector<double> out;
    for (const std::optional<double>& t : all)
        if (t) out.push_back(*t);
    return out;
}

/// The interval around `found` from studentised deviations; nullopt where there are too few.
std::optional<std::pair<double, double>> studentised(std::vector<double> deviations,
                                                     const LogRsd& found, double confidence) {
    if (deviations.size() < 100) return std::nullopt;
    std::ranges::sort(deviations);
    const auto quantile = [&](double q) {
        // the k-th order statistic of B is the quantile k / (B + 1)
        const double last = double(deviations.size() - 1);
        const double place = std::clamp(q * (last + 2) - 1, 0.0, last);
        const auto below = std::size_t(place);
        return std::lerp(deviations[below], deviations[std::min(below + 1, deviations.size() - 1)],
                         place - double(below));
    };
    const double tail = (1 - confidence) / 2;
    const double low = std::exp(found.value - quantile(1 - tail) * found.error);
    const double high = std::exp(found.value - quantile(tail) * found.error);
    if (!std::isfinite(low) || !std::isfinite(high)) return std::nullopt;
    return std::pair(low, high);
}

/// Why an interval without its value is none: it is that of the law of the fitted model, which a
/// series as long as this one does not show, as where it jumps from one scale to another.
constexpr const char* unlike_its_model =
    "no interval: the numbers are unlike a series that varies about one level (does the scale "
    "jump?)";

bool contains(const std::pair<double, double>& interval, double value) {
    return interval.first <= value && value <= interval.second;
}

void check_options(std::span<const double> g, const DispersionOptions& options) {
    if (!(options.confidence > 0 && options.confidence < 1))
        throw UsageError(
            fmt::format("dispersion: confidence {} is not in (0, 1).", options.confidence));
    if (options.resamples < 100)
        throw UsageError(
            fmt::format("dispersion: {} resamples, expected at least 100.", options.resamples));
    for (std::size_t i = 0; i < g.size(); ++i)
        if (!std::isfinite(g[i]))
            throw NonFiniteError(
                fmt::format("dispersion: number {} of the series is {}.", i, g[i]));
}

Rng generator(const DispersionOptions& options, std::string_view part) {
    return Rng(options.seed).fork("dispersion").fork(part);
}

}  // namespace

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
    if (is_constant(s)) {
        out.rsd = Value(0.0);
        out.rsd.note = "a constant series has no interval";
        return out;
    }
    const double rsd = std::exp(log_rsd(s, g.size()));
    out.rsd = Value(rsd);
    out.mean_error = std::ldexp(ErrorOfMean(g.size())(g), scaled.exponent);
    if (out.count < least_count) {
        out.rsd.note = fmt::format("{} numbers are too few for an interval", out.count);
        return out;
    }
    const Sieve sieve(g, generator(options, "one"));
    out.order = sieve.order;
    const auto interval =
        sieve.found ? studentised(studentised_draws(options.resamples,
                                                    [&](Index r) { return sieve.deviation(r); }),
                                  *sieve.found, options.confidence)
                    : std::nullopt;
    if (!interval) {
        out.rsd.note = "too few resamples vary: no interval";
        return out;
    }
    if (!contains(*interval, rsd)) {
        out.rsd.note = unlike_its_model;
        return out;
    }
    out.standard_error = rsd * sieve.found->error;
    std::tie(out.rsd.low, out.rsd.high) = *interval;
    return out;
}

Value dispersion_ratio(std::span<const double> a, std::span<const double> b,
                       const DispersionOptions& options) {
    for (const std::span<const double> x : {a, b})
        if (const Dispersion one = dispersion(x, options); !one.rsd.low)
            return undefined("one of the series has no interval");
    const Scaled one(a), other(b);
    const Sieve over(one.values, generator(options, "over")),
        under(other.values, generator(options, "under"));
    const auto less = [](const LogRsd& x, const LogRsd& y) {
        return LogRsd{x.value - y.value, std::hypot(x.error, y.error)};
    };
    const LogRsd found = less(*over.found, *under.found);
    Value out(std::exp(found.value));
    const auto interval = studentised(
        studentised_draws(options.resamples,
                          [&](Index r) -> std::optional<LogRsd> {
                              const auto x = over.deviation(r), y = under.deviation(r);
                              return x && y ? std::optional(less(*x, *y)) : std::nullopt;
                          }),
        found, options.confidence);
    if (!interval) return undefined("too few resamples vary");
    if (!contains(*interval, *out.value)) return undefined(unlike_its_model);
    std::tie(out.low, out.high) = *interval;
    return out;
}

std::optional<double> drift(std::span<const double> given) {
    const Scaled scaled(given);
    const std::span<const double> g = scaled.values;
    const std::size_t half = g.size() / 2;
    if (std::ssize(g) < least_count || is_constant(spread_of(g))) return std::nullopt;
    const std::span<const double> first = g.first(half), last = g.last(half);
    const double both =
        std::hypot(ErrorOfMean(first.size())(first), ErrorOfMean(last.size())(last));
    if (!(both > 0)) return std::nullopt;
    return (spread_of(last).mean - spread_of(first).mean) / both;
}

}  // namespace tsdiag
