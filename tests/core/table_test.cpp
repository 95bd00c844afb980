#include "tsdiag/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

const Place out3{.layer = 3, .stage = "out"};

TEST(TableTest, ValueIsTheMeanAndItsStandardErrorOverSamples) {
    Table table("m");
    for (double v : {1.0, 2.0, 3.0, 6.0}) table.scalar(out3, "t_sim", v);

    const MetricRow row = table.find(out3, "t_sim").value();

    EXPECT_DOUBLE_EQ(*row.value, 3.0);
    // squares of deviations: 4 + 1 + 0 + 9 = 14; sd^2 = 14/3; stderr = sqrt(14/3/4)
    EXPECT_DOUBLE_EQ(*row.standard_error, std::sqrt(14.0 / 12.0));
    EXPECT_EQ(row.count, 4);
    EXPECT_EQ(row.model, "m");
    EXPECT_EQ(row.at, out3);
}

TEST(TableTest, OneSampleHasNoStandardError) {
    Table table;
    table.scalar(out3, "t_sim", 0.5);
    EXPECT_EQ(table.find(out3, "t_sim")->standard_error, std::nullopt);
}

TEST(TableTest, UndefinedSamplesAreNotCountedAndTheFirstReasonIsKept) {
    Table table;
    table.scalar(out3, "r", 2.0);
    table.scalar(out3, "r", undefined("zero row"));
    table.scalar(out3, "r", undefined("another reason"));
    table.scalar(out3, "omega", undefined("rows do not sum to 1"));

    const MetricRow r = table.find(out3, "r").value();
    const MetricRow omega = table.find(out3, "omega").value();

    EXPECT_EQ(r.value, 2.0);
    EXPECT_EQ(r.count, 1);
    EXPECT_EQ(r.note, "zero row");
    EXPECT_EQ(omega.value, std::nullopt);
    EXPECT_EQ(omega.count, 0);
    EXPECT_EQ(omega.note, "rows do not sum to 1");
}

TEST(TableTest, BoundsAreMeansWhereACertifiedValueIsItsOwnBound) {
    Table table;
    table.scalar(out3, "lambda2_abs", interval(0.2, 0.4, "not converged"));
    table.scalar(out3, "lambda2_abs", 0.6);
    table.scalar(out3, "delta", 0.6);

    const MetricRow row = table.find(out3, "lambda2_abs").value();

    EXPECT_DOUBLE_EQ(*row.low, 0.4);
    EXPECT_DOUBLE_EQ(*row.high, 0.5);
    EXPECT_EQ(row.value, 0.6);
    EXPECT_EQ(row.count, 1);
    EXPECT_EQ(table.find(out3, "delta")->low, std::nullopt);
}

TEST(TableTest, ANumberThatIsNotFiniteIsUndefinedWithItsReason) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const Value one_sided = interval(0, inf, "not converged");
    Value uncertain = 1.0;
    uncertain.low = nan;
    for (const Value& bad : {Value(inf), Value(-inf), Value(nan), one_sided, uncertain}) {
        Table table;
        table.scalar({.layer = 1}, "delta", bad);
        table.scalar({.layer = 2}, "delta", 0.5);
        table.point({.layer = 1}, "local_acc", 1, bad);
        const MetricRow row = table.find({.layer = 1}, "delta").value();
        EXPECT_FALSE(row.value || row.low || row.high || row.standard_error);
        EXPECT_EQ(row.count, 0);
        EXPECT_THAT(row.note, HasSubstr("NaN or infinity"));
        EXPECT_EQ(table.find({.layer = 2}, "delta")->value, 0.5);
        EXPECT_EQ(table.curves().at(0).y, std::nullopt);
    }
}

