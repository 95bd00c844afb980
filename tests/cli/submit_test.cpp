#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

/// Batch scripts: every value is a value, whatever its characters.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

/// The words of a command with `value` in each place that a script has.
std::vector<Words> in_every_place(const std::string& value) {
    std::vector<Words> all;
    for (const char* option : {"--time", "--partition", "--account"})
        all.push_back({option, value, "check", "tse", "--out", "o"});
    for (const Words& kind : {Words{}, Words{"--array", "3"}})
        for (const Words& command :
             {Words{"check", "tse", "--out", value}, Words{"figure", "tse.fig3", "-o", value},
              Words{"probe", value, "--out", "o"},
              Words{"probe", "random:gpt2", "--text", value, "--out", "o"},
              Words{"probe", "random:gpt2", "--tokenizer", value, "--out", "o"}})
            all.push_back(with(kind, command));
    return all;
}

TEST(Submit, RefusesControlCharactersInEveryPlace) {
    const TemporaryDirectory folder;
    for (const char* value : {"r\ntouch X\n#", "\n", "a\rb", "a\tb", "\x1b[2J", "a\x7f",
                              "a\xc2\x85touch X", "a\xe2\x80\xa8z", "a\xe2\x80\xae z"})
        for (const Words& words : in_every_place(value)) {
            const Finished refused = tsdiag(folder, with({"submit"}, words));
            EXPECT_EQ(refused.code, 2) << testing::PrintToString(words) << refused.out;
            expect_one_sentence(refused.err);
            EXPECT_THAT(refused.err, HasSubstr("control character"));
        }
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Submit, RefusesWhatALineOfSbatchReadsOtherwise) {
    const TemporaryDirectory folder;
    for (const char* value : {"a b", "a#b", "a'b", "\"a\"", "a\\b", "$(touch X)", "`touch X`", "ü"})
        for (const char* option : {"--time", "--partition", "--account"}) {
            const Finished refused =
                tsdiag(folder, {"submit", option, value, "check", "tse", "--out", "o"});
            EXPECT_EQ(refused.code, 2) << option << " " << value << refused.out;
            expect_one_sentence(refused.err);
            EXPECT_THAT(refused.err, HasSubstr(std::string(option) + ": '" + value + "'"));
        }
}

TEST(Submit, TheScriptRunsTheWordsAsTheyWereGiven) {
    const TemporaryDirectory folder;
    // What `srun` is called with, a word a line.
    write_file(folder / "srun", "#!/bin/sh\nshift\nfor word; do printf '%s\\n' \"$word\"; done\n");
    std::filesystem::permissions(folder / "srun", std::filesystem::perms::owner_all);
    for (const char* value : {"a b", "it's", "a\"b", "a\\b", "$(touch X)", "`touch X`", "#", "a;b",
                              "~", "*", "{a,b}", "a&", "!x", "ü", "$HOME", "-", "a=b"}) {
        const Words command = {"check",  "tse",    "--out", std::string("o/") + value,
                               "--dist", "uniform"};
        const Finished shown = tsdiag(folder, with({"submit", "--dry-run", "--time", "1-02:30:00",
                                                    "--partition", "a,b_c", "--account", "x.y-z"},
                                                   command));
        ASSERT_EQ(shown.code, 0) << shown.err;
        write_file(folder / "job", shown.out);
        const Finished ran = Running::shell(folder.path(), "PATH=.:$PATH bash job").wait();
        EXPECT_EQ(ran.code, 0) << ran.err;
        std::string expected;
        for (const std::string& word : command) expected += word + "\n";
        EXPECT_EQ(ran.out, expected);
        EXPECT_EQ(names_in(folder.path()), (Words{"job", "srun"})) << value;
    }
}

TEST(Submit, RefusesAControlCharacterThatSettingsHold) {
    const TemporaryDirectory folder;
    write_file(folder / "settings.toml", "out = \"r\\ntouch X\\n#\"\n");
    const Finished refused =
        tsdiag(folder, {"submit", "--array", "2", "check", "tse", "--settings", "settings.toml"});
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("control character"));
    EXPECT_EQ(names_in(folder.path()), Words{"settings.toml"});
}

}  // namespace
}  // namespace tsdiag::test
