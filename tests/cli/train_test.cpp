#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "program.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// `train`, and other commands on its directory.
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
    EXPECT_EQ(probed.code, 0) << probed.err;  // of both checkpoints
    const Finished made = tsdiag(folder, {"report", "run"});
    EXPECT_EQ(made.code, 0) << made.err;
    const std::string again = read_file(folder / "run/report.html");
    EXPECT_THAT(again, HasSubstr("Training of"));
    EXPECT_EQ(again, page);
}

std::map<std::string, std::string> values(const std::string& csv) {
    std::map<std::string, std::string> out;
    for (const MetricRow& row : read_metrics_csv(csv, "metrics.csv"))
        out[std::to_string(row.at.step) + " " + std::to_string(row.at.layer) + " " + row.at.stage +
            " " + std::to_string(row.at.head) + " " + row.metric] =
            row.value ? shortest(*row.value) : row.note;
    return out;
}

TEST(TrainCommand, ItsCheckpointsAreMeasuredAsTheTrainingMeasuredThem) {
    TemporaryDirectory folder;
    write_file(folder / "book.txt",
               std::string(40, 'a') + "the quick brown fox jumps over the lazy dog " +
                   std::string(400, 'b') + "some other words that are held out");
    for (const char* data : {"copy:3", "chars:book.txt"}) {
        std::vector<std::string> line =
            words({"--probe-every", "2", "--probe-samples", "3", "--probes", "t_sim,lambda2_abs",
                   "-o", "run", "--force"});
        line[3] = data;
        ASSERT_EQ(tsdiag(folder, line).code, 0);
        const Finished found = tsdiag(folder, {"probe", "run", "--no-report", "--probes",
                                               "t_sim,lambda2_abs", "-o", "out", "--force"});
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(found.out, HasSubstr("2 checkpoints, step 2 to 4"));
        const auto trained = values(read_file(folder / "run/metrics.csv")),
                   probed = values(read_file(folder / "out/metrics.csv"));
        std::size_t compared = 0;
        for (const auto& [where, value] : probed) {
            EXPECT_EQ(trained.at(where), value) << where;
            ++compared;
        }
        EXPECT_GT(compared, 10u);
        const Json run = Json::parse(read_file(folder / "out/run.json"), "run.json");
        EXPECT_EQ(run["input"]["kind"].string(), "held out");
        EXPECT_EQ(run["input"]["tokens"].integer(), 5);
        EXPECT_EQ(run["input"]["samples"].integer(), 3);
    }
    // One of them alone, and with an explicit input.
    const Finished one =
        tsdiag(folder, {"probe", "run/checkpoints/step-2", "--no-report", "-o", "one"});
    EXPECT_THAT(one.out, HasSubstr("held out, 5 tokens, 3 samples"));
    const Finished named = tsdiag(folder, {"probe", "run", "--input", "ids:random", "--tokens", "4",
                                           "--no-report", "-o", "named"});
    EXPECT_EQ(named.code, 0) << named.err;
    const Json run = Json::parse(read_file(folder / "named/run.json"), "run.json");
    EXPECT_EQ(run["input"]["kind"].string(), "ids:random");
    write_file(folder / "book.txt", std::string(1000, 'c'));
    const Finished changed = tsdiag(folder, {"probe", "run", "-o", "other"});
    EXPECT_EQ(changed.code, 2);
    expect_one_sentence(changed.err);
    EXPECT_THAT(changed.err, HasSubstr("which has changed since"));
}

/// Features that are drawn again every second update are probed as the training drew them last,
/// and a further training begins with them, whatever its seed is.
TEST(TrainCommand, ItsCheckpointsTellWhatAttentionsDrew) {
    TemporaryDirectory folder;
    const auto train = [&](const std::string& model, const char* seed, const char* out) {
        std::vector<std::string> line =
            words({"--probe-every", "2", "--probe-samples", "2", "--probes", "t_sim,fro", "--seed",
                   seed, "-o", out, "--force"});
        line[1] = model;
        const Finished found = tsdiag(folder, line);
        EXPECT_EQ(found.code, 0) << found.err;
        return values(read_file(folder.path() / out / "metrics.csv"));
    };
    const auto at_step = [](const auto& all, const std::string& step) {
        std::map<std::string, std::string> of;
        for (const auto& [where, value] : all)
            if (where.starts_with(step + " ")) of[where.substr(step.size())] = value;
        return of;
    };
    const std::string model = "random:gpt2,layers=1,d=8,heads=2,attention=";
    for (const char* attention : {"performer,features=3,redraw=2", "reformer,chunk=2,rounds=1"}) {
        SCOPED_TRACE(attention);
        const auto trained = train(model + attention, "7", "run");
        const Finished found = tsdiag(folder, {"probe", "run", "--no-report", "--probes",
                                               "t_sim,fro", "-o", "out", "--force"});
        ASSERT_EQ(found.code, 0) << found.err;
        const auto probed = values(read_file(folder / "out/metrics.csv"));
        EXPECT_GT(probed.size(), 8u);
        for (const auto& [where, value] : probed) EXPECT_EQ(trained.at(where), value) << where;
        const auto further = train("run/checkpoints/step-4", "7", "further");
        EXPECT_EQ(at_step(further, "0"), at_step(trained, "4"));
        train("run/checkpoints/step-4", "8", "other");
        const Finished inspected = tsdiag(folder, {"inspect", "other/checkpoints/step-2"});
        EXPECT_THAT(inspected.out, HasSubstr("that of seed 7, after 6 updates"));
    }
}

