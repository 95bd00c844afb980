#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "support/files.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// Everything below a folder: name and content; for folders the name with '/'.
std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> out;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = fs::relative(entry.path(), folder).string();
        if (entry.is_symlink())
            out[name] = "-> " + fs::read_symlink(entry.path()).string();
        else if (entry.is_directory())
            out[name + "/"] = "";
        else
            out[name] = read_file(entry.path());
    }
    return out;
}
std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> out;
    for (const auto& [name, text] : contents(folder))
        if (!name.ends_with('/')) out.push_back(name);
    return out;
}

OutputPlan plan() { return {.writes = {"a.csv", "b.csv", "figures/*", "parts/step-*"}}; }

using Files = std::map<std::string, std::string>;

void fill(const fs::path& folder, const Files& files) {
    for (const auto& [name, text] : files) {
        fs::create_directories((folder / name).parent_path());
        write_file(folder / name, text);
    }
}
void write_result(const fs::path& folder, const Files& files, OutputPlan how = plan()) {
    OutputFolder out(folder, std::move(how));
    fill(out.temporary(), files);
    out.commit();
}
std::string error_of(const fs::path& folder, const Files& files, OutputPlan how = plan()) {
    try {
        write_result(folder, files, std::move(how));
    } catch (const Error& error) {
        return error.what();
    }
    return "(no error)";
}

/// Both kinds of commit: the exchange, and file by file.
class EveryWay : public testing::TestWithParam<bool> {
  protected:
    OutputPlan way() const {
        OutputPlan out = plan();
        out.in_place = GetParam();
        return out;
    }
    void expect_nothing_beside() const {
        EXPECT_THAT(names(folder.path()), testing::Each(testing::StartsWith("out/")));
        EXPECT_THAT(names(folder.path()), testing::Not(testing::Contains(HasSubstr(".tsdiag"))));
    }
    TemporaryDirectory folder;
    fs::path out = folder.path() / "out";
};
INSTANTIATE_TEST_SUITE_P(Ways, EveryWay, testing::Bool(),
                         [](const auto& test) { return test.param ? "in_place" : "exchange"; });

TEST_P(EveryWay, ReplacesWhatItWroteAndKeepsTheRest) {
    write_result(out, {{"a.csv", "1"}, {"b.csv", "1"}, {"figures/x.svg", "1"}}, way());
    fill(out, {{"notes.txt", "mine"}, {"figures/photo.png", "mine"}, {"deep/er/file", "mine"}});
    write_result(out, {{"a.csv", "1"}, {"parts/step-1/b", "1"}}, way());
    fs::create_directory(out / "empty");
    fs::create_symlink("nowhere", out / "link");
    ::chmod((out / "deep").c_str(), 0750);
    write_result(out, {{"a.csv", "2"}, {"figures/y.svg", "2"}}, way());
    const Files found = contents(out);
    EXPECT_THAT(names(out), ElementsAre("a.csv", "deep/er/file", "figures/photo.png",
                                        "figures/y.svg", "files.sha256", "link", "notes.txt"));
    EXPECT_EQ(found.at("a.csv"), "2");
    EXPECT_EQ(found.at("deep/er/file"), "mine");
    EXPECT_EQ(found.at("link"), "-> nowhere");
    EXPECT_TRUE(fs::is_directory(out / "empty"));
    EXPECT_FALSE(fs::exists(out / "parts"));  // it holds no files of the user
    EXPECT_EQ(fs::status(out / "deep").permissions(), fs::perms(0750));
    expect_nothing_beside();
}

TEST_P(EveryWay, KeepsWhatItsPlanDoesNotWrite) {
    write_result(out, {{"a.csv", "1"}, {"figures/x.svg", "1"}}, way());
    OutputPlan page = way();
    page.writes = {"figures/*"};
    write_result(out, {{"figures/x.svg", "2"}}, page);
    EXPECT_EQ(read_file(out / "a.csv"), "1");
    EXPECT_EQ(read_file(out / "figures/x.svg"), "2");
    const Manifest manifest = Manifest::of(out);
    EXPECT_TRUE(manifest.owns(out, "a.csv"));
    EXPECT_TRUE(manifest.owns(out, "figures/x.svg"));
}

