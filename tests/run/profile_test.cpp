#include "tsdiag/profile.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace tsdiag {
namespace {

/// Keeps this thread busy for so many processor seconds.
void work(double seconds) {
    const auto now = [] {
        timespec t{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
    };
    const double start = now();
    while (now() < start + seconds) {
    }
}

TEST(Profile, ChargesWhatCameBeforeAMark) {
    Profile profile;
    work(0.02);
    profile.mark(Cost::forward, "attn", 0);
    profile.mark(Cost::metric, "delta", 0);
    work(0.01);
    profile.mark(Cost::metric, "lambda2_abs", 0);
    work(0.03);
    profile.mark(Cost::forward, "attn", 1);
    work(0.02);
    profile.mark(Cost::metric, "lambda2_abs", 1);

    const std::vector<Profile::Total> all = profile.totals();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0].name, "attn");
    EXPECT_EQ(all[1].name, "lambda2_abs");  // the most expensive of its kind first
    EXPECT_EQ(all[2].name, "delta");
    constexpr double slack = 0.008;
    EXPECT_NEAR(all[0].processor, 0.05, slack);
    EXPECT_NEAR(all[1].processor, 0.03, slack);
    EXPECT_LT(all[2].processor, slack);
    EXPECT_EQ(profile.forward(), all[0].processor);
    for (const Profile::Total& t : all) EXPECT_GE(t.seconds, 0);
}

TEST(Profile, WritesATraceWithoutGapsOrOverlaps) {
    Profile profile;
    for (Index layer = 0; layer < 2; ++layer) {
        profile.mark(Cost::forward, "attn", layer);
        profile.mark(Cost::metric, "delta", layer);
        profile.mark(Cost::metric, "delta", layer);  // of another head: the same span
    }
    profile.mark(Cost::phase, "report");
    const Json trace = profile.trace();
    double end = 0;
    std::vector<std::string> names;
    for (const Json& event : trace["traceEvents"].array()) {
        if (event["ph"].string() == "M") continue;
        EXPECT_EQ(event["ph"].string(), "X");
        EXPECT_NEAR(event["ts"].number(), end, 1e-6);
        end = event["ts"].number() + event["dur"].number();
        names.push_back(event["name"].string());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"attn", "delta", "attn", "delta", "report"}));
}

}  // namespace
}  // namespace tsdiag
