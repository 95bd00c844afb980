#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sample.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// The finding that contains `words`, or an empty one.
Finding saying(const std::vector<Finding>& all, std::string_view words) {
    for (const Finding& f : all)
        if (f.text.find(words) != std::string::npos) return f;
    return {};
}

/// A table of t_sim and t_div at `out`, and at `in` of layer 0.
Table states(const std::vector<double>& t_sim, double input = 0.02) {
    Table t("m");
    t.scalar({.layer = 0, .stage = "in"}, "t_sim", input);
    t.scalar({.layer = 0, .stage = "in"}, "t_div", 1 - input);
    for (std::size_t l = 0; l < t_sim.size(); ++l) {
        t.scalar({.layer = Index(l), .stage = "out"}, "t_sim", t_sim[l]);
        t.scalar({.layer = Index(l), .stage = "out"}, "t_div", 1 - t_sim[l]);
    }
    return t;
}

void add_ratios(Table& t, const std::vector<double>& ratios) {
    for (std::size_t l = 0; l < ratios.size(); ++l)
        t.scalar({.layer = Index(l), .stage = "attn"}, "xi_ratio", ratios[l]);
}

struct Head {
    double lambda2, delta, row_max, local_auc;
};

Table heads(const std::vector<Head>& list) {
    Table t("m");
    for (std::size_t h = 0; h < list.size(); ++h) {
        const Place at{.layer = 2, .stage = "attn", .head = Index(h)};
        t.scalar(at, "lambda2_abs", list[h].lambda2);
        t.scalar(at, "delta", list[h].delta);
        t.scalar(at, "row_max", list[h].row_max);
        t.scalar(at, "local_auc", list[h].local_auc);
    }
    return t;
}

constexpr Head plain{0.5, 0.6, 0.3, 0.6}, flat{0.01, 0.1, 0.05, 0.51}, same{1, 1, 0.99, 0.99},
    sink{0.3, 2.5, 0.8, 0.3}, perfect_sink{0.001, 0.01, 0.99, 0.25}, previous{0, 1, 0.99, 0.98};

TEST(VerdictTest, SaysOfWhichMatrixTheNumbersOfHeadsAre) {
    Table t("m");
    const Place at{.layer = 0, .stage = "attn", .head = 0};
    t.scalar(at, "omega", undefined("P is over channels"));
    EXPECT_EQ(saying(verdict(t, {}), "over tokens").text, "");
    Value found(0.3);
    found.note = "P is over 32 channels; from 8 of 32 rows";
    t.scalar(at, "lambda2_abs", found);
    EXPECT_THAT(saying(verdict(t, {}), "over tokens").text,
                testing::StartsWith("P is over 32 channels of each head and not over tokens"));
}

TEST(VerdictTest, SaysFromWhichLayerOnAFinerTypeIsNeeded) {
    const auto said = [](const std::string& type, const char* run) {
        Table t("m");
        for (const Index layer : {3, 2, 4})
            t.scalar({.layer = layer, .stage = "out"}, "t_div",
                     undefined(std::string(below_rounding) + type));
        t.scalar({.layer = 1, .stage = "out"}, "t_div", 0.5);
        Value zero(0);
        zero.note = std::string(below_rounding) + type;
        t.scalar({.layer = 0, .stage = "out"}, "t_sim", zero);  // a number all the same
        return saying(verdict(t, Json::parse(run, "t")), "left out").text;
    };
    EXPECT_EQ(said("float32", "{}"),
              "From layer 2 on, 3 numbers are below the rounding of float32 "
              "and left out. Use --dtype f64.");
    EXPECT_THAT(said("float64", "{}"), EndsWith("of float64 and left out."));
    EXPECT_THAT(said("8 bits", "{}"), EndsWith("left out. Leave out --fast."));
    EXPECT_THAT(said("8 bits", R"({"model": {"kind": "trace"}})"),
                EndsWith("left out. Save arrays of a finer type."));
}

