#include "tsdiag/training_log.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "support/files.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using test::TemporaryDirectory;

class TrainingLog : public testing::Test {
  protected:
    std::vector<LoggedSeries> read(const std::string& text, const LogOptions& options = {},
                                   const std::string& name = "log") {
        std::ofstream(folder / name, std::ios::binary) << text;
        return read_training_log(folder / name, options);
    }
    std::string refusal(const std::string& text, const LogOptions& options = {},
                        const std::string& name = "log") {
        try {
            read(text, options, name);
        } catch (const Error& error) {
            const std::string said = error.what(), file = folder / name;
            EXPECT_TRUE(said.starts_with(file)) << said;
            return said.substr(std::min(file.size(), said.size()));
        }
        return "was read";
    }
    TemporaryDirectory folder;
};
using Steps = std::vector<Index>;
using Numbers = std::vector<double>;

TEST_F(TrainingLog, FindsTheGradientNormOfAWideTable) {
    const auto all =
        read("step,loss,train/Grad-Norm,max_grad_norm\n10,3,0.5,1\n20,2,,1\n30,1,+1e-2,1\n");
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].name, "train/Grad-Norm");
    EXPECT_EQ(all[0].steps, (Steps{10, 30}));
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.01}));
    EXPECT_EQ(all[0].notes.size(), 1u);  // of max_grad_norm
}

TEST_F(TrainingLog, TakesTheColumnsThatItIsTold) {
    const std::string text = "iter,at,norm of g,\"a,b\"\n1,100,0.5,7\n2,200,0.6,8\n";
    EXPECT_EQ(read(text, {.column = "a,b"})[0].values, (Numbers{7, 8}));
    const auto all = read(text, {.column = "norm of g", .step_column = "at"});
    EXPECT_EQ(all[0].steps, (Steps{100, 200}));
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.6}));
    EXPECT_NE(refusal(text, {.column = "a,b", .step_column = "no"}).find("has no column 'no'"),
              std::string::npos);
}

TEST_F(TrainingLog, CountsRecordsWhereNoStepIsTold) {
    const auto all = read("grad_norm\n0.5\n0.6\n");
    EXPECT_EQ(all[0].steps, (Steps{1, 2}));
    ASSERT_EQ(all[0].notes.size(), 1u);
    EXPECT_NE(all[0].notes[0].find("counted from 1"), std::string::npos);
}

TEST_F(TrainingLog, ReadsLongTables) {
    const std::string text =
        "step,layer,metric,value\n1,0,grad_norm,0.5\n1,1,grad_norm,0.7\n1,0,t_sim,0.1\n"
        "2,0,grad_norm,0.6\n2,1,grad_norm,0.8\n";
    const auto all = read(text);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].name, "grad_norm layer=0");
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.6}));
    EXPECT_EQ(all[1].values, (Numbers{0.7, 0.8}));
    EXPECT_EQ(read(text, {.column = "t_sim"})[0].values, (Numbers{0.1}));
    EXPECT_EQ(read(text, {.column = "grad_norm layer=1"})[0].values, (Numbers{0.7, 0.8}));
}

TEST_F(TrainingLog, ALayerInAWideTableBelongsToTheName) {
    const auto all =
        read("step,layer,grad_norm\n1,0,0.5\n1,1,0.7\n1,,0.9\n2,0,0.6\n2,1,0.8\n2,,1\n");
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].name, "grad_norm layer=0");
    EXPECT_EQ(all[1].values, (Numbers{0.7, 0.8}));
    EXPECT_EQ(all[2].name, "grad_norm");
    EXPECT_TRUE(all[0].notes.empty());
}

TEST_F(TrainingLog, TheNameOfAModelIsNoNameOfASeries) {
    const std::string found = refusal("step,model,metric,value\n1,grad_norm_run,t_sim,0.5\n");
    EXPECT_NE(found.find("it has t_sim"), std::string::npos) << found;
}

TEST_F(TrainingLog, TheLaterOfEqualStepsWins) {
    const auto all = read("step,grad_norm\n1,0.1\n2,0.2\n3,0.3\n2,0.5\n3,0.6\n4,0.7\n");
    EXPECT_EQ(all[0].steps, (Steps{1, 2, 3, 4}));
    EXPECT_EQ(all[0].values, (Numbers{0.1, 0.5, 0.6, 0.7}));
    ASSERT_EQ(all[0].notes.size(), 2u);
    EXPECT_NE(all[0].notes[0].find("go back from 3 to 2 and on beyond"), std::string::npos);
    EXPECT_EQ(all[0].notes[1],
              "2 steps were written more than once (a resumed run?): the later record is used");
}

TEST_F(TrainingLog, AResumptionRepeatsPartOfTheSteps) {
    const auto values = [&](const std::string& steps_and_values) {
        return read("step,grad_norm\n" + steps_and_values)[0].values;
    };
    // twice; exactly the last step; the last line is written twice
    EXPECT_EQ(values("1,1\n2,2\n3,3\n2,4\n3,5\n4,6\n4,7\n5,8\n"), (Numbers{1, 4, 5, 7, 8}));
    EXPECT_EQ(values("1,1\n2,2\n3,3\n3,4\n4,5\n"), (Numbers{1, 2, 4, 5}));
    EXPECT_EQ(values("1,1\n2,2\n3,3\n3,3\n"), (Numbers{1, 2, 3}));
    // It ended before its first checkpoint and began again, then was resumed.
    EXPECT_EQ(values("1,9\n1,1\n2,2\n3,3\n4,4\n3,5\n4,6\n5,7\n"), (Numbers{1, 2, 5, 6, 7}));
    EXPECT_EQ(values("1,9\n1,8\n2,9\n1,1\n2,2\n3,3\n4,4\n5,5\n6,6\n7,7\n8,8\n"),
              (Numbers{1, 2, 3, 4, 5, 6, 7, 8}));
    // A memory that differs from one part to the next does not tell them apart.
    EXPECT_EQ(read("step,memory,grad_norm\n1,30,1\n2,30,2\n2,40,3\n3,40,4\n")[0].values,
              (Numbers{1, 3, 4}));
}

