#include "tsdiag/train.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "support/files.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/model.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

TrainOptions tiny() {
    TrainOptions o;
    o.subject.model = "random:gpt2,layers=2,d=16,heads=2,tokens=16";
    o.data = "copy:4";
    o.tokens = 9;
    o.batch = 4;
    o.steps = 12;
    o.eval_samples = 8;
    return o;
}
std::string all_of(const TrainResult& r) {
    std::string out = steps_csv(r.steps) + gradients_csv(r.steps) + evaluations_csv(r.evaluations) +
                      metrics_csv(r.table.metrics()) + curves_csv(r.table.curves());
    for (const auto& [name, tensor] : r.parameters)
        for (const float x : tensor.to_host<float>()) out += shortest(x) + ' ';
    return out;
}
std::string error_of(const TrainOptions& options) {
    try {
        train(options);
    } catch (const Error& error) {
        return error.what();
    }
    return "(no error)";
}

TEST(Train, LearnsToCopy) {
    TrainOptions o = tiny();
    o.steps = 400;
    o.schedule.rate = 1e-2;
    o.schedule.warmup = 20;
    const TrainResult r = train(o);
    ASSERT_TRUE(r.finished);
    EXPECT_GT(r.steps.front().loss, 0.9 * std::log(4.0));  // untrained: uniform over 4 symbols
    EXPECT_LT(r.steps.back().loss, 0.1);
    EXPECT_GT(r.evaluations.back().accuracy, 0.95);
    EXPECT_EQ(r.evaluations.back().predictions, 8 * 4);
}

TEST(Train, MovesTheBiasOfAGatedUnit) {
    for (const std::string name : {"flash,group=4,causal=1", "gau,causal=1"}) {
        TrainOptions o = tiny();
        o.subject.model = "random:" + name + ",layers=1,d=16,vocab=6";
        o.steps = 2;
        o.adam.decay = 0;
        const TrainResult r = train(o);
        const std::string bias = "layer.0.attn.rel_pos_bias";
        const auto found =
            std::ranges::find(r.parameters, bias, &std::pair<std::string, Tensor>::first);
        ASSERT_NE(found, r.parameters.end());
        const auto drawn = random_weights(random_model(name + ",layers=1,d=16,vocab=6"),
                                          weights_rng(o.seed, 0), cpu(), Type::f32)
                               ->get(bias)
                               .to_host<float>();
        // Causal, and the last of 9 rows has no loss: distances of at most 7 have the first 8
        // buckets, and a group of 4 has 4 of them; a relu passes the positive ones alone, since q
        // and k are small.
        const std::size_t used = name.starts_with("flash") ? 4 : 8;
        const std::vector<float> moved = found->second.to_host<float>();
        for (std::size_t i = 0; i < moved.size(); ++i)
            EXPECT_EQ(moved[i] != drawn[i], i < used && drawn[i] > 0) << name << ' ' << i;
    }
}

/// What the baselines of [DEVIL] learn in their papers is learned here.
TEST(Train, MovesTheProjectionsOfAnAttention) {
    for (const std::string attention : {"linformer,length=4", "transformer_ls,segment=2,rank=2"}) {
        TrainOptions o = tiny();
        o.subject.model =
            "random:bert-base,layers=1,d=16,heads=2,tokens=16,vocab=8,attention=" + attention;
        o.data = "markov:5";
        o.loss = "mlm";
        o.steps = 2;
        o.adam.decay = 0;
        const TrainResult r = train(o);
        const RandomModel drawn = random_model(o.subject.model.substr(7));
        const auto before = random_weights(drawn, weights_rng(o.seed, 0), cpu(), Type::f32);
        ASSERT_FALSE(drawn.spec.blocks[0].attention.own.empty());
        for (const Parameter& own : drawn.spec.blocks[0].attention.own) {
            const std::string name = "layer.0.attn." + own.name;
            const auto found =
                std::ranges::find(r.parameters, name, &std::pair<std::string, Tensor>::first);
            ASSERT_NE(found, r.parameters.end()) << name;
            EXPECT_NE(found->second.to_host<float>(), before->get(name).to_host<float>()) << name;
        }
    }
}

