#include <gtest/gtest.h>

#include <array>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/files.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

template <class F>
std::string message(F f) {
    try {
        f();
    } catch (const UsageError& e) {
        return e.what();
    }
    return "no error";
}

const Claim& claim(const std::string& name) { return *resolve_claims(std::vector{name}).front(); }

TEST(Claims, AreFoundByNameOrPrefixOrSuggested) {
    EXPECT_EQ(resolve_claims({}).size(), claims().size());
    EXPECT_EQ(resolve_claims(std::vector<std::string>{"devil.eq59"}).size(), 1u);
    const auto tse = resolve_claims(std::vector<std::string>{"tse", "tse.lemma2.4"});
    EXPECT_FALSE(tse.empty());
    for (const Claim* c : tse) EXPECT_TRUE(c->name.starts_with("tse.")) << c->name;
    EXPECT_EQ(resolve_claims(std::vector<std::string>{"tse."}).size(), tse.size());
    EXPECT_EQ(claim("tse.thm").name, "tse.thm2.6");
    for (const Claim* c : resolve_claims(std::vector<std::string>{"devil.prop"}))
        EXPECT_TRUE(c->name.starts_with("devil.prop")) << c->name;
    // A name is itself alone, although tse.eq11 begins with it.
    EXPECT_EQ(resolve_claims(std::vector<std::string>{"tse.eq1"}).size(), 1u);
    EXPECT_EQ(message([] { resolve_claims(std::vector<std::string>{"tse.lema2.4"}); }),
              "unknown claim 'tse.lema2.4'. Did you mean 'tse.lemma2.4'? See tsdiag check --list "
              "for the names.");
    EXPECT_THROW(resolve_claims(std::vector<std::string>{"ts"}), UsageError);
    EXPECT_THROW(resolve_claims(std::vector<std::string>{""}), UsageError);
}

TEST(Claims, RefuseImpossibleSizesInOneSentence) {
    const Claim& lemma = claim("tse.lemma2.4");
    EXPECT_EQ(
        message([&] { plan(lemma, {.trials = 1}); }),
        "tse.lemma2.4: --trials 1 is too small for the interval of a mean, expected at least 2.");
    EXPECT_EQ(message([&] { plan(lemma, {.d = 6, .heads = 4}); }),
              "tse.lemma2.4: --heads 4 does not divide --d 6.");
    EXPECT_EQ(message([&] { plan(lemma, {.n = -1}); }), "no error");  // 0 and below: its own
    EXPECT_EQ(message([&] { plan(lemma, {.confidence = 1}); }),
              "tse.lemma2.4: --confidence 1 is not between 0 and 1.");
    EXPECT_NE(message([&] { plan(lemma, {.range = {8, 16}}); }), "no error");
    EXPECT_EQ(message([&] { plan(lemma, {.range = {2, 4, 8}}); }), "no error");
    for (const std::vector<Index>& range :
         {std::vector<Index>{1, 4, 8}, {4, 4, 8}, {4, 8, 8}, {8, 4, 16}, {4, 16, 8}})
        EXPECT_NE(message([&] { plan(lemma, {.range = range}); }), "no error");
    EXPECT_EQ(message([] { distribution("gausian"); }),
              "unknown distribution 'gausian'. Did you mean 'gaussian'?");
}

TEST(Claims, RefuseMatricesThatNoMachineHolds) {
    // 32 matrices of 2^20 squared doubles are 256 TiB.
    const Claim& lemma = claim("tse.lemma2.4");
    constexpr Index large = Index{1} << 20;
    for (const CheckSettings& s : {CheckSettings{.n = large}, CheckSettings{.d = large}}) {
        const std::string said = message([&] { plan(lemma, s); });
        EXPECT_TRUE(
            said.starts_with("tse.lemma2.4: matrices of 1048576 x 1048576 need about 2.6e+05 GiB"))
            << said;
    }
    EXPECT_EQ(message([&] { plan(lemma, {.n = 256, .d = 256}); }), "no error");
}

TEST(Claims, HaveHeadsThatDivideTheWidth) {
    for (const Claim* c : claims()) {
        EXPECT_EQ(c->d % c->heads, 0) << c->name;
        EXPECT_EQ(plan(*c, {}).heads, c->heads) << c->name;
        for (const Index d : {c->heads * 6, c->heads * 6 + 1}) {
            const Check how = plan(*c, {.d = d});
            EXPECT_EQ(how.heads, d % c->heads == 0 ? c->heads : 1) << c->name << ' ' << d;
        }
    }
}

TEST(Claims, KnowEveryDistributionByItsName) {
    for (const Distribution d : distributions()) EXPECT_EQ(distribution(std::string(name(d))), d);
}