TEST_F(TrainingLog, TheStepsThatAreAskedForAreTakenAfterAResumption) {
    // Of steps 2 to 3 alone both parts would be the same steps.
    const std::string text = "step,grad_norm\n1,1\n2,nan\n3,3\n2,4\n3,5\n4,6\n";
    EXPECT_EQ(read(text, {.first = 2, .last = 3})[0].values, (Numbers{4, 5}));
    EXPECT_EQ(read(text)[0].values, (Numbers{1, 4, 5, 6}));
}

/// `count` epochs of three iterations; `key` writes the epoch of each record.
std::string epochs(int count, const std::function<std::string(int)>& key) {
    std::string out;
    for (int i = 0; i < 3 * count; ++i)
        out += fmt::format("{{{}\"iter\": {}, \"grad_norm\": {}}}\n", key(1 + i / 3),
                           50 * (i % 3 + 1), i);
    return out;
}

TEST_F(TrainingLog, AnIterationThatBeginsAnewInEachEpochIsCountedOn) {
    for (const char* key :
         {"\"epoch\": {}, ", "\"epoch\": \"{}\", ", "\"ep\": {}, ", "\"train/epochs\": \"{}.0\", ",
          "\"at\": {{\"epoch\": {}}}, ", "\"epoch\": {}, \"epochs\": 100, "}) {
        const auto all = read(epochs(2, [&](int i) { return fmt::format(fmt::runtime(key), i); }));
        ASSERT_EQ(all.size(), 1u) << key;
        EXPECT_EQ(all[0].steps, (Steps{50, 100, 150, 200, 250, 300})) << key;
        EXPECT_EQ(all[0].values, (Numbers{0, 1, 2, 3, 4, 5})) << key;
        EXPECT_NE(all[0].notes.at(0).find("begin anew 1 time, as in epochs"), std::string::npos);
    }
    const auto three = read("epoch,iter,grad_norm\n1,1,0\n1,2,1\n2,1,2\n2,2,3\n3,1,4\n3,2,5\n");
    EXPECT_EQ(three[0].values, (Numbers{0, 1, 2, 3, 4, 5}));
    // The first step of an epoch is not there; epochs that grow with each step.
    EXPECT_EQ(read("epoch,iter,grad_norm\n1,0,1\n1,1,2\n2,1,3\n2,2,4\n")[0].steps,
              (Steps{0, 1, 3, 4}));
    EXPECT_EQ(
        read("epoch,iter,grad_norm\n0.5,1,1\n1,2,2\n1.5,1,3\n2,2,4\n1.5,1,5\n2,2,6\n")[0].values,
        (Numbers{1, 2, 5, 6}));
}

TEST_F(TrainingLog, AnEpochTellsAResumptionWithinIt) {
    const std::string resumed = "step,epoch,grad_norm\n1,0,1\n2,0,2\n3,1,3\n2,0,5\n3,1,6\n4,1,7\n";
    EXPECT_EQ(read(resumed)[0].values, (Numbers{1, 5, 6, 7}));
    const auto anew = read(
        "iter,epoch,grad_norm\n1,1,1\n2,1,2\n3,1,3\n1,2,4\n2,2,5\n2,2,6\n3,2,7\n1,3,8\n2,3,9\n");
    EXPECT_EQ(anew[0].values, (Numbers{1, 2, 3, 4, 6, 7, 8, 9}));
    EXPECT_EQ(anew[0].notes.size(), 2u);
}

TEST_F(TrainingLog, RefusesEqualStepsThatNothingExplains) {
    const auto expect = [&](const std::string& text, const std::string& part) {
        const std::string found = refusal(text);
        EXPECT_NE(found.find(part), std::string::npos) << text << " gave " << found;
    };
    expect("step,grad_norm\n1,1\n1,2\n2,3\n2,4\n", "have step 1 twice in succession");
    expect("step,grad_norm\n1,1\n2,2\n3,2\n3,3\n4,4\n1,1\n2,2\n", "go back to step 1 and are rep");
    // Two or three runs, or as many epochs.
    for (const int count : {2, 3})
        expect(epochs(count, [](int) { return ""; }),
               "no column or key tells whether by runs, ranks, layers or epochs; add one");
    // A second run that begins later, but goes no further; one between the steps of the first.
    const auto run = [](int first, int last) {
        std::string lines;
        for (int step = first; step <= last; step += 10) lines += fmt::format("{},1\n", step);
        return lines;
    };
    for (const int first : {0, 20, 40, 90})
        expect("step,grad_norm\n" + run(0, 200) + run(first, 200),
               fmt::format("go back to step {} and are repeated", first));
    expect("step,grad_norm\n" + run(0, 200) + run(5, 205), "go back to step 5, between those");
    EXPECT_EQ(refusal("step,grad_norm\n" + run(0, 200) + run(110, 200)), "was read");
    EXPECT_EQ(refusal("step,grad_norm\n" + run(0, 200) + run(40, 210)), "was read");
    EXPECT_EQ(refusal("step,grad_norm\n" + run(100, 200) + run(0, 90)), "was read");
    // Three ranks, each a little behind the other.
    expect("step,grad_norm\n1,1\n2,1\n1,2\n3,1\n2,2\n1,3\n4,1\n3,2\n2,3\n", "go back 5 times");
    expect(
        "step,epoch,grad_norm\n9007199254740992,1,1\n0,2,1\n0,3,1\n" +
            [] {
                std::string many;
                for (int i = 4; i < 300; ++i) many += fmt::format("9007199254740992,{},1\n", i);
                return many;
            }(),
        "beyond 2^60");
}

