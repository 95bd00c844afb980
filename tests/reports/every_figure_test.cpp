#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "../../reports/drawing.hpp"
#include "folder.hpp"
#include "sample.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"

/// Laws for the list of figures: a new one is tested without further code.
namespace tsdiag {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class EveryFigure : public testing::TestWithParam<const FigureEntry*> {
  protected:
    std::vector<Figure> made(const Table& table) const { return GetParam()->make(table); }
};

TEST_P(EveryFigure, IsMadeOfASampleAndDescribesItself) {
    const std::vector<Figure> figures = made(test::sample_table(test::small(2)));
    ASSERT_FALSE(figures.empty());
    for (const Figure& f : figures) {
        EXPECT_THAT(f.name, testing::MatchesRegex("[a-z0-9_]+"));
        EXPECT_TRUE(f.name.starts_with(GetParam()->name));
        EXPECT_EQ(f.title, GetParam()->title);
        EXPECT_GT(f.caption.size(), 40u);
        if (f.name != "further") {  // which has as many definitions as metrics
            EXPECT_LE(std::ranges::count(f.caption, ' '), 60) << f.caption;
        }
        EXPECT_THAT(f.alt, testing::ContainsRegex("[0-9]")) << "no number in the alternative text";
        ASSERT_FALSE(f.panels.empty());
        for (const Plot& p : f.panels) {
            EXPECT_THAT(p.title, Not(IsEmpty()));
            EXPECT_NE(p.series.empty(), !p.grid.has_value()) << "lines or a grid";
            for (const Series& s : p.series) {
                EXPECT_EQ(s.x.size(), s.y.size());
                EXPECT_TRUE(s.low.empty() || s.low.size() == s.y.size());
                EXPECT_EQ(s.low.size(), s.high.size());
            }
            if (!p.grid) continue;
            EXPECT_EQ(std::size_t(p.grid->rows * p.grid->cols), p.grid->values.size());
        }
    }
}

TEST_P(EveryFigure, LacksWhatItNeedsInAnEmptyTable) {
    EXPECT_TRUE(made(Table("m")).empty());
    Table other("m");
    other.scalar({.layer = 0, .stage = "out"}, "an_unknown_metric", 1.0);
    EXPECT_TRUE(made(other).empty());
}

TEST_P(EveryFigure, AnyOneOfItsNeedsSuffices) {
    const Table all = test::sample_table(test::small(2));
    for (const std::string_view name : GetParam()->needs) {
        if (name.empty()) continue;
        Table one("m");
        for (const MetricRow& r : all.metrics())
            if (r.metric == name && r.value) one.scalar(r.at, name, *r.value);
        for (const CurveRow& r : all.curves())
            if (r.curve == name && r.y) {
                one.point(r.at, name, r.x, *r.y);
                one.scalar({.layer = r.at.layer, .stage = "out"}, "t_sim", 0.5);
            }
        if (name == "maps")
            for (const Map& map : all.maps()) one.matrix(map);
        EXPECT_FALSE(made(one).empty()) << name;
    }
}

TEST_P(EveryFigure, UndefinedNumbersDrawNothing) {
    Table t("m");
    for (const MetricRow& r : test::sample_table(test::small(2)).metrics())
        t.scalar(r.at, r.metric, undefined("for a test"));
    EXPECT_TRUE(made(t).empty());
}

TEST_P(EveryFigure, BothWritersDrawIt) {
    const std::vector<Figure> figures = made(test::sample_table(test::small(2)));
    for (const Figure& f : figures) {
        const std::string drawn = reports::drawing_html(f);
        EXPECT_EQ(test::count_of(drawn, "<div class=\"panel "), f.panels.size());
        EXPECT_THAT(drawn, Not(HasSubstr("nan")));
        EXPECT_EQ(reports::figure_data(f)["panels"].array().size(), f.panels.size());
        EXPECT_NO_THROW(reports::figure_data(f).dump());
    }
    if (test::program({"gnuplot"}).empty()) GTEST_SKIP() << "gnuplot is not installed";
    test::Folder folder;
    draw(figures, folder.path);
    for (const Figure& f : figures) {
        EXPECT_THAT(test::slurp(folder.path / (f.name + ".svg")), HasSubstr("</svg>"));
        EXPECT_GT(test::slurp(folder.path / (f.name + ".pdf")).size(), 2000u);
    }
}

TEST_P(EveryFigure, SeveralModelsHaveDifferentNames) {
    Table both = test::sample_table(test::small(2), "first");
    both.append(test::sample_table(test::small(2), "second"));
    std::set<std::string> names;
    for (const Figure& f : made(both)) EXPECT_TRUE(names.insert(f.name).second) << f.name;
}

INSTANTIATE_TEST_SUITE_P(Reports, EveryFigure,
                         testing::ValuesIn(figures().begin(), figures().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(FigureListTest, NamesAreUnique) {
    std::set<std::string_view> names;
    for (const FigureEntry* f : figures()) EXPECT_TRUE(names.insert(f->name).second) << f->name;
}

TEST(FigureTest, ManyLayersAreThinnedAndTheCaptionSaysSo) {
    const Table t = test::sample_table({.layers = 24, .heads = 1, .tokens = 8, .samples = 1});
    for (const FigureEntry* entry : figures()) {
        if (entry->name != "accumulation") continue;
        const Figure f = entry->make(t).at(0);
        EXPECT_EQ(f.panels[0].series.size(), 10u);  // nine layers and the uniform line
        EXPECT_EQ(f.panels[0].series[0].name, "layer 0");
        EXPECT_EQ(f.panels[0].series[8].name, "layer 23");
        EXPECT_THAT(f.caption, HasSubstr("9 of 24 layers"));
    }
}

/// Curves and series of logs have pages of their own.
TEST(FigureTest, EveryMetricIsShownSomewhere) {
    for (const Metric* metric : metrics()) {
        if (metric->of == Of::curve || metric->of == Of::series) continue;
        Table t("m");
        const Place at{.layer = 0, .stage = std::string(metric->stage)};
        t.scalar(at, metric->name, 0.25);
        bool drawn = false;
        for (const FigureEntry* entry : figures())
            for (const Figure& f : entry->make(t))
                for (const Plot& p : f.panels) {
                    std::string words = p.title;
                    for (const Series& s : p.series) words += " " + s.name;
                    drawn = drawn || words.find(metric->name) != std::string::npos;
                }
        EXPECT_TRUE(drawn || metric->show != Show::nowhere) << metric->name;
    }
}

TEST(FigureTest, BandsAreStudentsAndStayPositiveOnALogarithm) {
    Table t("m");
    for (double v : {0.001, 0.05, 0.099}) t.scalar({.layer = 0, .stage = "out"}, "t_div", v);
    const Figure f = figures()[0]->make(t).at(0);
    const Series& s = f.panels.at(0).series.at(0);
    const double error = t.find({.layer = 0, .stage = "out"}, "t_div")->standard_error.value();
    ASSERT_EQ(s.high.size(), 1u);
    // 4.303: Student's 97.5 % point of two degrees of freedom
    EXPECT_NEAR(*s.high[0], 0.05 + 4.302652729911275 * error, 1e-9);
    EXPECT_DOUBLE_EQ(*s.low[0], 0.005);
}

TEST(FigureTest, LargeMapsAreReducedToMeansOfBlocks) {
    Table t("m");
    Map map{
        .at = {.layer = 0, .stage = "attn", .head = 0}, .name = "P", .rows = 2048, .cols = 2048};
    map.values.assign(2048 * 2048, 1.0 / 2048);
    t.matrix(std::move(map));
    for (const FigureEntry* entry : figures()) {
        if (entry->name != "attention_maps") continue;
        const Figure f = entry->make(t).at(0);
        EXPECT_EQ(f.panels[0].grid->rows, 1024);
        EXPECT_EQ(f.panels[0].grid->step, 2);
        EXPECT_THAT(f.panels[0].title, HasSubstr("means of 2 x 2"));
    }
}

/// The order of a layer's windows is kept beside its maps, and is none.
TEST(FigureTest, AnOrderIsNotDrawnAsAMap) {
    Table t("m");
    t.matrix({.at = {.layer = 1, .stage = "attn", .head = 0},
              .name = "attention",
              .rows = 2,
              .cols = 2,
              .values = {0.5, 0.5, 0.25, 0.75}});
    t.matrix({.at = {.layer = 1, .stage = "attn"},
              .name = "windows",
              .rows = 1,
              .cols = 2,
              .values = {1, 0}});
    for (const FigureEntry* entry : figures()) {
        if (entry->name != "attention_maps") continue;
        const std::vector<Figure> found = entry->make(t);
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].panels.size(), 1u);
    }
}

TEST(FigureTest, EntriesOfAMapThatAreNotFiniteAreLeftBlankAndTold) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinite = std::numeric_limits<double>::infinity();
    Table t("m");
    for (Index head = 0; head < 3; ++head) {
        Map map{
            .at = {.layer = 1, .stage = "attn", .head = head}, .name = "P", .rows = 2, .cols = 2};
        map.values = {0.5, 0.5, 0.25, 0.75};
        if (head == 1) map.values[2] = nan;
        if (head == 2) map.values = {nan, infinite, -infinite, nan};
        t.matrix(std::move(map));
    }
    for (const FigureEntry* entry : figures()) {
        if (entry->name != "attention_maps") continue;
        const Figure f = entry->make(t).at(0);
        ASSERT_EQ(f.panels.size(), 3u);
        EXPECT_THAT(f.panels[1].grid->values, testing::ElementsAre(0.5, 0.5, std::nullopt, 0.75));
        EXPECT_THAT(f.caption, Not(HasSubstr("head 0")));
        EXPECT_THAT(f.caption, HasSubstr("Layer 1, head 1: 1 of 4 entries is NaN or infinite"));
        EXPECT_THAT(f.caption, HasSubstr("Layer 1, head 2: 4 of 4 entries are NaN or infinite"));
        EXPECT_THAT(f.alt, HasSubstr("head 1: 2 x 2, greatest entry 0.75 in row 1, column 1."));
        EXPECT_THAT(f.alt, Not(HasSubstr("nan")));
    }
}

TEST(FigureTest, OnlyTheLastStepOfATrainingRunIsDrawn) {
    Table t("m");
    for (Index step : {0, 10, 20})
        t.scalar({.step = step, .layer = 0, .stage = "out"}, "t_sim", 0.1 + 0.01 * double(step));
    const Figure f = figures()[0]->make(t).at(0);
    ASSERT_EQ(f.panels[0].series.size(), 1u);
    EXPECT_EQ(f.panels[0].series[0].y.size(), 1u);
    EXPECT_DOUBLE_EQ(*f.panels[0].series[0].y[0], 0.3);
}

}  // namespace
}  // namespace tsdiag
