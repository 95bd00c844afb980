#pragma once
#include <cmath>
#include <vector>

#include "tsdiag/random.hpp"
#include "tsdiag/series.hpp"

/// The coverage of the interval of `dispersion`.
namespace tsdiag::test {

/// A stationary AR(1) process x_t of variance 1, as 1 + rsd x_t or as exp(s x_t) with the same rsd.
struct Process {
    double phi = 0, rsd = 0.2;
    bool lognormal = false;
    double trend =
        0;  ///< rise of the mean over the series, in standard deviations; rsd is without it

    std::vector<double> draw(Rng rng, Index count) const {
        const double spread = lognormal ? std::sqrt(std::log1p(rsd * rsd)) : rsd;
        std::vector<double> out;
        double state = rng.normal();
        for (Index t = 0; t < count; ++t) {
            if (t > 0) state = phi * state + std::sqrt(1 - phi * phi) * rng.normal();
            const double x = state + trend * double(t) / double(count);
            out.push_back(lognormal ? std::exp(spread * x) : 1 + spread * x);
        }
        return out;
    }
};

struct Coverage {
    Index known = 0, below = 0, above = 0;  ///< defined intervals; those below and above the truth
    double width = 0;                       ///< mean of log(high / low)

    double share() const { return 1 - double(below + above) / double(known); }
    /// Standard error of the measured share, if its expectation were `share`.
    double error(double share) const { return std::sqrt(share * (1 - share) / double(known)); }
};

inline Coverage coverage(const Process& process, Index count, Index series, Index resamples,
                         std::uint64_t seed = 11) {
    Index known = 0, below = 0, above = 0;
    double width = 0;
#pragma omp parallel for reduction(+ : known, below, above, width)
    for (Index i = 0; i < series; ++i) {
        const auto stream = std::uint64_t(i);
        const Value rsd = dispersion(process.draw(Rng(seed).fork(stream), count),
                                     {.resamples = resamples, .seed = stream})
                              .rsd;
        if (!rsd.low) continue;
        ++known;
        below += *rsd.high < process.rsd;
        above += *rsd.low > process.rsd;
        width += std::log(*rsd.high / *rsd.low);
    }
    return {known, below, above, width / double(known)};
}

}  // namespace tsdiag::test