TEST(TableTest, KeepsTheValuesOfSamplesOfRowsWithoutAHead) {
    Table table("m");
    table.keep_samples();
    for (const Value& value : {Value(1.5), undefined("no"), Value(-2)}) {
        table.scalar({.layer = 1, .head = 0}, "delta", value);
        table.scalar({.layer = 1}, "delta", value);
    }
    table.scalar({.layer = 2}, "fro", 3.0);
    const std::vector<MetricRow> rows = table.metrics();
    EXPECT_TRUE(rows.at(0).samples.empty());
    const std::vector<std::optional<double>> all = {1.5, std::nullopt, -2.0};
    EXPECT_EQ(rows.at(1).samples, all);
    EXPECT_EQ(rows.at(2).samples.size(), 1u);
    table.append(Table("other"));
    EXPECT_TRUE(table.metrics().at(1).samples.empty());  // of whom would they be?
}

TEST(TableTest, KeepsNoValuesOfSamplesWhereTheyAreTooMany) {
    Table table;
    table.keep_samples();
    for (std::size_t i = 0; i < Table::most_samples_kept; ++i) table.scalar({}, "fro", 1.0);
    EXPECT_EQ(table.metrics().at(0).samples.size(), Table::most_samples_kept);
    table.scalar({}, "fro", 1.0);
    EXPECT_TRUE(table.metrics().at(0).samples.empty());
    EXPECT_EQ(table.metrics().at(0).count, Index(Table::most_samples_kept) + 1);
}

TEST(TableTest, AMeanThatOverflowsIsUndefined) {
    Table table;
    const double most = std::numeric_limits<double>::max();
    for (const double x : {most, -most}) {
        table.scalar({.layer = 1}, "fro", x);
        table.point({.layer = 1}, "local_acc", 1, x);
    }
    const MetricRow row = table.find({.layer = 1}, "fro").value();
    EXPECT_FALSE(row.value || row.standard_error);
    EXPECT_THAT(row.note, HasSubstr("NaN or infinity"));
    EXPECT_FALSE(table.curves().at(0).y || table.curves().at(0).standard_error);
}

TEST(TableTest, AMapIsKeptWithEntriesThatAreNotFinite) {
    Table table;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    table.matrix({.at = {.layer = 2}, .name = "P", .rows = 1, .cols = 2, .values = {nan, 1}});
    ASSERT_EQ(table.maps().size(), 1u);
    EXPECT_TRUE(std::isnan(table.maps()[0].values[0]));
}

TEST(TableTest, RefusesAbscissasThatAreNotFinite) {
    Table table;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Place at{.step = 7, .layer = 2, .stage = "attn", .head = 5, .tensor = "q"};

    try {
        table.point(at, "local_acc", nan, 1.0);
        FAIL() << "a NaN was accepted";
    } catch (const NonFiniteError& e) {
        EXPECT_THAT(e.what(),
                    HasSubstr("local_acc: step 7 layer 2 stage 'attn' head 5 tensor 'q'"));
    }
    EXPECT_TRUE(table.metrics().empty());
    EXPECT_TRUE(table.curves().empty());
}

TEST(TableTest, RowsComeInTheOrderOfTheirFirstAppearance) {
    Table table;
    for (int sample = 0; sample < 2; ++sample)
        for (const char* metric : {"z", "a", "m"})
            for (Index layer : {2, 0, 1}) table.scalar({.layer = layer}, metric, 1.0);

    const std::vector<MetricRow> rows = table.metrics();

    ASSERT_EQ(rows.size(), 9u);
    EXPECT_EQ(rows[0].metric, "z");
    EXPECT_EQ(rows[0].at.layer, 2);
    EXPECT_EQ(rows[1].at.layer, 0);
    EXPECT_EQ(rows[3].metric, "a");
    EXPECT_EQ(rows[8].metric, "m");
}

