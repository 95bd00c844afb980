#include <gmock/gmock.h>

#include <map>
#include <set>

#include "program.hpp"
#include "tsdiag/json.hpp"

/// `probe --profile`: the cost of each phase and metric.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

Finished probe(const TemporaryDirectory& folder, const std::string& out, const Words& more) {
    Words words = {"probe", "random:post-norm,d=16,heads=2,layers=2", "--tokens", "24", "--out",
                   out};
    words.insert(words.end(), more.begin(), more.end());
    return tsdiag(folder, words);
}

TEST(Profile, TellsWhatEachMetricCostAndChangesNothing) {
    TemporaryDirectory folder;
    const Finished with = probe(folder, "with", {"--profile"}),
                   without = probe(folder, "without", {"--no-report"});
    ASSERT_EQ(with.code, 0) << with.err;
    ASSERT_EQ(without.code, 0) << without.err;
    for (const char* part : {"forward passes", "\nforward ", "\nshared ", "\nmetric ", "\nphase ",
                             "\nall ", "lambda2_abs", "statistics of rows"})
        EXPECT_THAT(with.out, HasSubstr(part));
    EXPECT_THAT(without.out, Not(HasSubstr("forward passes")));
    EXPECT_EQ(read_file(folder / "with/metrics.csv"), read_file(folder / "without/metrics.csv"));
    EXPECT_FALSE(fs::exists(folder / "without/profile.json"));
}

TEST(Profile, IsATraceOfTheWholeRun) {
    TemporaryDirectory folder;
    const Finished done = probe(folder, "out", {"--profile", "--loss", "square"});
    ASSERT_EQ(done.code, 0) << done.err;
    const std::string file = folder / "out/profile.json";
    const Json trace = Json::parse(read_file(file), file);
    std::map<std::string, std::set<std::int64_t>> layers;  // of each event
    std::set<std::string> kinds;
    double end = 0;
    for (const Json& event : trace["traceEvents"].array()) {
        EXPECT_TRUE(event["pid"].is_integer() && event["tid"].is_integer());
        if (event["ph"].string() == "M") continue;
        ASSERT_EQ(event["ph"].string(), "X");
        EXPECT_NEAR(event["ts"].number(), end, 1e-6);
        end = event["ts"].number() + event["dur"].number();
        kinds.insert(event["cat"].string());
        if (event["args"].contains("layer"))
            layers[event["name"].string()].insert(event["args"]["layer"].integer());
    }
    EXPECT_EQ(kinds, (std::set<std::string>{"phase", "forward", "backward", "shared", "metric"}));
    for (const char* name :
         {"attn", "rows of P", "statistics of rows", "lambda2_abs", "jac_q_fro", "t_sim"})
        EXPECT_EQ(layers[name], (std::set<std::int64_t>{0, 1})) << name;
}

TEST(Profile, IsRefusedWhereThreadsOrProcessesShareTheRun) {
    TemporaryDirectory folder;
    const Finished trials = probe(folder, "out", {"--profile", "--trials", "64"});
    EXPECT_EQ(trials.code, 2);
    EXPECT_THAT(trials.err, HasSubstr("--profile"));
    EXPECT_THAT(trials.err, HasSubstr("--trials 64"));
    const Finished part = probe(folder, "out", {"--profile", "--samples", "4", "--part", "1/2"});
    EXPECT_EQ(part.code, 2);
    EXPECT_THAT(part.err, HasSubstr("--profile"));
    EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace tsdiag::test
