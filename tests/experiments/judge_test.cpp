#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <map>

#include "experiments/support.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/random.hpp"

/// The judgements of comparisons, by simulation where they are random.
namespace tsdiag::experiment_list {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Kind = Comparison::Kind;

Number number(double value, double error, Index count = 20) { return {value, error, count, ""}; }

Number mean_of(const Rng& rng, Index count, double mean) {
    auto drawn = std::vector<double>(std::size_t(count));
    rng.fill_normal(std::span<double>(drawn), mean, 1);
    const Moments m = moments_of(drawn);
    return number(m.mean(), m.standard_error(), count);
}

std::string judged(Comparison c) {
    judge(std::span(&c, 1));
    return c.judgement;
}

std::string judged(double measured, double expected, double error, Kind kind,
                   double resolution = 0) {
    return judged(resolved(compare("x", "e", expected, number(measured, error), kind), resolution));
}

TEST(Judge, OfANumberSaysWhetherItIsToldApart) {
    EXPECT_THAT(judged(2.1, 2, 0.1, Kind::equal),
                StartsWith("no significant difference (1.0 standard errors above"));
    EXPECT_EQ(judged(1.5, 2, 0.1, Kind::equal), "differs (5.0 standard errors below)");
    EXPECT_EQ(judged({}), "") << "nothing is said of nothing";
    EXPECT_EQ(judged(compare("x", "words", std::nullopt, number(2, 0.1))), "");
}

TEST(Judge, TestsABoundOnItsOwnSide) {
    EXPECT_EQ(judged(0.2, 0.5, 0.01, Kind::at_most), "well below 0.5");
    EXPECT_EQ(judged(0.49, 0.5, 0.01, Kind::at_most), "not above 0.5");
    EXPECT_EQ(judged(0.51, 0.5, 0.01, Kind::at_least), "not below 0.5");
    EXPECT_EQ(judged(0.2, 0.5, 0, Kind::at_most), "below 0.5") << "trials agree to rounding";
    EXPECT_THAT(judged(0.8, 0.5, 0.01, Kind::at_most), StartsWith("above the bound"));
    EXPECT_THAT(judged(0.51, 0.5, 0.01, Kind::at_most), StartsWith("not decided"));
    EXPECT_EQ(judged(0.8, 0.5, 0.01, Kind::at_least), "well above 0.5");
    EXPECT_THAT(judged(0.2, 0.5, 0.01, Kind::at_least), StartsWith("below the bound"));
    const auto counted = [](double measured, Kind kind) {
        return judged(counted_up(compare("x", "e", 100, {.value = measured, .count = 1}, kind)));
    };
    EXPECT_EQ(counted(150, Kind::at_least), "above 100");
    EXPECT_EQ(counted(50, Kind::at_most), "below 100");
    EXPECT_EQ(counted(50, Kind::at_least), "below the bound (50 % below)");
    EXPECT_EQ(counted(200, Kind::at_most), "above the bound (50 % above)");
}

TEST(Judge, FindsNoDifferenceBelowTheResolution) {
    EXPECT_EQ(judged(-2.8e-8, 0, 1.5e-9, Kind::equal, 0.001), "agrees (within 0.001)");
    EXPECT_THAT(judged(-2.8e-8, 0, 1.5e-9, Kind::equal), StartsWith("differs"));
    EXPECT_THAT(judged(0.1, 0, 0.01, Kind::equal, 0.001), StartsWith("differs"));
}

TEST(Judge, FindsNumbersComparableWithinTheMarginAlone) {
    EXPECT_EQ(judged(0.02, 0, 0.02, Kind::comparable, 0.1), "comparable (0.02 above, margin 0.1)");
    EXPECT_EQ(judged(-0.3, 0, 0.02, Kind::comparable, 0.1),
              "not comparable (0.3 below, margin 0.1)");
    EXPECT_EQ(judged(0.02, 0, 0.08, Kind::comparable, 0.1),
              "not decided (0.02 above, margin 0.1, standard error 0.08)");
    EXPECT_EQ(judged(0.12, 0, 0.08, Kind::comparable, 0.1),
              "not decided (0.12 above, margin 0.1, standard error 0.08)");
}

/// Two numbers that differ by the margin itself are called comparable, or not, in 2.5 % of pages
/// each; numbers well inside are found.
TEST(Judge, ErrsAtTheMarginInFivePercent) {
    const auto shares = [](double mean) {
        std::map<Comparison::Outcome, double> found;
        constexpr int pages = 4000;
        for (int i = 0; i < pages; ++i) {
            Comparison c =
                resolved(compare("x", "e", 0.0, mean_of(Rng(9).fork(std::uint64_t(i)), 8, mean),
                                 Kind::comparable),
                         2);
            judge(std::span(&c, 1));
            found[c.outcome] += 1.0 / pages;
        }
        return found;
    };
    constexpr double sampling = 0.01;  // four standard errors of 0.025
    auto at_the_margin = shares(2);
    EXPECT_NEAR(at_the_margin[Comparison::Outcome::found], 0.025, sampling);
    EXPECT_NEAR(at_the_margin[Comparison::Outcome::contradicted], 0.025, sampling);
    EXPECT_GE(shares(0)[Comparison::Outcome::found], 0.95);
    EXPECT_GE(shares(5)[Comparison::Outcome::contradicted], 0.95);
}

/// The farthest of ten equal numbers is outside the margin by chance.
TEST(Judge, ContradictsTheFarthestOfSeveralOnlyBeyondTheirChance) {
    Comparison c = resolved(compare("x", "e", 0.0, number(0.16, 0.02), Kind::comparable), 0.1);
    EXPECT_THAT(judged(c), StartsWith("not comparable"));
    c.chosen_from = 10;
    EXPECT_THAT(judged(c), StartsWith("not decided"));
    c.measured = 0.03;
    EXPECT_THAT(judged(c), StartsWith("comparable")) << "then all of them are";
}

/// Three accuracies on eight samples may all be 0.5 and 0.625.
TEST(Judge, CountsSignsWhereAllTrialsHaveOneValue) {
    const auto order = [](Index trials) {
        return judged(
            order_of("accuracy", "a", "b", number(0.625, 0, trials), number(0.5, 0, trials), "e"));
    };
    EXPECT_EQ(order(3),
              "not decided (0.12 above; all trials have the same value, and their sign alone "
              "decides too little)");
    EXPECT_THAT(order(5), StartsWith("not decided"));  // 2 / 2^5 > 0.05
    EXPECT_THAT(order(6), StartsWith("found"));
    Comparison three = order_of("accuracy", "a", "b", number(0.625, 0, 3), number(0.5, 0, 3), "e");
    judge(std::span(&three, 1));
    EXPECT_EQ(three.trials_needed, 6);
    const auto likeness = [](double a, double b, Index trials) {
        return judged(
            alike("accuracy", "a", "b", number(a, 0, trials), number(b, 0, trials), "e", 0.011));
    };
    EXPECT_THAT(likeness(0.5, 0.5, 3), StartsWith("not decided"));
    EXPECT_THAT(likeness(0.625, 0.5, 3), StartsWith("not decided"));
    EXPECT_THAT(likeness(0.5, 0.5, 6), StartsWith("comparable"));
    EXPECT_THAT(likeness(0.625, 0.5, 6), StartsWith("not comparable"));
    EXPECT_THAT(
        judged(resolved(compare("t_sim", "e", 1.0, number(1 - 3e-10, 2e-10, 3), Kind::comparable),
                        0.01)),
        StartsWith("comparable"))
        << "a small scatter is one";
}

TEST(Judge, DecidesWhatIsCountedWithoutTrials) {
    const Number more{3e6, {}, 1, ""}, less{2e6, {}, 1, ""};
    EXPECT_EQ(judged(counted_up(order_of("bytes", "a", "b", more, less, "e"))),
              "found (1e+06 above)");
    EXPECT_THAT(judged(counted_up(order_of("bytes", "a", "b", less, more, "e"))),
                StartsWith("the opposite order is found"));
    EXPECT_THAT(judged(counted_up(order_of("bytes", "a", "b", less, less, "e"))),
                StartsWith("not decided"));
    EXPECT_THAT(judged(counted_up(alike("bytes", "a", "b", more, less, "e", 2e6))),
                StartsWith("comparable"));
    EXPECT_THAT(judged(counted_up(alike("bytes", "a", "b", more, less, "e", 5e5))),
                StartsWith("not comparable"));
}

TEST(Outcome, SaysWhatIsOpenAndWhatWouldDecideIt) {
    std::vector<Comparison> page = {compare("x", "e", 0.0, number(9, 1)),
                                    compare("x", "e", 0.0, number(1, 1)),
                                    compare("x", "words", std::nullopt, number(1, 1)),
                                    compare("x", "e", std::nullopt, number(9, 1), Kind::order),
                                    compare("x", "e", std::nullopt, number(1, 1), Kind::order)};
    judge(page);
    EXPECT_THAT(outcome_of(page),
                StartsWith("Of 4 claims judged: 1 contradicted, 1 found, 1 consistent with the "
                           "trials, 1 not decided. About "));
    // The open order at twenty trials is one standard error off; two of them share 5 %, so that it
    // takes (2.28 / 1)^2 times as many, up to the steps in which they are tried.
    EXPECT_NEAR(double(page.back().trials_needed), 20 * 2.28 * 2.28, 6);
    EXPECT_EQ(outcome_of({}), "No claim is judged here.");
    Comparison two = compare("x", "e", std::nullopt, number(1, 1, 2), Kind::order);
    judge(std::span(&two, 1));
    EXPECT_EQ(
        outcome_of(std::span(&two, 1)),
        "Of 1 claim judged: 1 not decided. 1 of the open ones has fewer trials than the 3 that a "
        "decision takes.");
    page.push_back(two);
    judge(page);
    EXPECT_THAT(outcome_of(page), HasSubstr("2 not decided. 1 of the open ones has fewer trials "
                                            "than the 3 that a decision takes. About "));
}

TEST(Judge, DecidesNothingOfFewerThanThreeTrials) {
    for (const Kind kind :
         {Kind::equal, Kind::at_most, Kind::at_least, Kind::order, Kind::comparable}) {
        const Number two = number(9, 0.001, 2);
        EXPECT_THAT(judged(compare("x", "e", 2.0, two, kind)),
                    StartsWith("too few trials to decide"));
    }
    EXPECT_EQ(judged(compare("x", "e", 2.0, {2.0, {}, 1, ""})), "equal up to rounding");
}

TEST(Judge, UsesTheDegreesOfFreedomThatThereAre) {
    // 2.5 standard errors are beyond the 5 % of 60 trials and within those of 3
    EXPECT_THAT(judged(compare("x", "e", 0.0, number(2.5, 1, 60))), StartsWith("differs"));
    EXPECT_THAT(judged(compare("x", "e", 0.0, number(2.5, 1, 3))),
                StartsWith("no significant difference"));
}

/// Student's 97.5 % with two degrees of freedom is 4.303.
TEST(Judge, SaysFromWhichDistanceOnItTellsApart) {
    const auto of = [](double off) { return judged(compare("x", "e", 0.0, number(off, 1, 3))); };
    EXPECT_EQ(of(2.5),
              "no significant difference (2.5 standard errors above; significant from 4.3, a "
              "difference of 5.7 is seen)");
    EXPECT_THAT(of(4.29), StartsWith("no significant difference"));
    EXPECT_EQ(of(4.31), "differs (4.3 standard errors above)");
    std::vector<Comparison> two(2, compare("x", "e", 0.0, number(4.5, 1, 3)));
    judge(two);  // together, by Holm: 98.75 % of Student's is 6.205
    for (const Comparison& c : two)
        EXPECT_EQ(c.judgement,
                  "no significant difference (4.5 standard errors above; significant from 6.2, a "
                  "difference of 8 is seen)");
}

/// What was said to be seen is found in eight of ten pages.
TEST(Judge, FindsWhatTheTrialsSeeInFourPagesOfFive) {
    Comparison c = compare("x", "e", std::nullopt, number(0, 1, 5), Kind::order);
    judge(std::span(&c, 1));
    ASSERT_TRUE(c.seen);
    const double far = *c.seen / std::sqrt(5.0);  // of numbers of unit deviation
    constexpr int pages = 2000;
    int found = 0;
    for (int i = 0; i < pages; ++i) {
        Comparison drawn = compare("x", "e", std::nullopt,
                                   mean_of(Rng(14).fork(std::uint64_t(i)), 5, far), Kind::order);
        judge(std::span(&drawn, 1));
        found += drawn.outcome == Comparison::Outcome::found ? 1 : 0;
    }
    EXPECT_NEAR(double(found) / pages, 0.8, 4 * std::sqrt(0.16 / pages));
    EXPECT_FALSE(compare("x", "e", 0.0, number(1, 0)).seen);
}

TEST(OrderOf, IsWelchsTestOfTheDifference) {
    const auto order = [](const Number& a, const Number& b) {
        return order_of("rsd", "a", "b", a, b, "a has the greater");
    };
    const Comparison found = order(number(0.5, 0.03, 4), number(0.3, 0.04, 4));
    EXPECT_EQ(found.what, "rsd: a over b");
    EXPECT_DOUBLE_EQ(*found.measured, 0.5 - 0.3);
    EXPECT_DOUBLE_EQ(*found.error, 0.05);
    // (.03^2 + .04^2)^2 / ((.03^4 + .04^4) / 3)
    EXPECT_NEAR(found.freedom, 6.25e-6 / ((0.81e-6 + 2.56e-6) / 3), 1e-9);
    EXPECT_EQ(judged(found), "found (4.0 standard errors above)");
    EXPECT_THAT(judged(order(number(0.3, 0.03, 4), number(0.5, 0.04, 4))),
                StartsWith("the opposite order is found"));
    EXPECT_THAT(judged(order(number(0.35, 0.03, 4), number(0.3, 0.04, 4))),
                StartsWith("not decided"));
    EXPECT_THAT(judged(order(number(0.5, 0.03, 2), number(0.3, 0.04, 2))),
                StartsWith("too few trials"));
    const Comparison unknown = order({.note = "training diverged"}, number(0.5, 0.04));
    EXPECT_FALSE(unknown.measured);
    EXPECT_EQ(unknown.unknown, "training diverged");
}

/// The values of a model in `trials` trials: `level` with a large part of the seed, and one of size
/// `own` of the model.
ByTrial values(Index trials, double level, double own, double phase) {
    ByTrial out;
    for (Index t = 0; t < trials; ++t)
        out[double(t)] =
            level + 10 * std::sin(double(3 * t)) + own * std::sin(double(7 * t) + phase);
    return out;
}

TEST(OrderOf, OfOneSeedHasNoShareInWhatDiffersBetweenSeeds) {
    const ByTrial a = values(6, 0.5, 0.1, 1), b = values(6, 0.3, 0.1, 2);
    const Comparison found = order_of("rsd", "a", "b", a, b, "a has the greater");
    EXPECT_EQ(found.what, "rsd, seed by seed: a over b");
    EXPECT_THAT(judged(found), StartsWith("found"));
    EXPECT_THAT(judged(order_of("rsd", "a", "b", experiment_list::mean_of(a),
                                experiment_list::mean_of(b), "independent")),
                StartsWith("not decided"));
    // A trial that one of them lacks is of neither.
    ByTrial fewer = b;
    fewer.erase(2.0);
    const Comparison five = order_of("rsd", "a", "b", a, fewer, "a has the greater");
    EXPECT_EQ(five.count, 5);
    double sum = 0;
    for (const auto& [trial, value] : fewer) sum += a.at(trial) - value;
    EXPECT_NEAR(*five.measured, sum / 5, 1e-12);
    EXPECT_THAT(order_of("rsd", "a", "b", a, ByTrial(), "none").unknown,
                StartsWith("no trial has values of both"));
}

TEST(AllOrders, AreAsCertainAsTheLeastCertain) {
    const ByTrial a = values(8, 1, 0.1, 1), far = values(8, 0, 0.1, 2),
                  near = values(8, 0.9, 0.1, 3);
    const Comparison all =
        all_orders("loss", {{"a", "far", a, far}, {"a", "near", a, near}}, "a has the greatest");
    EXPECT_EQ(all.what, "loss, seed by seed, least certain of 2 orders, 2 in favour: a over near");
    EXPECT_EQ(all.chosen_from, 2);
    EXPECT_EQ(all.measured, order_of("loss", "a", "near", a, near, "e").measured);
    // One that has no values is least certain of all.
    EXPECT_FALSE(all_orders("loss", {{"a", "far", a, far}, {"a", "none", a, {}}}, "e").measured);
    const Comparison one = all_orders("loss", {{"a", "far", a, far}}, "e", 0.5);
    EXPECT_EQ(one.what, "loss, seed by seed: a over far, less 0.5");
    EXPECT_THAT(judged(one), StartsWith("found"));
}

/// Not that of the least t: trials of equal value, or fewer of them, say less than their t does.
TEST(AllOrders, ChooseByTheirProbabilities) {
    const auto values_of = [](std::initializer_list<double> values) {
        ByTrial out;
        for (const double value : values) out[double(out.size())] = value;
        return out;
    };
    const ByTrial zero = values_of({0, 0, 0, 0});
    const auto judged_of = [&](const std::vector<ByTrial>& apart) {
        std::vector<Order> orders;
        for (std::size_t i = 0; i < apart.size(); ++i)
            orders.emplace_back("a", fmt::format("b{}", i), apart[i], zero);
        return judged(all_orders("x", orders, "e"));
    };
    // four signs have p = 2^-3
    EXPECT_THAT(judged_of({values_of({.25, .25, .25, .25}), values_of({.9, 1, 1.1, 1.2})}),
                StartsWith("not decided"));
    // t = 4.2 of three trials has p = 0.052, t = 4.0 of four 0.028
    EXPECT_THAT(judged_of({values_of({.823, 1.4, 1.977}), values_of({.43, 1.05, 1.42, 1.80})}),
                StartsWith("not decided"));
    EXPECT_THAT(judged_of({values_of({2, 2.1}), values_of({.9, 1, 1.1, 1.2})}),
                StartsWith("too few trials"));
    // what contradicts is not hidden by what is not known
    EXPECT_THAT(judged_of({ByTrial(), values_of({-.9, -1, -1.1, -1.2})}),
                StartsWith("the opposite order is found"));
    EXPECT_THAT(
        judged_of({values_of({-.001, -.001, -.001, -.001}), values_of({-.9, -1, -1.1, -1.2})}),
        StartsWith("the opposite order is found"));
}

/// Intersection-union in favour, Bonferroni against.  Two-sided 5 % of 60 trials is 2.001.
TEST(AllOrders, AreFoundWithoutACorrectionAndContradictedWithOne) {
    const auto of = [](double off, Index chosen) {
        Comparison c = compare("x", "e", std::nullopt, number(off, 1, 60), Comparison::Kind::order);
        c.chosen_from = chosen;
        return judged(c);
    };
    for (const Index chosen : {1, 3, 10}) {
        EXPECT_THAT(of(2.01, chosen), StartsWith("found")) << chosen;
        EXPECT_THAT(of(1.99, chosen),
                    StartsWith("not decided (2.0 standard errors above; significant from 2.0"))
            << chosen;
    }
    EXPECT_THAT(of(-2.01, 1), StartsWith("the opposite order is found"));
    // 5 % / 3 on two sides is 2.463
    EXPECT_THAT(of(-2.45, 3), StartsWith("not decided (2.5 standard errors below; significant from "
                                         "2.5, a difference of 3.3 is seen)"));
    EXPECT_THAT(of(-2.48, 3), StartsWith("the opposite order is found"));
}

/// Models whose means are in this order, the paper's being 0, 1, 2, ...
std::vector<Placed> placed(const std::vector<double>& means) {
    std::vector<Placed> out;
    for (std::size_t i = 0; i < means.size(); ++i)
        out.push_back({values(3, means[i], 0, 0), double(i)});
    return out;
}

TEST(SameOrder, IsFoundOfFiveModelsAndOpenOfFour) {
    const Comparison five = same_order("loss", placed({1, 2, 3, 4, 5}), "e");
    EXPECT_EQ(five.what, "loss: order of 5 models, Kendall's tau with the paper's");
    EXPECT_EQ(five.measured, 1);
    EXPECT_NEAR(five.probability.value_or(0), 2 / 120.0, 1e-15);
    EXPECT_EQ(judged(five), "found (p = 0.017)");
    EXPECT_EQ(judged(same_order("loss", placed({5, 4, 3, 2, 1}), "e")),
              "the opposite order is found (p = 0.017)");
    EXPECT_EQ(judged(same_order("loss", placed({1, 2, 3, 4}), "e")), "not decided (p = 0.083)");
    EXPECT_EQ(judged(same_order("loss", placed({1, 1, 1, 1, 1}), "e")), "not decided (p = 1)");
    Comparison open = same_order("loss", placed({1, 2, 3, 4}), "e");
    judge(std::span(&open, 1));
    EXPECT_EQ(outcome_of(std::span(&open, 1)), "Of 1 claim judged: 1 not decided.")
        << "more trials are no more models";
}

TEST(SameOrder, IsOfTheModelsAndTrialsThatThereAre) {
    std::vector<Placed> models = placed({1, 2, 3, 4, 5});
    models.push_back({{}, -1});
    models.front().here.erase(2.0);
    Comparison two = same_order("loss", models, "e");
    EXPECT_EQ(two.count, 2);
    EXPECT_EQ(two.measured, 1);
    EXPECT_THAT(judged(two), StartsWith("too few trials to decide"));
    judge(std::span(&two, 1));
    EXPECT_THAT(
        outcome_of(std::span(&two, 1)),
        testing::EndsWith("1 of the open ones has fewer trials than the 3 that a decision takes."));
    for (const std::size_t left : {std::size_t(0), std::size_t(1)}) {
        models.resize(left);
        EXPECT_EQ(same_order("loss", models, "e").unknown, "no trial has values of two models");
    }
}

/// Orders that have nothing to do with the paper's, the same in each trial.
TEST(SameOrder, IsFoundByChanceInFivePercentAtMost) {
    constexpr int pages = 4000;
    int decided = 0;
    for (int i = 0; i < pages; ++i) {
        std::vector<double> means(8);
        Rng(15).fork(std::uint64_t(i)).fill_normal(means, 0, 1);
        Comparison c = same_order("loss", placed(means), "e");
        judge(std::span(&c, 1));
        decided += c.outcome == Comparison::Outcome::open ? 0 : 1;
    }
    // of eight models 3.1 % is the level below 5 %; four standard errors
    EXPECT_NEAR(double(decided) / pages, 0.0311, 4 * std::sqrt(0.03 / pages));
}

/// Whether any order is found, in either direction, on a page with the orders of four groups of
/// equal seeds, the first `shift` above the others.
bool anything_found(const Rng& rng, Index seeds, double shift) {
    std::vector<Number> groups;
    for (std::uint64_t g = 0; g < 4; ++g)
        groups.push_back(mean_of(rng.fork(g), seeds, g == 0 ? shift : 0));
    std::vector<Comparison> page;
    for (std::size_t g = 1; g < 4; ++g)
        page.push_back(order_of("x", "a", "b", groups[0], groups[g], "a has the greater"));
    judge(page);
    return std::ranges::any_of(
        page, [](const Comparison& c) { return c.judgement.find("found") != std::string::npos; });
}

double share_found(Index seeds, double shift, int pages) {
    int found = 0;
    for (int i = 0; i < pages; ++i)
        found +=
            anything_found(Rng(5).fork(std::uint64_t(seeds)).fork(std::uint64_t(i)), seeds, shift);
    return double(found) / pages;
}

// 2000 pages: four standard errors of a share of 0.05 are 0.02.  The test that was here before,
// |z| > 2 of each pair, found something in a quarter of such pages.
TEST(Orders, OfEqualGroupsAreFoundOnFivePagesOfAHundredAtMost) {
    for (const Index seeds : {3, 4, 8})
        EXPECT_LE(share_found(seeds, 0, 2000), 0.05 + 0.02) << seeds << " seeds";
    EXPECT_EQ(share_found(2, 0, 200), 0) << "two seeds decide nothing";
}

// The control: a test that never found anything would pass the one above.
TEST(Orders, OfGroupsFarApartAreFound) {
    EXPECT_GE(share_found(4, 6, 200), 0.9);
    EXPECT_GE(share_found(8, 3, 200), 0.9);
}

TEST(Holm, StepsDownAndStopsAtTheFirstThatStands) {
    EXPECT_EQ(holm(std::vector<double>{0.02, 0.01, 0.04}, 0.05),
              (std::vector<bool>{true, true, true}));
    EXPECT_EQ(holm(std::vector<double>{0.03, 0.01, 0.04}, 0.05),
              (std::vector<bool>{false, true, false}));
    EXPECT_TRUE(holm(std::vector<double>{}, 0.05).empty());
}

TEST(StudentTail, IsTheComplementOfTheQuantile) {
    for (const double freedom : {1.0, 2.5, 30.0})
        EXPECT_NEAR(student_tail(student_quantile(0.95, freedom), freedom), 0.025, 1e-12);
    EXPECT_NEAR(student_tail(0, 4), 0.5, 1e-12);
    EXPECT_NEAR(welch_freedom(1, 9, 1, 9), 18, 1e-12);
    EXPECT_NEAR(welch_freedom(1e-200, 9, 1e-200, 9), 18, 1e-12);
}

TEST(Line, DrawsStudentIntervalsFromThreeTrialsOn) {
    const Series s = line("x", {{0, number(1, 0.1, 3)}, {1, number(1, 0.1, 2)}});
    EXPECT_NEAR(*s.high[0], 1 + 4.302653 * 0.1, 1e-6);  // t of two degrees of freedom
    EXPECT_FALSE(s.high[1]);
}

}  // namespace
}  // namespace tsdiag::experiment_list