Finding headline(const Table& table, const char* run = "{}") {
    const std::vector<Finding> all = verdict(table, Json::parse(run, "t"));
    EXPECT_TRUE(!all.empty() && all.front().headline);
    return all.empty() ? Finding{} : all.front();
}

TEST(VerdictTest, TheHeadlineSaysWhereTokensCollapse) {
    const Finding f = headline(states({0.5, 0.93, 0.97, 0.995, 0.999}));
    EXPECT_EQ(f.level, Finding::Level::warning);
    EXPECT_EQ(f.figure, "similarity");
    EXPECT_EQ(
        f.text,
        "Tokens collapse: after layer 3 (of 0 to 4) they are 99 % alike; t_sim goes from 0.0200 to "
        "0.9990.");
    EXPECT_THAT(headline(states({0.995}), R"({"model": {"layers": 7}})").text,
                HasSubstr("after layer 0 (of 0 to 6)"));
}

TEST(VerdictTest, TheHeadlineFollowsTheCourse) {
    const auto verdict_on = [](const std::vector<double>& t_sim, double input = 0.02) {
        const Finding f = headline(states(t_sim, input));
        return std::pair(f.level, f.text);
    };
    using L = Finding::Level;
    EXPECT_EQ(verdict_on({0.2, 0.95}),
              std::pair(L::note, std::string("Tokens become alike: after layer 1 (of 0 to 1) they "
                                             "are 90 % alike; t_sim goes from 0.0200 to "
                                             "0.9500.")));
    EXPECT_EQ(
        verdict_on({0.95, 0.5}),
        std::pair(L::note, std::string("Tokens become alike for a time: after layer 0 (of 0 to "
                                       "1) they are 90 % alike; t_sim goes from 0.0200 to "
                                       "0.5000.")));
    EXPECT_EQ(verdict_on({0.93, 0.95}, 0.92),
              std::pair(L::note, std::string("Tokens are 90 % alike from the start: t_sim is "
                                             "0.9200 in the input and 0.9500 at the end.")));
    EXPECT_EQ(
        verdict_on({0.995, 0.5}),
        std::pair(L::note, std::string("Tokens collapse for a time: after layer 0 (of 0 to 1) "
                                       "they are 99 % alike; t_sim goes from 0.0200 to "
                                       "0.5000.")));
    EXPECT_EQ(verdict_on({0.2, 0.4, 0.3}),
              std::pair(L::good, std::string("Tokens stay distinct: t_sim rises from 0.0200 to "
                                             "0.3000, at most 0.4000 after layer 1 (of 0 to 2).")));
    EXPECT_EQ(verdict_on({0.2, 0.30001, 0.3}).second,  // the same in four digits
              "Tokens stay distinct: t_sim rises from 0.0200 to 0.3000.");
    EXPECT_EQ(verdict_on({0.3, 0.2}, 0.5).second,
              "Tokens stay distinct: t_sim falls from 0.5000 to 0.2000.");
    EXPECT_EQ(verdict_on({0.1}, 0.1).second, "Tokens stay distinct: t_sim stays at 0.1000.");
    EXPECT_EQ(verdict_on({0.9999, 0.995}, 0.995),
              std::pair(L::warning, std::string("Tokens are alike from the start: t_sim is 0.9950 "
                                                "in the input and 0.9950 at the end.")));
}

TEST(VerdictTest, TheHeadlineOfAPartOfTheLayersSaysWhichPart) {
    const auto verdict_on = [](const std::vector<double>& t_sim) {
        Table t("m");
        t.scalar({.layer = 4, .stage = "in"}, "t_sim", 0.3);
        for (std::size_t l = 0; l < t_sim.size(); ++l)
            t.scalar({.layer = 4 + Index(l), .stage = "out"}, "t_sim", t_sim[l]);
        return headline(t, R"({"model": {"layers": 12}})").text;
    };
    EXPECT_EQ(verdict_on({0.5, 0.995}),
              "Tokens collapse: after layer 5 (of 0 to 11) they are 99 % alike; t_sim goes from "
              "0.3000 in the input of layer 4 to 0.9950 after layer 5.");
    EXPECT_EQ(verdict_on({0.4, 0.2}),
              "Tokens stay distinct: t_sim falls from 0.3000 in the input of layer 4 to 0.2000 "
              "after layer 5, at most 0.4000 after layer 4 (of 0 to 11).");
}

