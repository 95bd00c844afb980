#include "tsdiag/assertion.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

/// t_sim at `out`: 0.1, 0.5, 0.3; delta of two heads, whose means have rows in layer 0 only.
MeasuredResult measured_result(const std::string& name, double shift = 0) {
    std::vector<MetricRow> rows;
    const auto add = [&](Index layer, const char* stage, Index head, const char* metric,
                         std::optional<double> value) {
        rows.push_back({.model = "m",
                        .at = {.layer = layer, .stage = stage, .head = head},
                        .metric = metric,
                        .value = value,
                        .count = 1});
    };
    for (const Index layer : {0, 1, 2})
        add(layer, "out", -1, "t_sim", (layer == 1 ? 0.5 : layer == 0 ? 0.1 : 0.3) + shift);
    for (const Index layer : {0, 1})
        for (const Index head : {0, 1}) add(layer, "attn", head, "delta", double(layer + 2 * head));
    add(0, "attn", -1, "delta", 7);
    add(-1, "", -1, "grad_norm", 4);
    add(0, "out", -1, "t_div", 0.5);
    add(1, "out", -1, "t_div", std::nullopt);
    rows.back().note = "the state is 0";
    add(0, "attn", -1, "lambda2_abs", std::nullopt);
    rows.back().low = 0.2, rows.back().high = 0.4;
    return select(name, std::move(rows), {}, {});
}

Judgement judged(const std::string& text) {
    const std::vector<MeasuredResult> results = {measured_result("a"), measured_result("b", 0.25)};
    return judge(parse_assertion(text, 2), std::span(results).first(1)).at(0);
}

TEST(Assertion, NamesANumberByMetricStageLayerAndHead) {
    const std::pair<const char*, double> numbers[] = {
        {"t_sim@out:last", 0.3}, {"t_sim:1", 0.5},        {"t_sim@out:max", 0.5},
        {"t_sim@out:min", 0.1},  {"t_sim@out:mean", 0.3}, {"delta:0", 7},
        {"delta@attn:1", 2},     {"delta:1.1", 3},        {"delta:max.0", 1},
        {"delta:min.max", 2},    {"delta:1.last", 3},     {"grad_norm", 4},
        {"delta:1.mean", 2},
    };
    for (const auto& [name, value] : numbers) {
        const Judgement below = judged(fmt::format("{} < {}", name, value + 0.01)),
                        above = judged(fmt::format("  {}>{} ", name, value + 0.01));
        ASSERT_TRUE(below.value) << below.sentence;
        EXPECT_NEAR(*below.value, value, 1e-12) << name;
        EXPECT_TRUE(below.holds) << below.sentence;
        EXPECT_FALSE(above.holds) << above.sentence;
    }
    EXPECT_TRUE(judged("delta:0 <= 7").holds);
    EXPECT_TRUE(judged("delta:0 >= 7").holds);
    EXPECT_FALSE(judged("delta:0 < 7").holds);
    EXPECT_FALSE(judged("delta:0 > 7").holds);
    EXPECT_EQ(judged("t_sim@out:max < 0.4").sentence,
              "t_sim@out:max < 0.4 fails for a: it is 0.5 (layer 1).");
}

TEST(Assertion, FailsWithItsReasonWhereANumberIsUndefinedOrMissing) {
    const std::pair<const char*, const char*> reasons[] = {
        {"t_div@out:1 < 9", "in layer 1: the state is 0"},
        {"t_div@out:max < 9", "in layer 1: the state is 0"},
        {"t_sim@out:3 < 9", "it was not measured in layer 3, but in 0 to 2"},
        {"delta:last < 9", "it was not measured in layer 2, but in 0 to 1"},
        {"t_sim@attn:0 < 9", "it was not measured at stage 'attn', but at out"},
        {"omega:0 < 9", "it was not measured"},
    };
    for (const auto& [text, reason] : reasons) {
        const Judgement found = judged(text);
        EXPECT_FALSE(found.holds) << text;
        EXPECT_FALSE(found.value) << text;
        EXPECT_THAT(found.sentence, HasSubstr(reason));
    }
}

