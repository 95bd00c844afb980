#pragma once
#include <omp.h>

#include <chrono>

#include "tsdiag/claim.hpp"

namespace tsdiag::claim {

/// Sequential test: `how.trials` trials at the first look, four times as many at each next one, up
/// to `how.looks` looks or a verdict.  examine(from, to) draws those in between and returns whether
/// all up to `to` decide; each look has its share of the error (`look_confidence`).
template <class Examine>
void look_by_look(const Check& how, const Examine& examine) {
    Index from = 0, to = how.trials;
    for (Index look = 1; !examine(from, to) && look < how.looks; ++look) {
        from = to;
        to *= 4;
    }
}

/// Number of trials at the last look.
inline Index most_trials(const Check& how) {
    Index most = how.trials;
    for (Index look = 1; look < how.looks; ++look) most *= 4;
    return most;
}

/// Estimated seconds of `count` calls of `body` on all threads, from the shortest of three.
template <class Body>
double rehearsed(double count, const Body& body) {
    using Clock = std::chrono::steady_clock;
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
        const Clock::time_point start = Clock::now();
        body();
        least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
        if (least > 0.1) break;
    }
    return count * least / double(omp_get_max_threads());
}

}  // namespace tsdiag::claim