TEST(VerdictTest, TheHeadlineSplitsTheRiseByTheOddsIdentity) {
    // Odds from 1/4 to 199; two steps of attention multiply them by 4 and 16: ln 64 / ln 796.
    const auto verdict_on = [](const std::vector<double>& ratios) {
        Table t = states({0.5, 0.995}, 0.2);
        add_ratios(t, ratios);
        return headline(t).text;
    };
    EXPECT_THAT(verdict_on({4, 16}), EndsWith(". Attention causes 62 % of it."));
    EXPECT_THAT(verdict_on({100, 100}),
                EndsWith(". Attention alone would go 1.4 times as far; other steps take the rest "
                         "back."));
    EXPECT_THAT(verdict_on({0.5, 0.9}),
                EndsWith(". Attention works against it, other steps cause it."));
    EXPECT_THAT(verdict_on({4}), Not(HasSubstr("ttention")));  // a layer without its ratio
    Table t = states({0.5, 0.995}, 0.2);
    add_ratios(t, {4, 16});
    EXPECT_THAT(headline(t, R"({"input": {"samples": 2, "trials": 1}})").text,
                EndsWith(". Attention causes about 62 % of it."));

    // The other steps' shares, where all of them are known and make up the rest: ln(796 / 64).
    const auto add = [&](const std::string& stage, double first, double second) {
        t.scalar({.layer = 0, .stage = stage}, "xi_ratio", first);
        t.scalar({.layer = 1, .stage = stage}, "xi_ratio", second);
    };
    add("norm1", 1, 0.5);
    add("ffn", 796.0 / 64, 1);
    EXPECT_THAT(headline(t).text, EndsWith(". Attention causes 62 % of it."));  // the sum is 90 %
    add("norm2", 1, 2);
    EXPECT_THAT(headline(t).text,
                EndsWith(". Attention causes 62 % of it, feed-forward 38 %, norms 0 %."));
}

TEST(VerdictTest, SharesOfTheRiseAreOfTheSumOfAllStepsAndNoSampleMakesAStepGoFurther) {
    // ln 796 again: {4, 210} and 796/840 are 100.8 % and -0.8 % of it.
    const auto verdict_on = [](const std::vector<double>& ratios, double feed_forward,
                               const char* run = "{}") {
        Table t = states({0.5, 0.995}, 0.2);
        add_ratios(t, ratios);
        for (const Index layer : {0, 1})
            t.scalar({.layer = layer, .stage = "ffn"}, "xi_ratio", layer == 0 ? feed_forward : 1.0);
        return headline(t, run).text;
    };
    const char* two = R"({"input": {"samples": 2, "trials": 1}})";
    EXPECT_THAT(verdict_on({4, 210}, 796.0 / 840),
                EndsWith(". Attention causes 101 % of it, feed-forward -1 %."));
    // Means of two samples whose sum, ln 896, is more than was measured: ln 64 and ln 14 of it.
    EXPECT_THAT(verdict_on({4, 16}, 14, two),
                EndsWith(". Attention causes about 61 % of it, feed-forward 39 %."));
    // ln 1e4 and nothing that takes a part of it back: the means do not say where it comes from.
    EXPECT_THAT(verdict_on({100, 100}, 1, two), Not(HasSubstr("ttention")));
}

TEST(VerdictTest, OfAParallelBlockAttentionIsNotNamedAlone) {
    Table t = states({0.5, 0.995}, 0.2);
    for (const Index layer : {0, 1})
        t.scalar({.layer = layer, .stage = "ffn"}, "xi_ratio", std::sqrt(796.0));
    EXPECT_THAT(headline(t).text, EndsWith("to 0.9950."));
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_THAT(saying(all, "would pass").text,
                HasSubstr("At the rate of attention with feed-forward t_sim would pass"));
    EXPECT_THAT(saying(all, "Each").text,
                HasSubstr("Each step of attention with feed-forward multiplies"));
}

