#include "../../src/cli/time_estimate.hpp"

#include <gtest/gtest.h>

namespace tsdiag::cli {
namespace {

/// Tells every second of work of `seconds`, the `slow` last part of which is `times` as slow.
struct Told {
    int count = 0;
    TimeEstimate::Range first, last;
};
Told told_of(double seconds, double slow, double times, TimeEstimate estimate = {}) {
    Told told;
    double fraction = 0;
    const double rate = ((1 - slow) + slow * times) / seconds;  // of the fast part
    for (double t = 1; fraction < 1; ++t) {
        fraction += fraction < 1 - slow ? rate : rate / times;
        const auto range = estimate.measured(t, fraction);
        if (!range) continue;
        if (told.count++ == 0) told.first = *range;
        told.last = *range;
    }
    return told;
}

TEST(TimeEstimate, OfEvenWorkIsToldOnceAndHolds) {
    const Told told = told_of(300, 0, 1);
    EXPECT_EQ(told.count, 1);
    EXPECT_LT(told.first.low, 300);
    EXPECT_GT(told.first.high, 300);
}

TEST(TimeEstimate, OfShortWorkIsNotTold) { EXPECT_EQ(told_of(50, 0, 1).count, 0); }

TEST(TimeEstimate, IsToldAgainWhereThePartsThatFollowCostMore) {
    const Told told = told_of(2500, 0.5, 8);  // the first half takes 278 s
    EXPECT_LT(told.first.high, 2500);
    EXPECT_GT(told.count, 1);
    EXPECT_LE(told.count, 6) << "now and then, not all the time";
    EXPECT_LT(told.last.low, 2500);
    EXPECT_GT(told.last.high, 2500);
}

TEST(TimeEstimate, CorrectsAGuess) {
    TimeEstimate small, large;
    small.guessed(100);
    large.guessed(100000);
    for (const TimeEstimate& guess : {small, large}) {
        const Told told = told_of(1000, 0, 1, guess);
        EXPECT_EQ(told.count, 1);
        EXPECT_LT(told.first.low, 1000);
        EXPECT_GT(told.first.high, 1000);
    }
    TimeEstimate right;
    right.guessed(800);
    EXPECT_EQ(told_of(1000, 0, 1, right).count, 0);
}

}  // namespace
}  // namespace tsdiag::cli
