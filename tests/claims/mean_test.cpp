#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "claims/expectation.hpp"
#include "claims/tse/similarity.hpp"

namespace tsdiag::claim {
namespace {

using enum Relation;
using enum Verdict;

/// E of a number that is uniform from 0 to 1, claimed to be or to be bounded by `claimed`.
Mean of_uniform(Relation relation, double claimed, double within = 0) {
    Mean mean;
    mean.reading = "uniform";
    mean.relation = relation;
    mean.within = within;
    mean.claimed = claimed;
    mean.sample = [](const Rng& rng) { return Rng(rng).uniform(); };
    return mean;
}

Reading examined(const Mean& mean, bool mutated = false) {
    return examine_mean(mean, {.trials = 1000, .claim = "some.claim", .mutated = mutated});
}

/// Of what every claim about this mean is decided by.
Reading interval() { return examined(of_uniform(equal, 0.5)); }

TEST(Means, OfInequalitiesAreDecidedByTheSideOfTheInterval) {
    const Reading i = interval();
    ASSERT_TRUE(i.low && i.high);
    EXPECT_LT(*i.low, 0.5);
    EXPECT_GT(*i.high, 0.5);
    const double low = *i.low, high = *i.high, inside = 0.5 * (low + high);
    for (const double next : {1e-9, 0.2}) {
        EXPECT_EQ(examined(of_uniform(at_most, low - next)).verdict, false_as_stated) << next;
        EXPECT_EQ(examined(of_uniform(at_most, high + next)).verdict, holds) << next;
        EXPECT_EQ(examined(of_uniform(at_least, high + next)).verdict, false_as_stated) << next;
        EXPECT_EQ(examined(of_uniform(at_least, low - next)).verdict, holds) << next;
    }
    for (const double claimed : {low + 1e-9, inside, high - 1e-9})
        for (const Relation relation : {at_most, at_least})
            EXPECT_EQ(examined(of_uniform(relation, claimed)).verdict, not_decided) << claimed;
}

TEST(Means, OfEquationsAreFalseWhereTheIntervalLeavesOutWhatIsMeant) {
    const Reading i = interval();
    const double low = *i.low, high = *i.high;
    // Nothing but the number itself is meant, or what is within a tenth of it.
    for (const double next : {1e-4, 0.02}) {
        for (const double claimed : {low - next, high + next}) {
            EXPECT_EQ(examined(of_uniform(equal, claimed)).verdict, false_as_stated) << claimed;
            EXPECT_EQ(examined(of_uniform(equal, claimed, 0.1)).verdict, not_decided) << claimed;
        }
        EXPECT_EQ(examined(of_uniform(equal, low / 1.1 - next, 0.1)).verdict, false_as_stated);
        EXPECT_EQ(examined(of_uniform(equal, high / 0.9 + next, 0.1)).verdict, false_as_stated);
    }
    EXPECT_EQ(i.verdict, not_decided) << "the interval is wider than half a percent";
    EXPECT_EQ(examined(of_uniform(equal, 0.5, 0.1)).verdict, holds);
}

TEST(Means, ToldTrialsNarrowTheIntervalToWhatDecides) {
    // The width of an interval falls as the root of the trials.
    const auto told = [](const Reading& r, double needed) {
        const double half = (*r.high - *r.low) / 2;
        return fmt::format("about {:.2g} trials would decide it",
                           double(r.trials) * (half / needed) * (half / needed));
    };
    const double value = *interval().measured, away = 0.006;
    const Reading above = examined(of_uniform(at_most, value + away)),
                  below = examined(of_uniform(at_least, value - away)),
                  near = examined(of_uniform(equal, value - 0.001)),
                  wide = examined(of_uniform(equal, value - away, 0.05));
    EXPECT_EQ(above.note, told(above, away));
    EXPECT_EQ(below.note, told(below, away));
    EXPECT_EQ(near.note, told(near, 0.005 * (value - 0.001) - 0.001));
    EXPECT_EQ(wide.note, told(wide, 0.05 * (value - away) - away));
    EXPECT_EQ(examined(of_uniform(at_most, value)).note,
              "no number of trials is likely to decide it");
}

TEST(Means, AreAskedOfAMutantOnePercentAway) {
    EXPECT_DOUBLE_EQ(*examined(of_uniform(at_most, 2), true).bound, 1.98);
    EXPECT_DOUBLE_EQ(*examined(of_uniform(at_least, 2), true).bound, 2.02);
    EXPECT_DOUBLE_EQ(*examined(of_uniform(equal, 2), true).bound, 2.02);
    Mean own = of_uniform(at_most, 2);
    own.mutant = {.factor = 0.25, .why = "the interval is wide"};
    EXPECT_DOUBLE_EQ(*examined(own, true).bound, 0.5);
    EXPECT_DOUBLE_EQ(*examined(own).bound, 2);
}

TEST(Means, OfRatiosAreRatiosOfMeans) {
    Mean ratio = of_uniform(equal, 0.5, 0.1);
    ratio.ratio = [](const Rng& rng) -> std::array<double, 2> {
        Rng stream(rng);
        const double x = stream.uniform();
        return {x, 4 * x * x};
    };
    // E x / E 4 x^2 = (1/2) / (4/3), where E (x / 4 x^2) is infinite.
    ratio.claimed = 0.375;
    EXPECT_EQ(examined(ratio).verdict, holds);
    ratio.claimed = 0.375 * 1.2;
    EXPECT_EQ(examined(ratio).verdict, false_as_stated);
}

Bound of_sides(Relation relation, Sides sides) {
    Bound bound;
    bound.reading = "sides";
    bound.relation = relation;
    bound.draw = [](const Rng& rng, const Sizes&, Distribution distribution) {
        Variables v;
        v.set("x", draw(rng, "x", 1, 1, distribution));
        return v;
    };
    bound.sides = [sides](const Variables&) -> std::optional<Sides> { return sides; };
    return bound;
}

TEST(Bounds, AreAskedOfAMutantOnePercentAway) {
    const auto verdict = [](const Bound& bound) {
        return examine_bound(bound, {.trials = 3, .n = 1, .d = 1, .mutated = true}).verdict;
    };
    EXPECT_EQ(verdict(of_sides(at_most, {0.995, 1})), false_as_stated);
    EXPECT_EQ(verdict(of_sides(at_most, {0.985, 1})), holds);
    EXPECT_EQ(verdict(of_sides(at_least, {1.005, 1})), false_as_stated);
    EXPECT_EQ(verdict(of_sides(at_least, {1.015, 1})), holds);
    Bound own = of_sides(at_most, {0.6, 1});
    own.mutant = {.factor = 0.5, .why = "the bound is not attained"};
    EXPECT_EQ(verdict(own), false_as_stated);
    own.mutant.factor = 0.7;
    EXPECT_EQ(verdict(own), holds);
}

TEST(Comparisons, AreExactWithoutAnAllowance) {
    const auto verdict = [](Relation relation, double measured, double accuracy) {
        return compare("r", "f", Role::part, relation, {measured, 2}, accuracy).verdict;
    };
    for (const double accuracy : {0.0, 1e-3})
        for (const Relation relation : {at_most, at_least, equal})
            EXPECT_EQ(verdict(relation, 2, accuracy), holds);
    for (const double away : {-0.001, 0.001}) {
        EXPECT_EQ(verdict(equal, 2 + away, 0), false_as_stated);
        EXPECT_EQ(verdict(at_most, 2 + away, 0), away > 0 ? false_as_stated : holds);
        EXPECT_EQ(verdict(at_least, 2 + away, 0), away > 0 ? holds : false_as_stated);
        EXPECT_EQ(verdict(equal, 2 + away, 1e-3), holds) << "the larger side times 1e-3";
        EXPECT_EQ(verdict(equal, 2 + 3 * away, 1e-3), false_as_stated);
    }
}

TEST(Draws, AttentionHasTheProjectionsOfLinearLayers) {
    // torch.nn.Linear draws uniformly from -1/sqrt(d) to 1/sqrt(d): variance 1/(3 d).  Of tokens
    // e_1 and 0 the logits of the first row are q k/sqrt(k) and 0, q and k rows of k entries.
    constexpr Index draws = 4000;
    for (const auto& [width, columns] : {std::pair{1, 1}, {3, 3}, {8, 2}}) {
        Matrix X = Matrix::Zero(2, width);
        X(0, 0) = 1;
        double squares = 0;
        for (Index t = 0; t < draws; ++t) {
            const Matrix P = attention_of(X, Rng(7).fork(std::uint64_t(t)), columns);
            EXPECT_NEAR(P(1, 0), 0.5, 1e-15);
            squares += std::pow(std::log(P(0, 0) / P(0, 1)), 2) / draws;
        }
        EXPECT_NEAR(squares * 9 * width * width, 1, 0.15) << width;  // five standard errors
    }
}

}  // namespace
}  // namespace tsdiag::claim