TEST(TableTest, EveryFieldOfAPlaceTellsKeysApart) {
    Table table;
    const std::vector<Place> places = {{},          {.step = 0},     {.layer = 0}, {.stage = "in"},
                                       {.head = 0}, {.tensor = "in"}};
    for (const Place& at : places) {
        table.scalar(at, "a", 1.0);
        table.scalar(at, "b", 1.0);
        table.point(at, "a", 0.0, 1.0);
        table.point(at, "a", 0.5, 1.0);
    }
    EXPECT_EQ(table.metrics().size(), 2 * places.size());
    EXPECT_EQ(table.curves().size(), 2 * places.size());
    for (const MetricRow& row : table.metrics()) EXPECT_EQ(row.count, 1);
}

TEST(TableTest, MinusZeroAndZeroAreOneAbscissa) {
    Table table;
    table.point({}, "c", 0.0, 1.0);
    table.point({}, "c", -0.0, 3.0);
    ASSERT_EQ(table.curves().size(), 1u);
    EXPECT_EQ(table.curves()[0].y, 2.0);
}

TEST(TableTest, CurvePointsAggregateOverSamples) {
    Table table("m");
    for (double y : {1.0, 3.0}) table.point(out3, "local_acc", 0.25, y);
    table.point(out3, "local_acc", 0.5, undefined("no rows"));

    const std::vector<CurveRow> rows = table.curves();

    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].y, 2.0);
    EXPECT_DOUBLE_EQ(*rows[0].standard_error, 1.0);  // sd = sqrt(2), over sqrt(2)
    EXPECT_EQ(rows[0].x, 0.25);
    EXPECT_EQ(rows[1].y, std::nullopt);
    EXPECT_EQ(rows[1].count, 0);
}

TEST(TableTest, TheFirstSampleOfAMapIsKept) {
    Table table;
    table.matrix({.at = out3, .name = "P", .rows = 1, .cols = 2, .values = {1, 2}});
    table.matrix({.at = out3, .name = "P", .rows = 1, .cols = 2, .values = {3, 4}});
    ASSERT_EQ(table.maps().size(), 1u);
    EXPECT_EQ(table.maps()[0].values[0], 1);
    EXPECT_NO_THROW(table.matrix({.at = out3, .name = "none", .rows = 0, .cols = 0, .values = {}}));
    EXPECT_THROW(table.matrix({.at = out3, .name = "Q", .rows = 2, .cols = 2, .values = {3, 4}}),
                 Error);
}

TEST(TableTest, AppendKeepsModelsApartAndMergesEqualKeys) {
    Table a("a"), b("b"), again("a"), whole("a");
    for (double v : {1.0, 2.0}) a.scalar(out3, "r", v), whole.scalar(out3, "r", v);
    for (double v : {4.0, 8.0, 9.0}) again.scalar(out3, "r", v), whole.scalar(out3, "r", v);
    b.scalar(out3, "r", 5.0);
    b.point(out3, "c", 0.5, 1.0);

    a.append(b);
    a.append(again);

    const std::vector<MetricRow> rows = a.metrics();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].model, "b");
    EXPECT_EQ(rows[1].value, 5.0);
    EXPECT_EQ(a.curves().size(), 1u);
    const MetricRow expected = whole.find(out3, "r").value();
    EXPECT_EQ(rows[0].count, 5);
    EXPECT_DOUBLE_EQ(*rows[0].value, *expected.value);
    EXPECT_DOUBLE_EQ(*rows[0].standard_error, *expected.standard_error);
}

TEST(TableTest, RowsThatWereReadWithoutAStandardErrorHaveNone) {
    Table table("m");
    MetricRow row{.model = "m", .metric = "x", .value = 2.0, .count = 7};
    table.append({row}, {});
    EXPECT_EQ(table.find({}, "x")->value, 2.0);
    EXPECT_FALSE(table.find({}, "x")->standard_error);
}

TEST(TableTest, FindSaysNothingOfWhatWasNeverAdded) {
    Table table("m");
    table.scalar(out3, "r", 1.0);
    EXPECT_EQ(table.find(out3, "xi1"), std::nullopt);
    EXPECT_EQ(table.find({.layer = 3, .stage = "attn"}, "r"), std::nullopt);
}

}  // namespace
}  // namespace tsdiag
