#include "tsdiag/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>

#include "../../reports/page.hpp"
#include "folder.hpp"
#include "sample.hpp"

namespace tsdiag {
namespace {

using test::count_of;
using test::Folder;
using test::slurp;

/// On failure names the missing part, not the whole page.
testing::AssertionResult contains(const std::string& page, const std::string& part) {
    const bool found = page.find(part) != std::string::npos;
    return (found ? testing::AssertionSuccess() : testing::AssertionFailure())
           << "'" << part << "'";
}

std::string page_of(const Table& table, const Json& run, const Folder& folder) {
    write_report(table, run, folder.path);
    return slurp(folder.path / "report.html");
}

TEST(ReportTest, EveryLinkWithinThePageHasItsTarget) {
    Folder folder;
    std::string page = page_of(test::sample_table(test::small(1)), {}, folder);
    page.resize(page.find("<script id=\"figures-data\""));  // the script contains links too
    const std::regex link("href=\"#([^\"]*)\"");
    std::size_t links = 0;
    for (std::sregex_iterator it(page.begin(), page.end(), link), end; it != end; ++it, ++links)
        EXPECT_TRUE(contains(page, " id=\"" + (*it)[1].str() + "\"")) << (*it)[1];
    EXPECT_GE(links, 4u);  // to the verdict, and from findings
}

TEST(ReportTest, EveryStaticFigureThatIsLinkedExists) {
    if (test::program({"gnuplot"}).empty()) GTEST_SKIP() << "gnuplot is not installed";
    Folder folder;
    const std::string page = page_of(test::sample_table(test::small(1)), {}, folder);
    const std::regex link("href=\"(figures/[^\"]*)\"");
    std::size_t links = 0;
    for (std::sregex_iterator it(page.begin(), page.end(), link), end; it != end; ++it, ++links)
        EXPECT_TRUE(std::filesystem::exists(folder.path / (*it)[1].str())) << (*it)[1];
    EXPECT_GE(links, 4 * figures().size());
}

/// Intervals need three samples.
TEST(ReportTest, SaysOnceWhatBandsAreAndOnlyWhereThereAreSome) {
    Folder folder;
    test::Shape shape = test::small(1);
    const std::string bands = "Bands: 95 % intervals";
    EXPECT_EQ(count_of(page_of(test::sample_table(shape), {}, folder), bands), 0u);
    shape.samples = 3;
    EXPECT_EQ(count_of(page_of(test::sample_table(shape), {}, folder), bands), 1u);
}

TEST(ReportTest, GrowthByStepAddsUpToWhatWasMeasured) {
    const auto drawn = [](const Table& table) {
        for (const FigureEntry* entry : figures())
            if (entry->name == "similarity") return entry->make(table).at(0);
        return Figure{};
    };
    test::Shape shape = test::small(0);
    shape.samples = 1;
    const Figure whole = drawn(test::sample_table(shape));
    ASSERT_EQ(whole.panels.size(), 3u);
    double sum = 0;
    const std::vector<Series>& lines = whole.panels[1].series;
    for (const Series& line : lines)
        if (!line.dashed) sum += *line.y.back();
    EXPECT_EQ(lines.back().name, "measured");
    EXPECT_NEAR(sum, *lines.back().y.back(), 1e-12 * sum);  // a few roundings
    // Without steps there is no panel, and no sentence on it.
    Table states("m");
    for (const char* stage : {"in", "out"}) {
        states.scalar({.layer = 0, .stage = stage}, "t_sim", 0.5);
        states.scalar({.layer = 0, .stage = stage}, "t_div", 0.5);
    }
    const Figure bare = drawn(states);
    EXPECT_EQ(bare.panels.size(), 2u);
    EXPECT_EQ(bare.caption.find("By step"), std::string::npos);
    EXPECT_NE(whole.caption.find("By step"), std::string::npos);
}

/// Of a trace of states alone: no steps inside a layer, and the input of a layer is the output of
/// the one before.
TEST(ReportTest, CaptionsTellOfWhatIsDrawn) {
    Table states("m");
    for (const Index layer : {0, 1}) {
        for (const auto& [stage, value] :
             {std::pair("in", 0.2 + 0.2 * double(layer)), {"out", 0.4 + 0.2 * double(layer)}}) {
            states.scalar({.layer = layer, .stage = stage}, "t_sim", value);
            states.scalar({.layer = layer, .stage = stage}, "t_div", 1 - value);
            states.scalar({.layer = layer, .stage = stage}, "fro", value);
        }
        states.scalar({.layer = layer, .stage = "out"}, "r_layer", 1.25);
    }
    std::map<std::string, Figure> drawn;
    for (const FigureEntry* entry : figures())
        for (Figure& figure : entry->make(states)) drawn[figure.name] = std::move(figure);
    EXPECT_EQ(drawn["similarity"].caption.find("omitted"), std::string::npos);
    EXPECT_TRUE(contains(drawn["state_norms"].caption,
                         "|X|_F of the states of a layer: `out` its output. Compare"));
    const Figure& rate = drawn["stage_ratios"];
    ASSERT_EQ(rate.panels.size(), 1u);
    EXPECT_EQ(rate.panels[0].title, "r_layer");
    EXPECT_EQ(rate.panels[0].y.title, "r_layer");
    EXPECT_TRUE(contains(rate.caption, "r_layer = t_div(X)/t_div(Y) of a whole layer"));
    EXPECT_EQ(rate.caption.find("xi_ratio"), std::string::npos);
}

TEST(ReportTest, NeedsNothingFromElsewhere) {
    Folder folder;
    const std::string page = page_of(test::sample_table(test::small(1)), {}, folder);
    EXPECT_TRUE(contains(page, "default-src 'none'"));
    EXPECT_EQ(count_of(page, "<script src"), 0u);
    EXPECT_EQ(count_of(page, "<link rel=\"stylesheet\""), 0u);
    EXPECT_EQ(count_of(page, "</script>"), count_of(page, "\n<script>") + 1);
}

TEST(ReportTest, FiguresHaveAlternativeTextAndAreDrawnWithoutScripts) {
    Folder folder;
    const std::string page = page_of(test::sample_table(test::small(1)), {}, folder);
    EXPECT_EQ(count_of(page, "<figure "), count_of(page, "<p class=\"alt\">"));
    EXPECT_EQ(count_of(page, "<figure "), count_of(page, "<div class=\"drawing\">"));
    EXPECT_GE(count_of(page, "<svg class=\"plot\""), count_of(page, "<figure "));
    EXPECT_LT(page.size(), 400'000u);
    EXPECT_EQ(count_of(page, "<figure "), count_of(page, "<figcaption>"));
    EXPECT_EQ(count_of(page, "<h1>"), 1u);
    for (const char* landmark : {"<header>", "<main>", "<footer>", "class=\"skip\""})
        EXPECT_EQ(count_of(page, landmark), 1u) << landmark;
}

TEST(ReportTest, HostileNamesStayText) {
    Folder folder;
    const std::string name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\xff";
    Json run;
    run.set("model",
            Json::Object{{"name", name}, {"argument", name}, {"defaults", Json::Array{name}}});
    run.set("warnings", Json::Array{name, Json(3)}).set("command", Json::Array{"tsdiag", name});
    Table both = test::sample_table(test::small(1), name);
    both.append(test::sample_table(test::small(1), "other" + name));
    const std::string page = page_of(both, run, folder);
    EXPECT_EQ(count_of(page, "<script>alert"), 0u);
    EXPECT_FALSE(contains(page, "<img src=x"));
    EXPECT_EQ(count_of(page, "</script>"), count_of(page, "\n<script>") + 1);
    EXPECT_TRUE(contains(page, "&lt;/script&gt;"));
    EXPECT_FALSE(contains(page, "\xff"));
}

TEST(ReportTest, TellsWhatRunJsonKnowsAndLeavesOutTheRest) {
    Folder folder;
    const Json run = Json::parse(R"({"tsdiag": "9.8.7", "seed": 5, "device": "cpu", "threads": 2,
        "measured": {"date": "2026-11-28T14:03:05Z", "commit": "1c98", "processor": "AMD EPYC"},
        "model": {"name": "a GPT", "trained": true, "a2": [0.5, 1.5], "layers": 4},
        "input": {"kind": "ids:random", "tokens": 64}, "warnings": ["a late warning"],
        "phases": [{"name": "forward", "seconds": 1.5}]})",
                                 "t");
    const std::string page = page_of(test::sample_table(test::small(1)), run, folder);
    for (const char* text :
         {"<h1>a GPT</h1>", "<dt>Seed</dt><dd>5</dd>", "<dt>a2</dt><dd>0.5 to 1.5</dd>",
          "<dt>Weights</dt><dd>read from files</dd>", "a late warning",
          "<dd>2026-11-28 on AMD EPYC, 2 threads, tsdiag 9.8.7 (commit 1c98)</dd>",
          "<dt>How to cite</dt><dd>tsdiag 9.8.7, and the paper that defines the metric",
          "random token ids, which are not language"})
        EXPECT_TRUE(contains(page, text));
    EXPECT_FALSE(contains(page, "<dt>Width</dt>"));
    EXPECT_FALSE(
        contains(page, "1.5 s"));  // the same run gives the same page, however long it took
}

TEST(ReportTest, NamesTheDeviceBesideTheProcessor) {
    Folder folder;
    const Json run = Json::parse(R"({"tsdiag": "9.8.7", "device": "cuda:0", "threads": 2,
        "device_name": "NVIDIA H200", "measured": {"date": "2026-11-28T14:03:05Z",
        "processor": "AMD EPYC"}, "model": {"name": "a GPT"}})",
                                 "t");
    EXPECT_TRUE(
        contains(page_of(test::sample_table(test::small(1)), run, folder),
                 "<dd>2026-11-28 on NVIDIA H200 and AMD EPYC, 2 threads, tsdiag 9.8.7</dd>"));
}

