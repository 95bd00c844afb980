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

/// Encodes UTF-8 by its definition.
std::string encoded(std::uint32_t code) {
    if (code < 0x80) return {char(code)};
    const auto tail = [&](int shift) { return char(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x800) return {char(0xc0 | code >> 6), tail(0)};
    if (code < 0x10000) return {char(0xe0 | code >> 12), tail(6), tail(0)};
    return {char(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(TextTest, EveryCodePointIsReadBack) {
    for (std::uint32_t code = 0; code < 0x120000; ++code) {
        const std::string text = encoded(code);
        const bool exists = code < 0x110000 && (code < 0xd800 || code > 0xdfff);
        ASSERT_EQ(utf8_length(text + "\x80"), exists ? text.size() : 0) << code;
        if (exists) {
            ASSERT_EQ(code_point(text), code);
        }
    }
}

/// Whatever is accepted is the unique encoding of its code point.
TEST(TextTest, NoCodePointHasTwoSpellings) {
    for (unsigned lead = 0x80; lead < 0x100; ++lead)
        for (unsigned second = 0; second < 0x100; ++second)
            for (const char last : {'\x7f', '\x80', '\xbf', '\xc0'}) {
                const std::string text{char(lead), char(second), last, last};
                const std::size_t length = utf8_length(text);
                if (length == 0) continue;
                const std::string sequence = text.substr(0, length);
                ASSERT_EQ(encoded(code_point(sequence)), sequence) << lead << " " << second;
            }
}

TEST(TextTest, ControlCharactersEndWhereLettersAndSignsBegin) {
    using Range = std::pair<std::uint32_t, std::uint32_t>;
    for (const auto& [first, last] :
         {Range{0x7f, 0x9f}, Range{0xad, 0xad}, Range{0x61c, 0x61c}, Range{0x180e, 0x180e},
          Range{0x200b, 0x200f}, Range{0x2028, 0x202e}, Range{0x2060, 0x206f},
          Range{0xfeff, 0xfeff}, Range{0xfff9, 0xfffb}, Range{0xe0000, 0xe007f}}) {
        EXPECT_FALSE(is_control(encoded(first - 1))) << first;
        EXPECT_TRUE(is_control(encoded(first))) << first;
        EXPECT_TRUE(is_control(encoded(last))) << last;
        EXPECT_FALSE(is_control(encoded(last + 1))) << last;
    }
    EXPECT_TRUE(is_control(std::string(1, '\0')));
    EXPECT_TRUE(is_control("\x1f"));
    EXPECT_FALSE(is_control(" "));
    EXPECT_EQ(visible("\r\t\u00ad\u2028\U000e0000"), "\\r\\t\\xad\\u2028\\U000e0000");
}

TEST(TextTest, ControlCharactersAreSpelled) {
    EXPECT_EQ(visible("a\nb"), "a\\nb");
    EXPECT_EQ(visible("a\nb", "\n"), "a\nb");
    EXPECT_EQ(visible(std::string_view("\0\x1b[31m\x7f", 7)), "\\x00\\x1b[31m\\x7f");
    EXPECT_EQ(visible("\u009b31m"), "\\x9b31m");            // C1: some terminals obey it
    EXPECT_EQ(visible("\u202egnp.exe"), "\\u202egnp.exe");  // right-to-left override
    EXPECT_EQ(visible("\u2066\u200b\ufeff"), "\\u2066\\u200b\\ufeff");
    EXPECT_EQ(visible("\u2028"), "\\u2028");  // a line separator in some readers
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

TEST(TextTest, PartsAreThoseBetweenSeparators) {
    using Parts = std::vector<std::string>;
    EXPECT_EQ(split("a,bc,d", ','), (Parts{"a", "bc", "d"}));
    EXPECT_EQ(split(",a,,", ','), (Parts{"", "a", "", ""}));
    EXPECT_EQ(split("", ','), Parts{""});
    EXPECT_EQ(split("a,b", ';'), Parts{"a,b"});
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
        EXPECT_EQ(visible(cut), cut) << most;  // no character is split
    }
}

}  // namespace
}  // namespace tsdiag
