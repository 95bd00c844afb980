#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <regex>
#include <thread>

#include "../../reports/drawing.hpp"
#include "../../reports/layout.hpp"
#include "../../reports/process.hpp"
#include "folder.hpp"
#include "sample.hpp"
#include "support/process.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag {
namespace {

using test::Folder;
using test::slurp;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

Figure one_line(const std::string& text) {
    return {.name = "one",
            .title = text,
            .alt = text,
            .panels = {{.title = text,
                        .x = {.title = text},
                        .y = {.title = text},
                        .series = {{.name = text, .x = {0, 1, 2}, .y = {1.0, {}, 2.0}},
                                   {.name = "b", .x = {0, 1}, .y = {1.0, 1.5}, .dashed = true}},
                        .marks = {{1.5, text}}}}};
}

class GnuplotTest : public testing::Test {
  protected:
    void SetUp() override {
        if (test::program({"gnuplot"}).empty()) GTEST_SKIP() << "gnuplot is not installed";
    }
    Folder folder;
};

TEST_F(GnuplotTest, LeavesScriptAndDataThatDrawTheSameAgain) {
    draw(std::vector{one_line("t_sim")}, folder.path);
    const std::string svg = slurp(folder.path / "one.svg");
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, HasSubstr(">t_sim<"));
    const std::string pdf = slurp(folder.path / "one.pdf");
    EXPECT_EQ(pdf.substr(0, 5), "%PDF-");
    EXPECT_THAT(pdf, HasSubstr("/CreationDate (D:19700101000000"));  // independent of the date

    fs::remove(folder.path / "one.svg");
    const reports::Outcome again = reports::run_program({"gnuplot", "one.gp"}, folder.path);

    EXPECT_EQ(again.status, 0) << again.first_line;
    EXPECT_EQ(slurp(folder.path / "one.svg"), svg);
}

Figure bubbles() {
    return {.name = "bubbles",
            .title = "speed",
            .alt = "1",
            .panels = {{.title = "speed",
                        .x = {.title = "x", .scale = Scale::log},
                        .y = {.title = "y"},
                        .series = {{.name = "large one", .x = {10}, .y = {1.0}, .areas = {400}},
                                   {.name = "small", .x = {100}, .y = {2.0}, .areas = {100}},
                                   {.name = "nowhere", .x = {50}, .y = {{}}, .areas = {50}}},
                        .area_title = "bytes"}}};
}

TEST_F(GnuplotTest, BubblesCarryTheirNamesAndAreas) {
    const Figure figure = bubbles();
    draw(std::vector{figure}, folder.path);
    const std::string svg = slurp(folder.path / "bubbles.svg"),
                      script = slurp(folder.path / "bubbles.gp");
    EXPECT_THAT(svg, HasSubstr(">large one<"));
    EXPECT_THAT(svg, HasSubstr(">small<"));
    EXPECT_THAT(svg, Not(HasSubstr(">nowhere<")));
    EXPECT_THAT(script, HasSubstr("set object circle at first 10, first 1 "));
    EXPECT_THAT(script, Not(HasSubstr("set key center")));
    EXPECT_THAT(slurp(folder.path / "bubbles.dat"), HasSubstr("10 1 NaN NaN 400\n"));
    const Plot& plot = figure.panels[0];
    // four times the area, twice the width
    const std::vector<reports::Bubble> all = reports::bubbles(plot, reports::layout(figure));
    ASSERT_EQ(all.size(), 2u);
    EXPECT_DOUBLE_EQ(all[0].width, 2 * all[1].width);
    EXPECT_FALSE(reports::needs_legend(figure));
    const std::string page = reports::drawing_html(figure);
    EXPECT_THAT(page, HasSubstr(">large one</text>"));
    EXPECT_EQ(test::count_of(page, "<circle "), 2u);
    EXPECT_THAT(reports::figure_data(figure).dump(), HasSubstr("\"bytes\""));
}

