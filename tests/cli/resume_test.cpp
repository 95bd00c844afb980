#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <memory>

#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/json.hpp"

/// `train --resume` after kills, full disks and accidental changes.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* logs[] = {"steps.csv", "gradients.csv", "evaluations.csv", "metrics.csv",
                                "curves.csv"};

class Resume : public testing::Test {
  protected:
    /// One training, of which each test has a copy.
    static void SetUpTestSuite() {
        whole = std::make_unique<TemporaryDirectory>();
        ASSERT_EQ(train({"-o", "run"}, *whole).code, 0);
    }
    static void TearDownTestSuite() { whole.reset(); }
    void SetUp() override {
        ASSERT_TRUE(fs::exists(*whole / "run"));
        fs::copy(*whole / "run", folder / "run", fs::copy_options::recursive);
        expected = made("run");
        ASSERT_EQ(expected.size(), 11u);  // logs, and the models and states of steps 3 and 6
    }
    Finished train(const std::vector<std::string>& more) { return train(more, folder); }
    static Finished train(const std::vector<std::string>& more, const TemporaryDirectory& folder,
                          const std::vector<std::string>& environment = {}) {
        std::vector<std::string> words = {"train",
                                          "random:gpt2,layers=2,d=8,heads=2",
                                          "--data",
                                          "copy:3",
                                          "--tokens",
                                          "5",
                                          "--steps",
                                          "6",
                                          "--save-every",
                                          "3",
                                          "--eval-every",
                                          "2",
                                          "--probe-every",
                                          "2",
                                          "--dropout",
                                          "0.1",
                                          "--probes",
                                          "t_sim,local_acc",
                                          "-q"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words, environment);
    }
    /// Every byte that a resumed run must reproduce.
    std::map<std::string, std::string> made(const std::string& run) {
        std::map<std::string, std::string> out;
        for (const char* name : logs) out[name] = read_file(path(name, run));
        for (const std::string step : {"3", "6"})
            for (const char* name : {"model.safetensors", "config.json", "training.safetensors"}) {
                const std::string file = "checkpoints/step-" + step + "/" + name;
                out[file] = read_file(path(file, run));
            }
        return out;
    }
    std::string path(const std::string& name, const std::string& run = "run") const {
        return folder / (run + "/" + name);
    }
    void expect_the_same(const Finished& found, const std::string& what) {
        EXPECT_EQ(found.code, 0) << what << ": " << found.err;
        for (const auto& [name, text] : made("run"))
            EXPECT_TRUE(text == expected[name]) << what << ": " << name;
    }
    /// The run as interrupted after step 3, with logs that continue.
    void interrupt() { fs::remove_all(path("checkpoints/step-6")); }
    static inline std::unique_ptr<TemporaryDirectory> whole;
    TemporaryDirectory folder;
    std::map<std::string, std::string> expected;
};

TEST_F(Resume, CutsLogsBackToTheCheckpoint) {
    for (const bool first_torn : {true, false}) {  // of neighbours one is torn, one continued
        interrupt();
        bool torn = first_torn;
        for (const char* log : logs) {
            const std::string file = path(log), text = read_file(file);
            write_file(file, torn ? text.substr(0, text.size() - 3)
                                  : text + text.substr(text.size() / 2) + "7,");
            torn = !torn;
        }
        expect_the_same(train({"-o", "run", "--resume"}), first_torn ? "torn" : "longer");
    }
    interrupt();
    expect_the_same(train({"-o", "run", "--resume"}), "untouched");
}