TEST_F(TrainingLog, AnyKeyThatTellsEqualStepsApartBelongsToTheName) {
    const auto group = [](const std::string& key, int number) {
        std::string out;
        for (int i = 0; i < 4; ++i)
            out += fmt::format("{{\"step\": {}, {}, \"time\": {}, \"grad_norm\": {}}}\n", 10 * i,
                               key, 100 * number + i, 10 * number + i);
        return out;
    };
    for (const char* key : {"\"param\": \"{}\"", "\"fold\": {}", "\"at\": {{\"run\": {}}}",
                            "\"lr\": 0.{}", "\"cased\": 1, \"Host Name\": \"node{}\""})
        for (const int count : {2, 3}) {
            std::string text;
            for (int n = 1; n <= count; ++n) text += group(fmt::format(fmt::runtime(key), n), n);
            const auto all = read(text);
            ASSERT_EQ(all.size(), std::size_t(count)) << key;
            for (int n = 1; n <= count; ++n)
                EXPECT_EQ(all[std::size_t(n - 1)].values,
                          (Numbers{10. * n, 10. * n + 1, 10. * n + 2, 10. * n + 3}))
                    << key;
        }
    const std::string two = group("\"param\": \"q\"", 1) + group("\"param\": \"k\"", 2);
    EXPECT_EQ(read(two)[1].name, "grad_norm param=k");
    EXPECT_EQ(read(two, {.column = "grad_norm param=k"}).size(), 1u);
    EXPECT_NE(refusal(two, {.column = "grad_norm param="}).find("contains no"), std::string::npos);
    EXPECT_EQ(read(two, {.column = "grad_norm"}).size(), 2u);
    EXPECT_NE(refusal(two, {.column = "grad_norm param=v"}).find("contains no number in"),
              std::string::npos);
}

TEST_F(TrainingLog, KeysTellRecordsThatAlternateOrAreOfSeveralKindsApart) {
    const auto turns = read("step,name,grad_norm\n1,q,1\n1,k,2\n2,q,3\n2,k,4\n3,q,5\n3,k,6\n");
    ASSERT_EQ(turns.size(), 2u);
    EXPECT_EQ(turns[0].name, "grad_norm name=q");
    EXPECT_EQ(turns[1].values, (Numbers{2, 4, 6}));
    // Two keys are needed, a third is not; one series was resumed, one counts anew in each epoch.
    std::string both = "step,name,fold,by,epoch,grad_norm\n";
    for (const char* of : {"q,0", "q,1", "k,0", "k,1"})
        both += fmt::format("1,{0},me,0,1\n2,{0},me,0,2\n1,{0},me,1,3\n2,{0},me,1,4\n", of);
    const auto all = read(both);
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(all[2].name, "grad_norm name=k fold=0");
    EXPECT_EQ(all[3].values, (Numbers{1, 2, 3, 4}));
    const auto resumed = read(
        "step,name,grad_norm\n1,q,1\n2,q,2\n3,q,3\n3,q,4\n4,q,5\n1,k,1\n2,k,2\n3,k,3\n4,k,4\n");
    ASSERT_EQ(resumed.size(), 2u);
    EXPECT_EQ(resumed[0].values, (Numbers{1, 2, 4, 5}));
    // Names differ though the steps are those of a resumption: two series, and a note of it.
    const auto hosts = read("step,host,grad_norm\n1,a,1\n2,a,2\n2,b,3\n3,b,4\n");
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_NE(hosts[0].notes.at(0).find("differ in host=a"), std::string::npos)
        << hosts[0].notes[0];
}

TEST_F(TrainingLog, KeysThatChangeWithTheStepTellNothingApart) {
    for (const char* key : {"hour", "tokens", "phase"}) {
        std::string text = fmt::format("step,{},grad_norm\n", key);
        for (int run = 0; run < 2; ++run)
            for (int i = 0; i < 6; ++i)
                text += fmt::format("{},{},1\n", i,
                                    key[0] == 'h'   ? std::to_string(10 * run + i / 3)
                                    : key[0] == 't' ? std::to_string(100 * i)
                                    : i < 3         ? "warm"
                                                    : "main");
        EXPECT_NE(refusal(text).find("go back to step 0"), std::string::npos) << key;
    }
}

TEST_F(TrainingLog, RecordsOfRanksAndLayersAreSeriesOfTheirOwn) {
    const auto all = read(
        "{\"step\": 1, \"rank\": 0, \"grad_norm\": 1}\n{\"step\": 1, \"rank\": 1, \"grad_norm\": "
        "3}\n"
        "{\"step\": 2, \"rank\": 0, \"grad_norm\": 2}\n{\"step\": 2, \"rank\": 1, \"grad_norm\": "
        "4}\n");
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].name, "grad_norm rank=0");
    EXPECT_EQ(all[0].values, (Numbers{1, 2}));
    EXPECT_EQ(all[1].values, (Numbers{3, 4}));
    EXPECT_EQ(read("step,layer_name,grad_norm\n1,a,0.5\n1,b,0.7\n")[1].name,
              "grad_norm layer_name=b");
}

TEST_F(TrainingLog, ColumnsOfBoundsAreNoSeries) {
    const auto all = read(
        "\"train/global_step\",\"a - grad_norm\",\"a - grad_norm__MIN\",\"a - grad_norm__MAX\"\n"
        "10,1,0.5,2\n20,3,2,4\n");
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].steps, (Steps{10, 20}));
    EXPECT_EQ(all[0].values, (Numbers{1, 3}));
    EXPECT_NE(all[0].notes.at(0).find("means of several steps"), std::string::npos);
    const auto small = read("Step,grad_norm,grad_norm__min,grad_norm__max\n1,2,1,3\n2,4,3,5\n");
    ASSERT_EQ(small.size(), 1u);
    EXPECT_EQ(small[0].notes.size(), 1u);
}

