#include "tsdiag/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

std::string json_refusal(std::string_view text) {
    try {
        Json::parse(text, "config.json");
    } catch (const FormatError& e) {
        return e.what();
    }
    return "accepted";
}

TEST(Json, KeepsTheOrderOfTheText) {
    const Json j = Json::parse(R"({"z": 1, "a": [true, null, "x"], "m": {"k": 2.5}})", "t");
    EXPECT_EQ(j.dump(), R"({"z": 1, "a": [true, null, "x"], "m": {"k": 2.5}})");
    EXPECT_EQ(j["z"].integer(), 1);
    EXPECT_EQ(j["m"]["k"].number(), 2.5);
    EXPECT_TRUE(j["absent"]["further"].is_null());
    EXPECT_TRUE(j.contains("a"));
    EXPECT_FALSE(j.contains("b"));
}

TEST(Json, DumpReadsBackAsTheSameValue) {
    Json j;
    j.set("third", 1.0 / 3).set("one", 1.0).set("big", 1e300).set("tiny", 5e-324);
    j.set("negative zero", -0.0).set("min", std::numeric_limits<std::int64_t>::min());
    j.set("text", std::string("quote\" \\ \n \x01 \xc3\xa9"))
        .set("list", Json::Array{1, "a", Json()});
    j.set("empty", Json::Object()).set("none", Json::Array());
    for (const int indent : {-1, 0, 2}) {
        const Json back = Json::parse(j.dump(indent), "t");
        EXPECT_EQ(back.dump(), j.dump());
        EXPECT_EQ(back["third"].number(), 1.0 / 3);
        EXPECT_FALSE(back["one"].is_integer());
        EXPECT_EQ(back["text"].string(), j["text"].string());
        EXPECT_TRUE(std::signbit(back["negative zero"].number()));
    }
}

TEST(Json, SetsAndFindsMembersOfLargeObjectsAsOfSmallOnes) {
    Json j;
    for (int i = 0; i < 100; ++i) j.set(std::to_string(i), i);
    const Json copy = j;
    j.set("50", "replaced").set("new", 1);
    ASSERT_EQ(j.object().size(), 101u);
    EXPECT_EQ(j.object()[50].first, "50");
    EXPECT_EQ(j["50"].string(), "replaced");
    EXPECT_EQ(j["99"].integer(), 99);
    EXPECT_TRUE(j.contains("new"));
    EXPECT_TRUE(j["absent"].is_null());
    EXPECT_EQ(copy["50"].integer(), 50);
    EXPECT_FALSE(copy.contains("new"));
    Json moved = std::move(j);
    moved.set("last", 2);
    EXPECT_EQ(moved["new"].integer(), 1);
    EXPECT_EQ(moved.object().back().first, "last");
    Json other = Json::Object{{"a", 1}};
    other = copy;
    other.set("a", 3);
    EXPECT_EQ(other.object().size(), 101u);
    EXPECT_EQ(copy.object().size(), 100u);
}

TEST(Json, SetsMembersAtConstantCost) {
    const std::clock_t begin = std::clock();
    Json j;
    for (int i = 0; i < 200'000; ++i) j.set("model.layers." + std::to_string(i), i);
    EXPECT_EQ(j.object().size(), 200'000u);
    EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC) << "searching each time takes minutes";
}

TEST(Json, IndentsWithOneMemberALine) {
    Json j;
    j.set("a", 1).set("b", Json::Array{2, 3});
    EXPECT_EQ(j.dump(2), "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ]\n}");
}

TEST(Json, RefusesDuplicateKeysNamingThem) {
    EXPECT_THAT(json_refusal(R"({"a": 1, "a": 1})"), HasSubstr("'a' occurs twice"));
    EXPECT_THAT(json_refusal(R"({"x": {"a": 1, "b": 2, "a": 3}})"), HasSubstr("'a' occurs twice"));
    EXPECT_EQ(json_refusal(R"({"x": {"a": 1}, "y": {"a": 1}})"), "accepted");
}

TEST(Json, BoundsTheNesting) {
    const auto nested = [](int n) { return std::string(n, '[') + std::string(n, ']'); };
    EXPECT_EQ(json_refusal(nested(200)), "accepted");
    EXPECT_THAT(json_refusal(nested(201)), HasSubstr("deeper than 200"));
    EXPECT_THAT(json_refusal(std::string(1000000, '[')), HasSubstr("deeper than 200"));
}

TEST(Json, RefusesWhatIsNotOneJsonText) {
    for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "01", "nul", "\"\xff\"", "\"\\ud800\"",
                            "1 2", "{} x", "NaN", "1e999", "'a'", "[1] // comment"})
        EXPECT_THAT(json_refusal(bad), HasSubstr("config.json: not valid JSON at byte")) << bad;
    EXPECT_THAT(json_refusal(std::string_view("{}\0garbage", 10)), HasSubstr("zero byte"));
    EXPECT_EQ(json_refusal(" \n{}\t"), "accepted");
}

