#include "sieve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tsdiag/parallel.hpp"

namespace tsdiag {
namespace {

/// Reflection coefficients up to `order` of centred y, and the log of the remaining share of the
/// variance after each.
struct Burg {
    std::vector<double> reflections, log_rest = {0};

    Burg(std::span<const double> y, std::size_t order) {
        double mean = 0;
        for (const double v : y) mean += v / double(y.size());
        std::vector<double> forward(y.begin(), y.end());
        for (double& v : forward) v -= mean;
        std::vector<double> backward = forward;
        for (std::size_t p = 1; p <= order; ++p) {
            double both = 0, squares = 0;
            for (std::size_t t = p; t < y.size(); ++t) {
                both += forward[t] * backward[t - 1];
                squares += forward[t] * forward[t] + backward[t - 1] * backward[t - 1];
            }
            const double k = squares > 0 ? 2 * both / squares : 0;
            for (std::size_t t = y.size() - 1; t >= p; --t) {
                const double old = forward[t];
                forward[t] -= k * backward[t - 1];
                backward[t] = backward[t - 1] - k * old;
            }
            reflections.push_back(k);
            log_rest.push_back(log_rest.back() + std::log1p(-std::min(k * k, 1.0)));
        }
    }
};

/// artanh, with the argument kept 1 / T away from the unit root.
double artanh(double reflection, double length) {
    const double most = 1 - 1 / length;
    return std::atanh(std::clamp(reflection, -most, most));
}

}  // namespace

void Autoregression::draw(std::span<double> out, const Rng& rng) const {
    rng.fill_normal(out, 0, 1);
    // Durbin-Levinson: best predictor from t < order previous numbers, then from `order`.
    std::vector<double> weights, before;
    double deviation = 1;
    for (std::size_t t = 0; t < out.size(); ++t) {
        if (t > 0 && t <= reflections.size()) {
            const double k = reflections[t - 1];
            before = weights;
            weights.push_back(k);
            for (std::size_t i = 0; i < before.size(); ++i)
                weights[i] = before[i] - k * before[before.size() - 1 - i];
            deviation *= std::sqrt(1 - k * k);
        }
        double mean = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) mean += weights[i] * out[t - 1 - i];
        out[t] = mean + deviation * out[t];
    }
}

Autoregression fit_autoregression(std::span<const double> y) {
    const double count = double(y.size());
    const auto most = std::size_t(std::min(10 * std::log10(count), count / 10));
    Burg burg(y, most);
    std::size_t order = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p <= most; ++p) {
        const double criterion =
            count * burg.log_rest[p] + 2 * double(p + 1) * count / (count - double(p) - 2);
        if (criterion < least) least = criterion, order = p;
    }
    burg.reflections.resize(order);
    return {std::move(burg.reflections)};
}

std::vector<Autoregression> redrawn(const Autoregression& fit, Index length, Index count,
                                    const Rng& rng) {
    const std::size_t order = fit.reflections.size();
    std::vector<Autoregression> all(std::size_t(count), fit);
    if (order == 0) return all;
    in_parallel(count, [&](Index r) {
        auto y = std::vector<double>(std::size_t(length));
        fit.draw(y, rng.fork(std::uint64_t(r)));
        all[std::size_t(r)].reflections = Burg(y, order).reflections;
    });
    for (std::size_t i = 0; i < order; ++i) {
        double mean = 0;
        for (const Autoregression& one : all)
            mean += artanh(one.reflections[i], double(length)) / double(count);
        const double found = artanh(fit.reflections[i], double(length)), right = 2 * found - mean;
        for (Autoregression& one : all) {
            double& k = one.reflections[i];
            k = std::tanh(right + artanh(k, double(length)) - mean);
            const double most = 1 - 1 / double(length);
            k = std::clamp(k, -most, most);
        }
    }
    return all;
}

}  // namespace tsdiag