TEST(VerdictTest, OneTokenIsNotACollapse) {
    const Finding f = headline(states({1}), R"({"input": {"tokens": 1}})");
    EXPECT_EQ(f.level, Finding::Level::note);
    EXPECT_THAT(f.text, HasSubstr("There is one token"));
}

TEST(VerdictTest, ACollapseHasARemedyUnlessTheModelHasIt) {
    const auto remedy = [](const char* run) {
        return saying(verdict(states({0.995}), Json::parse(run, "t")), "remedy").text;
    };
    EXPECT_THAT(remedy(R"({"model": {"deescalated": "random:a,d=8,deesc=0.5",
                                     "spec": {"blocks": [{"deesc": 0}]}}})"),
                HasSubstr("`tsdiag probe random:a,d=8,deesc=0.5`"));
    EXPECT_THAT(remedy(R"({"model": {"kind": "checkpoint"}})"),
                HasSubstr("`tsdiag figure tse.fig6`"));
    EXPECT_EQ(remedy(R"({"model": {"spec": {"blocks": [{"deesc": 0.5}]}}})"), "");
    EXPECT_EQ(remedy(R"({"model": {"spec": {"blocks": [{"deesc_learned": true}]}}})"), "");
    EXPECT_EQ(saying(verdict(states({0.5}), {}), "remedy").text, "");
}

TEST(VerdictTest, HeadlinesComeFirstThenWhatWarns) {
    const Json run = Json::parse(
        R"({"model": {"trained": true, "warnings": ["the activation is assumed"]},
            "input": {"kind": "ids:random"}})",
        "t");
    Table t = states({0.1});
    t.scalar({.layer = 0}, "r", undefined("Y = 0"));
    const std::vector<Finding> all = verdict(t, run);
    ASSERT_EQ(all.size(), 4u);
    EXPECT_TRUE(all[0].headline);
    EXPECT_EQ(all[1].text, "the activation is assumed.");
    EXPECT_THAT(all[2].text, HasSubstr("not language"));
    EXPECT_EQ(all[3].level, Finding::Level::note);
}

TEST(VerdictTest, PredictsTheDepthOfSaturationByTheOddsIdentity) {
    // n = 64 random rows: odds 1/63; ratio 2: ln(99 * 63)/ln 2 = 12.6
    Table t = states({0.1, 0.2}, 1.0 / 64);
    add_ratios(t, {2, 2});
    EXPECT_EQ(
        saying(verdict(t, {}), "would pass").text,
        "At the rate of attention t_sim would pass 0.99 after 12.6 layers; it does not in the "
        "2 layers measured.");
    t = states({0.1, 0.995}, 1.0 / 64);
    add_ratios(t, {2, 2});
    EXPECT_THAT(saying(verdict(t, {}), "would pass").text, EndsWith("12.6 layers; measured: 2."));
}

TEST(VerdictTest, ARatioBelowOneNeverSaturates) {
    Table t = states({0.1});
    add_ratios(t, {0.8});
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_EQ(saying(all, "never pass").text,
              "At the rate of attention t_sim would never pass 0.99.");
    EXPECT_EQ(saying(all, "The attention step of layer 0 multiplies").level, Finding::Level::good);
    t = states({0.1, 0.1, 0.1, 0.1});
    add_ratios(t, {0.8, 0.8, 0.8, 2});
    EXPECT_EQ(saying(verdict(t, {}), "never pass").text,
              "In the first 3 layers attention multiplies similarity odds by 0.8 on average; at "
              "this rate t_sim would never pass 0.99.");
}

