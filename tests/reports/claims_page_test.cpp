#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "folder.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag {
namespace {

using test::Folder;
using test::slurp;
using testing::HasSubstr;
using testing::Not;
using namespace std::string_literals;

Examined made_up() {
    static const Claim claim{.name = "some.eq1-x",
                             .statement = "a < b & <b>all</b> of it",
                             .source = "[TSE] (1)",
                             .check = nullptr};
    Examined e{.claim = &claim, .verdict = Verdict::false_as_stated};
    Reading bound{.name = "as printed", .formula = "a <= b"};
    bound.verdict = Verdict::false_as_stated;
    bound.measured = 0.5;
    bound.bound = 0.25;
    bound.trace = {.x_title = "fraction of draws", .y_title = "measured / bound"};
    bound.trace.x = {0.5, 1};
    bound.trace.y = {0.1, 2};
    bound.trace.claimed = {1, 1};
    Reading mean{.name = "mean"};
    mean.trace = {.x_title = "trials", .y_title = "mean", .log_x = true};
    mean.trace.x = {16, 32};
    mean.trace.y = {1, 1.5};
    mean.trace.low = {0, 1};
    mean.trace.high = {2, 2};
    mean.trace.claimed = {1.2, 1.2};
    e.readings = {bound, mean};
    return e;
}

TEST(ClaimFigure, HasAPanelForEachKindOfAxes) {
    const Examined e = made_up();
    const std::optional<Figure> figure = claim_figure(e);
    ASSERT_TRUE(figure);
    EXPECT_EQ(figure->name, "some_eq1_x");
    ASSERT_EQ(figure->panels.size(), 2u);
    EXPECT_EQ(figure->panels[0].marks.size(), 1u);  // the bound
    EXPECT_EQ(figure->panels[1].series.size(), 2u);
    EXPECT_TRUE(figure->panels[1].series[1].dashed);
    EXPECT_EQ(figure->panels[1].series[0].low.size(), 2u);
    EXPECT_THAT(figure->alt, HasSubstr("as printed: false as stated, 0.5 against 0.25."));
}

TEST(ClaimFigure, IsNoneOfExactComparisons) {
    Examined e = made_up();
    for (Reading& r : e.readings) r.trace = {};
    EXPECT_FALSE(claim_figure(e));
}

/// A flat line shows nothing: its sentence has the value.
TEST(ClaimFigure, IsNoneWhereEveryDrawGivesTheSame) {
    Examined e = made_up();
    std::erase_if(e.readings, [](const Reading& r) { return r.trace.y_title == "mean"; });
    ASSERT_FALSE(e.readings.empty());
    for (Reading& r : e.readings)
        for (std::size_t i = 0; i < r.trace.y.size(); ++i) r.trace.y[i] = 2 + 1e-15 * double(i);
    EXPECT_FALSE(claim_figure(e));
    Folder folder;
    write_claims_report(std::vector<Examined>{e}, {}, folder.path);
    EXPECT_THAT(slurp(folder.path / "report.html"), HasSubstr(" is 2 in every draw."));
    e.readings.front().trace.y.back() = 2.1;
    EXPECT_TRUE(claim_figure(e));
}

TEST(ClaimsReport, SaysWhatFailsAndEscapesIt) {
    Folder folder;
    const std::vector<Examined> list{made_up()};
    Json run;
    run.set("seed", 3).set("command", Json::Array{"tsdiag", "</script>"});
    write_claims_report(list, run, folder.path);
    const std::string page = slurp(folder.path / "report.html");
    EXPECT_THAT(page, HasSubstr(" Reading as printed: a &lt;= b fails, 0.5 against 0.25."));
    EXPECT_THAT(page, HasSubstr("&lt;b&gt;all&lt;/b&gt;"));
    EXPECT_THAT(page, Not(HasSubstr("<b>all</b>")));
    EXPECT_THAT(page, HasSubstr("claims.csv"));
    EXPECT_THAT(page, HasSubstr("id=\"some_eq1_x\""));
    EXPECT_THAT(page, HasSubstr("some.eq1-x: false as stated: 0.5 against 0.25."));
}

TEST(ClaimsReport, BeginsWithHowManyHoldAndNamesTheOthers) {
    Examined holds = made_up(), open = made_up();
    holds.verdict = Verdict::holds;
    open.verdict = Verdict::not_decided;
    const auto headline = [](const std::vector<Examined>& list) {
        const Finding f = claims_headline(list);
        EXPECT_TRUE(f.headline);
        return std::pair(f.level, f.text);
    };
    using L = Finding::Level;
    EXPECT_EQ(headline({holds, holds}),
              std::pair(L::good, "2 of 2 statements hold in these draws."s));
    EXPECT_EQ(headline({holds, open}), std::pair(L::note,
                                                 "1 of 2 statements hold in these draws; not "
                                                 "decided: some.eq1-x."s));
    EXPECT_EQ(headline({open, made_up(), holds}),
              std::pair(L::warning,
                        "1 of 3 statements hold in these draws; false as stated: "
                        "some.eq1-x; not decided: some.eq1-x."s));
    EXPECT_THAT(headline(std::vector<Examined>(8, made_up())).second, HasSubstr(" and 2 more."));

    Reading failed, weak;
    failed.verdict = Verdict::false_as_stated;
    weak.verdict = Verdict::holds;
    holds.controls = {failed, weak};
    Folder folder;
    const std::vector<Examined> list{holds, made_up()};
    write_claims_report(list, {}, folder.path);
    const std::string page = slurp(folder.path / "report.html");
    // The table, which stands open, has what makes "holds" weak evidence.
    const std::size_t table = page.find("aria-label=\"Statements\"");
    EXPECT_LT(page.find("<td>1 of 2</td>", table), page.find("<details>"));
    EXPECT_LT(page.find("1 of 2 statements"), page.find("some.eq1-x: false as stated"));
    EXPECT_LT(page.find("some.eq1-x: false as stated"), page.find("some.eq1-x: holds"));
}

}  // namespace
}  // namespace tsdiag