TEST_F(TrainingLog, TellsWhichNamesAreOfOtherNumbersThanNorms) {
    const std::string text = "step,grad_norm_postclip,grad_norm_ema,grad_norm\n1,5,2,4\n2,6,3,5\n";
    const auto all = read(text);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].name, "grad_norm");
    EXPECT_EQ(all[0].notes.at(0),
              "columns that are not read, since a word of their names says that they are no norms "
              "but limits, powers, logarithms, averages, times or the like: grad_norm_postclip "
              "(postclip), grad_norm_ema (ema); --column reads one");
    EXPECT_EQ(read(text, {.column = "grad_norm_postclip"})[0].values, (Numbers{5, 6}));
    EXPECT_TRUE(read(text, {.column = "grad_norm_postclip"})[0].notes.empty());
    const std::string only = refusal("step,grad_norm_log\n1,0.5\n2,0.6\n");
    EXPECT_NE(only.find("averages, times or the like: grad_norm_log (log); --column reads one."),
              std::string::npos)
        << only;
}

/// Norms that were clipped before they were written, or are of steps that were skipped.
TEST_F(TrainingLog, TellsOfNumbersThatAreEqual) {
    const auto notes = [&](const std::function<double(int)>& norm) {
        std::string text = "step,grad_norm\n", out;
        for (int t = 0; t < 60; ++t) text += fmt::format("{},{}\n", t, norm(t));
        const std::vector<LoggedSeries> all = read(text);
        for (const std::string& note : all.at(0).notes) out += note + "\n";
        return out;
    };
    const auto free = [](int t) { return 1 + std::sin(t * t) / 2; };
    EXPECT_EQ(notes(free), "");
    EXPECT_EQ(
        notes([&](int t) { return std::min(1.0, free(t)); }),
        fmt::format("{} of 60 numbers are the largest, 1, as of numbers that were written after "
                    "they were clipped\n",
                    [&] {
                        int clipped = 0;
                        for (int t = 0; t < 60; ++t) clipped += free(t) >= 1;
                        return clipped;
                    }()));
    // As PyTorch leaves them, which divides by the norm + 1e-6; with this limit all of them.
    for (const double limit : {1.0, 0.25}) {
        const std::string told =
            notes([&](int t) { return free(t) * std::min(1.0, limit / (free(t) + 1e-6)); });
        EXPECT_NE(told.find(fmt::format(" of 60 numbers are the largest, {:g}, as of", limit)),
                  told.npos)
            << told;
        EXPECT_EQ(told.starts_with("60 "), limit < 0.5);
    }
    EXPECT_EQ(notes([&](int t) { return t % 4 == 0 ? 0 : free(t); }),
              "15 of 60 numbers are 0, as of steps that were skipped\n");
    EXPECT_EQ(notes([](int t) { return t % 3; }), "");  // of a few values
    // A logger that writes four times what was computed once; t / 4 is at most 14.
    EXPECT_EQ(notes([&](int t) { return 1 + double(t / 4 * 7 % 15) / 16; }),
              "42 of 60 numbers are equal to the one before, as where a logger writes its last "
              "number again, or few digits\n");
}

TEST_F(TrainingLog, PassesOverHistogramsAndTellsNumbersOfEpochs) {
    const std::string histogram = R"("gradients/LayerNorm.weight": {"_type": "histogram", )"
                                  R"("values": [1, 2], "bins": [0, 1, 2]}})";
    const auto all = read("{\"_step\": 0, \"grad_norm\": 0.5, " + histogram +
                          "\n{\"_step\": 1, \"grad_norm\": 0.6, " + histogram + "\n");
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.6}));
    EXPECT_TRUE(all[0].notes.empty());
    // As it exports a run.
    const std::string packed = R"("gradients/LayerNorm.weight": {"_type": "histogram", )"
                               R"("values": [1, 2], "packedBins": {"min": 0, "count": 2}}})";
    EXPECT_EQ(read("{\"_step\": 0, \"grad_norm\": 0.5, " + packed +
                   "\n{\"_step\": 1, \"grad_norm\": 0.6, " + packed + "\n")
                  .size(),
              1u);
    const auto both =
        read("epoch,grad_norm_epoch,grad_norm_step,step\n0,,1,0\n0,,2,1\n0,1.5,,1\n1,,2,2\n");
    ASSERT_EQ(both.size(), 2u);
    for (const LoggedSeries& one : both)
        EXPECT_EQ(one.notes.size(), one.name == "grad_norm_epoch" ? 1u : 0u) << one.name;
}

TEST_F(TrainingLog, TellsOfASeriesByTwoNames) {
    std::string text = "step,grad_norm,train/grad_norm,grad_norm/all,grad_norm/a,grad_norm/b\n";
    for (int t = 0; t < 20; ++t)
        text += fmt::format("{0},{1},{1},{1},{2},1\n", t, 2 + std::sin(t * t), 2 + std::cos(t * t));
    EXPECT_EQ(read(text)[0].notes,
              std::vector<std::string>{"train/grad_norm has the same numbers as grad_norm, and 1 "
                                       "more series those of another"});
    // Those of parameters whose gradients are constant say nothing.
    EXPECT_TRUE(read("step,grad_norm/a,grad_norm/b\n1,1,1\n2,1,1\n")[0].notes.empty());
}