/// The rate of a single layer is told once.
TEST(VerdictTest, OfOneLayerNoNumberIsToldTwice) {
    Table t = states({0.1}, 1.0 / 64);
    add_ratios(t, {2});
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_EQ(saying(all, "would pass").text,
              "At the rate of attention t_sim would pass 0.99 after 12.6 layers.");
    EXPECT_EQ(saying(all, "The attention step").text,
              "The attention step of layer 0 multiplies similarity odds by 2.");
}

/// Factors of 0.5 and 1.6 make 0.8 of two layers: their arithmetic mean, 1.05, would say that
/// tokens become alike where the other sentence says that they never do.
TEST(VerdictTest, TheMeanFactorIsThatOfTheProduct) {
    Table t = states({0.1, 0.1});
    add_ratios(t, {0.5, 1.6});
    const std::vector<Finding> all = verdict(t, {});
    const Finding rate = saying(all, "Each attention step");
    EXPECT_EQ(
        rate.text,
        "Each attention step multiplies similarity odds by 0.8944 on average (0.5 to 1.6). It "
        "makes tokens more alike in 1 of 2 layers.");
    EXPECT_EQ(rate.level, Finding::Level::good);
    EXPECT_EQ(saying(all, "never pass").text,
              "At the rate of attention t_sim would never pass 0.99.");
}

TEST(VerdictTest, APartOfTheLayersPredictsNothingOfTheInput) {
    Table t("m");
    t.scalar({.layer = 4, .stage = "in"}, "t_sim", 0.5);
    t.scalar({.layer = 4, .stage = "in"}, "t_div", 0.5);
    t.scalar({.layer = 4, .stage = "attn"}, "xi_ratio", 2.0);
    EXPECT_EQ(saying(verdict(t, {}), "would pass").text, "");
}

TEST(VerdictTest, ComparesTheAttentionStepWithItsGainAndEstimates) {
    Table t = states({0.1, 0.2});
    add_ratios(t, {1.9, 2.1});
    for (Index l : {0, 1}) {
        t.scalar({.layer = l, .stage = "attn"}, "est2", 0.99);
        t.scalar({.layer = l, .stage = "attn"}, "est1", undefined("omega >= 1"));
    }
    const Json run = Json::parse(R"({"model": {"a2": [1, 1]}})", "t");
    EXPECT_EQ(saying(verdict(t, run), "Each attention step").text,
              "Each attention step multiplies similarity odds by 1.997 on average (1.9 to 2.1). "
              "Predicted: 2 (a2), 1.99 (est2).");
    Table mixed = states({0.1, 0.2});
    add_ratios(mixed, {0.5, 2.5});
    EXPECT_THAT(saying(verdict(mixed, {}), "Each attention step").text,
                EndsWith("It makes tokens more alike in 1 of 2 layers."));
}

TEST(VerdictTest, TellsOnceWhyPreNormLayersLackEstimates) {
    const Table t = test::sample_table({.layers = 2, .heads = 2, .post_norm = false});
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_THAT(saying(all, "no value").text, HasSubstr("est1, est2 need a post-norm layer"));
    EXPECT_THAT(saying(all, "Each attention step").text,
                AllOf(EndsWith(" Predicted: 1.996 (est_mu)."), Not(HasSubstr("need"))));
}

TEST(VerdictTest, HeadsAreCountedGrammatically) {
    const std::vector<Finding> none = verdict(heads({plain, plain}), {});
    EXPECT_EQ(saying(none, "rank one").text,
              "None of the 2 heads is nearly rank one, identity-like or sink-like.");
    EXPECT_EQ(saying(none, "rank one").level, Finding::Level::note);
    const std::vector<Finding> one = verdict(heads({plain, flat}), {});
    EXPECT_EQ(saying(one, "rank one").text, "1 of 2 heads is nearly rank one: 2:1 (layer:head).");
    const std::vector<Finding> only = verdict(heads({same}), {});
    EXPECT_THAT(saying(only, "identity-like").text, HasSubstr("The only head is identity-like: "));
    EXPECT_THAT(saying(only, "rank one").text, HasSubstr("The only head is not nearly rank one"));
    EXPECT_EQ(saying(verdict(heads({flat, flat}), {}), "All 2 heads").level,
              Finding::Level::warning);
    std::vector<Head> most(8, flat);
    EXPECT_EQ(saying(verdict(heads(most), {}), "rank one").text,
              "All 8 heads are nearly rank one.");
    most.push_back(plain);
    EXPECT_EQ(saying(verdict(heads(most), {}), "rank one").text,
              "8 of 9 heads are nearly rank one, all of them in layer 2.");
}

