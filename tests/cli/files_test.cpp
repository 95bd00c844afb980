#include <gmock/gmock.h>

#include <map>

#include "program.hpp"
#include "tsdiag/json.hpp"

/// Ownership of files: every command that writes a folder.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* tiny_of_8_tokens = "random:gpt2,layers=2,d=8,heads=2,vocab=16,tokens=8";

std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> out;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            out[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    return out;
}

struct Writer {
    const char* name;
    std::vector<std::string> words;  ///< writes into `out`
    std::string folder;              ///< the folder of the result, in `out`
    bool again;                      ///< can replace its own result without --force
};

class EveryWriter : public testing::TestWithParam<Writer> {
  protected:
    void SetUp() override {
        std::ofstream log(folder / "log.csv");
        log << "step,grad_norm\n";
        for (int t = 0; t < 40; ++t) log << t << ',' << 1 + t % 7 << '\n';
    }
    Finished write(const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = GetParam().words;
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    fs::path result() const { return fs::path(folder / "out") / GetParam().folder; }
    std::vector<std::string> written() const {
        std::vector<std::string> out;
        for (const auto& [name, text] : contents(result())) out.push_back(name);
        return out;
    }
    /// Those of which each is tried; under sanitizers, which are slow, every third.
    std::vector<std::string> tried() const {
        const std::vector<std::string> all = written();
        std::vector<std::string> out;
        for (std::size_t i = 0; i < all.size(); i += memory_is_its_own ? 1 : 3)
            out.push_back(all[i]);
        return out;
    }
    TemporaryDirectory folder;
};
const std::vector<Writer> writers = {
    {"probe",
     {"probe", tiny_of_8_tokens, "--tokens", "4", "--maps", "0:0", "-q", "-o", "out"},
     "",
     true},
    {"check", {"check", "tse.lemma2.4", "--trials", "20", "-q", "-o", "out"}, "", true},
    {"figure",
     {"figure", "tse.fig2", "--trials", "2", "--reading", "d=16", "--reading", "heads=2",
      "--reading", "ffn=8", "--reading", "tokens=8", "--reading", "layers=2", "-q", "-o", "out"},
     "tse.fig2",
     true},
    {"train",
     {"train", "random:gpt2,layers=1,d=8,heads=2", "--data", "copy:3", "--tokens", "5", "--steps",
      "4", "--save-every", "2", "-q", "-o", "out"},
     "",
     false},
    {"init", {"init", tiny_of_8_tokens, "-o", "out"}, "", false},
    {"gradients", {"gradients", "log.csv", "--resamples", "100", "-q", "-o", "out"}, "", true}};
INSTANTIATE_TEST_SUITE_P(Commands, EveryWriter, testing::ValuesIn(writers),
                         [](const auto& test) { return test.param.name; });

TEST_P(EveryWriter, LeavesTheUsersFilesAlone) {
    ASSERT_EQ(write().code, 0);
    const std::map<std::string, std::string> mine = {{"notes.txt", "mine"},
                                                     {"figures/photo.png", "mine"},
                                                     {"data/deep/file", "mine"},
                                                     {"checkpoints/readme", "mine"}};
    for (const auto& [name, text] : mine) {
        fs::create_directories((result() / name).parent_path());
        write_file(result() / name, text);
    }
    const auto expect_mine = [&] {
        const auto now = contents(result());
        for (const auto& [name, text] : mine)
            EXPECT_TRUE(now.contains(name) && now.at(name) == text) << name;
    };
    EXPECT_EQ(write().code, GetParam().again ? 0 : 2);
    expect_mine();
    const Finished forced = write({"--force"});
    EXPECT_EQ(forced.code, 0) << forced.err;
    expect_mine();
    if (fs::exists(result() / "run.json")) {
        const Finished made = tsdiag(folder, {"report", result().string()});
        EXPECT_EQ(made.code, 0) << made.err;
        expect_mine();
    }
    for (const auto& [name, text] : contents(folder.path()))
        EXPECT_EQ(name.find(".tsdiag-"), std::string::npos) << name;
}

TEST_P(EveryWriter, RefusesWhatWasChangedAndWhatItDidNotWrite) {
    ASSERT_EQ(write().code, 0);
    ASSERT_GE(written().size(), 3u);
    const std::vector<std::string> names = tried();
    const auto before = contents(result());
    for (const std::string& name : names) {
        write_file(result() / name, "changed by hand");
        const Finished refused = write({"--force"});
        EXPECT_EQ(refused.code, 2) << name;
        // Without a manifest the first file is refused, with one the changed file.
        const bool whole = fs::path(name).filename() == "files.sha256";
        EXPECT_THAT(refused.err,
                    HasSubstr(whole ? "would be overwritten" : name + ": was changed"));
        EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
        EXPECT_EQ(read_file(result() / name), "changed by hand");
        write_file(result() / name, before.at(name));
        EXPECT_EQ(contents(result()), before) << name;
    }
    EXPECT_EQ(write({"--force"}).code, 0);
}

TEST_P(EveryWriter, ForceReplacesNothingInAForeignFolder) {
    ASSERT_EQ(write().code, 0);
    const std::vector<std::string> names = tried();
    fs::remove_all(folder / "out");
    fs::create_directories(result());
    write_file(result() / "notes.txt", "mine");
    EXPECT_EQ(write().code, 2);
    for (const std::string& name : names) {
        if (name.starts_with("figures/")) continue;  // detected at the commit, see below
        fs::create_directories((result() / name).parent_path());
        write_file(result() / name, "mine");
        const auto before = contents(folder.path());
        const Finished refused = write({"--force"});
        EXPECT_EQ(refused.code, 2) << name;
        EXPECT_THAT(refused.err, HasSubstr(name + ": was not written by tsdiag"));
        EXPECT_EQ(contents(folder.path()), before) << name;
        fs::remove(result() / name);
    }
    EXPECT_EQ(write({"--force"}).code, 0);
    EXPECT_EQ(read_file(result() / "notes.txt"), "mine");
    EXPECT_EQ(write({"--force"}).code, 0);
}

TEST(Figures, OnesOwnStayAndTheResultStandsBeside) {
    TemporaryDirectory folder;
    fs::create_directories(folder / "out/figures");
    write_file(folder / "out/figures/similarity.svg", "mine");
    const Finished found =
        tsdiag(folder, {"probe", tiny_of_8_tokens, "--tokens", "4", "-q", "-o", "out", "--force"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, AllOf(HasSubstr("figures/similarity.svg"), HasSubstr("out-1")));
    EXPECT_EQ(contents(folder / "out").size(), 1u);
    EXPECT_EQ(read_file(folder / "out/figures/similarity.svg"), "mine");
    EXPECT_EQ(tsdiag(folder, {"report", "out-1"}).code, 0);
}

TEST(ReportFiles, AreThoseOfTheRun) {
    TemporaryDirectory folder;
    const auto probe = [&](const char* out, const char* seed) {
        ASSERT_EQ(tsdiag(folder, {"probe", tiny_of_8_tokens, "--tokens", "4", "--maps", "0:0",
                                  "--no-report", "-q", "--seed", seed, "-o", out})
                      .code,
                  0);
    };
    probe("a", "1");
    probe("b", "2");
    const auto refused = [&](const std::string& file) {
        const Finished found = tsdiag(folder, {"report", "a"});
        EXPECT_EQ(found.code, 1) << file;
        EXPECT_THAT(found.err, HasSubstr("a/" + file + ": does not match its SHA-256 in run.json"));
        EXPECT_FALSE(fs::exists(folder / "a/report.html"));
    };
    // What a kill between two renames would have left.
    for (const char* file : {"metrics.csv", "curves.csv", "maps.npz"}) {
        const std::string own = read_file(folder / ("a/" + std::string(file)));
        fs::copy_file(folder / ("b/" + std::string(file)), folder / ("a/" + std::string(file)),
                      fs::copy_options::overwrite_existing);
        refused(file);
        fs::remove(folder / ("a/" + std::string(file)));
        refused(file);
        write_file(folder / ("a/" + std::string(file)), own);
    }
    EXPECT_EQ(tsdiag(folder, {"report", "a"}).code, 0);
    Json run = Json::parse(read_file(folder / "a/run.json"), "run.json");
    run.set("tables", Json());
    write_file(folder / "a/run.json", run.dump(2));
    EXPECT_THAT(tsdiag(folder, {"report", "a"}).err, HasSubstr("has no digests of its tables"));
}

TEST(ConcurrentCommands, TwoProcessesDoNotMixTheirResults) {
    TemporaryDirectory folder;
    const std::vector<std::string> slow = {"probe",    "random:post-norm,d=64,heads=4,layers=6",
                                           "--tokens", "64",
                                           "--trials", "100000",
                                           "-o",       "out"};
    Running first(folder.path(), slow);
    ASSERT_TRUE(first.wait_until([&] { return has_begun(folder / "out"); }));
    TemporaryDirectory elsewhere;
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"probe", tiny_of_8_tokens, "--tokens", "4"},
          {"check", "tse.lemma2.4"},
          {"init", tiny_of_8_tokens},
          {"train", tiny_of_8_tokens, "--data", "copy:3", "--tokens", "5", "--steps", "1"}}) {
        std::vector<std::string> all = words;
        all.insert(all.end(), {"-o", folder / "out", "--force"});
        const Finished second = tsdiag(elsewhere, all);
        EXPECT_EQ(second.code, 2) << words[0];
        EXPECT_THAT(second.err,
                    HasSubstr("process " + std::to_string(first.pid()) + " is writing there"))
            << words[0];
    }
    first.signal(SIGTERM);
    EXPECT_EQ(first.wait().code, 130);
    EXPECT_THAT(names_but_units(folder.path()), testing::IsEmpty());
}

TEST(ConcurrentCommands, AKilledOneIsNoHindrance) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"probe", tiny_of_8_tokens, "--tokens", "4", "-q", "-o", "out"}).code,
              0);
    Running first(folder.path(), {"probe", "random:post-norm,d=64,heads=4,layers=6", "--tokens",
                                  "64", "--trials", "100000", "-o", "out"});
    ASSERT_TRUE(first.wait_until([&] { return has_begun(folder / "out"); }));
    first.signal(SIGKILL);
    EXPECT_EQ(first.wait().code, 128 + SIGKILL);
    EXPECT_GT(names_in(folder.path()).size(), 1u);
    EXPECT_EQ(tsdiag(folder, {"report", "out"}).code, 0);
    EXPECT_THAT(names_but_units(folder.path()), testing::ElementsAre("out"));
}

}  // namespace
}  // namespace tsdiag::test