Reading reading(Role role, Verdict verdict) {
    Reading r;
    r.role = role;
    r.verdict = verdict;
    return r;
}

TEST(Claims, CombineReadings) {
    using enum Verdict;
    const auto combined = [](std::vector<Reading> list) { return overall(list); };
    EXPECT_EQ(combined({reading(Role::part, holds), reading(Role::part, holds)}), holds);
    EXPECT_EQ(combined({reading(Role::part, holds), reading(Role::part, false_as_stated)}),
              false_as_stated);
    EXPECT_EQ(combined({reading(Role::part, not_decided), reading(Role::part, false_as_stated)}),
              false_as_stated);
    EXPECT_EQ(combined({reading(Role::part, holds), reading(Role::part, not_decided)}),
              not_decided);
    EXPECT_EQ(combined({reading(Role::part, holds), reading(Role::part, holds_asymptotically)}),
              holds_asymptotically);
    EXPECT_EQ(combined({reading(Role::part, holds), reading(Role::sharper, false_as_stated)}),
              holds);
    EXPECT_EQ(combined({reading(Role::interpretation, holds_asymptotically),
                        reading(Role::interpretation, false_as_stated)}),
              ambiguous);
    EXPECT_EQ(combined({reading(Role::interpretation, false_as_stated),
                        reading(Role::interpretation, false_as_stated)}),
              false_as_stated);
    EXPECT_EQ(combined({}), not_decided);
    EXPECT_EQ(combined({reading(Role::sharper, holds)}), not_decided);
}

/// Adds the numbers of references such as "(1), (10) to (12)", "(5)-(7)".
void add_numbers(const std::string& text, std::set<int>& numbers) {
    static const std::regex one(R"(\((\d+)\)(?:(?: to |-)\((\d+)\))?)");
    for (std::sregex_iterator at(text.begin(), text.end(), one), end; at != end; ++at) {
        const int first = std::stoi((*at)[1]);
        const int last = (*at)[2].matched ? std::stoi((*at)[2]) : first;
        for (int k = first; k <= last; ++k) numbers.insert(k);
    }
}

TEST(Claims, AccountForEveryDisplayOfThePapers) {
    std::map<std::string, std::set<int>> seen;
    for (const Claim* c : claims()) {
        const std::string source(c->source);
        add_numbers(source, seen[source.substr(0, source.find(']') + 1)]);
    }
    std::istringstream document(statements_markdown({}));  // displays without a claim
    for (std::string line; std::getline(document, line);)
        if (line.starts_with("| [")) {
            const std::string where = line.substr(2, line.find(" | ", 2) - 2);
            add_numbers(where, seen[where.substr(0, where.find(']') + 1)]);
        }
    for (const auto& [paper, last] :
         {std::pair{"[DEVIL]", 67}, std::pair{"[POLY]", 77}, std::pair{"[TSE]", 29}})
        for (int k = 1; k <= last; ++k)
            EXPECT_TRUE(seen[paper].contains(k)) << paper << " (" << k << ") is nowhere";
}

TEST(Claims, ValuesThatAreEqualAlongTheGradientAreNoDraw) {
    // of two values -1 or 1, every second pair is equal
    const Examined found =
        examine(claim("devil.eq60"),
                {.trials = 64, .n = 2, .d = 1, .distribution = Distribution::rademacher});
    EXPECT_EQ(found.readings.front().verdict, Verdict::holds) << found.readings.front().note;
    EXPECT_LT(found.readings.front().trials, 64);
    EXPECT_EQ(found.controls.front().verdict, Verdict::false_as_stated);
}

TEST(ClaimsCsv, HasALineForEachRow) {
    const std::vector<ClaimRow> rows = {{.name = "a.b", .verdict = "holds", .trials = 7},
                                        {"a.b", "comma, \"quote\"\nline", "part", "false as stated",
                                         0.1, 1e-300, 1.0 / 3, -2.5, 1e300, 12, 34, "note"}};
    EXPECT_EQ(claims_csv(rows),
              "name,reading,role,verdict,measured,bound,tightness,low,high,trials,steps,note\n"
              "a.b,,,holds,,,,,,7,0,\n"
              "a.b,\"comma, \"\"quote\"\"\nline\",part,false as stated,0.1,1e-300,"
              "0.3333333333333333,-2.5,1e+300,12,34,note\n");
}

TEST(ClaimsCsv, OfAnExaminationHasARowForEachReading) {
    const std::vector<Examined> list{examine(claim("devil.eq59"), {.trials = 20, .n = 2, .d = 1})};
    EXPECT_EQ(claim_rows(list).size(),
              1 + list.front().readings.size() + list.front().controls.size());
}

}  // namespace
}  // namespace tsdiag