TEST(Train, LearnsToTellPatternsApart) {
    TrainOptions o;
    o.subject.model = "random:deit-tiny,layers=1,d=24,heads=2,image=16,patch=4";
    o.data = "patterns:2";
    o.steps = 150;
    o.batch = 8;
    o.schedule.rate = 3e-3;
    const TrainResult r = train(o);
    EXPECT_GT(r.evaluations.back().accuracy, 0.9);
}

TEST(Train, LearnsMaskedTextFromItsNeighbours) {
    TemporaryDirectory folder;
    std::string text;
    for (int i = 0; i < 40; ++i) text += std::string(100, char('a' + i % 4));
    write_file(folder / "text", text);
    TrainOptions o;
    o.subject.model = "random:bert-base,layers=1,d=24,heads=2,tokens=32";
    o.data = "chars:" + folder / "text";
    o.loss = "mlm";
    o.tokens = 20;
    o.steps = 300;
    o.schedule.rate = 5e-3;
    EXPECT_GT(train(o).evaluations.back().accuracy, 0.8);  // some windows contain a border
}

TEST(Train, IsTheSameOnAnyNumberOfThreads) {
    TrainOptions o = tiny();
    o.dropout = 0.2;
    o.eval_every = 4;
    o.probe_every = 6;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const std::string one = all_of(train(o));
    omp_set_num_threads(3);
    const std::string three = all_of(train(o));
    omp_set_num_threads(threads);
    EXPECT_EQ(one, three);
}

/// Its gradient moves the learned scale of a polynomial, which the checkpoint keeps.
TEST(Train, LearnsTheScaleOfAPolynomial) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.subject.model += ",attention=polynomial,scale=learned,start=1/4";
    o.directory = folder / "";
    const TrainResult r = train(o);
    Index scales = 0;
    SubjectOptions at;
    at.model = folder / "checkpoints/step-12";
    const Subject read = open_subject(at);
    const auto weights = checkpoint_weights(read.file, read.architecture, cpu(), Type::f32, false);
    for (const auto& [name, tensor] : r.parameters) {
        if (!name.ends_with("attn.scale")) continue;
        const std::vector<float> c = tensor.to_host<float>();
        ASSERT_EQ(c.size(), 1U);
        EXPECT_NE(c[0], 0.25F) << name;
        EXPECT_EQ(weights->get(name).to_host<float>(), c) << name;
        ++scales;
    }
    EXPECT_EQ(scales, 2);
    TemporaryDirectory parts;
    o.directory = parts / "";
    o.save_every = 5;
    o.stop_after = 7;
    EXPECT_FALSE(train(o).finished);
    o.stop_after = 0;
    o.resume = true;
    EXPECT_EQ(all_of(train(o)), all_of(r));
}

TEST(Train, ShowsTheTrainedModelAndItsSamplesAtTheEnd) {
    TrainOptions o = tiny();
    o.steps = 2;
    o.probe_samples = 3;
    Index calls = 0;
    std::vector<std::vector<Index>> seen;
    Wide squares = 0;
    o.finished = [&](const Model& model, std::span<const Input> samples) {
        ++calls;
        for (const Input& input : samples) seen.push_back(input.ids);
        const std::vector<Loss> losses(samples.size(), {.kind = Loss::Kind::square});
        squares = model.step(samples, losses, {.gradients = false}).loss;
    };
    train(o);
    EXPECT_EQ(calls, 1);
    ASSERT_EQ(seen.size(), 3U);
    EXPECT_NE(seen[0], seen[1]);
    EXPECT_GT(squares, 0);
    const std::vector<std::vector<Index>> first = seen;
    seen.clear();
    o.steps = 1;
    train(o);
    EXPECT_EQ(seen, first) << "the same samples each time";
    o.stop_after = 1;
    o.steps = 2;
    calls = 0;
    train(o);
    EXPECT_EQ(calls, 0) << "not of a training that was interrupted";
}

