#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../reports/layout.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Series line(const std::string& name, double y, bool dashed = false) {
    return {.name = name, .x = {0, 1}, .y = {y, y + 1}, .dashed = dashed};
}

PaperFigure of(const std::string& label, std::vector<Series> series) {
    return {.label = label,
            .figure = {.name = "f", .panels = {{.title = "t", .series = std::move(series)}}}};
}

std::vector<std::string> names_of(const Figure& figure) {
    std::vector<std::string> out;
    for (const Series& s : figure.panels.front().series) out.push_back(s.name);
    return out;
}

TEST(PanelNamesTest, AreWhatStandsInFrontTheTitleOrANumber) {
    const Figure figure{.panels = {{.title = "t_sim: token similarity"},
                                   {.title = "loss"},
                                   {.title = ""},
                                   {.title = "log: a"},
                                   {.title = "log: b"},
                                   {.title = "same"},
                                   {.title = "same"}}};
    EXPECT_THAT(panel_names(figure),
                ElementsAre("t_sim", "loss", "3", "log: a", "log: b", "6", "7"));
}

TEST(OverlayTest, HasTheLinesThatAllHaveAndAReferenceOnce) {
    const std::vector<PaperFigure> all = {
        of("A", {line("out", 1), line("attn", 2), line("bound", 3, true), line("only", 4)}),
        of("B", {line("attn", 5), line("out", 6), line("bound", 3, true)})};
    EXPECT_THAT(names_of(overlaid(all)),
                ElementsAre("A: out", "B: out", "A: attn", "B: attn", "bound"));
    // a bound that differs is of its result
    const std::vector<PaperFigure> differ = {of("A", {line("out", 1), line("bound", 3, true)}),
                                             of("B", {line("out", 6), line("bound", 4, true)})};
    EXPECT_THAT(names_of(overlaid(differ)),
                ElementsAre("A: out", "B: out", "A: bound", "B: bound"));
}

TEST(OverlayTest, OneLineOfEachIsNamedByItsResult) {
    const std::vector<PaperFigure> all = {of("A", {line("mean over heads", 1)}),
                                          of("B", {line("mean over heads", 2)})};
    EXPECT_THAT(names_of(overlaid(all)), ElementsAre("A", "B"));
}

TEST(OverlayTest, IsLogarithmicWhereOneIsAndAllArePositive) {
    std::vector<PaperFigure> all = {of("A", {line("out", 1)}), of("B", {line("out", 0.01)})};
    all[1].figure.panels[0].y.scale = Scale::log;
    EXPECT_EQ(overlaid(all).panels[0].y.scale, Scale::log);
    all[0].figure.panels[0].series[0].y[0] = 0.0;
    EXPECT_EQ(overlaid(all).panels[0].y.scale, Scale::linear);
}

TEST(OverlayTest, RefusesCellsAndWhatHasNothingInCommon) {
    std::vector<PaperFigure> all = {of("A", {line("out", 1)}), of("B", {line("in", 1)})};
    EXPECT_THROW(overlaid(all), UsageError);
    all[1].figure.panels[0].title = "another";
    EXPECT_THROW(overlaid(all), UsageError);
    all[0].figure.panels[0].grid = Grid{.rows = 1, .cols = 1, .values = {1.0}};
    EXPECT_THROW(overlaid(all), UsageError);
}

TEST(OverlayTest, InAnOrderAPlaceHasAColourAndAResultItsDashes) {
    const std::vector<Series> layers = {line("layer 0", 1), line("layer 1", 2), line("layer 2", 3)};
    std::vector<PaperFigure> all = {of("A", layers), of("B", layers)};
    for (PaperFigure& one : all) one.figure.panels[0].ordered = true;
    const std::vector<reports::LineStyle> styles = reports::line_styles(overlaid(all), true);
    ASSERT_EQ(styles.size(), 6u);
    for (std::size_t i = 0; i < 6; i += 2) {
        EXPECT_EQ(styles[i].colour, styles[i + 1].colour);
        EXPECT_NE(styles[i].dash, styles[i + 1].dash);
        EXPECT_EQ(styles[i].dash, styles[0].dash);
        if (i > 0) {
            EXPECT_NE(styles[i].colour, styles[0].colour);
        }
    }
}

