#pragma once
#include <algorithm>
#include <optional>

namespace tsdiag::cli {

/// The time that some work takes in all, from how much of it is done; told again where it proves
/// wrong, since parts of the work may cost more than those before them.
class TimeEstimate {
  public:
    struct Range {
        double low = 0, high = 0;  ///< seconds of the whole
    };
    /// A guess by the cost of the work, before any of it was measured: true within a factor of two.
    Range guessed(double seconds) {
        told_ = Range{seconds / 2, 2 * seconds};
        return *told_;
    }
    /// Was any range told?
    bool was_told() const { return told_.has_value(); }
    /// What to tell after `seconds`, in which `fraction` was done: the first range of long work, or
    /// another one where the work will not end within the range that was told; nullopt: nothing.
    /// Between what is left at the mean rate and at the rate of late (at least the last half of the
    /// time), with a quarter more and a fifth less.  Told again after a quarter more of the time,
    /// and not near the end.
    std::optional<Range> measured(double seconds, double fraction) {
        constexpr double least_seconds = 3, least_fraction = 0.01, long_work = 60;
        if (seconds < least_seconds || fraction <= least_fraction || fraction >= 1)
            return std::nullopt;
        if (seconds >= 2 * next_.seconds) {
            before_ = next_;
            next_ = {seconds, fraction};
        }
        const double late = fraction - before_.fraction;
        if (!(late > 0)) return std::nullopt;
        const double mean = seconds * (1 - fraction) / fraction,
                     recent = (seconds - before_.seconds) * (1 - fraction) / late;
        const auto [least, most] = std::minmax(mean, recent);
        const Range range{seconds + 0.8 * least, seconds + 1.25 * most};
        const bool holds = told_ ? seconds + least <= told_->high && range.high >= told_->low
                                 : seconds + most <= long_work;
        constexpr double patience = 1.25, near_end = 30;
        if (holds || (at_ > 0 && (seconds < patience * at_ || most < near_end)))
            return std::nullopt;
        at_ = seconds;
        told_ = range;
        return range;
    }

  private:
    struct Mark {
        double seconds = 0, fraction = 0;
    };
    Mark before_, next_;  ///< of which the first is at most at half of the second's time
    std::optional<Range> told_;
    double at_ = 0;  ///< seconds after which it was measured; 0: never
};

}  // namespace tsdiag::cli