TEST_F(TrainingLog, TellsOfAnotherStepThatWasNotTaken) {
    const std::string said =
        "steps are those of _step, not of train/global_step, which is 100 "
        "where that is 1; --step-column takes another";
    for (const char* text :
         {"_step,train/global_step,grad_norm\n0,0,0.5\n1,100,0.6\n2,,0.7\n3,300,0.6\n",
          "{\"train/global_step\": 0, \"_step\": 0, \"grad_norm\": 0.5}\n"
          "{\"train/global_step\": 100, \"_step\": 1, \"grad_norm\": 0.6}\n"
          "{\"_step\": 2, \"grad_norm\": 0.6}\n"}) {
        EXPECT_EQ(read(text)[0].notes, std::vector<std::string>{said}) << text;
        EXPECT_EQ(read(text)[0].steps[1], 1);
    }
    const auto equal =
        read("_step,train/global_step,grad_norm\n0,0,0.5\n1,1.0,0.6\n2,,0.7\n3,NaN,0.6\n");
    EXPECT_TRUE(equal[0].notes.empty());
    const auto given =
        read("_step,global_step,grad_norm\n0,0,0.5\n1,100,0.6\n", {.step_column = "global_step"});
    EXPECT_TRUE(given[0].notes.empty());
    EXPECT_EQ(given[0].steps, (Steps{0, 100}));
}

TEST_F(TrainingLog, TellsGaps) {
    const auto all = read("step,grad_norm\n10,1\n20,1\n30,1\n70,1\n80,1\n100,1\n");
    ASSERT_EQ(all[0].notes.size(), 1u);
    EXPECT_EQ(all[0].notes[0].find("2 gaps: the usual distance is 10 steps, the longest is 40, the "
                                   "first is after step 30"),
              0u);
}

TEST_F(TrainingLog, ReadsJsonLinesWithNestedKeysAndPythonsNan) {
    const std::string text =
        "{\"step\": 1, \"train\": {\"grad_norm\": 0.5}}\n\n{\"step\": 2, \"note\": \"NaN \\\" "
        "NaN\"}\n"
        "{\"step\": 3, \"train\": {\"grad_norm\": NaN}}\n{\"step\": 4, \"train\": {\"grad_norm\": "
        "\"0.25\"}}\n";
    EXPECT_NE(refusal(text).find("line 4: 'train/grad_norm' is nan at step 3"), std::string::npos);
    const auto all = read(text, {.allow_nonfinite = true});
    EXPECT_EQ(all[0].name, "train/grad_norm");
    EXPECT_EQ(all[0].steps, (Steps{1, 4}));
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.25}));
}

TEST_F(TrainingLog, ReadsATrainerState) {
    const auto all = read(
        "{\n \"global_step\": 20,\n \"log_history\": [{\"epoch\": 0.1, \"grad_norm\": "
        "2.5, \"step\": 10}, {\"eval_loss\": 1, \"step\": 10}, {\"grad_norm\": 3, "
        "\"step\": 20}]\n}",
        {}, "trainer_state.json");
    EXPECT_EQ(all[0].steps, (Steps{10, 20}));
    EXPECT_EQ(all[0].values, (Numbers{2.5, 3}));
    EXPECT_EQ(read_training_log(folder.path())[0].values, (Numbers{2.5, 3}));
}