/// Ten circles of different sizes at nearly one place, and one at the edge.
TEST_F(GnuplotTest, NamesOfBubblesDoNotCoverEachOther) {
    Plot plot{.x = {.scale = Scale::log}};
    for (int i = 0; i < 10; ++i)
        plot.series.push_back({.name = fmt::format("model number {}", i),
                               .x = {std::pow(10, 1 + 0.12 * (i % 5))},
                               .y = {i < 5 ? 1.0 : 2.0},
                               .areas = {double(1 + i)}});
    plot.series.push_back({.name = "the model at the edge", .x = {100}, .y = {1.5}, .areas = {1}});
    const Figure figure{.name = "names", .panels = {plot}};
    const reports::Layout size = reports::layout(figure);
    const reports::Extent xs = reports::x_extent(plot), ys = reports::y_extent(plot);
    const std::vector<reports::Bubble> all = reports::bubbles(plot, size);
    const auto pixels = [&](const reports::Bubble& b) {
        return std::pair(size.width * std::log(b.label_x / xs.low) / std::log(xs.high / xs.low),
                         size.height * reports::share_of(ys, b.label_y));
    };
    for (const reports::Bubble& a : all) {
        const auto [x, y] = pixels(a);
        const double half = 3 * double(a.name.size());
        EXPECT_TRUE(x >= half && x <= size.width - half) << a.name;
        for (const reports::Bubble& b : all) {
            const auto [other_x, other_y] = pixels(b);
            const bool apart = std::abs(x - other_x) >= half + 3 * double(b.name.size()) - 1e-9 ||
                               std::abs(y - other_y) >= 12 - 1e-9;
            EXPECT_TRUE(&a == &b || apart) << a.name << " and " << b.name;
        }
    }
}

TEST_F(GnuplotTest, CellsShowTheirNumbersWhereAsked) {
    Figure figure{.name = "cells",
                  .panels = {{.title = "scores",
                              .grid = Grid{.rows = 2,
                                           .cols = 2,
                                           .values = {0.0, 12.34, {}, 100.0},
                                           .low = 0,
                                           .high = 100,
                                           .row_labels = {"a name that is rather long", "b"},
                                           .decimals = 1}}}};
    draw(std::vector{figure}, folder.path);
    std::string svg = slurp(folder.path / "cells.svg");
    for (const char* part : {">0.0<", ">12.3<", ">100.0<", ">a name that is rather long<"})
        EXPECT_THAT(svg, HasSubstr(part));
    const std::string page = reports::drawing_html(figure);
    EXPECT_THAT(page, testing::ContainsRegex("fill=\"#ffffff\"[^>]*>12.3<"));
    EXPECT_THAT(page, testing::ContainsRegex("fill=\"#000000\"[^>]*>100.0<"));
    // the names have room: the panel begins further to the right
    const auto left_of = [&] {
        const std::string script = slurp(folder.path / "cells.gp"), key = "set lmargin at screen ";
        const std::string wide = "size ";
        return std::stod(script.substr(script.find(key) + key.size())) *
               std::stod(script.substr(script.find(wide) + wide.size()));
    };
    const double wide = left_of();
    figure.panels[0].grid->row_labels[0] = "a";
    figure.panels[0].grid->decimals = -1;
    draw(std::vector{figure}, folder.path);
    EXPECT_GT(wide, left_of() + 100);
    EXPECT_THAT(slurp(folder.path / "cells.svg"), Not(HasSubstr(">12.3<")));
}

TEST_F(GnuplotTest, ASingleRowOrColumnHasItsColours) {
    for (const auto& [rows, cols] : {std::pair{2, 1}, {1, 2}, {1, 1}}) {
        const auto drawn = [&, rows = rows, cols = cols](double value) {
            Figure figure{.name = "cells", .panels = {{.title = "scores"}}};
            figure.panels[0].grid = Grid{.rows = rows, .cols = cols, .low = 0, .high = 100};
            figure.panels[0].grid->values.assign(std::size_t(rows * cols), value);
            draw(std::vector{figure}, folder.path);
            return slurp(folder.path / "cells.svg");
        };
        EXPECT_NE(drawn(100), drawn(50)) << rows << " x " << cols;
    }
}

