#include <gmock/gmock.h>

#include "program.hpp"
#include "tsdiag/json.hpp"

/// tsdiag check, as a user runs it.
namespace tsdiag::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> check(std::vector<std::string> more) {
    more.insert(more.begin(), {"check", "devil.eq59", "--trials", "20"});
    return more;
}

TEST(Check, PrintsTheSmallestWitness) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, check({}));
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("false as stated"));
    EXPECT_THAT(found.out, HasSubstr("V = [-1; 1]"));
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(Check, StrictExits4WhereSomethingIsFalseAndOnlyThere) {
    TemporaryDirectory folder;
    EXPECT_EQ(tsdiag(folder, check({"--strict"})).code, 4);
    EXPECT_EQ(tsdiag(folder, check({"--strict", "--n", "5", "--d", "1"})).code, 0);
    EXPECT_EQ(tsdiag(folder, {"check", "tse.eq21", "--strict"}).code, 0);
}

TEST(Check, OutsideOfItsHypothesesIsNeitherTrueNorFalse) {
    TemporaryDirectory folder;
    for (const std::string dist : {"uniform", "rademacher", "torch", "xavier"}) {
        const Finished found = tsdiag(
            folder, {"check", "poly.eq55", "poly.eq43", "--dist", dist, "--strict", "--out", dist});
        EXPECT_EQ(found.code, 5) << found.err;
        EXPECT_THAT(found.out, HasSubstr("it assumes normal entries: --dist " + dist));
        EXPECT_THAT(found.out, Not(HasSubstr("false as stated")));
        const std::string table = read_file(folder / (dist + "/claims.csv"));
        EXPECT_THAT(table, HasSubstr("hypothesis not met"));
        EXPECT_THAT(table, Not(HasSubstr("holds")));
        const Json json = Json::parse(read_file(folder / (dist + "/claims.json")), "claims.json");
        const Json& asked = json["claims"].array()[0]["hypotheses"].array()[0];
        EXPECT_EQ(asked["name"].string(), "normal entries");
        EXPECT_FALSE(asked["met"].boolean());
        ASSERT_EQ(asked["admits"].array().size(), 1u);
        EXPECT_EQ(asked["admits"].array()[0].string(), "gaussian");
        EXPECT_THAT(read_file(folder / (dist + "/report.html")), HasSubstr("hypothesis not met"));
    }
}

TEST(Check, ScalesDecideForTheorem26) {
    TemporaryDirectory folder;
    // torch.nn.Linear draws with d sigma^2 = 1/3; Xavier's variance of a square matrix is 1/d.
    const Finished torch = tsdiag(folder, {"check", "tse.thm2.6", "--dist", "torch", "--strict"});
    EXPECT_EQ(torch.code, 5) << torch.out;
    EXPECT_THAT(torch.out, HasSubstr("d sigma^2 = 1: it is 0.3333 with --dist torch"));
    const Finished others =
        tsdiag(folder, {"check", "tse.cor2.7", "tse.rem2.8", "--dist", "torch", "--trials", "100"});
    EXPECT_THAT(torch.out + others.out, Not(HasSubstr("false as stated")));
    EXPECT_THAT(tsdiag(folder, {"check", "tse.thm2.6", "--dist", "xavier"}).out,
                Not(HasSubstr("hypothesis not met")));
}

TEST(Check, ListsThePapersWords) {
    TemporaryDirectory folder;
    const Finished list = tsdiag(folder, {"check", "--list", "tse.lemmaA5", "devil.eq9"});
    EXPECT_THAT(list.out, HasSubstr("In the paper's words: where c is an absolute constant"));
    EXPECT_THAT(list.out, HasSubstr("In the paper's words: and it is bounded as"));
}

/// Equations of means are confirmed to half a percent, so that a difference of 1 % is detected.
TEST(Check, SmallDifferencesOfMeansAreFound) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, {"check", "tse.lemma2.4", "--out", "a"});
    ASSERT_EQ(found.code, 0) << found.err;
    const Json json = Json::parse(read_file(folder / "a/claims.json"), "claims.json");
    int means = 0;
    for (const Json& r : json["claims"].array()[0]["readings"].array()) {
        if (r["low"].is_null()) continue;
        EXPECT_LT(r["high"].number() - r["low"].number(), 0.01 * r["bound"].number());
        ++means;
    }
    EXPECT_EQ(means, 2);
}

/// A probability and its interval lie between 0 and 1.
TEST(Check, IntervalsOfProbabilitiesAreExact) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, {"check", "tse.lemmaA2", "tse.lemmaA3", "tse.eq27",
                                           "--trials", "20", "--out", "a", "-q"});
    ASSERT_EQ(found.code, 0) << found.err;
    const Json json = Json::parse(read_file(folder / "a/claims.json"), "claims.json");
    int intervals = 0;
    for (const Json& claim : json["claims"].array())
        for (const char* list : {"readings", "controls"})
            for (const Json& r : claim[list].array()) {
                if (r["low"].is_null()) continue;
                EXPECT_GE(r["low"].number(), 0);
                EXPECT_LE(r["high"].number(), 1);
                EXPECT_GT(r["high"].number() - r["low"].number(), 0.1) << r["reading"].string();
                ++intervals;
            }
    EXPECT_EQ(intervals, 6);
}