TEST_F(TrainingLog, ReadsJsonLinesPieceByPiece) {
    // Lines that end before, at and after the ends of pieces, one of which spans several.
    std::string text;
    Numbers values;
    for (int t = 1; t <= 300; ++t) {
        const auto length = std::size_t(t == 150 ? 300'000 : 1 + 37 * t % 4096);
        values.push_back(0.5 + t);
        text += fmt::format("{{\"step\": {}, \"grad_norm\": {}, \"note\": \"{}\"}}\n", t,
                            values.back(), std::string(length, 'a'));
    }
    EXPECT_EQ(read(text)[0].values, values);
    text.pop_back();
    EXPECT_EQ(read(text)[0].values, values);
    text.pop_back();
    EXPECT_NE(refusal(text).find("line 300"), std::string::npos);
    values.pop_back();
    const auto cut = read(text, {.allow_truncated = true});
    EXPECT_EQ(cut[0].values, values);
    EXPECT_EQ(cut[0].notes.size(), 1u);
}

TEST_F(TrainingLog, TakesTheStepsThatAreAskedFor) {
    const std::string text = "step,grad_norm\n1,1\n2,nan\n3,3\n4,4\n5,5\n";
    EXPECT_EQ(read(text, {.first = 3, .last = 4})[0].values, (Numbers{3, 4}));
    EXPECT_NE(refusal(text, {.first = 9}).find("check --from and --to"), std::string::npos);
}

TEST_F(TrainingLog, RefusesInOneSentence) {
    const auto expect = [&](const std::string& text, const std::string& part) {
        const std::string found = refusal(text);
        EXPECT_NE(found.find(part), std::string::npos) << text << " gave " << found;
    };
    expect("", "is empty");
    expect(" \n\n", "is empty");
    expect("step,grad_norm\n", "it has grad_norm; the requested series is empty");
    expect("{\"grad_norm\": 1}\n{\"step\": 1, \"grad_norm\": 2}\n",
           "line 2: gives a step, unlike the records before");
    expect("{\"step\": 1, \"grad_norm\": 1}\n{\"loss\": 3}\n{\"grad_norm\": 2}\n",
           "line 3: does not give a step");
    expect("step,loss\n1,2\n", "it has loss; pass --column");
    expect("step,grad_norm\n1,2\n2\n", "line 3: 1 fields found, expected 2");
    expect("step,grad_norm\n1,two\n", "line 2: 'grad_norm' is 'two', expected a number");
    expect("step,grad_norm\n1,0x10\n", "expected a number");
    expect("step,grad_norm\n1,1e999\n", "is inf at step 1");
    expect("step,grad_norm\n1,-2\n", "expected a nonnegative norm");
    expect("step,grad_norm\n1.5,2\n", "the step is '1.5', expected a whole number");
    expect("step,grad_norm\n-1,2\n", "expected a whole number");
    expect("step,grad_norm\n1e300,2\n", "expected a whole number");
    expect("step,grad_norm,grad_norm\n1,2,3\n", "has two columns named 'grad_norm'");
    expect("step,\"grad_norm\n1,2\n", "a quoted field is not terminated");
    expect("step;grad_norm\n1;0,5\n2;0,6\n", "line 1: separates columns by semicolons, expected");
    expect("step\tgrad_norm\n1\t0.5\n", "line 1: separates columns by tabs, expected commas");
    expect("{\"step\": 1, \"grad_norm\": [1]}\n", "'grad_norm' is not a number");
    expect("{\"step\": 1, \"grad_norm\": 1", "line 1");
    expect("{\"log_history\": 3}", "'log_history': is not a list of records");
    expect("[\"log_history\"]", "'log_history': is not a list of records");
    expect("[1, 2]\n", "is not a JSON object");
    expect("[\n {\n  \"step\": 1,\n  \"grad_norm\": 0.5\n }\n]\n",
           "line 1: begins a list of records, expected one record per line");
    expect("[{\"step\": 1, \"grad_norm\": 0.5},\n {\"step\": 2, \"grad_norm\": 0.6}]\n",
           "line 1: begins a list of records, expected");
    expect("[{\"step\": 1, \"grad_norm\": 0.5}, {\"step\": 2, \"grad_norm\": 0.6}]",
           "write the log so (jq -c '.[]').");
    expect("{\"step\": {\"0\": 0, \"1\": 1}, \"grad_norm\": {\"0\": 0.5, \"1\": 0.6}}",
           "line 1: holds all steps at once, expected one record per line");
    expect("{\"step\": [0, 1], \"grad_norm\": [0.5, 0.6]}", "holds all steps at once");
    expect("{\"iter\": {\"time\": 1}, \"grad_norm\": 0.5}\n{\"step\": 1, \"grad_norm\": 0.6}",
           "line 2: gives a step");
    expect(std::string("PK\0\0", 4), "is binary");
    EXPECT_THROW(read_training_log(folder / "none"), FormatError);
    EXPECT_THROW(read_training_log("/dev/zero"), FormatError);
}

TEST_F(TrainingLog, LeavesOutALineThatIsCutOffWhereAllowed) {
    const std::string csv = "step,grad_norm\n1,0.5\n2";
    EXPECT_EQ(read(csv, {.allow_truncated = true})[0].values, (Numbers{0.5}));
    const std::string json = "{\"step\": 1, \"grad_norm\": 0.5}\n{\"step\": 2, \"gr";
    EXPECT_EQ(read(json, {.allow_truncated = true})[0].values, (Numbers{0.5}));
}

// An event file, written from the specifications of TFRecord and event.proto without the reader's
// code: the checksum bit by bit, the lengths by shifts.

std::uint32_t crc32c(const std::string& bytes) {
    std::uint32_t crc = ~0u;
    for (const char byte : bytes)
        for (int bit = 0; bit < 8; ++bit) {
            const std::uint32_t in = (std::uint32_t(static_cast<unsigned char>(byte)) >> bit) & 1u;
            crc = ((crc & 1u) ^ in) != 0 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
        }
    return ~crc;
}
template <class T>
std::string raw(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}
std::string masked(const std::string& bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return raw(std::uint32_t(((crc >> 15) | (crc << 17)) + 0xa282ead8u));
}
std::string frame(const std::string& data) {
    const std::string length = raw(std::uint64_t(data.size()));
    return length + masked(length) + data + masked(data);
}
std::string varint(std::uint64_t value) {
    std::string out;
    for (; value > 127; value >>= 7) out += char((value & 127) | 128);
    return out + char(value);
}
std::string block(int field, const std::string& bytes) {
    return varint(std::uint64_t(field) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string event(std::uint64_t step, const std::string& value) {
    return frame("\x09" + raw(1.7e9) + "\x10" + varint(step) + block(5, block(1, value)));
}
std::string simple(const std::string& tag, float value) {
    return block(1, tag) + "\x15" + raw(value);
}
std::string head() { return frame("\x09" + raw(1.7e9) + block(3, "brain.Event:2")); }

TEST(Crc32c, IsTheOneOfTheStandard) { EXPECT_EQ(crc32c("123456789"), 0xE3069283u); }

TEST_F(TrainingLog, ReadsEventFiles) {
    const std::string text = head() + event(0, simple("train/grad_norm", 0.5f)) +
                             event(300, simple("loss", -3.0f)) +
                             event(300, simple("train/grad_norm", 0.75f));
    const auto all = read(text);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].name, "train/grad_norm");
    EXPECT_EQ(all[0].steps, (Steps{0, 300}));
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.75}));
    EXPECT_EQ(read(text, {.column = "loss", .least = -10})[0].values, (Numbers{-3}));
}

TEST_F(TrainingLog, ReadsScalarsThatAreTensors) {
    const auto tensor = [](const std::string& proto) {
        return block(1, "grad_norm") + block(8, proto);
    };
    const std::string dtype_float = "\x08\x01", dtype_double = "\x08\x02";
    const std::string text =
        head() + event(1, tensor(dtype_float + block(4, raw(0.5f)))) +    // tensor_content
        event(2, tensor(dtype_float + block(5, raw(0.25f)))) +            // packed float_val
        event(3, tensor(dtype_float + "\x2d" + raw(0.125f))) +            // one float_val
        event(4, tensor(dtype_double + block(6, raw(0.1)))) +             // packed double_val
        event(5, tensor(dtype_float + block(4, raw(0.5f) + raw(0.5f))));  // two: no scalar
    const auto all = read(text);
    EXPECT_EQ(all[0].steps, (Steps{1, 2, 3, 4}));
    EXPECT_EQ(all[0].values, (Numbers{0.5, 0.25, 0.125, 0.1}));
}