TEST_F(Resume, LogsShorterThanTheStateGoBackToTheOneBefore) {
    const std::string file = path("steps.csv"), text = read_file(file);
    write_file(file, text.substr(0, text.find("\n5,") + 8));  // torn in step 5, after state 3
    expect_the_same(train({"-o", "run", "--resume"}, folder, {"SOURCE_DATE_EPOCH=0"}), "shorter");
    const Json run = Json::parse(read_file(path("run.json")), "run.json");
    EXPECT_EQ(run["measured"]["date"].string(), "2026-01-01T00:00:00Z") << "that of its beginning";
    EXPECT_THAT(read_file(path("run.json")), HasSubstr("cannot resume from step 6"));
    EXPECT_THAT(read_file(path("report.html")), HasSubstr("cannot resume from step 6"));
    write_file(file, text.substr(0, text.find("\n2,")));
    const Finished refused = train({"-o", "run", "--resume"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("contains no intact state"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
}

TEST_F(Resume, ChangedLogsAreNoticed) {
    const std::string file = path("gradients.csv"), text = read_file(file);
    std::string other = text;
    other[text.find("\n2,0,") + 6] ^= 1;
    write_file(file, other);
    const Finished refused = train({"-o", "run", "--resume"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("gradients.csv: its first"));
    EXPECT_EQ(read_file(file), other);
}

TEST_F(Resume, AnyFlippedBitGoesBackToTheStateBefore) {
    const std::string file = path("checkpoints/step-6/training.safetensors");
    const std::string& whole = expected["checkpoints/step-6/training.safetensors"];
    const int step = memory_is_its_own ? 1 : 5;  // sanitizers are slow and detect no more
    for (int i = 0; i < 16; i += step) {
        // Header, notes, parameters and moments: everywhere in the file.
        const std::size_t at = i == 0 ? 3 : whole.size() * std::size_t(i) / 16 + std::size_t(i);
        std::string text = whole;
        text[at] = char(text[at] ^ (1 << i % 8));
        write_file(file, text);
        expect_the_same(train({"-o", "run", "--resume"}), "byte " + std::to_string(at));
        EXPECT_EQ(read_file(file + ".damaged"), text) << "it stays";
        fs::remove(file + ".damaged");
    }
    for (const std::size_t size : {std::size_t(0), std::size_t(7), whole.size() / 2}) {
        write_file(file, whole.substr(0, size));
        expect_the_same(train({"-o", "run", "--resume"}), "cut to " + std::to_string(size));
        fs::remove(file + ".damaged");
    }
}

TEST_F(Resume, AMissingMomentIsNoticed) {
    // The header of safetensors names each tensor: a renamed one is missing.
    const std::string file = path("checkpoints/step-6/training.safetensors");
    std::string text = read_file(file);
    std::size_t at = text.find("\"m.layer.0");
    ASSERT_NE(at, std::string::npos);
    text[at + 1] = 'n';
    at = text.find("\"v.layer.0");
    ASSERT_NE(at, std::string::npos);
    text[at + 1] = 'w';
    write_file(file, text);
    expect_the_same(train({"-o", "run", "--resume"}), "missing moments");
    EXPECT_THAT(read_file(path("run.json")), HasSubstr("is damaged ('m.layer.0"));
}

TEST_F(Resume, WithoutAnyWholeStateIsOneSentence) {
    for (const char* step : {"3", "6"})
        write_file(path(std::string("checkpoints/step-") + step + "/training.safetensors"), "cut");
    const auto before = made("run");
    const Finished refused = train({"-o", "run", "--resume"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("contains no intact state"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_EQ(made("run"), before);
}

TEST_F(Resume, AModelThatItsUserChangedIsNotReplaced) {
    const std::string model = path("checkpoints/step-6/model.safetensors");
    write_file(path("checkpoints/step-6/training.safetensors"), "cut");
    write_file(model, "mine");
    const Finished refused = train({"-o", "run", "--resume"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("step-6/model.safetensors: was changed"));
    EXPECT_EQ(read_file(model), "mine");
}

/// A model from a file whose training was interrupted after step 2 of 4.
class ResumeOfAFile : public testing::Test {
  protected:
    void SetUp() override {
        const fs::path golden = fs::path(test_data()) / "golden/gpt2";
        fs::create_directories(folder / "model");
        for (const char* file : {"config.json", "model.safetensors"})
            fs::copy_file(golden / file, folder / ("model/" + std::string(file)));
        fs::copy_file(golden / "config.json", folder / "other.json");
        ASSERT_EQ(train({}).code, 0);
        fs::remove_all(folder / "run/checkpoints/step-4");
    }
    Finished train(const std::vector<std::string>& more) {
        std::vector<std::string> words = {"train", "model",        "--data", "copy:3", "--tokens",
                                          "6",     "-o",           "run",    "-q",     "--steps",
                                          "4",     "--save-every", "2"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    void change(const std::string& from, const std::string& to) {
        std::string text = read_file(config);
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos);
        write_file(config, text.replace(at, from.size(), to));
    }
    void expect_refused(const std::vector<std::string>& more, const std::string& what) {
        const std::string before = read_file(folder / "run/steps.csv");
        const Finished refused = train(more);
        EXPECT_EQ(refused.code, 2) << refused.err;
        EXPECT_THAT(refused.err, HasSubstr(what));
        EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
        EXPECT_EQ(read_file(folder / "run/steps.csv"), before);
    }
    TemporaryDirectory folder;
    const fs::path config = folder / "model/config.json";
};

TEST_F(ResumeOfAFile, OtherWordsAreRefused) {
    expect_refused({"--resume", "--config", "other.json"},
                   R"(was trained with config null, but now it is "other.json")");
    expect_refused({"--resume", "--n-heads", "2"},
                   "was trained with n_heads null, but now it is 2");
    expect_refused({"--resume", "--width", "16"}, "was trained with width null, but now it is 16");
    change("{", R"({"extra": 1,)");
    expect_refused({"--resume", "--ignore", "extra"},
                   R"(was trained with ignore null, but now it is ["extra"])");
}

TEST_F(ResumeOfAFile, WhatIsIgnoredHasNoOrder) {
    change("{", R"({"extra": 1, "other": 2,)");
    ASSERT_EQ(train({"--force", "--ignore", "extra", "--ignore", "other"}).code, 0);
    fs::remove_all(folder / "run/checkpoints/step-4");
    const Finished found = train({"--resume", "--ignore", "other", "--ignore", "extra"});
    EXPECT_EQ(found.code, 0) << found.err;
}

TEST_F(ResumeOfAFile, AConfigurationThatWasChangedIsRefused) {
    const std::string same = read_file(config);
    for (const auto& [from, to] : std::map<std::string, std::string>{
             {R"("layer_norm_epsilon": 1e-05)", R"("layer_norm_epsilon": 1e-04)"},
             {"gelu_new", "relu"},
             {R"("n_head": 2)", R"("n_head": 4)"},
             {R"("scale_attn_weights": true)", R"("scale_attn_weights": false)"}}) {
        change(from, to);
        expect_refused({"--resume"}, "was trained with another configuration of model");
        write_file(config, same);
    }
    change("}", "\n}\n");  // an equivalent file
    const Finished found = train({"--resume"});
    EXPECT_EQ(found.code, 0) << found.err;
}

/// The lines of a table of a training that is still running.
std::size_t rows_so_far(const fs::path& file) {
    const std::string text = fs::exists(file) ? read_file(file) : std::string();
    return std::size_t(std::ranges::count(text, '\n'));
}

TEST(InterruptedTraining, SavesTheStepItIsAtAndGoesOn) {
    const TemporaryDirectory folder;
    std::vector<std::string> words = {"train",    "random:gpt2,layers=1,d=8,heads=2",
                                      "--data",   "copy:3",
                                      "--tokens", "5",
                                      "--steps",  "1000000",
                                      "-o",       "run"};
    std::size_t before = 1;  // the header
    for (const int signal : {SIGINT, SIGTERM}) {
        Running running(folder.path(), words);
        ASSERT_TRUE(running.wait_until(
            [&] { return rows_so_far(folder / "run/steps.csv") >= before + 3; }));
        running.signal(signal);
        const Finished ended = running.wait();
        EXPECT_EQ(ended.code, 130) << ended.err;
        const std::size_t rows = rows_so_far(folder / "run/steps.csv");
        EXPECT_THAT(ended.err,
                    HasSubstr(fmt::format("interrupted after step {}, which is saved; the "
                                          "same command with --resume",
                                          rows - 1)));
        EXPECT_TRUE(fs::exists(folder / fmt::format("run/checkpoints/step-{}", rows - 1)));
        EXPECT_GE(rows, before + 3);
        before = rows;
        if (signal == SIGINT) words.emplace_back("--resume");
    }
}

}  // namespace
}  // namespace tsdiag::test