TEST_F(GnuplotTest, DataHoldEveryNumberAndNaNWhereUndefined) {
    draw(std::vector{one_line("a")}, folder.path);
    EXPECT_THAT(slurp(folder.path / "one.dat"),
                HasSubstr("0 1 NaN NaN\n1 NaN NaN NaN\n2 2 NaN NaN\n"));
}

TEST_F(GnuplotTest, DataOfImagesAreNumbersOrSayWhereTheyAre) {
    const auto map_of = [](Index n) {
        Table table("m");
        Map map{.at = {.layer = 0, .stage = "attn", .head = 2}, .name = "attention"};
        map.rows = map.cols = n;
        for (Index i = 0; i < n * n; ++i) map.values.push_back(double(i));
        table.matrix(map);
        for (const FigureEntry* entry : figures())
            if (entry->name == "attention_maps") return entry->make(table);
        return std::vector<Figure>();
    };
    draw(map_of(3), folder.path);
    const std::string small = slurp(folder.path / "attention_maps.dat");
    EXPECT_THAT(small, HasSubstr("attention_maps_1.png"));
    EXPECT_THAT(small, HasSubstr("0 0 0\n1 0 1\n2 0 2\n0 1 3\n"));
    draw(map_of(300), folder.path);
    EXPECT_THAT(
        slurp(folder.path / "attention_maps.dat"),
        HasSubstr("a cell here is the mean of 2 x 2 entries\n# column row value\n0 0 150.5\n"));
}

TEST_F(GnuplotTest, HostileNamesAreDrawnAndNeverRun) {
    const std::string bait = (folder.path / "bait").string();
    const std::vector<std::string> names = {"'; system('touch " + bait + "'); '",
                                            "`touch " + bait + "`",
                                            "$(touch " + bait + ")",
                                            "\"; ! touch " + bait + " \"",
                                            "a\n! touch " + bait + "\nb",
                                            "@x $HOME %s \\",
                                            "it's",
                                            "a\\",
                                            "''",
                                            std::string("\xff\x01\x7f"),
                                            "{/Symbol a}_b^c ~ & <b>",
                                            std::string()};
    for (const std::string& name : names) {
        draw(std::vector{one_line(name)}, folder.path);
        EXPECT_FALSE(fs::exists(bait)) << name;
        EXPECT_THAT(slurp(folder.path / "one.svg"), HasSubstr("</svg>")) << name;
    }
    draw(std::vector{one_line("it's {_x}")}, folder.path);
    EXPECT_THAT(slurp(folder.path / "one.svg"), HasSubstr("it\u2019s {_x}"));
}

TEST_F(GnuplotTest, DrawsPanelsWithoutNumbers) {
    const Figure empty{
        .name = "empty",
        .alt = "nothing",
        .panels = {{.series = {{.name = "a", .x = {0}, .y = {{}}}}},
                   {.y = {.scale = Scale::log}, .series = {{.name = "a", .x = {0}, .y = {0.0}}}},
                   {.grid = Grid{.rows = 1, .cols = 1, .values = {{}}}}}};
    draw(std::vector{empty}, folder.path);
    EXPECT_TRUE(fs::exists(folder.path / "empty.pdf"));
}

TEST_F(GnuplotTest, ManyFiguresAreOneProcessAndKeepToThemselves) {
    std::vector<Figure> figures;
    for (int i = 0; i < 8; ++i) {
        figures.push_back(one_line("t"));
        figures.back().name = "f" + std::to_string(i);
        if (i == 0) figures.back().panels[0].y.scale = Scale::log;
    }
    draw(figures, folder.path);
    // settings of the first figure (a logarithmic axis) do not affect the others
    const auto drawn = [&](const char* name) {
        std::string svg = slurp(folder.path / (std::string(name) + ".svg"));
        for (std::size_t at; (at = svg.find(name)) != std::string::npos;) svg.erase(at, 2);
        return svg;
    };
    EXPECT_TRUE(drawn("f1") == drawn("f7"));
    EXPECT_FALSE(drawn("f0") == drawn("f7"));
}

