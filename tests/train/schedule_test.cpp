#include <gtest/gtest.h>

#include <cmath>

#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::test {
namespace {

TEST(Schedule, WarmsUpLinearly) {
    for (const auto kind :
         {Schedule::Kind::constant, Schedule::Kind::cosine, Schedule::Kind::linear,
          Schedule::Kind::inverse_sqrt, Schedule::Kind::multistep}) {
        const Schedule s{.kind = kind, .rate = 2, .warmup = 10};
        EXPECT_TRUE(close(s.at(1, 100), 0.2, rounding(4))) << name(kind);
        EXPECT_TRUE(close(s.at(5, 100), 1, rounding(4))) << name(kind);
        EXPECT_TRUE(close(s.at(10, 100), 2, rounding(4))) << name(kind);
        EXPECT_EQ(schedule_named(std::string(name(kind))), kind);
    }
}

TEST(Schedule, CosineFallsToItsFloor) {
    const Schedule s{.rate = 3, .warmup = 20, .floor = 0.1};
    EXPECT_TRUE(close(s.at(60, 100), 3 * 0.55, rounding(8)));  // half of the way
    EXPECT_TRUE(close(s.at(100, 100), 0.3, rounding(8)));
}

TEST(Schedule, MayBeLongerThanTheRun) {
    for (const auto kind : {Schedule::Kind::cosine, Schedule::Kind::linear}) {
        const Schedule longer{.kind = kind, .rate = 3, .floor = 0.1, .length = 400},
            whole{.kind = kind, .rate = 3, .floor = 0.1};
        for (const Index step : {1, 50, 100}) EXPECT_EQ(longer.at(step, 100), whole.at(step, 400));
        EXPECT_LT(whole.at(100, 100), longer.at(100, 100));
    }
}

TEST(Schedule, LinearFallsToItsFloor) {
    const Schedule s{.kind = Schedule::Kind::linear, .rate = 3, .warmup = 20, .floor = 0.1};
    EXPECT_TRUE(close(s.at(40, 100), 3 * (0.1 + 0.9 * 0.75), rounding(8)));  // a quarter
    EXPECT_TRUE(close(s.at(100, 100), 0.3, rounding(8)));
}

TEST(Schedule, InverseSqrtIsContinuousAtTheEndOfTheWarmUp) {
    const Schedule s{.kind = Schedule::Kind::inverse_sqrt, .rate = 1, .warmup = 25};
    EXPECT_TRUE(close(s.at(25, 1000), 1, rounding(4)));
    EXPECT_TRUE(close(s.at(100, 1000), 0.5, rounding(4)));
    const Schedule cold{.kind = Schedule::Kind::inverse_sqrt, .rate = 1};
    EXPECT_TRUE(close(cold.at(4, 10), 0.5, rounding(4)));
}

TEST(Schedule, MultistepFallsBehindEachMilestone) {
    const Schedule s{
        .kind = Schedule::Kind::multistep, .rate = 1, .milestones = {10, 20}, .factor = 0.5};
    EXPECT_EQ(s.at(10, 30), 1);
    EXPECT_EQ(s.at(11, 30), 0.5);
    EXPECT_EQ(s.at(21, 30), 0.25);
}

TEST(Schedule, RefusesAnUnknownName) { EXPECT_THROW(schedule_named("polynomial"), UsageError); }

}  // namespace
}  // namespace tsdiag::test