TEST(VerdictTest, EachKindIsCountedAmongTheHeadsThatHaveItsNumbers) {
    Table t = heads({plain, plain});
    const Place third{.layer = 2, .stage = "attn", .head = 2};
    t.scalar(third, "lambda2_abs", 0.5);
    t.scalar(third, "delta", 0.5);
    t.scalar(third, "row_max", undefined("unknown"));
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_EQ(saying(all, "rank one").text, "None of the 3 heads is nearly rank one.");
    EXPECT_EQ(saying(all, "identity").text, "None of the 2 heads is identity-like or sink-like.");
}

TEST(VerdictTest, SinksArePartialOrPerfectButNotPreviousTokenHeads) {
    const std::vector<Finding> all =
        verdict(heads({plain, sink, perfect_sink, previous, same, flat}), {});
    EXPECT_THAT(saying(all, "sink-like").text, HasSubstr("2 of 6 heads are sink-like"));
    EXPECT_THAT(saying(all, "sink-like").text, HasSubstr(": 2:1, 2:2 (layer:head)."));
    EXPECT_THAT(saying(all, "identity-like").text, HasSubstr(": 2:4 (layer:head)."));
    EXPECT_THAT(saying(all, "rank one").text, HasSubstr(": 2:2, 2:5 (layer:head)."));
}

TEST(VerdictTest, HeadsWithoutTheNumbersAreNotJudged) {
    Table t("m");
    t.scalar({.layer = 0, .stage = "attn", .head = 0}, "lambda2_abs", 0.01);
    t.scalar({.layer = 0, .stage = "attn", .head = 0}, "delta", undefined("unknown"));
    EXPECT_EQ(saying(verdict(t, {}), "rank one").text, "");
}

TEST(VerdictTest, UndefinedAndUncertifiedNumbersAreCountedWithTheirReasons) {
    Table t("m");
    for (Index h : {0, 1, 2}) t.scalar({.layer = 0, .head = h}, "omega", undefined("e^T X = 0"));
    t.scalar({.layer = 0}, "r", undefined("Y = 0"));
    t.scalar({.layer = 1}, "lambda2_abs", interval(0.1, 0.2, "not converged"));
    const std::vector<Finding> all = verdict(t, {});
    EXPECT_EQ(
        saying(all, "undefined").text,
        "4 of 5 numbers have no value: omega is undefined (e^T X = 0); r is undefined (Y = 0).");
    Table causal("m");
    causal.scalar({.layer = 0}, "est1", undefined("pre-norm"));
    causal.scalar({.layer = 0}, "est2", undefined("pre-norm"));
    causal.scalar({.layer = 0}, "delta_pi", undefined("pi = e_1 is not positive"));
    EXPECT_EQ(saying(verdict(causal, {}), "no value").text,
              "3 of 3 numbers have no value: est1, est2 need a post-norm layer; delta_pi needs "
              "attention that is not causal.");
    EXPECT_EQ(saying(all, "certified").text,
              "1 number is not certified: metrics.csv has its interval instead of a value.");
}

TEST(VerdictTest, ASecondOpinionOfASpectrumAgreesOrWarns) {
    Table t("m");
    for (Index h : {0, 1, 2}) t.scalar({.layer = 4, .head = h}, "lambda2_check", 1e-9 * double(h));
    const auto opinion = [&](const char* tolerance) {
        const Json run =
            Json::parse(std::string(R"({"settings": {"tolerance": )") + tolerance + "}}", "t");
        return saying(verdict(t, run), "library Spectra");
    };
    EXPECT_EQ(opinion("1e-8").level, Finding::Level::good);
    EXPECT_EQ(opinion("1e-8").text,
              "The library Spectra confirms lambda2_abs of 3 heads: the largest relative "
              "difference is 2e-09, in layer 4, head 2.");
    EXPECT_EQ(opinion("1e-9").level, Finding::Level::warning);
    EXPECT_THAT(opinion("1e-9").text, HasSubstr("does not confirm"));
    EXPECT_EQ(saying(verdict(Table("m"), {}), "library Spectra").text, "");
}