TEST(Train, ProbesSamplesThatAreNotEvaluated) {
    TrainOptions o = tiny();
    o.steps = 2;
    o.eval_samples = 0;
    o.probe_every = 2;
    o.probe_samples = 3;
    const TrainResult found = train(o);
    EXPECT_TRUE(found.evaluations.empty());
    const std::vector<MetricRow> rows = found.table.metrics();
    const auto row = std::ranges::find(rows, "t_sim", &MetricRow::metric);
    ASSERT_NE(row, rows.end());
    EXPECT_EQ(row->count, 3);
}

TEST(Train, GoesOnAsIfNothingHadHappened) {
    TemporaryDirectory whole, parts;
    TrainOptions o = tiny();
    o.dropout = 0.1;
    o.eval_every = 5;
    o.probe_every = 4;
    o.save_every = 5;
    o.directory = whole / "";
    const TrainResult expected = train(o);
    o.directory = parts / "";
    o.stop_after = 7;
    EXPECT_FALSE(train(o).finished);
    o.stop_after = 0;
    o.resume = true;
    const TrainResult found = train(o);
    EXPECT_EQ(all_of(found), all_of(expected));
    for (const char* file :
         {"steps.csv", "gradients.csv", "evaluations.csv", "metrics.csv", "curves.csv",
          "checkpoints/step-12/model.safetensors", "checkpoints/step-12/training.safetensors"})
        EXPECT_EQ(read_file(parts / file), read_file(whole / file)) << file;
}

TEST(Train, KeepsTheLastTwoStatesAndEveryModel) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.save_every = 4;
    o.directory = folder / "";
    train(o);
    for (const char* step : {"step-4", "step-8", "step-12"})
        EXPECT_TRUE(std::filesystem::exists(
            folder / ("checkpoints/" + std::string(step) + "/model.safetensors")));
    EXPECT_FALSE(std::filesystem::exists(folder / "checkpoints/step-4/training.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/step-8/training.safetensors"));
}

TEST(Train, ResumingDropsAStateThatAKillHasLeft) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.save_every = 4;
    o.stop_after = 6;
    o.directory = folder / "";
    train(o);
    const std::string old = folder / "checkpoints/step-4/training.safetensors",
                      state = read_file(old);
    o.stop_after = 0;
    o.resume = true;
    EXPECT_TRUE(train(o).finished);
    EXPECT_FALSE(std::filesystem::exists(old));
    write_file(old, state);  // as if killed before dropping it
    EXPECT_TRUE(train(o).finished);
    EXPECT_FALSE(std::filesystem::exists(old));
}

/// What an earlier version began has no date, and does not get that of who goes on with it.
TEST(Train, ResumingKeepsWhenTheRunBegan) {
    for (const char* date : {"", "2026-01-01T00:00:00Z"}) {
        TemporaryDirectory folder;
        TrainOptions o = tiny();
        o.stop_after = 6;
        o.directory = folder / "";
        o.measured.date = date;
        train(o);
        o.resume = true;
        o.measured.date = "2027-01-01T00:00:00Z";
        for (const Index stop : {8, 0}) {
            o.stop_after = stop;
            EXPECT_EQ(RunRecord(train(o).run).measured.date, date);
        }
    }
}

TEST(Train, AHalfWrittenCheckpointIsNone) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.save_every = 6;
    o.stop_after = 6;
    o.directory = folder / "";
    train(o);
    std::filesystem::create_directories(folder / "checkpoints/step-9.partial");
    write_file(folder / "checkpoints/step-9.partial/training.safetensors", "cut");
    std::filesystem::create_directories(folder / "checkpoints/step-10");
    o.stop_after = 0;
    o.resume = true;
    EXPECT_TRUE(train(o).finished);
}