TEST(GnuplotMissingTest, SaysWhatToInstall) {
    Folder folder;
    const std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
    ::setenv("PATH", folder.path.c_str(), 1);
    try {
        draw(std::vector{one_line("a")}, folder.path);
        ADD_FAILURE() << "drawn without gnuplot";
    } catch (const NotAvailable& e) {
        EXPECT_THAT(e.what(), HasSubstr("install gnuplot-nox"));
    }
    // the page is written nevertheless
    const auto undrawn =
        write_report(test::sample_table({.layers = 2, .heads = 2}), {}, folder.path);
    ::setenv("PATH", path.c_str(), 1);
    ASSERT_EQ(undrawn.size(), 1u);
    EXPECT_THAT(undrawn[0], HasSubstr("gnuplot"));
    const std::string page = slurp(folder.path / "report.html");
    EXPECT_THAT(page, HasSubstr("</html>"));
    EXPECT_THAT(page, testing::Not(HasSubstr("figures/similarity.svg")));
}

TEST(ProcessTest, ReportsStatusAndWhatWasSaid) {
    Folder folder;
    EXPECT_FALSE(reports::run_program({"no-such-program-anywhere"}, folder.path).found);
    EXPECT_EQ(reports::run_program({"true"}, folder.path).status, 0);
    EXPECT_EQ(reports::run_program({"false"}, folder.path).status, 1);
    const reports::Outcome outcome = reports::run_program({"ls", "missing-file"}, folder.path);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.first_line, HasSubstr("missing-file"));
}

TEST(ProcessTest, WhatDoesNotEndIsStoppedWithAllThatItStarted) {
    Folder folder;
    const auto begin = std::chrono::steady_clock::now();
    const reports::Outcome outcome =
        reports::run_program({"sh", "-c", "sleep 600 & echo $! >child; echo said; wait"},
                             folder.path, std::chrono::seconds(3));
    EXPECT_FALSE(outcome.in_time);
    EXPECT_EQ(outcome.first_line, "said");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
    const pid_t child = std::stoi(slurp(folder.path / "child"));
    EXPECT_TRUE(test::dies(child));
}

TEST_F(GnuplotTest, AWidthIsKeptWithTextOfEightPoints) {
    const Figure figure = one_line("t_sim");
    for (const double width : {3.25, 5.5}) {
        draw(std::vector{figure}, folder.path, {.width = width});
        const std::string svg = slurp(folder.path / "one.svg"),
                          pdf = slurp(folder.path / "one.pdf");
        EXPECT_THAT(svg, HasSubstr(fmt::format("width=\"{:.0f}\"", 96 * width)));
        std::smatch box;
        ASSERT_TRUE(std::regex_search(pdf, box, std::regex("MediaBox \\[ *0 0 ([0-9.]+)")));
        EXPECT_NEAR(std::stod(box[1]), 72 * width, 1);
        const std::regex size("font-size=\"([0-9.]+)\"");
        std::size_t texts = 0;
        for (std::sregex_iterator it(svg.begin(), svg.end(), size), end; it != end; ++it, ++texts) {
            const double points = std::stod((*it)[1]) * 72 / 96;
            EXPECT_TRUE(points > 7.9 && points < 10.1) << points;
        }
        EXPECT_GT(texts, 3u);
    }
}

/// Of all text of a PDF that cairo wrote, in points.
std::vector<double> text_sizes(const std::string& pdf) {
    std::vector<double> sizes;
    const std::string begin = "stream\n";
    for (std::size_t at = pdf.find(begin); at != pdf.npos; at = pdf.find(begin, at + 1)) {
        const std::size_t from = at + begin.size();
        std::string content(1 << 20, '\0');
        uLongf size = uLongf(content.size());
        if (uncompress(reinterpret_cast<Bytef*>(content.data()), &size,
                       reinterpret_cast<const Bytef*>(pdf.data() + from),
                       uLong(pdf.size() - from)) != Z_OK)
            continue;
        content.resize(size);
        const std::regex matrix("([-0-9.]+) ([-0-9.]+) [-0-9.]+ [-0-9.]+ [-0-9.]+ [-0-9.]+ Tm");
        for (std::sregex_iterator it(content.begin(), content.end(), matrix), end; it != end; ++it)
            sizes.push_back(std::hypot(std::stod((*it)[1]), std::stod((*it)[2])));
    }
    return sizes;
}