TEST(StudyFindings, AreGoodOnlyWhereAClaimIsSupported) {
    using Outcome = Comparison::Outcome;
    const auto level = [](const std::vector<Outcome>& outcomes) {
        Study study{.outcome = "Of these."};
        for (const Outcome outcome : outcomes)
            study.comparisons.push_back({.what = "x", .measured = 1.0, .outcome = outcome});
        return study_findings(study).front().level;
    };
    EXPECT_EQ(level({Outcome::unjudged, Outcome::unjudged}), Finding::Level::note);
    EXPECT_EQ(level({}), Finding::Level::note);
    EXPECT_EQ(level({Outcome::unjudged, Outcome::consistent}), Finding::Level::good);
    EXPECT_EQ(level({Outcome::found, Outcome::open}), Finding::Level::note);
    EXPECT_EQ(level({Outcome::found, Outcome::contradicted}), Finding::Level::warning);
}

TEST(StudyFindings, HaveEachContradictedClaimAndTheNotes) {
    const Study study{.outcome = "Of these.",
                      .notes = {"A note."},
                      .comparisons = {{.what = "x",
                                       .says = "[TSE]: 2",
                                       .measured = 1.0,
                                       .error = 0.01,
                                       .outcome = Comparison::Outcome::contradicted}}};
    const std::vector<Finding> all = study_findings(study);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_TRUE(all[0].headline);
    EXPECT_EQ(all[1].level, Finding::Level::warning);
    EXPECT_EQ(all[1].text, "Contradicted: x, measured 1.000 \u00b1 0.010; [TSE]: 2.");
    EXPECT_EQ(all[2].text, "A note.");
}

