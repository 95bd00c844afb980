#include <gmock/gmock.h>

#include "program.hpp"

/// `train` and what other commands make of its directory.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;

std::vector<std::string> words(std::vector<std::string> more) {
    std::vector<std::string> all = {"train",    "random:gpt2,layers=1,d=8,heads=2",
                                    "--data",   "copy:3",
                                    "--tokens", "5",
                                    "--steps",  "4",
                                    "-q"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

TEST(TrainCommand, LeavesADirectoryThatProbeAndReportRead) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, words({"--probe-every", "2", "-o", "run"})).code, 0);
    const std::string page = read_file(folder / "run/report.html");
    const Finished probed = tsdiag(folder, {"probe", "run", "--no-report", "-q", "-o", "out"});
    EXPECT_EQ(probed.code, 0) << probed.err;  // of the one checkpoint
    const Finished made = tsdiag(folder, {"report", "run"});
    EXPECT_EQ(made.code, 0) << made.err;
    const std::string again = read_file(folder / "run/report.html");
    EXPECT_THAT(again, HasSubstr("Training of"));
    EXPECT_EQ(again, page);
}

TEST(TrainCommand, TakesNothingThatItWouldDestroy) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, words({"-o", "run"})).code, 0);
    std::vector<std::string> own = words({"-o", "run", "--force"});
    own[1] = "run/checkpoints/step-4";
    const Finished refused = tsdiag(folder, own);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("lies in run"));
    EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-4/model.safetensors"));
    const Finished nowhere = tsdiag(folder, words({"-o", ""}));
    EXPECT_EQ(nowhere.code, 2);
    EXPECT_THAT(nowhere.err, HasSubstr("--out: expected a directory"));
    const Finished twice = tsdiag(folder, words({"-o", "a", "-o", "b"}));
    EXPECT_EQ(twice.code, 2);
    EXPECT_THAT(twice.err, HasSubstr("--out is given more than once"));
}

}  // namespace
}  // namespace tsdiag::test
