#include "tsdiag/text.hpp"

#include <gtest/gtest.h>

#include "tsdiag/json.hpp"

namespace tsdiag {
namespace {

TEST(TextTest, BytesThatAreNotUtf8AreReplaced) {
    const std::string mark = "\xef\xbf\xbd";
    EXPECT_EQ(visible("a\xce\xbb\xe2\x82\xac\xf0\x9f\x98\x80"),
              "a\xce\xbb\xe2\x82\xac\xf0\x9f\x98\x80");
    EXPECT_EQ(visible("\xff"), mark);
    EXPECT_EQ(visible("\xc0\xaf"), mark + mark);                        // overlong
    EXPECT_EQ(visible("\xed\xa0\x80"), mark + mark + mark);             // surrogate
    EXPECT_EQ(visible("\xe2\x82"), mark + mark);                        // cut short
    EXPECT_EQ(visible("\xf4\x90\x80\x80"), mark + mark + mark + mark);  // beyond U+10FFFF
    EXPECT_EQ(visible("\xce"
                      "b"),
              mark + "b");
}

TEST(TextTest, ControlCharactersAreSpelled) {
    EXPECT_EQ(visible("a\nb"), "a\\nb");
    EXPECT_EQ(visible("a\nb", "\n"), "a\nb");
    EXPECT_EQ(visible(std::string_view("\0\x1b[31m\x7f", 7)), "\\x00\\x1b[31m\\x7f");
    EXPECT_EQ(visible("\u009b31m"), "\\x9b31m");            // C1: some terminals obey it
    EXPECT_EQ(visible("\u202egnp.exe"), "\\u202egnp.exe");  // read from right to left
    EXPECT_EQ(visible("\u2066\u200b\ufeff"), "\\u2066\\u200b\\ufeff");
    EXPECT_EQ(visible("\u2028"), "\\u2028");  // a line of its own in some readers
    EXPECT_EQ(visible("\U000e0041"), "\\U000e0041");
    EXPECT_EQ(visible("\u00e9\u05d0\u4e2d"), "\u00e9\u05d0\u4e2d");  // letters stay
}

TEST(TextTest, JsonEscapesWhatDoesNotShow) {
    for (const char* text : {"\u202e", "\u009b", "\u2028", "\U000e0041", "\x7f", "\x01"}) {
        const std::string json = Json(text).dump();
        EXPECT_EQ(json.find(text), std::string::npos) << json;
        EXPECT_EQ(Json::parse(json, "test").string(), text) << json;
    }
    EXPECT_EQ(Json("\U000e0041").dump(), "\"\\udb40\\udc41\"");
}

TEST(TextTest, LongTextKeepsItsBeginningAndEnd) {
    EXPECT_EQ(shortened("short", 5), "short");
    const std::string text = shortened(std::string(65536, 'a') + "end", 80);
    EXPECT_LT(text.size(), 120u);
    EXPECT_TRUE(text.starts_with("aaaa")) << text;
    EXPECT_TRUE(text.ends_with("aend")) << text;
    EXPECT_NE(text.find("(65459 bytes left out)"), std::string::npos) << text;
    std::string greek;
    for (int i = 0; i < 100; ++i) greek += "\u03bb";
    for (std::size_t most = 20; most < 40; ++most) {
        const std::string cut = shortened(greek, most);
        EXPECT_EQ(visible(cut), cut) << most;  // no letter is cut in two
    }
}

}  // namespace
}  // namespace tsdiag
