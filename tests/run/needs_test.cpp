#include "run/needs.hpp"

#include <gtest/gtest.h>

/// The plan of memory.
namespace tsdiag {
namespace {

TEST(BatchPlan, CountsWhatADeviceHoldsOfAllSamplesAtOnce) {
    RunSizes s{.tokens = 512, .width = 768, .samples = 1000};
    // Of a sample beyond the first, by what they leave.
    const auto of_a_sample = [&](const char* metric, bool device) {
        s.metrics = {metric};
        constexpr double memory = 4e9;
        const BatchPlan plan = batch_plan(s, s.samples, memory, device);
        EXPECT_GT(plan.samples, 1);
        EXPECT_LT(plan.samples, s.samples);
        return (memory - plan.memory) / double(plan.samples - 1);
    };
    const double states = 512.0 * 768 * 8, grams = 512.0 * 512 * 8, forms = 2 * 512.0 * 8;
    EXPECT_DOUBLE_EQ(of_a_sample("effective_rank", true),
                     of_a_sample("fro", true) + states + grams + forms);
    EXPECT_DOUBLE_EQ(of_a_sample("effective_rank", false), of_a_sample("fro", false));
}

}  // namespace
}  // namespace tsdiag