TEST(ReportTest, CaptionsSayNothingOfABandOfOnePoint) {
    Figure figure{.panels = {{.series = {{.x = {0}, .y = {1.0}, .low = {0.5}, .high = {1.5}}}}}};
    EXPECT_FALSE(shows_bands(figure));
    figure.panels[0].series[0] = {
        .x = {0, 1}, .y = {1.0, 1.0}, .low = {0.5, std::nullopt}, .high = {1.5, std::nullopt}};
    EXPECT_FALSE(shows_bands(figure));
    figure.panels[0].series[0].low[1] = figure.panels[0].series[0].high[1] = 1.0;
    EXPECT_TRUE(shows_bands(figure));
}

/// Errors stand beside their numbers.
TEST(ReportTest, TablesHaveStandardErrors) {
    Folder folder;
    test::Shape shape = test::small(1);
    shape.samples = 1;
    EXPECT_FALSE(contains(page_of(test::sample_table(shape), {}, folder), "\u00b1 standard error"));
    shape.samples = 3;
    const std::string page = page_of(test::sample_table(shape), {}, folder);
    EXPECT_TRUE(contains(page, "\u00b1 standard error"));
    EXPECT_TRUE(std::regex_search(
        page, std::regex("<td>[-0-9.]+(\u2007|\u2008)* \u00b1 [0-9.]+(\u2007|\u2008)*</td>")));
}

