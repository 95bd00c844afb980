#include <gtest/gtest.h>

#include "program.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

class ProbeSeries : public testing::Test {
  protected:
    void init(const std::string& name, const std::string& seed,
              const std::string& model = "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=16") {
        const Finished done = tsdiag(folder, {"init", model, "--seed", seed, "-o", name});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    void init_three() {
        init("run/checkpoint-100", "1");
        init("run/checkpoint-200", "2");
        init("run/checkpoint-1000", "3");
    }
    Finished probe(std::vector<std::string> more = {}) {
        more.emplace_back("--no-report");
        return probe_with_page(std::move(more));
    }
    Finished probe_with_page(const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = {
            "probe",     "run", "--tokens", "8",
            "--samples", "3",   "--probes", "t_sim,lambda2_abs,local_acc"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    std::string metrics(const std::string& out) {
        return read_file(folder / (out + "/metrics.csv"));
    }
    TemporaryDirectory folder;
};

/// The rows of one step, without model and step.
std::vector<std::string> rows_of(const std::string& csv, const std::string& prefix) {
    std::vector<std::string> rows;
    for (std::size_t at = 0; at < csv.size();) {
        const std::size_t end = std::min(csv.find('\n', at), csv.size());
        const std::string line = csv.substr(at, end - at);
        if (line.starts_with(prefix)) rows.push_back(line.substr(prefix.size()));
        at = end + 1;
    }
    return rows;
}

TEST_F(ProbeSeries, GivesAtEachStepWhatProbeGivesAlone) {
    init_three();
    const Finished done = probe_with_page();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("3 checkpoints, step 100 to 1000"), std::string::npos) << done.out;
    for (const char* step : {"100", "200", "1000"}) {
        const std::string path = std::string("run/checkpoint-") + step;
        ASSERT_EQ(tsdiag(folder, {"probe", path, "--tokens", "8", "--samples", "3", "--probes",
                                  "t_sim,lambda2_abs,local_acc", "--no-report", "-o", "alone"})
                      .code,
                  0);
        const auto alone = rows_of(metrics("alone"), path + ",,");
        EXPECT_FALSE(alone.empty());
        EXPECT_EQ(rows_of(metrics("run.tsdiag"), std::string("run,") + step + ","), alone);
    }
    const std::string page = read_file(folder / "run.tsdiag/report.html");
    EXPECT_NE(page.find("id=\"trajectory_t_sim_out\""), std::string::npos);
    EXPECT_NE(page.find("The findings below are for the last checkpoint"), std::string::npos);
    ASSERT_EQ(tsdiag(folder, {"report", "run.tsdiag"}).code, 0);
    EXPECT_EQ(read_file(folder / "run.tsdiag/report.html"), page);
}

TEST_F(ProbeSeries, DoesAgainOnlyWhatChanged) {
    init_three();
    ASSERT_EQ(probe().code, 0);
    const std::string first = metrics("run.tsdiag");
    EXPECT_NE(probe().out.find("3 reused from an earlier run"), std::string::npos);
    EXPECT_EQ(metrics("run.tsdiag"), first);
    const Finished other = probe({"--seed", "5"});
    EXPECT_EQ(other.out.find("reused"), std::string::npos) << other.out;
    ASSERT_EQ(probe().code, 0);
    fs::remove_all(folder / "run/checkpoint-200");
    init("run/checkpoint-200", "9");
    EXPECT_NE(probe().out.find("2 reused from an earlier run"), std::string::npos);
    EXPECT_NE(rows_of(metrics("run.tsdiag"), "run,200,"), rows_of(first, "run,200,"));
    EXPECT_EQ(rows_of(metrics("run.tsdiag"), "run,1000,"), rows_of(first, "run,1000,"));
    std::ofstream(folder / "run.tsdiag/checkpoints/100/metrics.csv") << "changed";
    const Finished refused = probe();  // it belongs to the user now
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("checkpoints/100/metrics.csv: was changed"), std::string::npos)
        << refused.err;
    fs::remove(folder / "run.tsdiag/checkpoints/100/metrics.csv");
    EXPECT_NE(probe().out.find("2 reused from an earlier run"), std::string::npos);
    EXPECT_EQ(rows_of(metrics("run.tsdiag"), "run,100,"), rows_of(first, "run,100,"));
}

TEST_F(ProbeSeries, GoesOnWhereItWasInterrupted) {
    init_three();
    ASSERT_EQ(probe().code, 0);
    const std::string whole = metrics("run.tsdiag");
    // After an interruption in the second checkpoint: the first one's tables only.
    for (const char* name :
         {"metrics.csv", "curves.csv", "run.json", "checkpoints/200", "checkpoints/1000"})
        fs::remove_all(fs::path(folder / "run.tsdiag") / name);
    const Finished again = probe();
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.out.find("1 reused from an earlier run"), std::string::npos) << again.out;
    EXPECT_EQ(metrics("run.tsdiag"), whole);
}

TEST_F(ProbeSeries, ABadCheckpointIsOneSentenceAndKeepsWhatIsDone) {
    init_three();
    init("run/checkpoint-300", "1", "random:gpt2,layers=3,d=16,heads=2,vocab=32,tokens=16");
    const Finished mixed = probe();
    EXPECT_EQ(mixed.code, 1);
    EXPECT_NE(mixed.err.find("has another architecture"), std::string::npos) << mixed.err;
    EXPECT_EQ(std::count(mixed.err.begin(), mixed.err.end(), '\n'), 1) << mixed.err;
    EXPECT_FALSE(fs::exists(folder / "run.tsdiag"));
    EXPECT_EQ(probe({"--maps", "0:0"}).code, 2);
    EXPECT_EQ(probe({"--trials", "2"}).code, 2);
    EXPECT_EQ(probe({"--steps", "1,2"}).code, 2);
    std::ofstream(folder / "foreign.txt") << "mine";
    fs::create_directory(folder / "theirs");
    fs::rename(folder / "foreign.txt", folder / "theirs/foreign.txt");
    fs::remove_all(folder / "run/checkpoint-300");
    EXPECT_EQ(probe({"-o", "theirs"}).code, 2);
    EXPECT_EQ(names_in(folder / "theirs"), std::vector<std::string>{"foreign.txt"});
}

}  // namespace
}  // namespace tsdiag::test