TEST(Train, ProbesSayWhatProbeSaysOfTheCheckpoint) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.steps = 3;
    o.probe_every = 3;
    o.probes = {"core"};
    o.directory = folder / "";
    const TrainResult r = train(o);
    RunOptions probe;
    probe.subject.model = folder / "checkpoints/step-3";
    // the first held-out sample, which the tables of training show only through its numbers
    probe.input = "ids:" + folder / "ids.txt";
    std::string loss;
    Index found = 0;
    // Sequences of 9 tokens over 4 symbols: the one with the same numbers is the one probed.
    for (int code = 0; code < 256 && found == 0; ++code) {
        std::string ids;
        for (const bool again : {false, true}) {
            for (int k = 0; k < 4; ++k) ids += std::to_string(code >> 2 * k & 3) + ' ';
            if (!again) ids += "4 ";
        }
        write_file(folder / "ids.txt", ids + "\n");
        probe.probes = {"t_sim"};
        const auto row = run(probe).table.find({.layer = 0, .stage = "in"}, "t_sim");
        const auto ours = r.table.find({.step = 3, .layer = 0, .stage = "in"}, "t_sim");
        ASSERT_TRUE(row && ours);
        if (*row->value != *ours->value) continue;
        probe.probes = o.probes;
        for (const MetricRow& m : run(probe).table.metrics()) {
            Place at = m.at;
            at.step = 3;
            const auto same = r.table.find(at, m.metric);
            ASSERT_TRUE(same) << m.metric;
            EXPECT_EQ(same->value, m.value) << m.metric;
            ++found;
        }
    }
    EXPECT_GT(found, 50);
}

TEST(Train, StopsWhereANumberIsNoLongerFinite) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.schedule.kind = Schedule::Kind::constant;
    o.schedule.rate = 1e30;
    o.clip = 0;
    o.save_every = 1;
    o.directory = folder / "";
    const std::string error = error_of(o);
    EXPECT_THAT(error, HasSubstr("step 2: layer 0, stage"));
    EXPECT_THAT(error, HasSubstr("the last good checkpoint is"));
    EXPECT_THAT(error, HasSubstr("step-1."));
    EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/step-1/training.safetensors"));
}

TEST(Train, KeepsNoCheckpointOfInfiniteWeights) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.schedule.kind = Schedule::Kind::constant;
    o.schedule.rate = 1e39;  // infinite in float32
    o.save_every = 1;
    o.directory = folder / "";
    const std::string error = error_of(o);
    EXPECT_THAT(error, HasSubstr("step 1: the update makes '"));
    EXPECT_FALSE(std::filesystem::exists(folder / "checkpoints"));
}

TEST(Train, DoesNotGoOnWithOtherData) {
    TemporaryDirectory folder;
    std::string text;
    for (int i = 0; i < 400; ++i) text += char('a' + i * i % 7);
    write_file(folder / "text", text);
    TrainOptions o = tiny();
    o.data = "text:" + (folder / "text");
    o.directory = folder / "run";
    o.stop_after = 3;
    o.save_every = 3;
    train(o);
    text[9] = 'z';
    write_file(folder / "text", text);
    o.resume = true;
    EXPECT_THAT(error_of(o), HasSubstr("was trained with contents"));
}

TEST(Train, WritesAndRemovesNothingThatCannotBeTrained) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.directory = folder / "run";
    o.save_every = 6;
    train(o);
    const std::string steps = read_file(folder / "run/steps.csv");
    o.probe_every = 6;
    o.probes = {"t_sm"};
    EXPECT_THAT(error_of(o), HasSubstr("t_sim"));
    EXPECT_EQ(read_file(folder / "run/steps.csv"), steps);
    EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-6"));
    o.directory = folder / "other";
    EXPECT_NE(error_of(o), "(no error)");
    EXPECT_FALSE(std::filesystem::exists(folder / "other"));
    o = tiny();
    o.steps = 3;
    o.directory = folder / "run";  // started anew
    train(o);
    EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints/step-6"));
}

