#include "tsdiag/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

using Outcome = Difference::Outcome;
using testing::HasSubstr;

MetricRow row_of(Index layer, double value, std::optional<double> error, Index count,
                 const std::string& metric = "t_sim") {
    return {.model = "m",
            .at = {.layer = layer, .stage = "out"},
            .metric = metric,
            .value = value,
            .standard_error = error,
            .count = count};
}

MeasuredResult result_of(std::vector<MetricRow> rows, int seed = 0) {
    Json input, run;
    input.set("kind", "gaussian").set("samples", 8).set("tokens", 4);
    run.set("seed", seed).set("input", std::move(input));
    return select("r" + std::to_string(seed), std::move(rows), std::move(run), {});
}

Difference only_difference(const MetricRow& a, const MetricRow& b, int other_seed) {
    const std::vector<MeasuredResult> results = {result_of({a}), result_of({b}, other_seed)};
    return compare(results).differences.at(0);
}

template <class Thrown, class Function>
std::string sentence_of(const Function& function) {
    try {
        function();
    } catch (const Thrown& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST(Comparison, OfSharedSamplesAddsErrorsAndOfIndependentOnesTheirSquares) {
    const MetricRow a = row_of(0, 1.0, 0.3, 2), b = row_of(0, 2.0, 0.4, 2);
    // One degree of freedom: the tail of Cauchy's distribution.  The resolution of 1e-6 of the
    // larger number is not counted as a change.
    const double beyond = 1 - 2e-6;
    const auto cauchy = [](double t) { return 1 - 2 / std::numbers::pi * std::atan(t); };
    const Difference shared = only_difference(a, b, 0);
    EXPECT_NEAR(*shared.error, 0.7, 1e-15);
    EXPECT_EQ(shared.freedom, 1.0);
    EXPECT_NEAR(*shared.probability, cauchy(beyond / 0.7), 1e-12);
    // Welch: (0.09 + 0.16)^2 / (0.09^2 + 0.16^2) degrees of freedom.
    const Difference independent = only_difference(a, b, 1);
    EXPECT_NEAR(*independent.error, 0.5, 1e-15);
    EXPECT_NEAR(*independent.freedom, 0.0625 / (0.0081 + 0.0256), 1e-12);
    EXPECT_NEAR(*independent.probability,
                2 * student_tail(beyond / 0.5, 0.0625 / (0.0081 + 0.0256)), 1e-12);
    EXPECT_EQ(shared.outcome, Outcome::scatter);
    // A single test at 95 %: Student's interval, widened by the resolution.
    const double half = std::tan(std::numbers::pi * 0.475) * 0.7 + 2e-6;
    EXPECT_NEAR(*shared.low, 1 - half, 1e-9);
    EXPECT_NEAR(*shared.high, 1 + half, 1e-9);
}

/// `samples` of a number of one layer, of a run on the inputs with this digest.
MeasuredResult result_with_samples(const std::vector<double>& samples, const char* digest,
                                   Index trials = 1) {
    Table table("m");
    table.keep_samples();
    for (const double x : samples) table.scalar({.layer = 0, .stage = "out"}, "t_sim", x);
    Json input, run;
    input.set("kind", "gaussian").set("digest", digest).set("trials", trials);
    run.set("seed", 0).set("input", std::move(input));
    return select("r", table.metrics(), std::move(run), {});
}

TEST(Comparison, PairsTheSamplesOfTheSameInputs) {
    const std::vector<double> a = {1, 5, 9, 3}, b = {2, 7, 10, 3};
    const auto compared = [&](const char* digest_of_b, Index trials = 1) {
        const std::vector<MeasuredResult> results = {result_with_samples(a, "ab", trials),
                                                     result_with_samples(b, digest_of_b, trials)};
        return compare(results);
    };
    // The differences are 1, 2, 1, 0: mean 1, sum of squares 2.
    const Changes paired = compared("ab");
    const Difference& d = paired.differences.at(0);
    EXPECT_EQ(d.pairs, 4);
    EXPECT_EQ(d.rises, 3);
    EXPECT_NEAR(*d.error, std::sqrt(2.0 / 12), 1e-15);  // a few roundings
    EXPECT_EQ(d.freedom, 3.0);
    EXPECT_EQ(paired.paired, 1U);
    EXPECT_THAT(remarks(paired).at(0), HasSubstr("each sample with itself"));
    // Two trials of two samples: the means 1.5 and 0.5.
    const Changes trials = compared("ab", 2);
    EXPECT_THAT(remarks(trials).at(0), HasSubstr("each trial with itself"));
    const Difference& of_trials = trials.differences.at(0);
    EXPECT_NEAR(*of_trials.error, 0.5, 1e-15);
    EXPECT_EQ(of_trials.freedom, 1.0);
    EXPECT_EQ(of_trials.pairs, 2);
    EXPECT_EQ(of_trials.rises, 2);
    const Changes other = compared("cd");
    EXPECT_EQ(other.differences.at(0).pairs, 0);
    EXPECT_GT(*other.differences.at(0).error, *d.error);
    EXPECT_THAT(remarks(other).at(0), HasSubstr("the inputs are not known to be the same"));
}

TEST(Comparison, SaysHowManyTestsAreOfWhichKind) {
    MeasuredResult apart = result_with_samples({2, 3, 8, 1}, "cd");
    apart.run.seed = 1;
    const MeasuredResult a = result_with_samples({1, 5, 9, 3}, "ab"),
                         b = result_with_samples({2, 7, 10, 3}, "ab"),
                         unknown = result_with_samples({2, 7, 10, 3}, "");
    const auto remark = [](std::vector<MeasuredResult> results) {
        return remarks(compare(results)).at(0);
    };
    EXPECT_EQ(remark({a, apart}), "Independent samples: Welch's test.");
    EXPECT_EQ(remark({a, b, apart}), "Tests: 1 paired, 1 of independent samples (Welch's).");
    EXPECT_EQ(remark({a, b, unknown}),
              "Tests: 1 paired, 1 unpaired and conservative: small changes may be missed.");
    EXPECT_THAT(remark({a, unknown}), HasSubstr("the inputs are not known to be the same"));
}

TEST(Comparison, PairsThatAreEqualAreOneTestAndThoseThatCannotBeFormedNone) {
    const auto compared = [](MeasuredResult a, MeasuredResult b) {
        return compare(std::vector{std::move(a), std::move(b)});
    };
    const Changes equal =
        compared(result_with_samples({1, 2, 4}, "ab"), result_with_samples({1, 2, 4}, "ab"));
    EXPECT_EQ(equal.differences.at(0).outcome, Outcome::equal);
    EXPECT_EQ(equal.differences.at(0).probability, 1.0);
    EXPECT_EQ(equal.paired, 1U);
    // Where all samples agree there is no test.
    const Changes constant =
        compared(result_with_samples({2, 2, 2}, "ab"), result_with_samples({2, 2, 2}, "ab"));
    EXPECT_EQ(constant.differences.at(0).outcome, Outcome::equal);
    EXPECT_EQ(constant.tested, 0U);
    // A shift without scatter is not beyond all doubt: the bound of unpaired samples holds.
    const Changes shifted =
        compared(result_with_samples({1, 2, 4}, "ab"), result_with_samples({2, 3, 5}, "ab"));
    EXPECT_EQ(shifted.differences.at(0).pairs, 0);
    EXPECT_GT(*shifted.differences.at(0).error, 0);
    // One of the samples is undefined in one result only.
    MeasuredResult holed = result_with_samples({1, 2, 4}, "ab");
    holed.rows.at(0).samples.at(1) = std::nullopt;
    const Changes part = compared(holed, result_with_samples({1, 3, 4}, "ab"));
    EXPECT_EQ(part.differences.at(0).pairs, 0);
    EXPECT_THAT(remarks(part).at(0), HasSubstr("values of the samples were not kept"));
}

TEST(Comparison, IsNeverSurerThanThePairedTestWhateverTheCorrelation) {
    const Rng rng(7);
    for (int trial = 0; trial < 200; ++trial) {
        const Rng own = rng.fork(std::uint64_t(trial));
        const std::size_t n = 2 + std::size_t(trial % 9);
        std::vector<double> x(n), y(n), z(n);
        own.fork("x").fill_normal(x, 0, 1);
        own.fork("y").fill_normal(y, 0, 1);
        const double mixed = double(trial % 21) / 10 - 1;  // correlations from -1 to 1
        Moments of_x, of_y, of_pairs;
        for (std::size_t i = 0; i < n; ++i) {
            z[i] = 0.5 + mixed * x[i] + (1 - std::abs(mixed)) * y[i];
            of_x.add(x[i]);
            of_y.add(z[i]);
            of_pairs.add(z[i] - x[i]);
        }
        const Difference d =
            only_difference(row_of(0, of_x.mean(), of_x.standard_error(), Index(n)),
                            row_of(0, of_y.mean(), of_y.standard_error(), Index(n)), 0);
        const double paired = of_pairs.standard_error();
        EXPECT_GE(*d.error, paired * (1 - 1e-12));
        if (paired > 0) {
            const double pairs =
                2 * student_tail(std::abs(of_pairs.mean()) / paired, double(n - 1));
            EXPECT_GE(*d.probability, pairs - 1e-12);  // of rounding
        }
    }
}

TEST(Comparison, WithoutScatterThereIsNoTest) {
    const std::vector<MeasuredResult> results = {
        result_of({row_of(0, 1, {}, 1), row_of(1, 1, {}, 1), row_of(2, 1, 0.0, 8),
                   row_of(3, 0.5, 0.1, 8), row_of(4, 1, {}, 1)}),
        result_of({row_of(0, 3, 0.1, 8),
                   row_of(1, 1 + 1e-9, {}, 1),
                   row_of(2, 2, 0.0, 8),
                   row_of(3, 0.5, 0.1, 8),
                   {.model = "m",
                    .at = {.layer = 4, .stage = "out"},
                    .metric = "t_sim",
                    .note = "the state is 0"}})};
    const Changes found = compare(results);
    EXPECT_EQ(found.tested, 1U);
    EXPECT_EQ(found.significant, 0U);
    EXPECT_EQ(found.untested, 2U);
    EXPECT_EQ(found.equal, 2U);  // of the one that was tested, too
    EXPECT_EQ(found.undefined, 1U);
    EXPECT_EQ(found.differences.front().where(), "t_sim@out:0");
    EXPECT_FALSE(found.differences.front().probability);
    EXPECT_THAT(found.differences.back().note, HasSubstr("the state is 0"));
    EXPECT_EQ(headline(found),
              "r0: t_sim (layer 3) is the same, 0.5. None of 1 number changed significantly "
              "(false-discovery rate at most 5 %).");
    EXPECT_THAT(remarks(found),
                testing::IsSupersetOf({"2 differences cannot be tested: a result has one sample "
                                       "only (--samples 8 of probe, --probe-samples 8 of train).",
                                       "1 number is undefined in one of the results."}));
}

TEST(Comparison, SaysFirstWhatBecomesOfTheTokens) {
    const auto said = [](double a, double b, double error) {
        std::vector<MeasuredResult> results = {
            result_of({row_of(0, 0.5, 0.01, 8), row_of(1, a, error, 8)}),
            result_of({row_of(0, 0.5, 0.01, 8), row_of(1, b, error, 8)})};
        results[0].name = "before";
        results[1].name = "after";
        return headline(compare(results));
    };
    EXPECT_THAT(said(0.97, 0.12, 0.001),
                testing::MatchesRegex("after ends distinct: final t_sim 0.12 instead of 0.97 "
                                      "\\(-0.85, .* % CI -0.8[0-9]* to -0.8[0-9]*\\). 1 of 2 "
                                      "numbers changed significantly \\(.*\\)."));
    EXPECT_THAT(said(0.5, 0.995, 0.001),
                testing::StartsWith("after collapses: final t_sim 0.995 "));
    EXPECT_THAT(said(0.5, 0.7, 0.001), testing::StartsWith("after ends more alike: "));
    EXPECT_THAT(said(0.7, 0.5, 0.001), testing::StartsWith("after ends less alike: "));
    EXPECT_THAT(said(0.7, 0.6, 0.2),
                testing::StartsWith("after: final t_sim 0.6 instead of 0.7, within scatter (-0.1"));
    EXPECT_THAT(said(0.5, 0.5, 0.1), testing::StartsWith("No change: "));
    // More digits where four are the same.
    EXPECT_THAT(said(0.1028, 0.102801, 1e-9),
                testing::StartsWith("after ends more alike: final t_sim 0.102801 instead of 0.1028 "
                                    "(+1e-06, "));
    // Layer 0 is the last of one result only.
    EXPECT_THAT(headline(compare(
                    std::vector{result_of({row_of(0, 0.5, 0.01, 8)}),
                                result_of({row_of(0, 0.75, 0.01, 8), row_of(1, 0.5, 0.01, 8)})})),
                testing::StartsWith("r0 ends more alike: t_sim (layer 0) 0.75 instead of 0.5 "));
    std::vector<MeasuredResult> three(3, result_of({row_of(0, 0.5, 0.01, 8)}));
    three[1].rows.front().value = 0.25;
    for (std::size_t i = 0; i < three.size(); ++i) three[i].name = letter(i);
    EXPECT_THAT(headline(compare(three)),
                testing::StartsWith("Final t_sim: 0.5 in A, 0.25 in B, 0.5 in C. 1 of 2 numbers "));
    // Two are deeper than the third, which is told of where it ends.
    for (const std::size_t i : {0, 2}) three[i].rows.push_back(row_of(1, 0.75, 0.01, 8));
    for (const std::size_t i : {0, 2}) three[i].layers = 2;
    EXPECT_THAT(
        headline(compare(three)),
        testing::StartsWith("t_sim (layer 1): 0.75 in A, 0.25 in B (layer 0), 0.75 in C. "));
}

TEST(Comparison, OfAResultWithItselfFindsNothing) {
    for (const std::optional<double> error : {std::optional<double>(), std::optional(0.5)}) {
        const std::vector<MeasuredResult> results = {result_of({row_of(0, 1, error, 8)}),
                                                     result_of({row_of(0, 1, error, 8)})};
        const Changes found = compare(results);
        EXPECT_EQ(headline(found), "No change: 1 number is equal.");
        EXPECT_TRUE(remarks(found).empty());
    }
}

TEST(Comparison, BoundsOfAnIterativeNumberCountAsDoubt) {
    MetricRow a = row_of(0, 1, 0.01, 8), b = row_of(0, 1.5, 0.01, 8);
    a.low = 0.8, a.high = 1.4;
    b.low = 1.4, b.high = 1.5;
    EXPECT_NEAR(*only_difference(a, b, 0).probability, 1, 1e-12);  // 0.4 + 0.1 of doubt
    b.value = b.high = 3;
    b.low = 2.9;
    EXPECT_LT(*only_difference(a, b, 0).probability, 1e-4);
}

TEST(Discoveries, AreThoseOfTheStepUpProcedure) {
    // m = 4: c = 25/12, thresholds k rate 12/100.
    const auto of = [](std::vector<double> p) { return discoveries(p, 0.25).count; };
    EXPECT_EQ(of({0.0299, 0.9, 0.9, 0.9}), 1U);
    EXPECT_EQ(of({0.0301, 0.9, 0.9, 0.9}), 0U);
    EXPECT_EQ(of({0.9, 0.0599, 0.0301, 0.9}), 2U);  // the second carries the first
    EXPECT_EQ(of({0.11, 0.11, 0.11, 0.11}), 4U);
    EXPECT_EQ(of({}), 0U);
    EXPECT_NEAR(discoveries(std::vector{0.0, 0.0, 0.9, 0.9}, 0.25).threshold, 0.06, 1e-15);
}

/// One table of m changes that depend on each other: a common part, and some with the other sign,
/// as t_sim and t_div have.  The first `real` of them are shifted.
Changes drawn_changes(const Rng& rng, std::size_t m, std::size_t real, double shift) {
    constexpr std::size_t n = 6;
    std::vector<MetricRow> a, b;
    for (const int side : {0, 1}) {
        const Rng own = rng.fork(std::uint64_t(side));
        std::vector<double> common(n), each(n);
        own.fork("common").fill_normal(common, 0, 1);
        for (std::size_t i = 0; i < m; ++i) {
            own.fork(std::uint64_t(i)).fill_normal(each, 0, 1);
            Moments moments;
            for (std::size_t s = 0; s < n; ++s)
                moments.add((i % 2 == 0 ? 1.0 : -1.0) * common[s] + each[s] +
                            (side == 1 && i < real ? shift : 0));
            (side == 0 ? a : b)
                .push_back(row_of(Index(i), moments.mean(), moments.standard_error(), n));
        }
    }
    const std::vector<MeasuredResult> results = {result_of(std::move(a)),
                                                 result_of(std::move(b), 1)};
    return compare(results, {.rate = 0.2});
}

TEST(Comparison, ControlsTheFalseDiscoveryRate) {
    const Rng rng(3);
    // Without any change, and with a quarter of real ones.
    for (const std::size_t real : {std::size_t(0), std::size_t(5)}) {
        Moments shares;
        std::size_t missed = 0;
        constexpr int tables = 400;
        for (int t = 0; t < tables; ++t) {
            const Changes found =
                drawn_changes(rng.fork(std::uint64_t(real)).fork(std::uint64_t(t)), 20, real, 12);
            std::size_t wrong = 0;
            for (const Difference& d : found.differences) {
                const bool is_real = d.at.layer < Index(real);
                const bool significant = d.outcome == Outcome::significant;
                wrong += significant && !is_real;
                missed += is_real && !significant;
                // The interval excludes 0 where the change is significant.
                EXPECT_EQ(significant, *d.low > 0 || *d.high < 0);
            }
            shares.add(found.significant > 0 ? double(wrong) / double(found.significant) : 0);
        }
        // Three standard errors above the rate would still be chance.
        EXPECT_LE(shares.mean(), 0.2 + 3 * std::sqrt(0.2 * 0.8 / tables));
        EXPECT_LE(missed, std::size_t(tables) * real / 100);  // twelve deviations are found
        if (real == 0) {
            EXPECT_GT(shares.mean(), 0);  // the test can fail
        }
    }
}

/// Samples of a trial that are all alike tell no more than one of them.
TEST(Comparison, CountsTrialsWhereSamplesShareTheirWeights) {
    const double trials = 4, samples = 25, count = trials * samples;
    const double means[] = {1, 2, 4, 7};
    double squares = 0;
    for (const double m : means) squares += (m - 3.5) * (m - 3.5);
    const double of_all = std::sqrt(samples * squares / (count - 1) / count);
    const double of_trials = std::sqrt(squares / (trials - 1) / trials);
    std::vector<MeasuredResult> results;
    for (const double mean : {3.5, 5.0}) {
        results.push_back(result_of({row_of(0, mean, of_all, Index(count))}));
        results.back().run.input.trials = Index(trials);
    }
    const Difference found = compare(results).differences.at(0);
    EXPECT_NEAR(*found.error, 2 * of_trials, 1e-12 * of_trials);
    EXPECT_EQ(*found.freedom, trials - 1);
}

TEST(Comparison, MatchesRowsByPlaceAndTellsWhatHasNoCounterpart) {
    std::vector<MetricRow> a = {row_of(0, 1, 0.1, 8), row_of(1, 2, 0.1, 8), row_of(2, 3, 0.1, 8)};
    std::vector<MetricRow> b = {row_of(1, 2, 0.1, 8), row_of(0, 1, 0.1, 8)};
    b.front().at.step = b.back().at.step = 7;
    const std::vector<MeasuredResult> results = {result_of(a), result_of(b)};
    const Changes found = compare(results);
    EXPECT_EQ(found.differences.size(), 2U);
    EXPECT_EQ(found.only_in_one, 1U);
    for (const Difference& d : found.differences) EXPECT_EQ(d.difference, 0.0);
    EXPECT_THAT(found.notes, testing::Contains(HasSubstr("has 3 layers, r0 has 2 layers")));
}

TEST(Comparison, PartsAreStepsLayersAndHeads) {
    std::vector<MetricRow> rows;
    for (const Index step : {10, 20})
        for (const Index layer : {0, 1})
            for (const Index head : {-1, 0, 1}) {
                rows.push_back(row_of(layer, double(100 * step + 10 * layer + head), {}, 1));
                rows.back().at.step = step;
                rows.back().at.head = head;
            }
    const auto values = [&](const std::string& suffix) {
        const MeasuredResult found =
            select("r", rows, {}, suffix.empty() ? ResultPart{} : parse_part(suffix, "r" + suffix));
        std::vector<double> all;
        for (const MetricRow& row : found.rows) all.push_back(*row.value);
        return all;
    };
    EXPECT_THAT(values(""), testing::ElementsAre(1999, 2000, 2001, 2009, 2010, 2011));
    EXPECT_THAT(values("@10:1"), testing::ElementsAre(1009, 1010, 1011));
    EXPECT_THAT(values(":last.0"), testing::ElementsAre(2010));
    EXPECT_THAT(sentence_of<FormatError>([&] { values("@15"); }),
                HasSubstr("has no row of step 15; its last step is 20"));
    EXPECT_THAT(sentence_of<FormatError>([&] { values(":2"); }), HasSubstr("last layer is 1"));
    for (const char* bad : {"@", ":", "@x", ":1.", ":-1", ":1.2.3", "@1.2", ":first", "x"})
        EXPECT_THAT(sentence_of<UsageError>([&] { values(bad); }), HasSubstr("expected a folder"))
            << bad;
}

TEST(Comparison, ChoosesRows) {
    std::vector<MetricRow> rows = {row_of(0, 1, 0.1, 8), row_of(1, 2, 0.1, 8),
                                   row_of(1, 3, 0.1, 8, "delta"), row_of(1, 4, 0.1, 8, "delta")};
    rows.back().at.head = 0;
    const std::vector<MeasuredResult> results = {result_of(rows), result_of(rows)};
    const auto count = [&](RowChoice choice) {
        return compare(results, {.choice = std::move(choice)}).differences.size();
    };
    EXPECT_EQ(count({}), 3U);
    EXPECT_EQ(count({.all_heads = true}), 1U);
    EXPECT_EQ(count({.first_layer = 1, .layers = true}), 2U);
    EXPECT_EQ(count({.metrics = {"t_sim"}}), 2U);
    EXPECT_THAT(sentence_of<FormatError>([&] { count({.heads = {3}}); }),
                HasSubstr("nothing to compare"));
}

TEST(Comparison, RefusesWhatHasNoMeaning) {
    const auto selected = [](std::vector<MetricRow> rows) {
        return sentence_of<FormatError>([&] { select("r", std::move(rows), {}, {}); });
    };
    EXPECT_THAT(selected({}), HasSubstr("has no row of a metric"));
    EXPECT_THAT(selected({row_of(0, 1, 0.1, 8), row_of(0, 2, 0.1, 8)}), HasSubstr("two rows"));
    EXPECT_THAT(selected({row_of(0, 1, -0.1, 8)}), HasSubstr("no mean with a standard error"));
    EXPECT_THAT(selected({row_of(0, std::nan(""), 0.1, 8)}), HasSubstr("no mean"));
    MetricRow other = row_of(1, 1, 0.1, 8);
    other.model = "other";
    EXPECT_THAT(selected({row_of(0, 1, 0.1, 8), other}), HasSubstr("several models"));

    const auto defined = [](const char* definition) {
        Json metric, run;
        metric.set("name", "t_sim").set("definition", definition);
        run.set("schema", Json::Array{metric});
        return select(definition, {row_of(0, 1, 0.1, 8)}, run, {});
    };
    const std::vector<MeasuredResult> two = {defined("one"), defined("two")};
    EXPECT_THAT(sentence_of<FormatError>([&] { compare(two); }),
                HasSubstr("t_sim is defined otherwise"));
    EXPECT_THAT(sentence_of<UsageError>([&] { compare(std::span(two).first(1)); }),
                HasSubstr("needs two results"));
    EXPECT_THAT(sentence_of<UsageError>([&] { compare(two, {.rate = 1}); }),
                HasSubstr("false-discovery rate of 1"));
}

TEST(Comparison, OfHugeNumbersIsUndefinedNotInfinite) {
    const Difference d = only_difference(row_of(0, -1e308, 0.1, 8), row_of(0, 1e308, 0.1, 8), 0);
    EXPECT_EQ(d.outcome, Outcome::undefined);
    EXPECT_THAT(d.note, HasSubstr("beyond the range"));
    const std::vector<MeasuredResult> results = {result_of({row_of(0, 1e308, 1e308, 2)}),
                                                 result_of({row_of(0, 0, 1e308, 2)})};
    EXPECT_EQ(compare(results).tested, 0U);  // the error of the difference is infinite
    EXPECT_NO_THROW(comparison_record(compare(results)).differences.dump());
}

TEST(Comparison, NotesDifferentInputsFirst) {
    MeasuredResult other = result_of({row_of(0, 1, 0.1, 8)}, 4);
    const std::vector<MeasuredResult> results = {result_of({row_of(0, 1, 0.1, 8)}), other};
    ASSERT_FALSE(compare(results).notes.empty());
    EXPECT_THAT(compare(results).notes.front(), HasSubstr("The inputs differ"));
}

TEST(Comparison, NotesThatProductsOfOneWereRounded) {
    std::vector<MeasuredResult> results = {result_of({row_of(0, 1, 0.1, 8)}),
                                           result_of({row_of(0, 1, 0.1, 8)})};
    const auto noted = [&] {
        return std::ranges::any_of(compare(results).notes, [&](const std::string& note) {
            return note ==
                   "--fast: " + results[0].name + " has none, " + results[1].name + " has bf16.";
        });
    };
    EXPECT_FALSE(noted());
    results[1].run.fast = Json().set("products", "bf16").set("first_layer_error", 1e-3);
    EXPECT_TRUE(noted());
}

}  // namespace
}  // namespace tsdiag
