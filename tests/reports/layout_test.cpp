#include "../../reports/layout.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tsdiag::reports {
namespace {

TEST(LayoutTest, LinearTicksAreRoundAndInside) {
    EXPECT_EQ(ticks({0, 1.02}, Scale::linear, 5), (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
    EXPECT_EQ(ticks({-0.22, 11.22}, Scale::linear, 6, true),
              (std::vector<double>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(ticks({0, 1.5}, Scale::linear, 6, true), (std::vector<double>{0, 1}));
}

TEST(LayoutTest, LogarithmicTicksAreDecadesOrTheirParts) {
    EXPECT_EQ(ticks({1e-6, 1.1}, Scale::log, 5),
              (std::vector<double>{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}));
    EXPECT_EQ(ticks({0.9, 11}, Scale::log, 5), (std::vector<double>{1, 3, 10}));
    EXPECT_GE(ticks({0.95, 1.0}, Scale::log, 5).size(), 3u);
}

TEST(LayoutTest, EveryExtentHasTicksAndNotTooMany) {
    for (double low : {-1e6, -1.0, 0.0, 1e-9, 0.98, 37.0})
        for (double width : {1e-9, 1e-3, 0.7, 3.0, 1e8}) {
            const Extent e{low, low + width * std::max(1.0, std::abs(low))};
            const auto found = ticks(e, Scale::linear, 5);
            EXPECT_GE(found.size(), 2u) << e.low << " " << e.high;
            EXPECT_LE(found.size(), 8u) << e.low << " " << e.high;
        }
}

TEST(LayoutTest, NumbersAtTheEndsOfTheRangeHaveFiniteExtentsAndTicks) {
    constexpr double tiny = 5e-324, huge = 1.7976931348623157e308;
    const std::vector<std::vector<std::optional<double>>> all = {
        {tiny},        {tiny, 3 * tiny}, {tiny, 1e-310}, {tiny, 1.0}, {tiny, huge}, {huge},
        {1e308, huge}, {1.0, huge},      {-huge, huge},  {-huge},     {-tiny, tiny}};
    for (const auto& values : all)
        for (const Scale scale : {Scale::linear, Scale::log}) {
            Plot plot;
            plot.y.scale = scale;
            plot.series = {{.name = "a", .x = std::vector<double>(values.size(), 0), .y = values}};
            const Extent e = y_extent(plot);
            SCOPED_TRACE(fmt::format("{} to {}", e.low, e.high));
            ASSERT_TRUE(std::isfinite(e.low) && std::isfinite(e.high) && e.low < e.high);
            const auto found = ticks(e, scale, 5);
            EXPECT_GE(found.size(), 2u);
            EXPECT_LE(found.size(), 20u);
            for (const double t : found) EXPECT_TRUE(t >= e.low && t <= e.high) << t;
        }
}

TEST(LayoutTest, LabelsOfColumnsThatWouldTouchAreTurned) {
    constexpr int pixels = 370;
    Grid grid{.rows = 1, .cols = 8};
    EXPECT_FALSE(turns_labels(grid, pixels));  // numbers, of which some are left out
    grid.col_labels = {"MNLI", "MNLI-mm", "QNLI", "QQP", "SST-2", "MRPC", "CoLA", "mean"};
    EXPECT_TRUE(turns_labels(grid, pixels));
    EXPECT_FALSE(turns_labels(grid, 2 * pixels));
    EXPECT_EQ(column_ticks(grid, pixels).size(), 8u);
    grid.col_labels = {"a", "b", "c", "d", "e", "f", "g", "h"};
    EXPECT_FALSE(turns_labels(grid, pixels));
    grid.turned = true;
    EXPECT_TRUE(turns_labels(grid, pixels));
    const Grid one{.rows = 1, .cols = 1, .col_labels = {std::string(90, 'x')}};
    EXPECT_FALSE(turns_labels(one, pixels));  // nothing is beside it
}

TEST(LayoutTest, LabelsOfTicksAreShort) {
    EXPECT_EQ(tick_label(0.25), "0.25");
    EXPECT_EQ(tick_label(1e-7), "1e-7");
    EXPECT_EQ(tick_label(1e12), "1e12");
    EXPECT_EQ(tick_label(10), "10");
}

TEST(LayoutTest, ConstantDataHaveAnExtent) {
    Plot plot;
    plot.series = {{.name = "a", .x = {0}, .y = {2.0}}};
    const Extent x = x_extent(plot), y = y_extent(plot);
    EXPECT_LT(x.low, 0);
    EXPECT_GT(x.high, 0);
    EXPECT_LT(y.low, 2);
    EXPECT_GT(y.high, 2);
    EXPECT_GT(y_extent(Plot{}).high, y_extent(Plot{}).low);
}

TEST(LayoutTest, DivergingColoursAreCentredOnZero) {
    const Grid g{.rows = 1, .cols = 2, .values = {-1.0, 3.0}, .palette = Palette::diverging};
    EXPECT_EQ(value_extent(g).low, -3);
    EXPECT_EQ(value_extent(g).high, 3);
}

TEST(LayoutTest, SeriesDifferByDashAsWellAsByColour) {
    Figure f{.panels = {{}}};
    for (int i = 0; i < 7; ++i) f.panels[0].series.push_back({.name = std::to_string(i)});
    std::set<std::string> colours;
    std::set<std::vector<int>> dashes;
    for (const LineStyle& s : line_styles(f)) {
        colours.insert(s.colour);
        dashes.insert(s.dash);
    }
    EXPECT_EQ(colours.size(), 7u);
    EXPECT_EQ(dashes.size(), 7u);
}

TEST(LayoutTest, NoTwoOfManySeriesLookAlike) {
    Figure f{.panels = {{}}};
    for (int i = 0; i < 20; ++i) f.panels[0].series.push_back({.name = std::to_string(i)});
    std::set<std::pair<std::string, std::vector<int>>> looks;
    for (const LineStyle& s : line_styles(f)) looks.insert({s.colour, s.dash});
    EXPECT_EQ(looks.size(), 20u);
}

TEST(LayoutTest, EqualNamesShareAStyle) {
    const Plot plot{.series = {{.name = "out"}}};
    const Figure f{.panels = {plot, plot}};
    EXPECT_EQ(line_styles(f).size(), 1u);
    EXPECT_FALSE(needs_legend(f));
}

}  // namespace
}  // namespace tsdiag::reports