TEST(Train, ClipsTheWholeGradient) {
    // Where beta1 = beta2 = 0 and eps is large, an update is rate g / eps: its norm is clip / eps.
    TrainOptions o = tiny();
    o.steps = 1;
    o.schedule.kind = Schedule::Kind::constant;
    o.schedule.rate = 1e3;
    o.adam = {.beta1 = 0, .beta2 = 0, .eps = 1e6, .decay = 0};
    o.clip = 1e-2;
    const TrainResult after = train(o);
    ASSERT_GT(after.steps[0].grad_norm, o.clip);
    o.schedule.rate = 1e-30;
    const TrainResult before = train(o);
    double squares = 0;
    for (std::size_t i = 0; i < before.parameters.size(); ++i) {
        const auto a = before.parameters[i].second.to_host<double>(),
                   b = after.parameters[i].second.to_host<double>();
        for (std::size_t k = 0; k < a.size(); ++k) squares += (a[k] - b[k]) * (a[k] - b[k]);
    }
    // Updates of 1e-5 to weights of 1e-2 keep two digits in float32; many errors average out.
    EXPECT_TRUE(close(std::sqrt(squares), o.clip * 1e3 / 1e6,
                      {.relative = 0.02, .reason = "float32 weights"}));
}

TEST(Train, RefusesWhatCannotBe) {
    TemporaryDirectory folder;
    TrainOptions o = tiny();
    o.resume = true;
    EXPECT_THAT(error_of(o), HasSubstr("no directory"));
    o.directory = folder / "";
    EXPECT_THAT(error_of(o), HasSubstr("contains no checkpoint"));
    o.resume = false;
    train(o);
    o.resume = true;
    o.batch = 5;
    EXPECT_THAT(error_of(o), HasSubstr("was trained with batch 4, but now it is 5"));
    o = tiny();
    o.directory = folder / "long";
    o.schedule.length = 99;
    train(o);
    o.resume = true;
    o.schedule.length = 0;
    EXPECT_THAT(error_of(o), HasSubstr("was trained with length 99, but now it is null"));
    o.directory = folder / "";
    write_file(folder / "checkpoints/step-12/training.safetensors", "cut");
    EXPECT_NE(error_of(o), "(no error)");
    o = tiny();
    o.schedule.floor = -1;
    EXPECT_THAT(error_of(o), HasSubstr("--floor"));
    o = tiny();
    o.schedule.factor = -1;
    EXPECT_THAT(error_of(o), HasSubstr("--factor"));
    o = tiny();
    o.dropout = 1;
    EXPECT_THAT(error_of(o), HasSubstr("--dropout 1"));
    o = tiny();
    o.subject.model = "random:post-norm,layers=1,d=8,heads=2";
    EXPECT_NE(error_of(o), "(no error)");
}

TrainOptions on_files(const std::string& data) {
    TrainOptions o;
    o.subject.model = "random:bert-base,layers=1,d=16,heads=2,tokens=8";
    o.data = data;
    o.tokens = 8;
    o.batch = 2;
    o.eval_samples = 100;
    return o;
}
void write_listops(const TemporaryDirectory& folder) {
    std::string rows = "Source\tTarget\n";
    for (const char* row : {"( [MAX 1 2 ] )\t2", "( [MAX 3 2 ] )\t3", "( [MIN 4 2 ] )\t2",
                            "( [MIN 4 3 ] )\t3", "( [MAX 2 2 ] )\t2"})
        rows += std::string(row) + "\n";
    write_file(folder / "basic_train.tsv", rows);
    write_file(folder / "basic_test.tsv", rows);
}

/// relu(S) V and its norm are far from smooth at a row of zeros, which padding is.
TEST(Train, DigitsAreNoPaddingOfTransNormer) {
    TrainOptions o = on_files("listops");
    o.subject.model = "random:transnormer1-mlm,block=4,layers=2,d=8,heads=2,tokens=8";
    o.steps = 3;
    for (const TrainStep& step : train(o).steps) EXPECT_LT(step.grad_norm, 1e6);
}

