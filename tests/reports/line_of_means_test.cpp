#include <gtest/gtest.h>

#include "tsdiag/report.hpp"

namespace tsdiag {
namespace {

TEST(LineOfMeans, BandsAreStudentsIntervalsFromThreeNumbersOn) {
    const std::vector<MeanAt> means = {{.x = 0, .mean = 10.0, .error = 1.0, .freedom = 1},
                                       {.x = 1, .mean = 10.0, .error = 1.0, .freedom = 2},
                                       {.x = 2, .mean = 10.0, .error = 1.0, .freedom = 49},
                                       {.x = 3}};
    const Series s = line_of_means("name", means);
    EXPECT_FALSE(s.low[0]);
    // tables of Student's t, two-sided 5 %: 4.303 with 2 degrees of freedom, 2.010 with 49
    EXPECT_NEAR(*s.low[1], 10 - 4.303, 1e-3);
    EXPECT_NEAR(*s.high[1], 10 + 4.303, 1e-3);
    EXPECT_NEAR(*s.high[2], 10 + 2.010, 1e-3);
    EXPECT_FALSE(s.y[3]);
    EXPECT_FALSE(s.high[3]);
}

TEST(LineOfMeans, HasNoBandWhereNoMeanHasOne) {
    const Series s = line_of_means("name", std::vector<MeanAt>{{.mean = 1.0}, {.x = 1}});
    EXPECT_TRUE(s.low.empty());
    EXPECT_TRUE(s.high.empty());
}

TEST(LineOfMeans, StaysPositiveOnALogarithmicAxis) {
    const std::vector<MeanAt> means = {{.x = 0, .mean = 1.0, .error = 1.0, .freedom = 2},
                                       {.x = 1, .mean = -1.0, .error = 1.0, .freedom = 2}};
    const Series s = line_of_means("name", means, true);
    EXPECT_DOUBLE_EQ(*s.low[0], 0.1);
    EXPECT_FALSE(s.y[1]);
}

}  // namespace
}  // namespace tsdiag