TEST_P(EveryWay, RefusesWhatWouldBeReplacedAndIsNotItsOwn) {
    write_result(out, {{"a.csv", "1"}, {"figures/x.svg", "1"}}, way());
    const Files before = contents(out);
    const auto refuses = [&](const std::string& name, const std::string& why) {
        const Files now = contents(out);
        OutputPlan forced = way();
        forced.force = true;
        for (const OutputPlan& how : {way(), forced}) {
            const std::string error = error_of(out, {{"a.csv", "2"}}, how);
            EXPECT_THAT(error, HasSubstr("out/" + name + ": " + why));
            EXPECT_EQ(contents(out), now);
        }
        expect_nothing_beside();
    };
    write_file(out / "a.csv", "changed");
    refuses("a.csv", "was changed after tsdiag wrote it");
    fill(out, {{"a.csv", "1"}, {"b.csv", "mine"}});
    refuses("b.csv", "was not written by tsdiag");
    fs::remove(out / "b.csv");
    fill(out, {{"parts/step-3/model", "mine"}});
    refuses("parts/step-3/model", "was not written by tsdiag");
    fs::remove_all(out / "parts");
    write_file(out / "figures/x.svg", "edited");
    refuses("figures/x.svg", "was changed after tsdiag wrote it");
    write_file(out / "figures/x.svg", "1");
    fs::rename(out / "figures", folder / "elsewhere");
    fs::create_symlink("../elsewhere", out / "figures");
    EXPECT_THAT(error_of(out, {{"a.csv", "2"}, {"figures/x.svg", "2"}}, way()),
                HasSubstr("out/figures: was not written by tsdiag"));
    EXPECT_EQ(read_file(folder / "elsewhere/x.svg"), "1");
    fs::remove(out / "figures");
    fs::rename(folder / "elsewhere", out / "figures");
    EXPECT_EQ(contents(out), before);
}

TEST_P(EveryWay, WhatComesIntoTheWayStaysAndTheResultStandsBeside) {
    write_result(out, {{"a.csv", "1"}}, way());
    OutputFolder next(out, way());
    fill(next.temporary(), {{"a.csv", "2"}, {"figures/x.svg", "2"}});
    fill(out, {{"figures/x.svg", "mine"}});
    try {
        next.commit();
        FAIL() << "it replaced a file of its user";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("figures/x.svg: was created by another program"));
    }
    EXPECT_EQ(read_file(out / "figures/x.svg"), "mine");
    EXPECT_EQ(read_file(out / "a.csv"), "1");
    const fs::path aside = GetParam() ? out / "result-1" : folder.path() / "out-1";
    EXPECT_EQ(read_file(aside / "a.csv"), "2");
    EXPECT_EQ(read_file(aside / "figures/x.svg"), "2");
}

TEST_P(EveryWay, WithoutACommitNothingRemains) {
    write_result(out, {{"a.csv", "1"}}, way());
    const Files before = contents(folder.path());
    {
        OutputFolder next(out, way());
        fill(next.temporary(), {{"a.csv", "2"}});
    }
    EXPECT_EQ(contents(folder.path()), before);
}

TEST_P(EveryWay, ADigestForEveryFileAsSha256sumReadsIt) {
    write_result(out, {{"a.csv", "1"}, {"figures/x.svg", "1"}}, way());
    const std::string command = "cd '" + out.string() + "' && sha256sum --check --strict --quiet " +
                                std::string(Manifest::file);
    EXPECT_EQ(::system(command.c_str()), 0);
    write_file(out / "a.csv", "2");
    EXPECT_NE(::system((command + " 2>/dev/null >/dev/null").c_str()), 0);
}

TEST(OutputFolderTest, ANewFolderComesAndGoesWithItsParents) {
    const TemporaryDirectory folder;
    {
        OutputFolder none(folder / "x/y/z", plan());
        EXPECT_TRUE(fs::exists(folder / "x/y"));
    }
    EXPECT_THAT(names(folder.path()), testing::IsEmpty());
    EXPECT_FALSE(fs::exists(folder / "x"));
    write_result(folder / "x/y/z", {{"a.csv", "1"}});
    EXPECT_THAT(names(folder.path()), ElementsAre("x/y/z/a.csv", "x/y/z/files.sha256"));
}

TEST(OutputFolderTest, AnEmptyFolderIsFilledAndKeepsItsPermissions) {
    const TemporaryDirectory folder;
    fs::create_directory(folder / "out");
    ::chmod((folder / "out").c_str(), 0700);
    write_result(folder / "out", {{"a.csv", "1"}});
    EXPECT_EQ(fs::status(folder / "out").permissions(), fs::perms(0700));
    EXPECT_THAT(names(folder.path()), ElementsAre("out/a.csv", "out/files.sha256"));
}

