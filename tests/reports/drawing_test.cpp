#include "../../reports/drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../reports/cells.hpp"
#include "../../reports/layout.hpp"
#include "folder.hpp"
#include "sample.hpp"

namespace tsdiag::reports {
namespace {

using testing::HasSubstr;
using testing::Not;

Figure of_lines(int count, bool ordered) {
    Plot plot{.title = "t", .ordered = ordered};
    for (int i = 0; i < count; ++i)
        plot.series.push_back({.name = std::to_string(i), .x = {0, 4}, .y = {0.0, double(i + 1)}});
    return {.name = "f", .panels = {plot}};
}

Rgb rgb(const std::string& s) {
    const auto part = [&](std::size_t at) {
        return std::uint8_t(std::stoi(s.substr(at, 2), nullptr, 16));
    };
    return {part(1), part(3), part(5)};
}

TEST(Contrast, IsThatOfTheGuidelines) {
    EXPECT_DOUBLE_EQ(contrast({0, 0, 0}, {255, 255, 255}), 21);
    EXPECT_DOUBLE_EQ(contrast({9, 9, 9}, {9, 9, 9}), 1);
    EXPECT_NEAR(contrast({0x76, 0x76, 0x76}, {255, 255, 255}), 4.54, 0.005);  // W3C's example
}

TEST(Contrast, EveryLineIsSeenByDayAndAtNight) {
    for (const bool ordered : {false, true})
        for (const int count : {1, 2, 7, 20})
            for (const LineStyle& style : line_styles(of_lines(count, ordered))) {
                EXPECT_GE(contrast(rgb(style.colour), paper), 3) << style.colour;
                EXPECT_GE(contrast(rgb(style.night_colour), night), 3) << style.night_colour;
            }
}

/// The first and the last of an order are far apart, and of viridis.
TEST(Contrast, AnOrderUsesThePaletteAsFarAsItIsSeen) {
    const std::vector<LineStyle> styles = line_styles(of_lines(9, true));
    EXPECT_EQ(styles.front().colour, hex(ramp(Palette::sequential).front()));
    EXPECT_EQ(styles.back().night_colour, hex(ramp(Palette::sequential).back()));
    EXPECT_GT(contrast(rgb(styles.front().colour), rgb(styles.back().colour)), 3);
    EXPECT_GT(contrast(rgb(styles.front().night_colour), rgb(styles.back().night_colour)), 3);
}

TEST(Drawing, PlacesPointsAtTheirShares) {
    Figure f = of_lines(1, false);
    f.panels[0].x = {.low = 0, .high = 4};
    f.panels[0].y = {.low = 0, .high = 2};
    EXPECT_THAT(drawing_html(f), HasSubstr("class=\"line\" d=\"M0 1000L1000 500\""));
    f.panels[0].y = {.scale = Scale::log, .low = 0.1, .high = 10};
    f.panels[0].series[0].y = {0.1, 1.0};
    EXPECT_THAT(drawing_html(f), HasSubstr("class=\"line\" d=\"M0 1000L1000 500\""));
}

TEST(Drawing, UndefinedPointsLeaveGaps) {
    Figure f = of_lines(1, false);
    f.panels[0].series[0] = {.name = "a", .x = {0, 1, 2, 3}, .y = {1.0, {}, 1.0, 1.0}};
    const std::string html = drawing_html(f), line = html.substr(html.find("class=\"line\" d=\""));
    EXPECT_EQ(test::count_of(line.substr(0, line.find("/>")), "M"), 2u);
}

TEST(Drawing, ColoursAreClassesWithARuleForNight) {
    const Figure f = of_lines(2, false);
    const std::string css = drawing_css(std::vector{f}), html = drawing_html(f);
    for (const LineStyle& style : line_styles(f)) {
        const std::string name = "c" + style.colour.substr(1);
        EXPECT_THAT(html, HasSubstr("<g class=\"" + name + "\""));
        EXPECT_THAT(css, HasSubstr("." + name + "{--c:" + style.colour + "}"));
        EXPECT_THAT(css, HasSubstr("." + name + "{--c:" + style.night_colour + "}"));
    }
}

const FigureEntry& maps_entry() {
    for (const FigureEntry* entry : figures())
        if (entry->name == "attention_maps") return *entry;
    throw std::logic_error("no attention_maps");
}

Table with_map(std::vector<double> values, Index n, Index count = 1) {
    Table t("m");
    for (Index head = 0; head < count; ++head)
        t.matrix({.at = {.layer = 0, .stage = "attn", .head = head},
                  .name = "attention",
                  .rows = n,
                  .cols = n,
                  .values = values});
    return t;
}

TEST(Maps, MaskedEntriesHaveNoColour) {
    const std::vector<double> causal = {1,   0, 0,   0, 0.5,  0.5,  0,    0,
                                        0.4, 0, 0.6, 0, 0.25, 0.25, 0.25, 0.25};
    const Figure f = maps_entry().make(with_map(causal, 4)).at(0);
    const std::vector<std::optional<double>>& v = f.panels[0].grid->values;
    for (Index i = 0; i < 4; ++i)
        for (Index j = 0; j < 4; ++j)
            EXPECT_EQ(v[std::size_t(4 * i + j)].has_value(), j <= i) << i << " " << j;
    EXPECT_EQ(v[9], 0.0);  // a zero where there is no mask
    std::vector<double> corner(16, 1.0 / 4);
    corner[3] = 0;
    EXPECT_EQ(maps_entry().make(with_map(corner, 4)).at(0).panels[0].grid->values[3], 0.0);
}

TEST(Maps, FarFromZeroHaveARangeOfTheirOwn) {
    std::vector<double> far, near;
    for (int k = 0; k < 16; ++k) {
        far.push_back(0.9 + 0.001 * k);
        near.push_back(0.05 * k);
    }
    EXPECT_GT(*maps_entry().make(with_map(far, 4)).at(0).panels[0].grid->low, 0.89);
    EXPECT_EQ(*maps_entry().make(with_map(near, 4)).at(0).panels[0].grid->low, 0);
    EXPECT_EQ(colours_begin(0.6, 1), 0.6);
    EXPECT_EQ(colours_begin(0.4, 1), 0);
    EXPECT_EQ(colours_begin(-2, 1), -2);
}

TEST(Maps, ManyHaveAGallery) {
    const std::vector<double> values(64 * 64, 1.0 / 64);
    const std::vector<Figure> few = maps_entry().make(with_map(values, 64, 3));
    EXPECT_EQ(few.at(0).name, "attention_maps");
    const std::vector<Figure> many = maps_entry().make(with_map(values, 64, 200));
    EXPECT_EQ(many.at(0).name, "attention_maps_gallery");
    EXPECT_EQ(many[0].panels[0].grid->col_labels.size(), 200u);
    std::size_t drawn = 0, bytes = 0;
    for (const Figure& f : many) bytes += drawing_html(f).size() + figure_data(f).dump().size();
    for (std::size_t k = 1; k < many.size(); ++k) drawn += many[k].panels.size();
    EXPECT_LT(drawn, 200u);
    EXPECT_GT(drawn, 20u);
    EXPECT_LT(bytes, 4'000'000u);
    EXPECT_THAT(many.back().caption, HasSubstr("more maps"));
}

/// `in` of a layer is `out` of the one before: one line shows both.
TEST(Lines, TheInputIsNotDrawnBesideTheOutputItRepeats) {
    Table t("m");
    for (const auto& [layer, in, out] : {std::tuple(0, 0.9, 0.5), {1, 0.5, 0.3}, {2, 0.3, 0.2}}) {
        t.scalar({.layer = layer, .stage = "in"}, "t_div", in);
        t.scalar({.layer = layer, .stage = "out"}, "t_div", out);
    }
    EXPECT_EQ(figures()[0]->make(t).at(0).panels.at(0).series.size(), 1u);
    t.scalar({.layer = 3, .stage = "in"}, "t_div", 0.7);
    t.scalar({.layer = 3, .stage = "out"}, "t_div", 0.1);
    EXPECT_EQ(figures()[0]->make(t).at(0).panels.at(0).series.size(), 2u);
}

}  // namespace
}  // namespace tsdiag::reports
