#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "claims/expectation.hpp"
#include "claims/growth.hpp"
#include "claims/tse/similarity.hpp"
#include "tsdiag/intervals.hpp"

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

/// The interval that decides every claim about this mean.
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
    // An exact equation, or one to a tenth.
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
    const auto expected_note = [](const Reading& r, double needed) {
        const double half = (*r.high - *r.low) / 2;
        return fmt::format("about {:.2g} trials would decide it",
                           double(r.trials) * (half / needed) * (half / needed));
    };
    const double value = *interval().measured, away = 0.006;
    const Reading above = examined(of_uniform(at_most, value + away)),
                  below = examined(of_uniform(at_least, value - away)),
                  near = examined(of_uniform(equal, value - 0.001)),
                  wide = examined(of_uniform(equal, value - away, 0.05));
    EXPECT_EQ(above.note, expected_note(above, away));
    EXPECT_EQ(below.note, expected_note(below, away));
    EXPECT_EQ(near.note, expected_note(near, 0.005 * (value - 0.001) - 0.001));
    EXPECT_EQ(wide.note, expected_note(wide, 0.05 * (value - away) - away));
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

Bound of_sides(Relation relation, BoundSides sides) {
    Bound bound;
    bound.reading = "sides";
    bound.relation = relation;
    bound.draw = [](const Rng& rng, const Sizes&, Distribution distribution) {
        Variables v;
        v.set("x", draw(rng, "x", 1, 1, distribution));
        return v;
    };
    bound.sides = [sides](const Variables&) -> std::optional<BoundSides> { return sides; };
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

// The traces of readings in figures.

TEST(Traces, OfMeansAreThoseOfTheFirstTrialsInHalves) {
    const Check how{.trials = 1000, .claim = "some.claim", .rng = Rng(4)};
    const Mean mean = of_uniform(equal, 0.5);
    const Trace t = examine_mean(mean, how).trace;
    EXPECT_EQ(t.x, (std::vector<double>{31, 62, 125, 250, 500, 1000}));
    EXPECT_TRUE(t.log_x && !t.log_y);
    EXPECT_EQ(t.claimed, std::vector<double>(6, 0.5));
    std::vector<double> samples;
    for (Index k = 0; k < 1000; ++k)
        samples.push_back(mean.sample(trial_rng(how, mean.reading, k)));
    ASSERT_TRUE(t.y.size() == 6 && t.low.size() == 6 && t.high.size() == 6);
    for (std::size_t k = 0; k < 6; ++k) {
        const Interval i = skewed_interval({samples.data(), std::size_t(t.x[k])}, how.confidence);
        EXPECT_DOUBLE_EQ(t.y[k], i.value) << k;
        EXPECT_DOUBLE_EQ(t.low[k], i.low) << k;
        EXPECT_DOUBLE_EQ(t.high[k], i.high) << k;
    }
    EXPECT_TRUE(examine_mean(mean, {.trials = 15}).trace.x.empty()) << "too few to show";
}

TEST(Traces, OfBoundsAreOrderStatistics) {
    Bound b = of_sides(at_most, {});
    b.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{std::abs(v("x")(0)), 10};
    };
    for (const Index count : {1, 10, 64, 200}) {
        const Check how{.trials = count, .n = 1, .d = 1, .rng = Rng(4)};
        std::vector<double> all;
        for (Index k = 0; k < count; ++k)
            all.push_back(
                std::abs(draw(trial_rng(how, b.reading, k), "x", 1, 1, Distribution::gaussian)(0)) /
                10);
        std::ranges::sort(all);
        const Trace t = examine_bound(b, how).trace;
        const auto shown = std::size_t(std::min<Index>(count, 64));
        ASSERT_EQ(t.x.size(), shown);
        ASSERT_EQ(t.y.size(), shown);
        EXPECT_EQ(t.claimed, std::vector<double>(shown, 1));
        // All of them, or a selection from the minimum to the maximum in equal steps.
        for (std::size_t k = 0; k < shown; ++k) {
            const double at = shown == 1 ? 0 : double(k) * double(count - 1) / double(shown - 1);
            EXPECT_EQ(t.y[k], all[std::size_t(at + 1e-9)]) << count << ' ' << k;
            EXPECT_DOUBLE_EQ(t.x[k], (std::floor(at + 1e-9) + 1) / double(count));
        }
    }
}