TEST(OutputFolderTest, AForeignFolderIsRefusedAndForcedInPlace) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "out";
    fill(out, {{"sub/mine", "mine"}});
    EXPECT_THAT(error_of(out, {{"a.csv", "1"}}),
                HasSubstr("contains sub/mine, which tsdiag did not"));
    struct stat before {
    }, after{};
    ASSERT_EQ(::stat(out.c_str(), &before), 0);
    OutputPlan forced = plan();
    forced.force = true;
    write_result(out, {{"a.csv", "1"}}, forced);
    ASSERT_EQ(::stat(out.c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);  // a folder of another user is never exchanged
    EXPECT_THAT(names(out), ElementsAre("a.csv", "files.sha256", "sub/mine"));
    EXPECT_EQ(error_of(out, {{"a.csv", "2"}}), "(no error)");  // now it has a result
    OutputPlan careful = plan();
    careful.replace = false;
    EXPECT_THAT(error_of(out, {{"a.csv", "3"}}, careful), HasSubstr("contains sub/mine"));
}

TEST(OutputFolderTest, TheWorkingDirectoryIsNotExchanged) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "out", home = fs::current_path();
    write_result(out, {{"a.csv", "1"}});
    fs::create_directory(out / "sub");
    fs::current_path(out / "sub");
    write_result("..", {{"a.csv", "2"}});
    EXPECT_EQ(read_file("../a.csv"), "2");  // still at the same path
    EXPECT_TRUE(fs::equivalent(fs::current_path(), out / "sub"));
    fs::current_path(home);
}

TEST(OutputFolderTest, ASymbolicLinkIsFollowedAndStays) {
    const TemporaryDirectory folder;
    fs::create_directory(folder / "real");
    fs::create_symlink("real", folder / "link");
    for (const char* text : {"1", "2"}) {
        write_result(folder / "link", {{"a.csv", text}});
        EXPECT_TRUE(fs::is_symlink(folder / "link"));
        EXPECT_EQ(read_file(folder / "real/a.csv"), text);
    }
    EXPECT_EQ(names(folder.path()).size(), 3u);
}

TEST(OutputFolderTest, LongNamesFit) {
    const TemporaryDirectory folder;
    const std::string name(255, 'n');
    for (const char* text : {"1", "2"}) write_result(folder / name, {{"a.csv", text}});
    EXPECT_EQ(read_file(folder / (name + "/a.csv")), "2");
    EXPECT_EQ(names(folder.path()).size(), 2u);
}

// The states after a kill at each step, made by hand: tests/faults kills real processes.

TEST(Sweep, RemovesWhatIsUnfinished) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "out";
    write_result(out, {{"a.csv", "1"}});
    fill(folder.path(), {{".out.tsdiag-aB3dE6/.tsdiag-unfinished", ""},
                         {".out.tsdiag-aB3dE6/a.csv", "half"},
                         {"out/.tsdiag-aB3dE6/.tsdiag-unfinished", ""},
                         {".out.tsdiag-other/mine", "mine"},
                         {".out.tsdiag-mine12/mine", "mine"},
                         {".out2.tsdiag-aB3dE6/.tsdiag-unfinished", ""},
                         {"out/.files.sha256.12-3.tmp", "half"},
                         {".out.tsdiag-lock", "99999999\n"}});
    fs::create_directories(folder / ".out.tsdiag-empty0/a/b");  // killed after the last file
    write_result(out, {{"a.csv", "2"}});
    EXPECT_THAT(
        names(folder.path()),
        ElementsAre(".out.tsdiag-mine12/mine", ".out.tsdiag-other/mine",
                    ".out2.tsdiag-aB3dE6/.tsdiag-unfinished", "out/a.csv", "out/files.sha256"));
    EXPECT_FALSE(fs::exists(folder / ".out.tsdiag-empty0"));
}

TEST(Sweep, TakesApartWhatWasExchanged) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "out", old = folder.path() / ".out.tsdiag-aB3dE6";
    write_result(old, {{"a.csv", "1"}, {"figures/x.svg", "1"}});
    fill(old, {{"figures/late.png", "mine"}, {"linked", "mine"}});
    write_result(out, {{"a.csv", "2"}});
    fs::create_hard_link(old / "linked", out / "linked");
    FolderLock(out.string());  // a lock alone removes nothing
    EXPECT_TRUE(fs::exists(old));
    OutputFolder next(out, plan());
    EXPECT_FALSE(fs::exists(old));
    EXPECT_THAT(names(out), ElementsAre("a.csv", "figures/late.png", "files.sha256", "linked"));
    EXPECT_EQ(read_file(out / "a.csv"), "2");
    EXPECT_EQ(fs::hard_link_count(out / "linked"), 1u);
}