TEST_F(TrainingLog, JoinsTheEventFilesOfAResumedRun) {
    std::filesystem::create_directory(folder / "run");
    const auto write = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder / ("run/" + name), std::ios::binary) << text;
    };
    write("events.out.tfevents.2.host",
          head() + event(2, simple("gnorm", 5)) + event(3, simple("gnorm", 6)));
    write("events.out.tfevents.1.host",
          head() + event(1, simple("gnorm", 1)) + event(2, simple("gnorm", 2)));
    const auto all = read_training_log(folder / "run");
    EXPECT_EQ(all[0].values, (Numbers{1, 5, 6}));
    EXPECT_EQ(all[0].notes.size(), 1u);  // of the step that was written twice
    // As SummaryWriter.add_scalars writes them.
    std::filesystem::create_directories(folder / "run/norms_a");
    write("norms_a/events.out.tfevents.1.host", head() + event(1, simple("gnorm", 1)));
    EXPECT_EQ(read_training_log(folder / "run")[0].notes.back(),
              "event files in folders of this one are not read, which are logs of their own: "
              "norms_a; pass such a folder");
    // Those of two runs have the same steps.
    write("events.out.tfevents.2.host",
          head() + event(1, simple("gnorm", 5)) + event(2, simple("gnorm", 6)));
    try {
        read_training_log(folder / "run");
        FAIL();
    } catch (const FormatError& error) {
        EXPECT_NE(std::string(error.what()).find("pass each event file by itself"),
                  std::string::npos)
            << error.what();
    }
}

TEST_F(TrainingLog, RefusesEveryTruncationOfAnEventFileButAtRecords) {
    const std::string one = head(), two = event(1, simple("grad_norm", 0.5f)),
                      three = event(2, simple("grad_norm", 0.75f));
    const std::string whole = one + two + three;
    for (std::size_t size = 1; size < whole.size(); ++size) {
        const bool at_record = size == one.size() || size == one.size() + two.size();
        const std::string found = refusal(whole.substr(0, size), {}, "events.tfevents");
        if (!at_record) {
            EXPECT_NE(found.find("it is truncated"), std::string::npos) << size << found;
        }
        if (size < one.size() + two.size()) continue;
        const auto all = read(whole.substr(0, size), {.allow_truncated = true}, "events.tfevents");
        EXPECT_EQ(all[0].values, Numbers{0.5}) << size;
    }
}

TEST_F(TrainingLog, FindsEveryFlippedBitOfAnEventFile) {
    const std::string whole = head() + event(1, simple("grad_norm", 0.5f));
    for (std::size_t i = 0; i < whole.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            std::string damaged = whole;
            damaged[i] = char(damaged[i] ^ (1 << bit));
            EXPECT_NE(refusal(damaged, {}, "events.tfevents").find("wrong checksum"),
                      std::string::npos)
                << i << ", " << bit;
        }
}

TEST_F(TrainingLog, RefusesHostileLengths) {
    for (const std::uint64_t length :
         {~std::uint64_t(0), ~std::uint64_t(0) - 15, std::uint64_t(1) << 40}) {
        const std::string size = raw(length);
        const std::string found = refusal(head() + size + masked(size) + "abcdefgh");
        EXPECT_NE(found.find("it is truncated"), std::string::npos) << found;
    }
    const std::string inside[] = {"\x2a" + varint(~std::uint64_t(0)),
                                  "\x2a\x7f",
                                  "\xff",
                                  std::string(11, '\xff'),
                                  "\x2b",
                                  block(5, "\x0a\x7f")};
    for (const std::string& data : inside)
        EXPECT_NE(refusal(head() + frame(data)).find("it is not an Event"), std::string::npos);
    EXPECT_NE(
        refusal(head() + event(~std::uint64_t(0), simple("grad_norm", 1))).find("the step is -1"),
        std::string::npos);
}

TEST(NamesGradientNorm, KnowsTheNamesInUse) {
    for (const char* name : {"grad_norm", "train/grad_norm", "gradient_norm", "grad-norm", "gnorm",
                             "train_gnorm", "gradients/global_norm", "Grad Norm"})
        EXPECT_TRUE(names_gradient_norm(name)) << name;
    for (const char* name : {"loss", "max_grad_norm", "grad_norm_clip", "layer_norm", "grad_rsd",
                             "grad_norm_squared", "log_grad_norm"})
        EXPECT_FALSE(names_gradient_norm(name)) << name;
}

/// Wherever the word stands, and however it is joined.
TEST(NamesGradientNorm, KnowsWordsOfOtherNumbers) {
    for (const char* name : {"grad_norm_log",
                             "sq_grad_norm",
                             "gradnorm2",
                             "grad_norm_sq",
                             "grad_norm^2",
                             "log10_gnorm",
                             "loggradnorm",
                             "ln_grad_norm",
                             "neg_log_grad_norm",
                             "gradNormEMA",
                             "EMAGradNorm",
                             "train/smoothed/grad_norm",
                             "grad_norm/ema",
                             "gradnorm.avg",
                             "grad-norm-ratio",
                             "grad_avgnorm",
                             "grad_lognorm",
                             "delta_gnorm",
                             "grad_norm_scale",
                             "normalized_grad_norm",
                             "grad_norm_std",
                             "sqrt-grad-norm",
                             "epoch_mean/grad_norm",
                             "ema0.99/grad_norm",
                             "grad_norm_after_clip",
                             "grad/blocks.0.attn_norm.weight.max",
                             "layernorm-grads-all-reduce-time",
                             "time/grad_norm",
                             "timing/compute_grad_norm",
                             "grad_norm_ms",
                             "grad_norm_nan_count",
                             "num_grad_norm_skips",
                             "grad_norm_penalty",
                             "cosine/moment_grad/blocks.0.norm_1.weight"})
        EXPECT_FALSE(names_gradient_norm(name)) << name;
    for (const char* name :
         {"grad_norm/policy.log_std", "grad_norm/params/LayerNorm_0/scale", "unscaled_grad_norm",
          "grad_norm/blocks.0.norm2.weight", "grad_norm/ln_f.weight", "grad_2.0_norm_total",
          "l2_norm/grad/global", "grad_norm_2", "grad_norm_l2", "optim/total_grad_norm",
          "logs/grad_norm", "softmax_grad_norm", "GNorm", "log-mean-1 - train/grad_norm"})
        EXPECT_TRUE(names_gradient_norm(name)) << name;
}

