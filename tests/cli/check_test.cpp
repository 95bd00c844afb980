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
