#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tsdiag/report.hpp"

/// Figures of attentions whose rows might not sum to 1, and of several models.
namespace tsdiag {
namespace {

using testing::HasSubstr;

const FigureEntry& figure(std::string_view name) {
    return **std::ranges::find(figures(), name, [](const FigureEntry* e) { return e->name; });
}

/// C(L) = `height` times L/n, `layers` times.
Table model(const std::string& name, const std::vector<double>& heights, Index n) {
    Table t(name);
    for (std::size_t l = 0; l < heights.size(); ++l) {
        const Place at{.layer = Index(l), .stage = "attn"};
        t.scalar(at, "local_auc", heights[l] / 2);
        for (Index k = 1; k <= n; ++k)
            t.point(at, "local_acc", double(k) / double(n), heights[l] * double(k) / double(n));
    }
    return t;
}

std::vector<Figure> made(const Table& t) { return figure("accumulation").make(t); }

TEST(AccumulationOfModels, IsOneNormalisedCurveAModel) {
    Table t = model("a", {1, 1}, 4);
    t.append(model("b", {3, -2, 0}, 8));  // layers 1 and 2 cannot be divided by their last value
    const std::vector<Figure> all = made(t);
    ASSERT_EQ(all.size(), 3U);
    const Figure& f = all.back();
    EXPECT_EQ(f.name, "accumulation_models");
    ASSERT_EQ(f.panels.size(), 1U);
    const std::vector<Series>& series = f.panels[0].series;
    ASSERT_EQ(series.size(), 3U);
    EXPECT_EQ(series[0].name, "a");
    EXPECT_EQ(series[2].name, "uniform");
    for (const Series& s : {series[0], series[1]})
        for (std::size_t i = 0; i < s.x.size(); ++i) EXPECT_DOUBLE_EQ(*s.y[i], s.x[i]);
    EXPECT_EQ(series[1].x.size(), 8U);
    EXPECT_THAT(f.alt, HasSubstr("b: 0.25 of the attention within 0.25 of the tokens."));
}

TEST(AccumulationOfModels, ShowsTheCurveOfTheAppendixWhereItIsThere) {
    Table t = model("a", {1}, 4);
    Table other = model("b", {1}, 4);
    other.point({.layer = 0, .stage = "attn"}, "local_acc_appendix", 0.5, 0.75);
    t.append(other);
    const Figure f = made(t).back();
    ASSERT_EQ(f.panels.size(), 2U);
    ASSERT_EQ(f.panels[1].series.size(), 1U);
    EXPECT_EQ(f.panels[1].series[0].name, "b");
    EXPECT_EQ(f.panels[1].series[0].y[0], 0.75);
}

TEST(AccumulationOfModels, NeedsTwo) {
    const std::vector<Figure> all = made(model("a", {1, 2}, 4));
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].name, "accumulation");
}

TEST(Accumulation, OfUnnormalisedAttentionIsNotCutOff) {
    const Plot inside = made(model("a", {1}, 4)).at(0).panels.at(0);
    EXPECT_EQ(inside.y.high, 1.02);
    const Plot outside = made(model("a", {7}, 4)).at(0).panels.at(0);
    EXPECT_FALSE(outside.y.high || outside.y.low);
}

TEST(AttentionMaps, OfSignedAttentionDivergeFromZero) {
    for (const double least : {0.0, -0.25}) {
        Table t("m");
        t.matrix({.at = {.layer = 0, .stage = "attn", .head = 0},
                  .name = "attention",
                  .rows = 2,
                  .cols = 2,
                  .values = {1, least, 0.5, 0}});
        const Figure f = figure("attention_maps").make(t).at(0);
        EXPECT_EQ(f.panels[0].grid->palette, least < 0 ? Palette::diverging : Palette::sequential);
        EXPECT_EQ(f.alt.find("least entry") != std::string::npos, least < 0);
    }
}

}  // namespace
}  // namespace tsdiag