/// Drawn, written, read, trained on and probed.
TEST(TrainCommand, KeepsTheLearnedScaleOfAPolynomial) {
    TemporaryDirectory folder;
    const Finished drawn = tsdiag(
        folder, {"init",
                 "random:gpt2,layers=1,d=8,heads=2,vocab=4,tokens=16,attention=polynomial,scale="
                 "learned",
                 "-o", "model"});
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    EXPECT_THAT(tsdiag(folder, {"inspect", "model"}).out, HasSubstr("h.0.attn.scale"));
    std::vector<std::string> line = words({"--probe-every", "2", "-o", "run"});
    line[1] = "model";
    const Finished trained = tsdiag(folder, line);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Finished probed = tsdiag(folder, {"probe", "run", "--no-report", "-q", "--loss", "square",
                                            "--probes", "grad_norm", "-o", "out"});
    ASSERT_EQ(probed.code, 0) << probed.err;
    EXPECT_THAT(read_file(folder / "out/metrics.csv"), HasSubstr("attn.scale,grad_norm"));
    const Finished asked = tsdiag(
        folder, {"probe", "random:post-norm,attention=polynomial,scale=learned", "-o", "none"});
    EXPECT_EQ(asked.code, 2);
    EXPECT_THAT(asked.err, HasSubstr("pass start=NUMBER"));
}

/// The loss is compared with that of a guess among the targets, not among all symbols: of copy:2 a
/// separator is none of them, and of a text three in four are 'a'.
TEST(TrainCommand, ComparesItsLossWithAGuessAmongTheTargets) {
    TemporaryDirectory folder;
    std::string text;
    for (int i = 0; i < 300; ++i) text += "aaab";
    write_file(folder / "text.txt", text);
    const auto guess = [&](const std::string& data) {
        std::vector<std::string> line = words({"--rate", "1e-9", "-o", "run", "--force"});
        line[3] = data;
        line[7] = "20";
        line.erase(std::ranges::find(line, "-q"));
        const Finished found = tsdiag(folder, line);
        EXPECT_EQ(found.code, 0) << found.err;
        std::string said = found.out;
        std::ranges::replace(said, '\n', ' ');  // where lines are broken
        EXPECT_THAT(said, HasSubstr("The training loss ends above that of guessing by frequency"));
        const Json run = Json::parse(read_file(folder / "run/run.json"), "run.json");
        return run["guess"].number();
    };
    EXPECT_NEAR(guess("copy:2"), std::log(2), 0.005);
    EXPECT_NEAR(guess("reverse:2"), std::log(2), 0.005);
    EXPECT_NEAR(guess("chars:text.txt"), 0.75 * std::log(4.0 / 3) + 0.25 * std::log(4), 0.002);
}

/// Before the model, which there is none of here, is looked for.
TEST(TrainCommand, RefusesOptionsThatDoNotApply) {
    TemporaryDirectory folder;
    const std::pair<std::vector<std::string>, const char*> all[] = {
        {{"--epochs", "0"}, "--epochs 0: expected a number above 0"},
        {{"--epochs", "-1"}, "--epochs -1: expected a number above 0"},
        {{"--epochs", "2"}, "--epochs 2 and --steps 4: each says how long the training is"},
        {{"--probes", "t_sim"}, "nothing is probed without --probe-every"},
        {{"--probes", "nosuch"}, "nothing is probed without --probe-every"},
        {{"--probes", "nosuch", "--probe-every", "2"}, "nosuch"},
        {{"--schedule", "multistep"}, "--schedule multistep: expected --milestones"},
        {{"--schedule", "multistep", "--milestones", "3,1"}, "1 is not above 3, expected steps"},
        {{"--schedule", "multistep", "--milestones", "1,1"}, "1 is not above 1, expected steps"},
        {{"--schedule", "multistep", "--milestones", "0"}, "0 is not above 0, expected steps"},
        {{"--schedule", "multistep", "--milestones", "1,3", "--floor", "0"},
         "--floor: --schedule multistep has none, expected cosine or linear"},
        {{"--schedule", "constant", "--floor", "0.1"}, "--floor: --schedule constant has none"},
        {{"--schedule", "linear", "--factor", "0.1"},
         "--factor: --schedule linear has none, expected multistep"},
        {{"--milestones", "1,3"}, "--milestones: --schedule cosine has none, expected multistep"}};
    for (const auto& [more, message] : all) {
        std::vector<std::string> line = with(words({"-o", "run"}), more);
        line[1] = "nosuch.safetensors";
        const Finished found = tsdiag(folder, line);
        EXPECT_EQ(found.code, 2) << message;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr(message));
        EXPECT_FALSE(std::filesystem::exists(folder / "run"));
    }
    // what applies
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
             {"--schedule", "multistep", "--milestones", "1,3", "--factor", "0.5"},
             {"--schedule", "linear", "--floor", "0.5"},
             {"--probes", "t_sim", "--probe-every", "2"}}) {
        const Finished found = tsdiag(folder, with(words({"-o", "run", "--force"}), more));
        EXPECT_EQ(found.code, 0) << found.err;
    }
}