TEST(Json, LargeUnsignedIntegersBecomeDoubles) {
    EXPECT_EQ(Json::parse("9223372036854775807", "t").integer(), INT64_MAX);
    const Json big = Json::parse("18446744073709551615", "t");
    EXPECT_FALSE(big.is_integer());
    EXPECT_EQ(big.number(), 0x1p64);
    EXPECT_EQ(Json(std::uint64_t{7}).integer(), 7);
}

TEST(Json, IntegerAcceptsADoubleWithoutFraction) {
    EXPECT_EQ(Json(768.0).integer(), 768);
    EXPECT_THROW(Json(0.5).integer(), FormatError);
    EXPECT_THROW(Json(1e19).integer(), FormatError);
    EXPECT_THROW(Json(std::nan("")).integer(), FormatError);
}

TEST(Json, WrongKindsSayWhatWasFound) {
    try {
        Json("seven").integer();
        FAIL();
    } catch (const FormatError& e) {
        EXPECT_THAT(e.what(), HasSubstr("a string (\"seven\"), expected an integer"));
    }
    EXPECT_THROW(Json(1).string(), FormatError);
    EXPECT_THROW(Json(1).array(), FormatError);
    EXPECT_THROW(Json().object(), FormatError);
    EXPECT_THROW(Json(1).boolean(), FormatError);
    EXPECT_THROW(Json("a").number(), FormatError);
}

TEST(Json, SetReplacesAndPushAppends) {
    Json j;
    j.set("a", 1).set("b", 2).set("a", 3);
    EXPECT_EQ(j.dump(), R"({"a": 3, "b": 2})");
    Json list;
    list.push(1).push("x");
    EXPECT_EQ(list.dump(), R"([1, "x"])");
    EXPECT_THROW(list.set("a", 1), FormatError);
}

TEST(Json, NumbersThatAreNotFiniteAreNull) {
    Json j;
    j.set("a", INFINITY).set("b", std::nan("")).set("c", 1.5);
    EXPECT_EQ(j.dump(), R"({"a": null, "b": null, "c": 1.5})");
}

TEST(Json, ATextThatIsTooLongIsRefusedBeforeItIsParsed) {
    EXPECT_EQ(Json::parse("[1, 2]", "file", 6).array().size(), 2);
    try {
        Json::parse("[1, 2?", "file", 5);
        FAIL() << "6 bytes were parsed";
    } catch (const FormatError& e) {
        EXPECT_STREQ(e.what(),
                     "file: has 6 bytes of JSON, expected at most 5. Is this the right file?");
    }
}

TEST(Json, DumpReplacesBytesThatAreNotUtf8) {
    EXPECT_EQ(Json("a\xff\xc3").dump(), R"("a\ufffd\ufffd")");
    EXPECT_EQ(Json("\xed\xa0\x80").dump(), R"("\ufffd\ufffd\ufffd")");
    EXPECT_EQ(Json("\xf0\x9f\x98\x80").dump(), "\"\xf0\x9f\x98\x80\"");
}

TEST(Error, EditDistanceCountsInsertionsDeletionsReplacements) {
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("same", "same"), 0u);
    EXPECT_EQ(nearest("t_simm", std::vector<std::string>{"t_cos", "t_sim"}), "t_sim");
    EXPECT_EQ(nearest("gtp2", std::vector<std::string>{"gpt2", "gpt2-xl"}), "gpt2");
    EXPECT_EQ(nearest("--reading", std::vector<std::string>{"--heads", "--seed"}), "");
    EXPECT_EQ(nearest("zzzz", std::vector<std::string>{"t_cos", "t_sim"}), "");
}

TEST(Error, CheckNamesThePlace) {
    EXPECT_NO_THROW(check(true, "fine"));
    try {
        check(false, "rows match");
        FAIL();
    } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("json_test.cpp"));
        EXPECT_THAT(e.what(), HasSubstr("rows match"));
    }
}

}  // namespace
}  // namespace tsdiag