/// A panel of an order has its colours, whatever lines a panel before it has.
TEST(LineStylesTest, InAnOrderDoNotDependOnOtherPanels) {
    const std::vector<Series> layers = {line("layer 0", 1), line("layer 1", 2)};
    Figure alone = of("", layers).figure;
    alone.panels[0].ordered = true;
    Figure behind = of("", {line("all", 1)}).figure;
    behind.panels.push_back(alone.panels[0]);
    for (const bool on_paper : {false, true}) {
        const auto expected = reports::line_styles(alone, on_paper),
                   styles = reports::line_styles(behind, on_paper);
        ASSERT_EQ(styles.size(), 3u);
        for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(styles[i + 1].colour, expected[i].colour);
    }
}

TEST(LineStylesOnPaperTest, BeginWithBlackAndAllDiffer) {
    const Figure figure = of("", {line("a", 1), line("b", 2), line("c", 3)}).figure;
    const std::vector<reports::LineStyle> styles = reports::line_styles(figure, true);
    EXPECT_EQ(styles[0].colour, "#000000");
    EXPECT_TRUE(styles[0].dash.empty());
    EXPECT_NE(styles[1].dash, styles[2].dash);
    EXPECT_NE(reports::line_styles(figure)[0].colour, "#000000");
}

TEST(PaperCaptionTest, SaysWhatBandsAreOnlyWhereThereAreSome) {
    PaperFigure one = of("", {line("out", 1)});
    one.figure.title = "Similarity";
    one.figure.caption = "r = a/b [TSE (5)]. Bands are 95 % intervals of `r`, for three. More.";
    one.run.seed = 3;
    one.run.version = "1.2";
    EXPECT_THAT(paper_caption(one.figure, {&one, 1}, false), Not(HasSubstr("Bands")));
    one.figure.panels[0].series[0].low = one.figure.panels[0].series[0].high = {1.0, 2.0};
    EXPECT_THAT(paper_caption(one.figure, {&one, 1}, false),
                AllOf(HasSubstr(" Bands are 95 % intervals of r, for three. Measured"),
                      HasSubstr("Similarity: t. "), HasSubstr("seed 3"), HasSubstr("1.2")));
    EXPECT_THAT(paper_caption(one.figure, {&one, 1}, true), HasSubstr("95 \\%"));
}

TEST(PaperCaptionTest, NamesWhatAnOverlayLacksAndTheBandsOfAll) {
    std::vector<PaperFigure> all = {of("A", {line("out", 1), line("norm1", 2)}),
                                    of("B", {line("out", 3), line("layer 3", 4)})};
    EXPECT_THAT(paper_caption(overlaid(all), all, false),
                HasSubstr(" Left out are lines that not all have: A: norm1; B: layer 3. "));
    // only the second has samples enough for bands
    all[1].figure.caption = "X. Bands are 95 % intervals.";
    all[1].figure.panels[0].series[0].low = all[1].figure.panels[0].series[0].high = {1.0, 2.0};
    EXPECT_THAT(paper_caption(overlaid(all), all, false),
                HasSubstr(" Bands are 95 % intervals. Left"));
    all[0].figure.caption = all[1].figure.caption;
    EXPECT_THAT(paper_caption(overlaid(all), all, false),
                Not(HasSubstr("intervals. Bands")));  // said once
    all = {of("A", {line("out", 1)}), of("B", {line("out", 3)})};
    EXPECT_THAT(paper_caption(overlaid(all), all, false), Not(HasSubstr("Left out")));
}

TEST(OverlayTest, RefusesOtherAxes) {
    std::vector<PaperFigure> all = {of("A", {line("out", 1)}), of("B", {line("out", 1)})};
    all[0].figure.panels[0].x.title = "step";
    all[1].figure.panels[0].x.title = "epoch";
    EXPECT_THROW(overlaid(all), UsageError);
}

TEST(ForPaperTest, LettersTellPanelsApart) {
    Figure figure = of("", {line("out", 1)}).figure;
    EXPECT_EQ(for_paper(figure, false).panels[0].title, "");
    EXPECT_EQ(for_paper(figure, true).panels[0].title, "t");
    figure.panels.push_back(figure.panels[0]);
    EXPECT_EQ(for_paper(figure, false).panels[1].title, "(b)");
    EXPECT_EQ(for_paper(figure, true).panels[1].title, "(b) t");
    figure.panels[1].grid = Grid{.rows = 1, .cols = 1, .values = {1.0}, .value_title = "delta"};
    EXPECT_TRUE(for_paper(figure, false).panels[1].grid->bar_named);
    EXPECT_FALSE(for_paper(figure, true).panels[1].grid->bar_named);
}

}  // namespace
}  // namespace tsdiag