/// Words of modules and folders, and of norms before they are clipped, say nothing of the numbers.
TEST(NamesGradientNorm, TakesWordsOfModulesForNoFunctions) {
    for (const char* name :
         {"grad_2.0_norm/fc_var.weight", "grad_norm/clip.visual.proj", "clip_model/grad_norm",
          "mean_head/grad_norm", "grad_norm/max_pool/kernel", "grad_norm/log_alpha",
          "grad_norm.policy.log_std", "log/grad_norm", "train_log/grad_norm",
          "grad/blocks.0.attn_norm.weight.norm", "l2_norm/grad/blocks.0.norm_1.weight",
          "unclipped_grad_norm", "grad_norm_before_clip", "train/preclip_grad_norm",
          "gradNormUnclipped", "grad_norm/time_embed.weight", "logit_scale_grad_norm",
          "train/grad_norm_logit_scale"})
        EXPECT_TRUE(names_gradient_norm(name)) << name;
}

LoggedSeries series(const std::string& source, const std::string& name, Rng rng, double mean) {
    LoggedSeries out{.source = source, .name = name};
    for (Index t = 0; t < 200; ++t) {
        out.steps.push_back(10 * t);
        out.values.push_back(mean + rng.normal());
    }
    return out;
}

TEST(SummariseLogs, GivesTheNumbersOfDispersion) {
    const LoggedSeries a = series("a.csv", "grad_norm", Rng(1), 10),
                       b = series("b.csv", "grad_norm", Rng(2), 5),
                       c = series("b.csv", "other_norm", Rng(3), 5);
    const LogSummary summary = summarise_logs({a, b, c}, {.seed = 4}, Paired::all);
    const Dispersion expected = dispersion(a.values, {.seed = 4});
    std::vector<std::string> ratios;
    for (const MetricRow& row : summary.table.metrics()) {
        if (row.model == "a.csv" && row.metric == "grad_rsd") {
            EXPECT_EQ(row.value, expected.rsd.value);
            EXPECT_EQ(row.low, expected.rsd.low);
            EXPECT_EQ(row.high, expected.rsd.high);
            EXPECT_DOUBLE_EQ(*row.standard_error, expected.standard_error);
            EXPECT_EQ(row.count, 200);
        }
        if (row.metric != "grad_rsd_ratio") continue;
        EXPECT_FALSE(row.standard_error);
        ratios.push_back(row.model + " / " + row.at.tensor);
        if (row.model == "a.csv") {
            EXPECT_LT(*row.high, 1);
        }
        if (row.model != "a.csv") {
            EXPECT_TRUE(*row.low < 1 && 1 < *row.high);
        }
    }
    EXPECT_EQ(ratios,
              (std::vector<std::string>{"a.csv / b.csv: grad_norm", "a.csv / b.csv: other_norm",
                                        "b.csv: grad_norm / b.csv: other_norm"}));
    EXPECT_EQ(summary.run.logs.size(), 3u);
    // Series of one log are paired on request only.
    EXPECT_EQ(summarise_logs({a, b, c}).run.comparisons, 1);
    EXPECT_EQ(summarise_logs({b, c}).run.comparisons, 0);
    EXPECT_THROW(summarise_logs({a, a}), UsageError);
}

TEST(SummariseLogs, AJumpOfTheScaleHasNoInterval) {
    // The numbers before the loss scale is taken out are 65536 times as large: rsd is 2.4, but that
    // of log-normal numbers as spread would be thousands.
    LoggedSeries jump{.source = "a.csv", .name = "grad_norm"};
    const Rng rng(1);
    Rng draws = rng;
    for (Index t = 0; t < 60; ++t) {
        jump.steps.push_back(t);
        jump.values.push_back((t < 10 ? 65536 : 1) * std::exp(0.3 * draws.normal()));
    }
    const Dispersion found = dispersion(jump.values);
    EXPECT_NEAR(*found.rsd.value, 2.3, 0.3);
    EXPECT_FALSE(found.rsd.low || found.rsd.high);
    EXPECT_NE(found.rsd.note.find("no interval: the numbers are unlike"), std::string::npos);
    EXPECT_FALSE(dispersion_ratio(jump.values, jump.values).value);
}

/// Over 2 neighbours on either side, 4 of 200 numbers; a number that is far greater, or
/// infinitesimal beside it, is in its own windows alone.
TEST(SummariseLogs, TheMovingMeanIsOfEachWindow) {
    for (const Index count : {1, 2, 3, 5, 6, 10, 13, 124, 200}) {
        LoggedSeries one{.source = "a.csv", .name = "grad_norm"};
        Rng draws(3);
        for (Index t = 0; t < count; ++t) {
            one.steps.push_back(t);
            one.values.push_back(t == 7 ? 1e20 : std::exp(draws.normal()));
        }
        const Index half = count == 200 ? 4 : 2;
        const LogSummary summary = summarise_logs({one});
        Index seen = 0;
        for (const CurveRow& row : summary.table.curves()) {
            if (row.curve != "grad_norm_mean") continue;
            double sum = 0, numbers = 0;
            for (Index t = std::max<Index>(0, seen - half); t <= std::min(count - 1, seen + half);
                 ++t)
                sum += one.values[std::size_t(t)], ++numbers;
            EXPECT_EQ(row.x, double(seen));
            // Sums of up to nine positive numbers.
            EXPECT_NEAR(row.y.value(), sum / numbers, 1e-14 * sum) << count << ", " << seen;
            ++seen;
        }
        EXPECT_EQ(seen, count);
    }
}

}  // namespace
}  // namespace tsdiag