/// Findings on the heads of a model link to the figure of that model.
TEST(ReportTest, HeadsAreShownInTheFigureOfTheirModel) {
    Table all = test::sample_table(test::small(1), "first");
    Table without("second");
    without.scalar({.layer = 0, .stage = "out"}, "t_sim", 0.5);
    all.append(without);
    all.append(test::sample_table(test::small(1), "third"));
    std::map<std::string, std::string> titles;
    for (const FigureEntry* entry : figures())
        for (const Figure& figure : entry->make(all)) titles[figure.name] = figure.title;
    std::map<std::string, std::size_t> links;
    for (const Finding& f : verdict(all, {})) {
        if (!f.figure.starts_with("heads_") && !f.figure.starts_with("accumulation")) continue;
        const std::string model = f.text.substr(0, f.text.find(':'));
        ASSERT_TRUE(titles.contains(f.figure)) << f.figure;
        EXPECT_TRUE(titles[f.figure].ends_with(": " + model)) << titles[f.figure] << "\n" << f.text;
        ++links[model];
    }
    EXPECT_EQ(links["first"], 3u);
    EXPECT_EQ(links["third"], 3u);
}

TEST(ReportTest, ASeriesIsJudgedByAllItsSteps) {
    Table table("m");
    for (const auto& [step, sim] : {std::pair(10, 0.3), {20, 0.995}, {30, 0.4}})
        for (Index layer = 0; layer < 2; ++layer) {
            table.scalar({.step = step, .layer = layer, .stage = "out"}, "t_sim", sim);
            table.scalar({.step = step, .layer = layer, .stage = "out"}, "t_div", 1 - sim);
            table.scalar({.step = step, .layer = layer, .stage = "attn"}, "xi_ratio", 1 + sim);
            table.scalar({.step = step, .layer = layer, .stage = "attn"}, "delta", sim);
        }
    Json run;
    run.set("checkpoints", Json::Array{}).set("unit", "iteration").set("changes", Json::Array{});
    Folder folder;
    const std::string page = page_of(table, run, folder);
    EXPECT_TRUE(contains(page,
                         "Tokens collapse for a time in this training: t_sim reaches 0.9950 at "
                         "iteration 20 (layer 0) and is 0.4000 at iteration 30 (layer 0), the "
                         "last."));
    EXPECT_EQ(count_of(page, "<p class=\"headline"), 1u);
    EXPECT_LT(page.find("<figure id=\"trajectory_t_sim_out\""), page.find("<details>"));
    // A step of a layer is none of heads.
    const std::string steps =
        " at stage <code>attn</code> of each layer during training, the same inputs at every "
        "iteration";
    EXPECT_TRUE(contains(page, "<code>xi_ratio</code>" + steps + "."));
    EXPECT_TRUE(contains(page, "<code>delta</code>" + steps + ", mean over the heads."));
}

