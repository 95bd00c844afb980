#include "tsdiag/change_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag {
namespace {

constexpr double resolution = 1e-6;    // relative: as in comparisons
constexpr double least_tail = 1e-300;  // its powers stay finite

}  // namespace

std::array<ChangeTest::Bet, 4> ChangeTest::no_bets() {
    constexpr double slow = 0.5, sudden = 0.25;
    return {Bet{true, slow}, Bet{true, sudden}, Bet{false, slow}, Bet{false, sudden}};
}

ChangeTest::ChangeTest(double rate) : rate_(rate), bets_(no_bets()) {
    if (!(rate > 0 && rate < 1))
        throw UsageError(
            fmt::format("rate of false alarms: {} is not between 0 and 1, exclusive.", rate));
}

void ChangeTest::forget() {
    zr_ = rr_ = ww_ = 0;
    residuals_ = 0;
    bets_ = no_bets();
}

std::optional<DriftChange> ChangeTest::add(Index step, double value) {
    if (!begun_) {
        begun_ = true;
        step_ = step;
        value_ = value;
        return std::nullopt;
    }
    if (step <= step_)
        throw UsageError(
            fmt::format("step {} follows step {}, expected ascending steps.", step, step_));
    const double r = std::sqrt(double(step - step_)), z = (value - value_) / r;
    const double floor = resolution * std::max(std::abs(value), std::abs(value_)) / r;
    const Index before = step_;
    step_ = step;
    value_ = value;
    const double drift = rr_ > 0 ? zr_ / rr_ : 0;
    const double w = (z - drift * r) / std::sqrt(rr_ > 0 ? 1 + r * r / rr_ : 1);
    const bool first = rr_ == 0;
    zr_ += z * r;
    rr_ += r * r;
    if (first) return std::nullopt;
    const Index freedom = residuals_++;
    const double deviation = freedom > 0 ? std::sqrt(ww_ / double(freedom)) : 0;
    ww_ += w * w;
    if (freedom == 0 || (std::abs(w) <= floor && deviation <= floor)) return std::nullopt;
    const double tail = student_tail(std::abs(w) / std::max(deviation, floor), double(freedom));

    double evidence = 0;
    for (Bet& bet : bets_) {
        const double p = bet.up == (w > 0) ? tail : 1 - tail;
        const double factor = bet.exponent * std::pow(std::max(p, least_tail), bet.exponent - 1);
        bet.detector = (bet.detector + 1) * factor;
        if (bet.run <= 1) {
            bet.run = 1;
            bet.since = before;
            bet.drift = drift;
        }
        bet.run *= factor;
        evidence += bet.detector / double(bets_.size());
    }
    if (evidence < 1 / rate_) return std::nullopt;
    const Bet& surest = *std::ranges::max_element(bets_, {}, &Bet::detector);
    const DriftChange found{.step = step,
                            .since = surest.since,
                            .up = surest.up,
                            .drift = surest.drift,
                            .evidence = evidence};
    forget();
    return found;
}

}  // namespace tsdiag
