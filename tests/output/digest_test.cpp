#include <gtest/gtest.h>

#include "support/files.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::test {
namespace {

TEST(Sha256, IsThatOfTheStandard) {
    // FIPS 180-4's examples, and the empty message.
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256(std::string(1000000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, TakesPiecesOfAnyLength) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += char(i * 7);
    for (std::size_t piece = 1; piece < 140; ++piece) {
        Sha256 digest;
        for (std::size_t at = 0; at < text.size(); at += piece)
            digest.add(std::string_view(text).substr(at, piece));
        EXPECT_EQ(digest.hex(), sha256(text)) << piece;
        EXPECT_EQ(digest.hex(), sha256(text)) << "asked again";
    }
}

TEST(Sha256, OfFiles) {
    const TemporaryDirectory folder;
    const std::string text(700000, 'x');
    write_file(folder / "a", text);
    EXPECT_EQ(sha256_of(folder / "a"), sha256(text));
    EXPECT_EQ(sha256_of(folder / "a", 0), sha256(""));
    EXPECT_EQ(sha256_of(folder / "a", 300000), sha256(text.substr(300000, 300000)));
    EXPECT_EQ(sha256_of(folder / "a", 700001), std::nullopt);
    EXPECT_EQ(sha256_of(folder / "b"), std::nullopt);
    EXPECT_EQ(sha256_of(folder.path()), std::nullopt);
    std::filesystem::create_symlink("a", folder / "link");
    EXPECT_EQ(sha256_of(folder / "link"), std::nullopt);
}

Manifest sample() {
    Manifest m;
    m.set("a.csv", {sha256("a")});
    m.set("figures/b c.svg", {sha256("b")});
    m.set("log.csv", {sha256("one\n"), 4});
    return m;
}

TEST(ManifestText, IsReadBack) {
    const Manifest m = sample(), again = Manifest::parse(m.text());
    EXPECT_EQ(again.entries(), m.entries());
    EXPECT_EQ(again.text(), m.text());
}

TEST(ManifestText, NothingElseIsOne) {
    const std::string text = sample().text();
    EXPECT_TRUE(Manifest::parse("").empty());
    EXPECT_TRUE(Manifest::parse(sha256("a") + "  a.csv\n").empty());  // a line of sha256sum
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::string other = text;
        other[at] = char(other[at] ^ 1);
        EXPECT_TRUE(Manifest::parse(other).empty()) << at;
        EXPECT_TRUE(Manifest::parse(text.substr(0, at)).empty()) << at;
    }
    EXPECT_TRUE(Manifest::parse(text + sha256("c") + "  c.csv\n").empty());
}

TEST(ManifestText, NamesStayInTheFolder) {
    for (const char* name : {"../a", "/etc/a", "a/../../b", "..", ".", "", "a/", "./a", "a//b"}) {
        Manifest m;
        m.set(name, {sha256("a")});
        EXPECT_TRUE(Manifest::parse(m.text()).empty()) << name;
    }
}

TEST(ManifestOwns, WhatIsUnchanged) {
    const TemporaryDirectory folder;
    std::filesystem::create_directory(folder / "figures");
    write_file(folder / "a.csv", "a");
    write_file(folder / "figures/b c.svg", "b");
    write_file(folder / "log.csv", "one\ntwo\n");
    write_file(folder / "mine", "a");
    const Manifest m = sample();
    for (const char* name : {"a.csv", "figures/b c.svg", "log.csv"})
        EXPECT_TRUE(m.owns(folder.path(), name)) << name;
    EXPECT_FALSE(m.owns(folder.path(), "mine"));
    write_file(folder / "a.csv", "A");
    write_file(folder / "log.csv", "on");
    EXPECT_FALSE(m.owns(folder.path(), "a.csv"));
    EXPECT_FALSE(m.owns(folder.path(), "log.csv"));
    // The same bytes behind a link to a folder are not the program's.
    std::filesystem::rename(folder / "figures", folder / "elsewhere");
    std::filesystem::create_symlink("elsewhere", folder / "figures");
    EXPECT_FALSE(m.owns(folder.path(), "figures/b c.svg"));
}

TEST(ManifestOwns, WhatAListedManifestBelowNames) {
    const TemporaryDirectory folder;
    std::filesystem::create_directories(folder / "part/one");
    std::filesystem::create_directories(folder / "part/two");
    Manifest below, m;
    below.set("a", {sha256("a")});
    for (const char* part : {"part/one", "part/two"}) {
        write_file(folder / (std::string(part) + "/a"), "a");
        below.write(folder / part);
    }
    m.set("part/one/files.sha256", {sha256(below.text())});
    EXPECT_TRUE(m.owns(folder.path(), "part/one/a"));
    EXPECT_FALSE(m.owns(folder.path(), "part/two/a"));  // a copy made by the user
    EXPECT_EQ(m.names(folder.path()),
              (std::vector<std::string>{"part/one/a", "part/one/files.sha256"}));
    write_file(folder / "part/one/files.sha256", below.text() + "\n");
    EXPECT_FALSE(m.owns(folder.path(), "part/one/a"));
}

}  // namespace
}  // namespace tsdiag::test
