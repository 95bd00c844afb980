#include "tsdiag/fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Part {
    std::string word = {};
    bool flag = false;
};
void fields(auto& io, Is<Part> auto& part) { io.key("word", part.word).key("flag", part.flag); }

struct Inlined {
    double first = 0, second = 0;
};
void fields(auto& io, Is<Inlined> auto& part) {
    io.key("first", part.first).key("second", part.second);
}

struct Record {
    std::int64_t count = 0;
    std::uint64_t seed = 0;
    double number = 0;
    std::optional<double> unknown = {};
    std::string note = {};
    std::vector<std::string> lines = {};
    std::vector<std::vector<std::int64_t>> pairs = {};
    std::vector<Part> parts = {};
    std::optional<Inlined> inlined = {};
    std::vector<std::pair<std::string, std::string>> words = {};
};
void fields(auto& io, Is<Record> auto& record) {
    io.key("count", record.count).key("seed", record.seed).key("number", record.number);
    io.key("unknown", record.unknown).some("note", record.note).key("lines", record.lines);
    io.key("pairs", record.pairs).key("parts", record.parts).inlined("first", record.inlined);
    io.key("words", record.words);
}

constexpr const char* text =
    R"({"count":-3,"seed":18446744073709551615,"number":1.0,"unknown":null,"note":"n",)"
    R"("lines":["a",""],"pairs":[[0,2],[1,5]],"parts":[{"word":"w","flag":true}],)"
    R"("first":0.5,"second":1e-300,"words":{"b":"1","a":"2"}})";

Record read(const Json& json) { return read_fields<Record>(json, "folder/file.json"); }

std::string refusal(const Json& json) {
    try {
        read(json);
    } catch (const FormatError& error) {
        return error.what();
    }
    return {};
}

TEST(Fields, ComeBackAsTheyWereWritten) {
    for (const Json& json : {Json::parse(text, "text"), fields_json(Record())}) {
        EXPECT_EQ(fields_json(read(json)).dump(), json.dump());
        // Who writes with `source` and who reads without it agree.
        Record lenient;
        FieldReader io(json);
        fields(io, lenient);
        EXPECT_EQ(fields_json(lenient).dump(), json.dump());
    }
    const Record record = read(Json::parse(text, "text"));
    EXPECT_EQ(record.seed, ~std::uint64_t(0));
    EXPECT_EQ(record.pairs.at(1).at(1), 5);
    EXPECT_TRUE(record.parts.at(0).flag);
    EXPECT_EQ(record.inlined.value().first, 0.5);
}

/// One sentence with the file and the member.
TEST(Fields, NameTheMemberThatIsMissing) {
    const Json whole = Json::parse(text, "text");
    for (const auto& [left_out, value] : whole.object()) {
        Json json = Json::Object{};
        for (const auto& [name, one] : whole.object())
            if (name != left_out) json.set(name, one);
        const std::string said = refusal(json);
        // Without its first member the other is no part; the others may be absent.
        if (left_out == "note" || left_out == "unknown" || left_out == "first")
            EXPECT_EQ(said, "") << left_out;
        else
            EXPECT_THAT(said, AllOf(HasSubstr("folder/file.json: has no member '" + left_out + "'"),
                                    testing::EndsWith(".")));
    }
    EXPECT_THAT(refusal(Json()), HasSubstr("has no member 'count'"));
    EXPECT_THAT(refusal(Json::Array{}), HasSubstr("has no member 'count'"));
}

TEST(Fields, NameTheMemberThatHasAnotherType) {
    const Json whole = Json::parse(text, "text");
    for (const auto& [name, value] : whole.object()) {
        Json json = whole;
        json.set(name, name == "note" ? Json(true) : Json("x"));
        EXPECT_THAT(refusal(json), AllOf(testing::StartsWith("folder/file.json: has a "),
                                         HasSubstr("in member '" + name + "', expected")));
    }
    const auto with = [&](const char* name, const char* value) {
        Json json = whole;
        return refusal(json.set(name, Json::parse(value, "value")));
    };
    EXPECT_THAT(with("count", "1.5"),
                HasSubstr("has a number (1.5) in member 'count', expected an integer."));
    for (const char* value : {"-1", "0.5"})
        EXPECT_THAT(with("seed", value), HasSubstr("expected an integer of 0 or more."));
    EXPECT_THAT(with("lines", "[\"a\", 3]"), HasSubstr("has a number (3) in member 'lines'"));
    EXPECT_THAT(with("pairs", "[[0, null]]"), HasSubstr("has null in member 'pairs'"));
    EXPECT_THAT(with("parts", "[{\"word\": \"w\"}]"), HasSubstr("has no member 'flag'"));
    EXPECT_THAT(with("words", "{\"b\": 1}"), HasSubstr("has a number (1) in member 'words'"));
}

TEST(Fields, StayAsTheyAreWithoutASource) {
    Record record{.count = 7, .note = "before"};
    const Json json = Json::parse(R"({"count": "x", "note": 3, "lines": ["a", 3]})", "text");
    FieldReader io(json);
    fields(io, record);
    EXPECT_EQ(record.count, 7);
    EXPECT_EQ(record.note, "before");
    EXPECT_THAT(record.lines, testing::ElementsAre("a", "3"));
}

}  // namespace
}  // namespace tsdiag