/// N^2 and some scatter about it.
Growth of_squares(double scatter) {
    Growth growth;
    growth.reading = "squares";
    growth.relation = equal;
    growth.claimed = 2;
    growth.sizes = {2, 4, 8, 16};
    growth.sample = [scatter](Index N, const Rng& rng) {
        return double(N * N) * (1 + scatter * (Rng(rng).uniform() - 0.5));
    };
    return growth;
}

TEST(Growths, HaveTheExponentOfTheirMeansAndTheWiderInterval) {
    const Check how{.trials = 40, .rng = Rng(5)};
    const std::vector<double> x{2, 4, 8, 16};
    for (const double scatter : {0.5, 1.5}) {
        const Growth growth = of_squares(scatter);
        const Reading r = examine_growth(growth, how);
        // Trial 4 t + s is the t-th of the s-th size.
        std::vector<double> means, errors;
        for (std::size_t s = 0; s < 4; ++s) {
            std::vector<double> list;
            for (Index t = 0; t < 40; ++t)
                list.push_back(
                    growth.sample(Index(x[s]), trial_rng(how, "squares", 4 * t + Index(s))));
            means.push_back(moments_of(list).mean());
            errors.push_back(moments_of(list).standard_error());
        }
        // Logarithms of 2, 4, 8, 16 are 1, 2, 3, 4 times log 2, about 5/2: weights -3, -1, 1, 3
        // tenths over log 2.
        const double two = std::log(2.0);
        double slope = 0, variance = 0;
        for (std::size_t s = 0; s < 4; ++s) {
            const double weight = (2 * double(s) - 3) / 10 / two;
            slope += weight * std::log(means[s]);
            variance += std::pow(weight * errors[s] / means[s], 2);
        }
        const double noise = student_quantile(how.look_confidence(), 39) * std::sqrt(variance);
        const Interval line = fit_power_law(x, means, how.confidence).exponent;
        ASSERT_TRUE(r.measured && r.low && r.high);
        EXPECT_NEAR(*r.measured, slope, 1e-12);
        EXPECT_NEAR(*r.high - *r.measured, std::max(noise, line.high - line.value), 1e-12);
        EXPECT_NEAR(*r.measured - *r.low, *r.high - *r.measured, 1e-12);
        EXPECT_EQ(r.trials, 160);
        EXPECT_DOUBLE_EQ(*r.tightness, *r.measured / 2);
        EXPECT_EQ(r.trace.x, x);
        for (std::size_t s = 0; s < 4; ++s) {
            const double half = student_quantile(0.95, 39) * errors[s];
            EXPECT_NEAR(r.trace.y[s], means[s], 1e-12 * means[s]);
            EXPECT_NEAR(r.trace.high[s], means[s] + half, 1e-12 * means[s]);
            EXPECT_NEAR(r.trace.low[s], std::max(means[s] - half, means[s] / 10), 1e-12 * means[s]);
            EXPECT_NEAR(r.trace.claimed[s], means[0] * std::pow(4, double(s)), 1e-9 * means[s]);
        }
    }
}

TEST(Growths, AreDecidedByTheResolution) {
    const auto verdict = [](Relation relation, double claimed) {
        Growth growth = of_squares(0);  // exactly 2
        growth.relation = relation;
        growth.claimed = claimed;
        return examine_growth(growth, {.trials = 4}).verdict;
    };
    for (const Relation relation : {at_most, equal}) {
        EXPECT_EQ(verdict(relation, 2 - 0.24), holds_asymptotically);
        EXPECT_EQ(verdict(relation, 2 - 0.26), false_as_stated);
        EXPECT_EQ(verdict(relation, 2 + 0.24), holds_asymptotically);
    }
    EXPECT_EQ(verdict(equal, 2 + 0.26), false_as_stated);
    EXPECT_EQ(verdict(at_most, 2 + 0.26), holds_asymptotically);
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