TEST(Sweep, FinishesWhatWasBeingMoved) {
    for (const bool inside : {false, true})
        for (int moved = 0; moved < 4; ++moved) {
            const TemporaryDirectory folder;
            const fs::path out = folder.path() / "out";
            write_result(out, {{"a.csv", "1"}, {"b.csv", "1"}});
            fill(out, {{"notes", "mine"}});
            const fs::path left =
                inside ? out / ".tsdiag-aB3dE6" : folder.path() / ".out.tsdiag-aB3dE6";
            write_result(folder / "new", {{"a.csv", "2"}, {"figures/x.svg", "2"}});
            fs::rename(folder / "new", left);
            fill(left, {{".tsdiag-finished", ""}});
            const char* order[] = {"a.csv", "figures/x.svg", "files.sha256"};
            if (moved > 0) fs::remove(out / "b.csv");
            fs::create_directories(out / "figures");
            for (int i = 0; i < moved; ++i) fs::rename(left / order[i], out / order[i]);
            OutputFolder next(out, plan());
            EXPECT_FALSE(fs::exists(left)) << moved;
            const Files found = contents(out);
            EXPECT_EQ(found.at("a.csv"), "2") << moved;
            EXPECT_EQ(found.at("figures/x.svg"), "2") << moved;
            EXPECT_EQ(found.at("notes"), "mine") << moved;
            EXPECT_FALSE(found.contains("b.csv")) << moved;
            EXPECT_TRUE(Manifest::of(out).owns(out, "a.csv")) << moved;
        }
}

TEST(Sweep, MovesNothingOverWhatWasChangedSince) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "out", left = folder.path() / ".out.tsdiag-aB3dE6";
    write_result(out, {{"a.csv", "1"}, {"b.csv", "1"}});
    write_result(left, {{"a.csv", "2"}});
    fill(left, {{".tsdiag-finished", ""}});
    fill(out, {{"a.csv", "edited"}, {"b.csv", "edited"}});
    EXPECT_THAT(error_of(out, {{"a.csv", "3"}}), HasSubstr("a.csv: was changed"));
    EXPECT_EQ(read_file(out / "a.csv"), "edited");
    EXPECT_EQ(read_file(out / "b.csv"), "edited");
}

TEST(Lock, NamesTheProcessThatHoldsIt) {
    const TemporaryDirectory folder;
    int go[2] = {}, ready[2] = {};
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const FolderLock lock(folder / "out");
        char c = 'r';
        (void)!::write(ready[1], &c, 1);
        (void)!::read(go[0], &c, 1);
        ::_exit(0);  // as if killed: only the kernel releases anything
    }
    char c = 0;
    ASSERT_EQ(::read(ready[0], &c, 1), 1);
    const std::string error = error_of(folder / "out", {{"a.csv", "1"}});
    EXPECT_THAT(error, HasSubstr("process " + std::to_string(child) + " is writing there"));
    EXPECT_EQ(::write(go[1], &c, 1), 1);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(fs::exists(folder / ".out.tsdiag-lock"));  // stale, and ignored
    write_result(folder / "out", {{"a.csv", "1"}});
    EXPECT_THAT(names(folder.path()), ElementsAre("out/a.csv", "out/files.sha256"));
}

TEST(Lock, IsHeldByOneOfManyAtATime) {
    const TemporaryDirectory folder;
    constexpr int processes = 4, rounds = 60;
    std::vector<pid_t> children;
    for (int p = 0; p < processes; ++p) {
        const pid_t child = ::fork();
        if (child == 0) {
            int bad = 0;
            for (int done = 0; done < rounds;) try {
                    const FolderLock lock(folder / "out");
                    // The lock excludes others: nobody else creates or removes it.
                    bad += ::mkdir((folder / "alone").c_str(), 0700) != 0;
                    bad += ::rmdir((folder / "alone").c_str()) != 0;
                    ++done;
                } catch (const UsageError&) {
                    ::usleep(50);
                }
            ::_exit(bad == 0 ? 0 : 1);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    EXPECT_THAT(names(folder.path()), testing::IsEmpty());
}

TEST(Lock, AProcessMayLockTwice) {
    const TemporaryDirectory folder;
    const FolderLock lock(folder / "out");
    write_result(folder / "out", {{"a.csv", "1"}});
    EXPECT_TRUE(fs::exists(folder / ".out.tsdiag-lock"));
}

}  // namespace
}  // namespace tsdiag::test