TEST(Train, CountsEpochsOfAFiniteSet) {
    TemporaryDirectory folder;
    write_listops(folder);
    TrainOptions o = on_files(folder / "");
    o.epochs = 2;  // of 5 samples, two a step
    const TrainResult r = train(o);
    EXPECT_EQ(r.steps.size(), 5U);
    EXPECT_EQ(r.run["train"]["steps"].integer(), 5);
    o.data = "listops";
    EXPECT_THAT(error_of(o), HasSubstr("--epochs: "));
    o.epochs = -1;
    EXPECT_THAT(error_of(o), HasSubstr("--epochs: expected"));
}

TEST(Train, CountsWhatIsRightByLabel) {
    TemporaryDirectory folder;
    write_listops(folder);
    TrainOptions o = on_files(folder / "");
    o.steps = 200;
    o.schedule.rate = 3e-3;
    const Evaluation last = train(o).evaluations.back();
    ASSERT_EQ(last.of_class.size(), 10U);
    EXPECT_EQ(last.of_class[2], 3);
    EXPECT_EQ(last.of_class[3], 2);
    EXPECT_EQ(last.predictions, 5);
    EXPECT_EQ(last.right_of_class[2] + last.right_of_class[3],
              std::llround(last.accuracy * double(last.predictions)));
    EXPECT_EQ(last.accuracy, 1);  // five samples are learnt by heart
}

TEST(Train, LearnsPairsByHeart) {
    TemporaryDirectory folder;
    std::string rows;
    for (const char* row : {"1.0\t0\t1\tab\tabab", "0.0\t0\t2\tab\tcdcd", "1.0\t3\t2\tcd\tcdcd",
                            "0.0\t3\t1\tcd\tabab"})
        rows += std::string(row) + "\n";
    for (const char* name : {"new_aan_pairs.train.tsv", "new_aan_pairs.test.tsv"})
        write_file(folder / name, rows);
    TrainOptions o = on_files(folder / "");
    o.steps = 150;
    o.schedule.rate = 1e-2;
    o.dropout = 0.01;
    o.probe_every = 150;
    o.probes = {"similarity"};
    const TrainResult r = train(o);
    EXPECT_EQ(r.evaluations.back().predictions, 4);
    EXPECT_EQ(r.evaluations.back().accuracy, 1);
    EXPECT_FALSE(r.table.metrics().empty());
}

TEST(Train, BeginsWithGivenParameters) {
    TrainOptions first = tiny();
    const TrainResult r = train(first);
    TrainOptions again = tiny();
    again.start = r.parameters;
    again.seed = first.seed;
    again.steps = 1;
    again.schedule.rate = 1e-30;  // changes no number
    EXPECT_EQ(train(again).evaluations.back().loss, r.evaluations.back().loss);
    again.start = {{"layer.9.attn.q.weight", r.parameters.front().second}};
    EXPECT_THAT(error_of(again), HasSubstr("has no parameter 'layer.9.attn.q.weight'"));
    again.start = {{"embed.token", r.parameters.back().second}};
    EXPECT_THAT(error_of(again), HasSubstr("has another shape"));
    TemporaryDirectory folder;
    again.directory = folder / "run";
    EXPECT_THAT(error_of(again), HasSubstr("begins with the parameters of a file"));
}

TEST(Train, AClassifierIsTunedFromAMaskedModel) {
    TrainOptions o = on_files("markov:4");
    o.subject.model += ",vocab=5";
    o.loss = "mlm";
    o.steps = 20;
    const TrainResult masked = train(o);
    TrainOptions tuned = on_files("judged:4");
    tuned.subject.model = o.subject.model;
    tuned.start = masked.parameters;
    tuned.steps = 20;
    const TrainResult r = train(tuned);
    EXPECT_EQ(r.evaluations.back().of_class.size(), 2U);
    tuned.start = {};
    EXPECT_NE(train(tuned).steps.front().loss, r.steps.front().loss);
}

}  // namespace
}  // namespace tsdiag::test
