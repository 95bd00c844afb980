#pragma once
#include <array>
#include <optional>

#include "tsdiag/table.hpp"

/// A sequential test for a change in how a number moves, while its values appear.
///
///     ChangeTest test(0.01);
///     if (const auto change = test.add(step, value)) ...
namespace tsdiag {

/// An alarm of a `ChangeTest`.
struct DriftChange {
    Index step = 0;       ///< at which it was raised
    Index since = 0;      ///< the last step before the values that speak for a change
    bool up = false;      ///< the number rises more (falls less) than before
    double drift = 0;     ///< per step, estimated from the values up to `since`
    double evidence = 0;  ///< the statistic, at least 1 / rate
};

/// A Shiryaev-Roberts e-detector [E-DETECTORS] on recursive residuals [BDE].
///
/// Null hypothesis: a Brownian motion with drift, seen at the steps s_0 < s_1 < ...; that is
///
///     y_i - y_{i-1} = mu (s_i - s_{i-1}) + sigma sqrt(s_i - s_{i-1}) e_i,   e_i ~ N(0, 1) i.i.d.,
///
/// with unknown mu and sigma.  With z_i = (y_i - y_{i-1}) / r_i and r_i = sqrt(s_i - s_{i-1}), the
/// residual w_i of z_i against the least-squares fit of z = mu r to its predecessors, scaled to
/// variance sigma^2, and
///
///     T_i = w_i / sqrt((w_2^2 + ... + w_{i-1}^2) / (i - 2)),   i >= 3,
///
/// is Student's with i - 2 degrees of freedom, and all T_i are independent.  So p_i = P(T > T_i) is
/// uniform, e p_i^(e - 1) has mean 1, and each of M_i = (M_{i-1} + 1) e p_i^(e - 1), of which the
/// statistic is the mean over both sides and e = 1/4, 1/2, grows by 1 a value on average.
///
/// Guarantee: an alarm is raised, and the test begins anew, where the statistic reaches 1 / rate. M
/// minus the number of values is a martingale, so under the null hypothesis the expected number of
/// alarms among t values is at most rate * t, for every t; of several numbers, at most the sum of
/// their rates, however they depend on each other.
///
/// Differences up to 1e-6 of the value count as none: they are rounding and the error of
/// iterations. The first alarm needs four values.  Cost: O(1) a value.
class ChangeTest {
  public:
    /// Throws `UsageError` for a rate outside (0, 1).
    explicit ChangeTest(double rate);
    /// The next value; steps ascend.  Throws `UsageError` where they do not.
    std::optional<DriftChange> add(Index step, double value);

  private:
    /// Evidence of one side with one exponent, and when it began to count.
    struct Bet {
        bool up;
        double exponent;
        double detector = 0;  ///< M
        double run = 0;       ///< the greatest product that ends here
        Index since = 0;      ///< the step before its first factor
        double drift = 0;     ///< estimated there
    };
    static std::array<Bet, 4> no_bets();
    void forget();

    double rate_;
    bool begun_ = false;
    Index step_ = 0;
    double value_ = 0;
    double zr_ = 0, rr_ = 0;  ///< sums of z r and r^2
    double ww_ = 0;           ///< sum of w^2
    Index residuals_ = 0;
    std::array<Bet, 4> bets_;
};

}  // namespace tsdiag