/// Its settings are those of a folder that an earlier version began with --probes alone.
TEST(TrainCommand, GoesOnWithTheProbesOfATrainingThatProbesNothing) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, words({"-o", "run"})).code, 0);
    const Finished same = tsdiag(folder, words({"-o", "run", "--probes", "core", "--resume"}));
    EXPECT_EQ(same.code, 0) << same.err;
    const Finished other = tsdiag(folder, words({"-o", "run", "--probes", "t_sim", "--resume"}));
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("was trained with probes [\"core\"], but now it is"));
}

TEST(TrainCommand, TakesNothingThatItWouldDestroy) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, words({"-o", "run"})).code, 0);
    std::vector<std::string> own = words({"-o", "run", "--force"});
    own[1] = "run/checkpoints/step-4";
    const Finished refused = tsdiag(folder, own);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("contains run/checkpoints/step-4, which this command reads"));
    EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-4/model.safetensors"));
    const Finished nowhere = tsdiag(folder, words({"-o", ""}));
    EXPECT_EQ(nowhere.code, 2);
    EXPECT_THAT(nowhere.err, HasSubstr("--out: is empty, expected a path"));
    const Finished twice = tsdiag(folder, words({"-o", "a", "-o", "b"}));
    EXPECT_EQ(twice.code, 2);
    EXPECT_THAT(twice.err, HasSubstr("--out was given more than once"));
}

/// A training on files that leaves its folder, and one on a damaged file that leaves nothing.
TEST(TrainCommand, LearnsFromAPublishedFolderOrWritesNothing) {
    TemporaryDirectory folder;
    const std::string header = "Source\tTarget\n";
    std::filesystem::create_directory(folder / "listops");
    write_file(folder / "listops/basic_train.tsv",
               header + "( [MAX 1 2 ] )\t2\n( [MIN 1 2 ] )\t1\n");
    write_file(folder / "listops/basic_test.tsv", header + "( [MAX 3 2 ] )\t3\n");
    const std::vector<std::string> words = {"train",    "random:bert-base,layers=1,d=8,heads=2",
                                            "--data",   "listops",
                                            "--tokens", "8",
                                            "--epochs", "3",
                                            "-o",       "run"};
    const auto with = [&](const std::string& data, const std::string& out) {
        std::vector<std::string> all = words;
        all[3] = data;
        all.back() = out;
        return tsdiag(folder, all);
    };
    // the kind of that name is drawn, a folder is one with a slash
    EXPECT_EQ(with("./listops", "run").code, 0);
    EXPECT_THAT(read_file(folder / "run/run.json"), HasSubstr("2 sequences of 10 classes"));
    EXPECT_EQ(tsdiag(folder, {"probe", "run", "--no-report", "-q", "-o", "out"}).code, 0);
    EXPECT_THAT(with("listops", "drawn").err, HasSubstr("--epochs: ListOps"));

    write_file(folder / "listops/basic_test.tsv", header + "( [MAX 3 2 ] )\t13\n");
    const Finished broken = with("./listops", "broken");
    EXPECT_EQ(broken.code, 1);
    EXPECT_THAT(broken.err, HasSubstr("basic_test.tsv: line 2: the label is '13'"));
    EXPECT_FALSE(std::filesystem::exists(folder / "broken"));
    const Finished none = with("listops:", "none");
    EXPECT_EQ(none.code, 2) << none.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

/// The texts of GLUE have the lengths that they have: the shortest one says what a group is to it.
TEST(TrainCommand, WarnsOfGroupsThatAreLongerThanTheShortestSample) {
    TemporaryDirectory folder;
    std::filesystem::create_directories(folder / "SST");
    const std::string header = "sentence\tlabel\n";
    write_file(folder / "SST/train.tsv", header + "a film of twenty-four bytes\t1\nlong\t0\n");
    write_file(folder / "SST/dev.tsv", header + "another one of many bytes\t1\nso\t0\n");
    for (const auto& [group, warned] : {std::pair{"16", true}, std::pair{"2", false}})
        for (const std::vector<std::string>& line :
             {std::vector<std::string>{
                  "train", fmt::format("random:flash,layers=1,d=8,group={}", group), "--data",
                  "glue:SST", "--tokens", "24", "--steps", "1", "--force", "-o", "run"},
              {"probe", "run", "--samples", "2", "--probes", "t_sim", "--force", "-o", "out"}}) {
            const Finished found = tsdiag(folder, line);
            ASSERT_EQ(found.code, 0) << found.err;
            const std::string record = read_file(folder / (line.back() + "/run.json"));
            EXPECT_EQ(record.find("positions is longer than a sample of 2 tokens") != record.npos,
                      warned)
                << line.front() << ", group=" << group;
        }
}

}  // namespace
}  // namespace tsdiag::test