TEST(Check, SaysWhatAnIntervalWithoutAWidthKnows) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(
        folder, {"check", "tse.lemma2.4", "--d", "1", "--dist", "rademacher", "--trials", "50"});
    EXPECT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("all 50 samples are equal"));
    EXPECT_THAT(found.out, Not(HasSubstr("false as stated"))) << "by rounding";
}

TEST(Check, ShowsControlsDrawsAndSteps) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, check({"--out", "a"}));
    EXPECT_THAT(found.out, testing::ContainsRegex("control: c2 of one value only +found false"));
    EXPECT_THAT(found.out, HasSubstr("which is not a proof"));
    const Json json = Json::parse(read_file(folder / "a/claims.json"), "claims.json");
    const Json& claim = json["claims"].array()[0];
    EXPECT_EQ(claim["controls"].array()[0]["verdict"].string(), "false as stated");
    EXPECT_EQ(claim["readings"].array()[0]["trials"].integer(), 20);
    EXPECT_GT(claim["readings"].array()[0]["steps"].integer(), 1000);
    EXPECT_THAT(read_file(folder / "a/claims.csv"), HasSubstr("c2 of one value only,control,"));
    const std::string page = read_file(folder / "a/report.html");
    EXPECT_THAT(page, HasSubstr("control: c2 of one value only</td><td>found false"));
    EXPECT_THAT(page, HasSubstr(" 3 of 3 controls failed as they must."));
    // With one token the gradient vanishes, so that the control cannot violate the bound.
    const Finished one = tsdiag(folder, check({"--n", "1", "--d", "1"}));
    EXPECT_THAT(one.out, testing::ContainsRegex("control: c2 of one value only +not found false"));
    EXPECT_THAT(one.out, HasSubstr("weak evidence"));
}

TEST(Check, SaysBeforehandHowLongItTakes) {
    TemporaryDirectory folder;
    Running long_one(folder.path(),
                     {"check", "poly.eq43", "--trials", "10000000", "--threads", "1"});
    EXPECT_TRUE(long_one.wait_until([&] { return !long_one.said_so_far().empty(); }));
    long_one.signal(SIGKILL);
    EXPECT_THAT(long_one.wait().err, HasSubstr("this will take about "));
    EXPECT_THAT(tsdiag(folder, check({"-q"})).err, IsEmpty());
}

TEST(Check, WritesTablesAndAReport) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, check({"--out", "a", "-q", "--seed", "3"}));
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, IsEmpty());
    EXPECT_THAT(names_in(folder / "a"),
                testing::IsSupersetOf({"claims.csv", "claims.json", "report.html"}));
    const Json json = Json::parse(read_file(folder / "a/claims.json"), "claims.json");
    EXPECT_EQ(json["claims"].array()[0]["verdict"].string(), "false as stated");
    EXPECT_EQ(json["claims"].array()[0]["readings"].array()[0]["witness"].array().size(), 3u);
    EXPECT_EQ(json["seed"].integer(), 3);
    ASSERT_EQ(tsdiag(folder, check({"--out", "b", "-q", "--seed", "3", "--threads", "3"})).code, 0);
    EXPECT_EQ(read_file(folder / "a/claims.csv"), read_file(folder / "b/claims.csv"));
}

TEST(Check, ForeignFilesAreNeverReplaced) {
    TemporaryDirectory folder;
    std::filesystem::create_directory(folder / "mine");
    write_file(folder / "mine/notes.txt", "mine");
    const Finished found = tsdiag(folder, check({"--out", "mine"}));
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(names_in(folder / "mine"), ElementsAre("notes.txt"));
}

TEST(Check, RefusesInOneSentence) {
    TemporaryDirectory folder;
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"check", "tse.lema2.4"}, "Did you mean 'tse.lemma2.4'?"},
        {{"check", "--n", "0"}, "--n: '0' is not an integer of at least 1"},
        {{"check", "tse.lemma2.4", "--heads", "3"}, "--heads 3 does not divide --d 8"},
        {{"check", "tse.lemma2.4", "--trials", "1"}, "expected at least 2"},
        {{"check", "tse.eq1", "--n", "1"}, "the statement needs n >= 2"},
        {{"check", "tse.eq20", "--d", "1"}, "the statement needs d >= 2"},
        {{"check", "--dist", "gausian"}, "Did you mean 'gaussian'?"},
        {{"check", "--confidence", "2"}, "--confidence 2 is not between 0 and 1"},
        {{"check", "poly.thm4.2", "--range", "8:16"}, "--range: '8:16' is not a range"},
        {{"check", "--strickt"}, "did you mean --strict?"}};
    for (const auto& [words, message] : cases) {
        const Finished found = tsdiag(folder, words);
        EXPECT_EQ(found.code, 2) << message;
        EXPECT_THAT(found.err, HasSubstr(message));
        EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
        EXPECT_THAT(found.out, IsEmpty());
    }
}

TEST(Check, ListsNamesStatementsAndSources) {
    TemporaryDirectory folder;
    const Finished list = tsdiag(folder, {"check", "--list"});
    EXPECT_EQ(list.code, 0);
    EXPECT_THAT(list.out, HasSubstr("tse.thm2.6\n"));
    EXPECT_THAT(list.out, HasSubstr("Source: [TSE] Thm 2.6, (16)"));
    const Finished one = tsdiag(folder, {"check", "devil", "--list"});
    EXPECT_THAT(one.out, Not(HasSubstr("tse.")));
}

}  // namespace
}  // namespace tsdiag::test
