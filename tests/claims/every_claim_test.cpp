#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "expected.hpp"
#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/claim_record.hpp"
#include "tsdiag/error.hpp"

/// Laws over the list of claims.
namespace tsdiag {
namespace {

/// Examined once per process with the claim's own sizes and seed 0.
const Examined& examined(const Claim& claim) {
    static std::map<const Claim*, Examined> done;
    const auto at = done.find(&claim);
    return at != done.end() ? at->second : done.emplace(&claim, examine(claim, {})).first->second;
}

std::vector<test::Expected> expectations(const Claim& claim) {
    std::vector<test::Expected> found;
    for (const auto* table :
         {&test::expected_devil(), &test::expected_poly(), &test::expected_tse()})
        for (const test::Expected& e : *table)
            if (e.claim == claim.name) found.push_back(e);
    return found;
}

const Reading* find(const std::vector<Reading>& readings, std::string_view name) {
    const auto at = std::find_if(readings.begin(), readings.end(),
                                 [&](const Reading& r) { return r.name == name; });
    return at == readings.end() ? nullptr : &*at;
}

class EveryClaim : public testing::TestWithParam<const Claim*> {
  protected:
    const Claim& claim() const { return *GetParam(); }
};
/// Tests that share the examination at the claim's own sizes: they run in one process.
class ExaminedClaim : public EveryClaim {};

TEST_P(EveryClaim, SaysWhatItStatesAndWhere) {
    EXPECT_FALSE(claim().statement.empty());
    EXPECT_FALSE(claim().words.empty());
    EXPECT_TRUE(claim().source.starts_with('[')) << claim().source;
    EXPECT_EQ(claim().tight == nullptr, !claim().loose.empty())
        << "either a case attains it, or the statement says how loose it is";
    ASSERT_NE(claim().violate, nullptr);
}

TEST_P(EveryClaim, TightCaseAttainsTheBound) {
    if (!claim().tight) GTEST_SKIP() << "nothing attains it: " << claim().loose;
    const Attained a = claim().tight();
    EXPECT_LE(a.accuracy, 0.1);
    EXPECT_NEAR(a.measured, a.bound, a.accuracy * std::abs(a.bound));
}

TEST_P(ExaminedClaim, BrokenHypothesisIsFoundFalse) {
    ASSERT_FALSE(examined(claim()).controls.empty());
    for (const Reading& broken : examined(claim()).controls)
        EXPECT_EQ(broken.verdict, Verdict::false_as_stated)
            << broken.name << ": " << broken.measured.value_or(NAN) << " against "
            << broken.bound.value_or(NAN) << " " << broken.note;
}

/// For a claim alone, or for one of its readings.
TEST_P(ExaminedClaim, ControlsNameWhatTheyShowToBeAbleToFail) {
    for (const Reading& control : examined(claim()).controls) {
        EXPECT_TRUE(control.of.empty() || find(examined(claim()).readings, control.of))
            << control.name << " of " << control.of;
        EXPECT_EQ(find(examined(claim()).readings, control.name), nullptr)
            << control.name << " is the name of a reading";
    }
}

TEST_P(ExaminedClaim, HasAControlOfEachReadingThatHolds) {
    const auto& controls = examined(claim()).controls;
    for (const Reading& r : examined(claim()).readings) {
        if (r.verdict != Verdict::holds && r.verdict != Verdict::holds_asymptotically) continue;
        EXPECT_TRUE(std::ranges::any_of(controls, [&](const Reading& c) { return c.of == r.name; }))
            << r.name;
    }
}

TEST_P(ExaminedClaim, VerdictIsTheKnownOne) {
    std::set<std::string> names;
    for (const Reading& r : examined(claim()).readings)
        EXPECT_TRUE(names.insert(r.name).second) << "two readings are called " << r.name;
    EXPECT_EQ(names.size(), expectations(claim()).size()) << "a reading nobody expects";
    for (const test::Expected& e : expectations(claim())) {
        const Reading* r = find(examined(claim()).readings, e.reading);
        ASSERT_NE(r, nullptr) << e.reading;
        EXPECT_EQ(r->verdict, e.verdict)
            << e.reading << ": " << name(r->verdict) << ", " << r->measured.value_or(NAN)
            << " against " << r->bound.value_or(NAN) << " [" << r->low.value_or(NAN) << ", "
            << r->high.value_or(NAN) << "] " << r->note;
    }
}

/// A reading whose mutant holds as well is no test.
TEST_P(ExaminedClaim, HoldsNoReadingThatItsMutantHolds) {
    const Examined mutated = examine(claim(), {.mutated = true});
    for (const Reading& r : examined(claim()).readings) {
        if (r.verdict != Verdict::holds && r.verdict != Verdict::holds_asymptotically) continue;
        EXPECT_FALSE(r.mutant.empty()) << r.name << " names no mutant";
        const Reading* mutant = find(mutated.readings, r.name);
        ASSERT_NE(mutant, nullptr) << r.name;
        EXPECT_EQ(mutant->verdict, Verdict::false_as_stated)
            << r.name << " (" << r.mutant << "): " << name(mutant->verdict) << ", "
            << mutant->measured.value_or(NAN) << " against " << mutant->bound.value_or(NAN) << " ["
            << mutant->low.value_or(NAN) << ", " << mutant->high.value_or(NAN) << "] "
            << mutant->note;
    }
}

TEST_P(ExaminedClaim, FalseReadingsShowWhy) {
    for (const Reading& r : examined(claim()).readings)
        if (r.verdict == Verdict::false_as_stated) {
            EXPECT_TRUE(!r.witness.empty() || (r.low && r.high)) << r.name;
        }
}

/// Few trials: the law is about bits, not about verdicts.
CheckSettings few(const Claim& claim) {
    CheckSettings s;
    s.trials = std::min<Index>(claim.trials, 24);
    s.seed = 5;
    return s;
}

TEST_P(EveryClaim, SameSeedSameResultOnAnyNumberOfThreads) {
    const int threads = omp_get_max_threads();
    std::vector<std::string> texts;
    for (const int count : {1, 3}) {
        omp_set_num_threads(count);
        const std::vector<Examined> list{examine(claim(), few(claim()))};
        texts.push_back(claims_json(list, few(claim())).dump());
    }
    omp_set_num_threads(threads);
    EXPECT_EQ(texts[0], texts[1]);
}

TEST_P(EveryClaim, IsReadFromItsRecordAsItWasExamined) {
    const Examined e = examine(claim(), few(claim()));
    const std::string record = claim_record(e);
    const std::vector<Examined> before{e}, after{read_claim_record(record, claim(), few(claim()))};
    EXPECT_EQ(claims_json(before, few(claim())).dump(), claims_json(after, few(claim())).dump());
    EXPECT_EQ(claims_csv(claim_rows(before)), claims_csv(claim_rows(after)));
    EXPECT_EQ(claim_record(after.front()), record);
    // Whatever is missing or changed is refused in words, or is another record.
    for (std::size_t at = 0; at < record.size(); at += 1 + record.size() / 300) {
        EXPECT_THROW(read_claim_record(record.substr(0, at), claim(), few(claim())), FormatError);
        std::string other = record;
        other[at] = char(other[at] ^ 0x41);
        try {
            read_claim_record(other, claim(), few(claim()));
        } catch (const FormatError&) {
        }
    }
}

TEST_P(ExaminedClaim, ReplayGivesTheSameNumber) {
    for (const Reading& r : examined(claim()).readings) {
        if (!r.replay) continue;
        CheckSettings again;
        again.seed = r.replay->seed;
        again.only = r.replay->trial;
        const Examined alone = examine(claim(), again);
        const Reading* same = find(alone.readings, r.name);
        ASSERT_NE(same, nullptr);
        EXPECT_EQ(same->verdict, r.verdict) << r.name;
        if (r.verdict == Verdict::holds) {
            EXPECT_EQ(same->measured, r.measured) << r.name;
        }
    }
}

/// Witnesses of few numbers are simplified, to zeros among others, which larger sizes may hide.
TEST_P(EveryClaim, IsExaminedAtSmallSizes) {
#ifdef TSDIAG_ADDRESS_SANITIZER  // which slows searches fortyfold; more climbs are more of the same
    const std::vector<Index> sizes = {4};
    const Index climbs = 4;
#else
    const std::vector<Index> sizes = {4, 5};
    const Index climbs = CheckSettings().climbs;
#endif
    for (const Index n : sizes) {
        const Examined small = examine(claim(), {.trials = 12, .n = n, .d = 4, .climbs = climbs});
        EXPECT_FALSE(small.readings.empty());
        EXPECT_FALSE(small.controls.empty());
        std::set<std::string> names;
        for (const Reading& c : small.controls)
            EXPECT_TRUE(names.insert(c.name).second) << "two controls are called " << c.name;
    }
}

TEST_P(ExaminedClaim, VerdictOfTheClaimFollowsFromItsReadings) {
    EXPECT_EQ(examined(claim()).verdict, overall(examined(claim()).readings));
}

std::string claim_name(const testing::TestParamInfo<const Claim*>& info) {
    std::string text(info.param->name);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '.' || c == '-'; }, '_');
    return text;
}
INSTANTIATE_TEST_SUITE_P(List, EveryClaim, testing::ValuesIn(claims().begin(), claims().end()),
                         claim_name);
INSTANTIATE_TEST_SUITE_P(List, ExaminedClaim, testing::ValuesIn(claims().begin(), claims().end()),
                         claim_name);

/// Removes the digits of witnesses, which depend on the processor.
std::string without_witnesses(std::string text) {
    for (std::size_t from; (from = text.find(" = [")) != std::string::npos;)
        text.erase(from, text.find(']', from) - from + 1);
    return text;
}

TEST(ExaminedClaims, WriteTheDocument) {
    std::vector<Examined> all;
    for (const Claim* claim : claims()) all.push_back(examined(*claim));
    const std::string file =
        test::read_file(std::filesystem::path(test::test_data()) / "../../docs/statements.md");
    EXPECT_EQ(without_witnesses(file), without_witnesses(statements_markdown(all)))
        << "tsdiag check --markdown > docs/statements.md writes it again";
}

TEST(Expectations, AreOfClaimsThatExist) {
    for (const auto* table :
         {&test::expected_devil(), &test::expected_poly(), &test::expected_tse()})
        for (const test::Expected& e : *table)
            EXPECT_NO_THROW(resolve_claims(std::vector{std::string(e.claim)})) << e.claim;
}

}  // namespace
}  // namespace tsdiag