/// A change of what no figure shows over the steps is named where there is no other.
TEST(ReportTest, ASeriesNamesAChangeThatNoFigureShows) {
    const Json run = Json::parse(R"({"checkpoints": [], "unit": "epoch",
        "model": {"trained": true}, "input": {"kind": "ids:random"}, "changes": [
        {"metric": "fro", "stage": "final_norm", "layer": 1, "from": 0, "to": 60, "first": 28,
         "last": 29.5, "error": 0.05, "certain": true, "steepest_from": 0, "steepest_to": 60,
         "steepest": 1.5},
        {"metric": "t_sim", "stage": "out", "layer": 1, "from": 0, "to": 60, "first": 0.5,
         "last": 0.6, "error": 0.2, "certain": false, "steepest_from": 0, "steepest_to": 60,
         "steepest": 0.1}]})",
                                 "run.json");
    Table table("m");
    for (const auto& [step, sim] : {std::pair(0, 0.5), {60, 0.6}})
        for (Index layer = 0; layer < 2; ++layer) {
            table.scalar({.step = step, .layer = layer, .stage = "out"}, "t_sim", sim);
            table.scalar({.step = step, .layer = layer, .stage = "out"}, "t_div", 1 - sim);
        }
    Folder folder;
    const std::string page = page_of(table, run, folder);
    EXPECT_TRUE(contains(page,
                         "1 of 2 numbers changed significantly from the first to the last "
                         "checkpoint (95 %, jointly); below, the largest."));
    EXPECT_TRUE(contains(page,
                         "fro (final_norm) of layer 1 rises from 28 at epoch 0 to 29.5 at 60 "
                         "(+1.500 \u00b1 0.050)."));
    EXPECT_TRUE(contains(page, "The input is random token ids, which are not language."));
}

TEST(ReportTest, AnEmptyTableIsAReportToo) {
    Folder folder;
    const std::string page = page_of(Table("m"), {}, folder);
    EXPECT_TRUE(contains(page, "</html>"));
    EXPECT_TRUE(contains(page, "the table has no value of t_sim or t_div."));
    EXPECT_EQ(count_of(page, "<figure "), 0u);
}

TEST(ReportTest, TheSameTableGivesTheSamePage) {
    Folder folder;
    const Table table = test::sample_table(test::small(1));
    const std::string page = page_of(table, {}, folder);
    EXPECT_EQ(page_of(table, {}, folder), page);
}

TEST(ReportTest, PointsOfAColumnStandBelowEachOther) {
    Folder folder;
    Table t("m");
    t.scalar({.layer = 0, .stage = "out"}, "t_sim", 0.25);
    t.scalar({.layer = 1, .stage = "out"}, "t_sim", 0.99997);
    t.scalar({.layer = 2, .stage = "out"}, "t_sim", 0.0);
    const std::string page = page_of(t, {}, folder), space = "\u2007";
    EXPECT_TRUE(contains(page, "<td>0.25" + space + space + space + "</td>"));
    EXPECT_TRUE(contains(page, "<td>0.99997</td>"));
    EXPECT_TRUE(contains(page, "<td>0\u2008" + space + space + space + space + space + "</td>"));
}

/// What the page shows of a head: value and interval as Student's t has it.
TEST(ReportTest, HeadsComeWithTheirIntervals) {
    Table t("m");
    for (const double v : {1.0, 2.0, 6.0})
        t.scalar({.layer = 1, .stage = "attn", .head = 0}, "delta", v);
    t.scalar({.layer = 0, .stage = "attn", .head = 1}, "delta", undefined("for a test"));
    const Json heads = reports::heads_data(t);
    const Json& metric = heads["m"]["metrics"].array().at(0);
    EXPECT_EQ(metric["name"].string(), "delta");
    const Json::Array& rows = metric["cells"].array();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_TRUE(rows[0].array().at(1).is_null());
    const Json::Array& cell = rows[1].array().at(0).array();
    ASSERT_EQ(cell.size(), 3u);
    // mean 3, standard deviation sqrt(7): 3 -+ 4.30265 sqrt(7/3)
    EXPECT_DOUBLE_EQ(cell[0].number(), 3);
    EXPECT_NEAR(cell[1].number(), 3 - 4.302652729911275 * std::sqrt(7.0 / 3), 1e-4);
    EXPECT_NEAR(cell[2].number(), 3 + 4.302652729911275 * std::sqrt(7.0 / 3), 1e-4);
}

TEST(ReportTest, ManyLayersAreShownByEveryKthInTheTable) {
    Folder folder;
    Table t("m");
    for (Index l = 0; l < 200; ++l) t.scalar({.layer = l, .stage = "out"}, "t_sim", 0.5);
    const std::string page = page_of(t, {}, folder);
    EXPECT_TRUE(contains(page, "One layer in 4 is shown"));
    EXPECT_EQ(count_of(page, "<th scope=\"row\">"), 51u);  // 0, 4, ... 196, and the last
}

}  // namespace
}  // namespace tsdiag