TEST(Assertion, NamesALayerWhereTheResultHasSeveral) {
    EXPECT_THROW(judged("t_sim < 9"), UsageError);
}

TEST(Assertion, AnUncertainNumberMustSatisfyItThroughout) {
    EXPECT_TRUE(judged("lambda2_abs:0 < 0.41").holds);
    EXPECT_FALSE(judged("lambda2_abs:0 < 0.3").holds);
    EXPECT_FALSE(judged("lambda2_abs:0 > 0.3").holds);
    EXPECT_THAT(judged("lambda2_abs:0 < 0.3").sentence, HasSubstr("between 0.2 and 0.4"));
}

TEST(Assertion, IsAboutEachResultOneOfThemOrADifference) {
    const std::vector<MeasuredResult> results = {measured_result("a"), measured_result("b", 0.25)};
    const auto holds = [&](const char* text) {
        std::vector<bool> all;
        for (const Judgement& one : judge(parse_assertion(text, 2), results))
            all.push_back(one.holds);
        return all;
    };
    using testing::ElementsAre;
    EXPECT_THAT(holds("t_sim@out:last < 0.4"), ElementsAre(true, false));
    EXPECT_THAT(holds("B: t_sim@out:last < 0.4"), ElementsAre(false));
    EXPECT_THAT(holds("B-A: t_sim@out:max < 0.26"), ElementsAre(true));
    EXPECT_THAT(holds("A-B: t_sim@out:max < -0.26"), ElementsAre(false));
    EXPECT_THAT(judge(parse_assertion("B-A: t_div@out:1 < 1", 2), results).at(0).sentence,
                HasSubstr("B-A: t_div@out:1 < 1 fails for b minus a: b: in layer 1: the state"));
}

TEST(Assertion, ShowsAValueOnItsOwnSideOfTheBound) {
    std::vector<MetricRow> rows = {{.model = "m",
                                    .at = {.layer = 0, .stage = "out"},
                                    .metric = "t_sim",
                                    .value = 0.90000001,
                                    .count = 1}};
    const std::vector<MeasuredResult> results = {select("a", rows, {}, {})};
    EXPECT_THAT(judge(parse_assertion("t_sim:0 < 0.9", 1), results).at(0).sentence,
                HasSubstr("it is 0.90000001 "));
}

TEST(Assertion, RefusesWhatItCannotRead) {
    for (const char* bad : {"",
                            "t_sim",
                            "t_sim@out:last = 0.9",
                            "t_sim@out:last < ",
                            "t_sim@out:last < x",
                            "t_sim@out:last < nan",
                            "t_sim@out:last < inf",
                            "t_sim@out:first < 1",
                            "t_sim@out:-1 < 1",
                            "t_sim@:0 < 1",
                            "tsim@out:last < 1",
                            "C: t_sim:0 < 1",
                            "A-C: t_sim:0 < 1",
                            "AB: t_sim:0 < 1",
                            "A-B-A: t_sim:0 < 1",
                            "t_sim:0. < 1",
                            "t_sim:0.1.2 < 1",
                            "< 1",
                            "t_sim:0 < 1 < 2",
                            "t_sim:99999999999999999999 < 1",
                            "t_sim@outt:last < 1",
                            "t_sim@attn.1:last < 1",
                            "lambda2_abs@out:last < 1",
                            "r_layer@in:0 < 1",
                            "t_sim@out:0.1 < 1",
                            "grad_rsd:0 < 1",
                            "grad_rsd@out < 1"})
        EXPECT_THROW(parse_assertion(bad, 2), UsageError) << bad;
    for (const char* good : {"t_sim@final_norm:last < 1", "lambda2_abs@attn:0.1 < 1",
                             "r_layer@out:0 < 1", "grad_rsd < 1", "grad_norm@ffn:0 < 1"})
        EXPECT_NO_THROW(parse_assertion(good, 2)) << good;
    try {
        parse_assertion("t_simm:0 < 1", 1);
    } catch (const UsageError& e) {
        EXPECT_THAT(e.what(), HasSubstr("did you mean t_sim?"));
    }
}

}  // namespace
}  // namespace tsdiag