/// It had two thirds of it: pdfcairo makes half points of units of which 96 are an inch.
TEST_F(GnuplotTest, TextOfAPdfHasTheSizeThatIsAskedFor) {
    for (const double points : {8.0, 10.0}) {
        draw(std::vector{one_line("t_sim")}, folder.path, {.width = 3.25, .font_size = points});
        const std::vector<double> sizes = text_sizes(slurp(folder.path / "one.pdf"));
        ASSERT_GT(sizes.size(), 3u);
        for (const double size : sizes)  // of the title one more; four digits in the script
            EXPECT_TRUE(std::abs(size - points) < 0.01 || std::abs(size - points - 1) < 0.01)
                << size;
    }
}

TEST_F(GnuplotTest, TikzIsEscapedAndTheSameEachTime) {
    const Figure figure = one_line("t_sim of 99 % & more");
    draw(std::vector{figure}, folder.path, {.width = 3.25, .tikz = true});
    const std::string tex = slurp(folder.path / "one.tex");
    EXPECT_THAT(tex, HasSubstr("\\begin{tikzpicture}"));
    EXPECT_THAT(tex, HasSubstr("t\\_sim of 99 \\% \\& more"));
    EXPECT_THAT(tex, HasSubstr("\\fontsize{8}{9.6}"));
    EXPECT_THAT(slurp(folder.path / "one.svg"), HasSubstr(">t_sim of 99 % &amp; more<"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    draw(std::vector{figure}, folder.path, {.width = 3.25, .tikz = true});
    EXPECT_EQ(slurp(folder.path / "one.tex"), tex);
}

TEST_F(GnuplotTest, AnImageInTikzHasAPixelForEachCellAndFillsItsPanel) {
    const auto image = [](Index rows, Index cols) {
        Grid grid{.rows = rows, .cols = cols, .image = true};
        for (Index i = 0; i < rows * cols; ++i) grid.values.emplace_back(double(i));
        return grid;
    };
    const Figure figure{
        .name = "one",
        .title = "P",
        .alt = "P",
        .panels = {{.title = "a", .grid = image(3, 4)}, {.title = "b", .grid = image(1, 4)}}};
    draw(std::vector{figure}, folder.path, {.tikz = true});
    std::ifstream lines(folder.path / "one.tex");
    double left = 0, bottom = 0, x = -1, y = -1;  // of the panel, and of the image
    long cols = 0, rows = 0;
    std::vector<std::pair<long, long>> sizes;
    for (std::string line; std::getline(lines, line);) {
        std::sscanf(line.c_str(), "\\clip (%lf,%*f) rectangle (%*f,%lf);", &left, &bottom);
        if (std::sscanf(line.c_str(), "\\gprawimage{rgb}{%lf}{%lf}{%ld}{%ld}", &x, &y, &cols,
                        &rows) < 4)
            continue;
        sizes.emplace_back(rows, cols);
        EXPECT_NEAR(x, left, 0.002);
        EXPECT_NEAR(y, bottom, 0.002);
    }
    ASSERT_EQ(sizes.size(), 2U);
    EXPECT_EQ(sizes[0], std::pair(3L, 4L));
    EXPECT_GT(sizes[1].first, 1);  // gnuplot draws no image of one row
}

/// pdfTeX reads no other letters.
TEST_F(GnuplotTest, SymbolsOfAllMetricsAreAsciiForTex) {
    std::string symbols;
    for (const Metric* m : metrics()) symbols += std::string(m->symbol) + " ";
    draw(std::vector{one_line(symbols)}, folder.path, {.tikz = true});
    const std::string tex = slurp(folder.path / "one.tex");
    EXPECT_THAT(tex, HasSubstr("$\\mu$$_1$"));
    for (std::size_t i = 0; i < tex.size(); ++i)
        ASSERT_LT(static_cast<unsigned char>(tex[i]), 128)
            << tex.substr(i - std::min<std::size_t>(i, 20), 40);
}

TEST_F(GnuplotTest, AStyleChoosesColoursAndFont) {
    draw(std::vector{one_line("t_sim")}, folder.path, {.font = "Serif", .colours = {"#123456"}});
    const std::string script = slurp(folder.path / "one.gp");
    EXPECT_THAT(script, HasSubstr("'Serif,11'"));
    EXPECT_THAT(script, HasSubstr("'#123456'"));
}

TEST_F(GnuplotTest, AColourBarHasItsNameWhereThePanelHasNone) {
    Figure figure{
        .name = "cells",
        .panels = {
            {.title = "delta: a norm",
             .grid = Grid{.rows = 1, .cols = 2, .values = {0.0, 1.0}, .value_title = "delta"}}}};
    const auto names_bar = [&](bool titles) {
        draw(std::vector{for_paper(figure, titles)}, folder.path, {.width = 3.25});
        const std::string script = slurp(folder.path / "cells.gp");
        return std::regex_search(script, std::regex("set label 'delta' at [^\n]* right\n"));
    };
    EXPECT_TRUE(names_bar(false));
    EXPECT_FALSE(names_bar(true));
}

TEST_F(GnuplotTest, NumbersStandInCellsThatHaveRoomForThem) {
    const Figure figure{
        .name = "cells",
        .panels = {{.title = "scores",
                    .grid = Grid{.rows = 1,
                                 .cols = 16,
                                 .values = std::vector<std::optional<double>>(16, 12.5),
                                 .decimals = 1}}}};
    for (const double width : {3.25, 8.0}) {
        draw(std::vector{figure}, folder.path, {.width = width});
        EXPECT_EQ(slurp(folder.path / "cells.gp").find("set label '12.5'") != std::string::npos,
                  width > 4)
            << width;
    }
}

TEST_F(GnuplotTest, EveryRowOfATableHasItsNameAtTheWidthOfAColumn) {
    Grid grid{
        .rows = 8, .cols = 1, .values = std::vector<std::optional<double>>(8, 1.0), .decimals = 1};
    for (Index i = 0; i < grid.rows; ++i) grid.row_labels.push_back(fmt::format("row{}", i));
    const Figure figure{.name = "cells",
                        .panels = {{.title = "here", .grid = grid}, {.title = "", .grid = grid}}};
    draw(std::vector{figure}, folder.path, {.width = 3.25});
    const std::string script = slurp(folder.path / "cells.gp");
    for (const std::string& name : grid.row_labels) EXPECT_THAT(script, HasSubstr(name));
}

TEST_F(GnuplotTest, ALongTitleBeginsWhereItEndsOnTheSheet) {
    const auto begin = [&](const std::string& title) {
        Figure figure = one_line("t_sim");
        figure.panels[0].title = title;
        draw(std::vector{figure}, folder.path, {.width = 3.25});
        const std::string script = slurp(folder.path / "one.gp");
        std::smatch at;
        EXPECT_TRUE(std::regex_search(
            script, at, std::regex("at screen ([0-9.]+), screen [0-9.]+ left font large")));
        return std::stod(at[1]);
    };
    const std::string wide = "a title that is wider than its panel, by far";
    EXPECT_LT(begin(wide), begin("short"));
    EXPECT_GT(begin(wide), 0);
}

TEST_F(GnuplotTest, PanelsStandBesideEachOtherAsFarAsThereIsRoom) {
    Figure figure = one_line("t_sim");
    figure.panels.assign(3, figure.panels[0]);
    const auto height = [&](double width) {
        draw(std::vector{figure}, folder.path, {.width = width});
        const std::string svg = slurp(folder.path / "one.svg"), key = " height=\"";
        return std::stod(svg.substr(svg.find(key) + key.size())) / width;
    };
    EXPECT_GT(height(3.25), 1.8 * height(8));
}

}  // namespace
}  // namespace tsdiag
