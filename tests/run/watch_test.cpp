#include "tsdiag/watch.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

/// A result with t_sim and lambda2_abs of two layers.
MeasuredResult result(Index step, double similarity, std::optional<double> second = 0.5) {
    MeasuredResult out{.name = "checkpoint", .step = step, .layers = 2};
    for (Index layer = 0; layer < 2; ++layer) {
        const auto add = [&](const char* metric, const char* stage, std::optional<double> value) {
            out.rows.push_back({.model = "m",
                                .at = {.layer = layer, .stage = stage},
                                .metric = metric,
                                .value = value,
                                .count = 1,
                                .note = value ? "" : "no value"});
        };
        add("t_sim", "out", similarity - 0.1 * double(1 - layer));
        add("lambda2_abs", "attn", second);
    }
    return out;
}

double calm(Index i) { return 0.3 + 0.01 * std::sin(double(i * i)); }

TEST(Alarms, TellAJumpWhereItHappened) {
    std::vector<MeasuredResult> all;
    for (Index i = 0; i < 12; ++i) all.push_back(result(100 * i, calm(i)));
    EXPECT_TRUE(alarms(all, {}).empty());
    all.push_back(result(1200, 0.9));
    const std::vector<Alarm> found = alarms(all, {}, "iteration");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].number, "t_sim@out:last");
    EXPECT_EQ(found[0].step, 1200);
    EXPECT_THAT(found[0].sentence, HasSubstr("it is 0.9 at iteration 1200, above the 0.29"));
    // A function of the results: more of them add alarms, and change none.
    all.push_back(result(1300, 0.9));
    EXPECT_EQ(alarms(all, {}, "iteration"), found);
}

TEST(Alarms, ShareTheRateAmongTheNumbers) {
    // The jump is beyond one number's threshold, not beyond a ten-thousandth of it.
    std::vector<MeasuredResult> all;
    for (Index i = 0; i < 12; ++i) all.push_back(result(100 * i, calm(i)));
    all.push_back(result(1200, 0.5));
    WatchOptions one;
    one.numbers = {parse_number_name("t_sim@out:last", "--numbers")};
    ASSERT_EQ(alarms(all, one).size(), 1U);
    one.rate = 1e-9;
    EXPECT_TRUE(alarms(all, one).empty());
    WatchOptions many;
    many.rate = 1e-5;
    for (int i = 0; i < 10000; ++i)
        many.numbers.push_back(parse_number_name("lambda2_abs:mean", "--numbers"));
    many.numbers[0] = one.numbers[0];
    EXPECT_TRUE(alarms(all, many).empty());
}

TEST(Alarms, PassOverUndefinedNumbersAndAreRaisedWhereAssertionsBecomeFalse) {
    std::vector<MeasuredResult> all;
    for (Index i = 0; i < 8; ++i)
        all.push_back(
            result(i, i == 3 || i > 5 ? 0.95 : 0.5, i % 2 ? std::optional(0.5) : std::nullopt));
    WatchOptions options{.numbers = {parse_number_name("lambda2_abs:mean", "--numbers")},
                         .assertions = {parse_assertion("t_sim@out:last < 0.9", 1)}};
    const std::vector<Alarm> found = alarms(all, options);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].step, 3);
    EXPECT_EQ(found[1].step, 6);
    EXPECT_EQ(found[0].sentence, "t_sim@out:last < 0.9 fails for step 3: it is 0.95 (layer 1).");
}

TEST(Alarms, DefaultNumbersAreThoseThatThereAre) {
    const std::vector<NumberName> found = default_numbers(result(0, 0.5));
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].text, "t_sim@out:last");
    EXPECT_EQ(found[1].text, "lambda2_abs:mean");
    EXPECT_THROW(parse_number_name("t_sim@:0", "--numbers"), UsageError);
}

}  // namespace
}  // namespace tsdiag