TEST(VerdictTest, RandomIdsInATrainedModelAreNotLanguage) {
    const auto run = [](const char* text) { return Json::parse(text, "t"); };
    const Table t = states({0.1});
    const Json trained = run(R"({"model": {"trained": true}, "input": {"kind": "ids:random"}})");
    const Json drawn = run(R"({"model": {"trained": false}, "input": {"kind": "ids:random"}})");
    EXPECT_EQ(saying(verdict(t, trained), "not language").level, Finding::Level::warning);
    EXPECT_EQ(saying(verdict(t, drawn), "not language").text, "");
}

TEST(VerdictTest, AnEmptyTableOrForeignRunSaysNothing) {
    EXPECT_TRUE(verdict(Table("m"), {}).empty());
    EXPECT_TRUE(verdict(Table("m"), Json::parse(R"({"model": [1], "input": "x"})", "t")).empty());
    Table t = states({0.1});
    add_ratios(t, {2});
    const Json odd =
        Json::parse(R"({"model": {"a2": ["x"], "trained": 3}, "input": {"kind": 1}})", "t");
    const std::string rate = saying(verdict(t, odd), "similarity odds by 2.").text;
    EXPECT_THAT(rate, HasSubstr("The attention step of layer 0"));
    EXPECT_THAT(rate, Not(HasSubstr("a2")));
}

TEST(VerdictTest, SeveralModelsAreNamed) {
    Table a("/models/a"), b("b");
    a.scalar({.layer = 0, .stage = "out"}, "t_sim", 0.5);
    b.scalar({.layer = 0, .stage = "out"}, "t_sim", 0.5);
    a.append(b);
    const std::vector<Finding> all = verdict(a, {});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_THAT(all[0].text, testing::StartsWith("a: Tokens stay"));
    EXPECT_THAT(all[1].text, testing::StartsWith("b: Tokens stay"));
}

Table gradients(const std::vector<double>& by_layer) {
    Table t("m");
    for (std::size_t l = 0; l < by_layer.size(); ++l) {
        t.scalar({.layer = Index(l)}, "grad_norm", by_layer[l]);
        t.scalar({.layer = Index(l), .tensor = "norm1.bias"}, "grad_norm", 7.0);
    }
    return t;
}

TEST(VerdictTest, SaysHowTheGradientChangesOnItsWayBack) {
    const auto found = [](const std::vector<double>& by_layer) {
        return saying(verdict(gradients(by_layer), {}), "radient");
    };
    EXPECT_EQ(found({8, 4, 2, 1}).level, Finding::Level::note);
    EXPECT_EQ(found({8, 4, 2, 1}).text,
              "The gradient reaches all layers: from 1 in layer 3 it grows by a factor of 2 per "
              "layer, to 8 in layer 0.");
    EXPECT_EQ(found({1e4, 1}).level, Finding::Level::warning);
    EXPECT_THAT(found({1e4, 1}).text, HasSubstr("explodes"));
    EXPECT_EQ(found({1e-4, 1}).text,
              "The gradient vanishes: from 1 in layer 1 it shrinks to 0.01 % per layer, to 0.0001 "
              "in layer 0.");
    EXPECT_THAT(found({0, 1}).text, HasSubstr("to 0 in layer 0; nothing learns where it is 0"));
    EXPECT_THAT(found({1}).text, testing::IsEmpty());
    EXPECT_EQ(found({8, 1}).figure, "gradient_norms");
}

}  // namespace
}  // namespace tsdiag
