#include "../../reports/text.hpp"

#include <gtest/gtest.h>

namespace tsdiag::reports {
namespace {

TEST(TextTest, CountsAreGrammatical) {
    EXPECT_EQ(counted(0, "head"), "no heads");
    EXPECT_EQ(counted(1, "head"), "1 head");
    EXPECT_EQ(counted(12, "head"), "12 heads");
}

TEST(TextTest, SimilarityNearOneKeepsItsDistanceFromOne) {
    EXPECT_EQ(similarity_text(0.98765, 0.01235), "0.9877");
    EXPECT_EQ(similarity_text(0.99997, 2.8e-5), "0.99997");
    EXPECT_EQ(similarity_text(1, 3.2e-7), "1 - 3.2e-07");
    EXPECT_EQ(similarity_text(1, std::nullopt), "1.0000");
}

TEST(TextTest, CommandsAreQuotedWhereAShellWouldReadThemOtherwise) {
    const std::vector<std::string> words = {
        "tsdiag", "probe",        "random:gpt2,attention=0:softmax;1:linear", "it's", "",
        "a b",    "--out=x/y-1.0"};
    EXPECT_EQ(reports::shell_command(words),
              "tsdiag probe 'random:gpt2,attention=0:softmax;1:linear' 'it'\\''s' '' 'a b' "
              "--out=x/y-1.0");
    EXPECT_EQ(reports::shell_command({}), "");
}

TEST(TextTest, HtmlEscapesWhatWouldBeMarkup) {
    EXPECT_EQ(html("<b a=\"x\">&'\x01"), "&lt;b a=&quot;x&quot;&gt;&amp;&#39;\\x01");
}

TEST(TextTest, JsonInAScriptCannotEndTheScript) {
    const std::string text = script_json(Json("</script><!--"));
    EXPECT_EQ(text.find('<'), std::string::npos);
    EXPECT_EQ(Json::parse(text, "t").string(), "</script><!--");
}

TEST(TextTest, GnuplotStringsCannotBeLeft) {
    EXPECT_EQ(gnuplot_string("it's\n`x` $HOME \\"), "'it\u2019s `x` $HOME \\'");
}

TEST(TextTest, Base64OfEveryRemainder) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
    EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

}  // namespace
}  // namespace tsdiag::reports
