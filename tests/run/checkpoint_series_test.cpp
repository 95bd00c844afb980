#include "tsdiag/checkpoint_series.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

class CheckpointSeriesTest : public testing::Test {
  protected:
    /// A file with one tensor of the given value.
    std::string write(const std::string& name, float value = 1, const Json& metadata = {}) {
        const fs::path path = folder / name;
        fs::create_directories(path.parent_path());
        const std::vector<float> numbers = {value, 2};
        const NamedArray array{.name = "w", .shape = {2}, .f32 = numbers, .f64 = {}};
        write_safetensors(path, std::span(&array, 1), metadata);
        return path.string();
    }
    std::string refusal(const std::vector<std::string>& arguments,
                        const std::vector<Index>& steps = {}) {
        try {
            find_series(arguments, steps);
        } catch (const Error& error) {
            return error.what();
        }
        return "was taken";
    }
    Index step_of(const std::string& name, const Json& metadata = {}) {
        const CheckpointSeries series =
            find_series({write(name, 1, metadata), write("other/step_7.safetensors")});
        for (const SeriesMember& member : series.members)
            if (member.path == (folder / name)) return member.step;
        return -1;
    }
    /// A .npy file of 2 x 3 numbers in that order; `axes`: "C" or "Fortran".
    std::string write_matrix(const std::string& name, const std::vector<float>& numbers,
                             const std::string& axes = "C", const std::string& descr = "<f4") {
        const std::string path = folder / name;
        test::write_npy<float>(path, descr, {2, 3}, numbers);
        std::string bytes = test::read_file(path);
        if (axes == "Fortran") bytes.replace(bytes.find("False, "), 7, "True,  ");
        test::write_file(path, bytes);
        return path;
    }
    /// A LLaMA of one layer, its configuration with `changed`.
    void write_llama(const std::string& name, const Json& changed) {
        const std::vector<float> numbers(16, 0.5f);
        const std::string layer = "model.layers.0.";
        std::vector<NamedArray> arrays;
        const auto add = [&](const std::string& tensor, std::vector<std::int64_t> shape) {
            const std::size_t count = std::size_t(shape[0] * (shape.size() > 1 ? shape[1] : 1));
            arrays.push_back({.name = tensor + ".weight",
                              .shape = std::move(shape),
                              .f32 = std::span(numbers).first(count),
                              .f64 = {}});
        };
        add("model.embed_tokens", {3, 4});
        for (const char* matrix :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
              "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
            add(layer + matrix, {4, 4});
        add(layer + "input_layernorm", {4});
        add(layer + "post_attention_layernorm", {4});
        add("model.norm", {4});
        const fs::path path = folder / name;
        fs::create_directories(path);
        write_safetensors(path / "model.safetensors", arrays, {});
        Json config;
        config.set("model_type", "llama").set("hidden_size", 4).set("num_hidden_layers", 1);
        config.set("num_attention_heads", 2).set("num_key_value_heads", 2).set("head_dim", 2);
        config.set("intermediate_size", 4).set("hidden_act", "silu").set("rms_norm_eps", 1e-5);
        config.set("vocab_size", 3).set("rope_theta", 10000.0);
        config.set("max_position_embeddings", 8).set("tie_word_embeddings", true);
        for (const auto& [key, value] : changed.object()) config.set(key, value);
        test::write_file(path / "config.json", config.dump());
    }
    /// Why a LLaMA and one with another configuration are no series.
    std::string difference(const Json& changed) {
        write_llama("llama/checkpoint-1", Json(Json::Object{}));
        write_llama("llama/checkpoint-2", changed);
        try {
            require_one_architecture(find_series({folder / "llama"}), {});
        } catch (const ShapeError& error) {
            return error.what();
        }
        return "none";
    }
    test::TemporaryDirectory folder;
};

TEST_F(CheckpointSeriesTest, TheNameTellsTheStep) {
    EXPECT_EQ(step_of("step_1000.safetensors"), 1000);
    EXPECT_EQ(step_of("model-step=2000.safetensors"), 2000);
    EXPECT_EQ(step_of("epoch=3-step=1200.safetensors"), 1200);
    EXPECT_EQ(step_of("epoch3.step40.safetensors"), 40);
    EXPECT_EQ(step_of("STEP143000.safetensors"), 143000);
    EXPECT_EQ(step_of("ckpt-500.safetensors"), 500);
    EXPECT_EQ(step_of("gpt2_d64_model_0300.safetensors"), 300);
    EXPECT_EQ(step_of("checkpoint-500/model.safetensors"), 500);
}

TEST_F(CheckpointSeriesTest, TheMetadataComeBeforeTheName) {
    const auto with = [](const char* key, const char* value) { return Json().set(key, value); };
    EXPECT_EQ(step_of("a_step1.safetensors", with("global_step", "30")), 30);
    EXPECT_EQ(step_of("b_step1.safetensors", with("step", "31")), 31);
    EXPECT_EQ(step_of("c_step2.safetensors", with("step", "-3")), 2);
    EXPECT_EQ(step_of("d_step2.safetensors", with("step", "many")), 2);
    EXPECT_EQ(step_of("e_step2.safetensors", with("epoch", "9")), 2);
}

TEST_F(CheckpointSeriesTest, TakesNoHashSeedOrRevisionForAStep) {
    EXPECT_EQ(step_of("model500.safetensors", {}), 500);
    EXPECT_EQ(step_of("model-0008.safetensors", {}), 8);
    for (const char* name : {"model-a1b2c3d4e5f60718", "9f0c2de1", "deadbee1", "model-seed-3",
                             "model_seed42", "lr1e-4_run2", "big-v2", "x.rank1"}) {
        const std::string file = write(std::string("names/") + name + ".safetensors");
        EXPECT_NE(
            refusal({file, write("names/step_1.safetensors", 2)}).find("gives a training step"),
            std::string::npos)
            << name;
    }
    const std::string hub = folder / "hub/models--a--b/snapshots";
    write("hub/models--a--b/snapshots/1f4e5a7c9b2d0e13/model.safetensors", 1);
    write("hub/models--a--b/snapshots/77c0ffee12345678/model.safetensors", 2);
    EXPECT_NE(refusal({hub}).find("one of several revisions in a cache"), std::string::npos)
        << refusal({hub});
}

TEST_F(CheckpointSeriesTest, TheTrainersStateComesBeforeTheNameOfADirectory) {
    const std::string a = write("x/checkpoint-5/model.safetensors"),
                      b = write("x/checkpoint-6/model.safetensors", 2);
    std::ofstream(folder / "x/checkpoint-5/trainer_state.json") << "{\"global_step\": 500}";
    const CheckpointSeries series = find_series({folder / "x"});
    ASSERT_EQ(series.members.size(), 2u);
    EXPECT_EQ(series.members[0].step, 6);
    EXPECT_EQ(series.members[0].origin, "its name");
    EXPECT_EQ(series.members[1].step, 500);
    EXPECT_EQ(series.members[1].origin, "global_step of trainer_state.json");
    EXPECT_EQ(series.name, folder / "x");
}

TEST_F(CheckpointSeriesTest, IsInTheOrderOfTheStepsAsNumbers) {
    write("run/step_1000.safetensors", 1);
    write("run/step_200.safetensors", 2);
    write("run/step_30.safetensors", 3);
    std::vector<Index> steps;
    for (const SeriesMember& member : find_series({folder / "run"}).members)
        steps.push_back(member.step);
    EXPECT_EQ(steps, (std::vector<Index>{30, 200, 1000}));
}

TEST_F(CheckpointSeriesTest, TellsASeriesFromOneModel) {
    const std::string one = write("one/model.safetensors");
    write("one/checkpoint-5/model.safetensors");
    write("one/checkpoint-6/model.safetensors");
    EXPECT_FALSE(is_series({folder / "one"}));
    EXPECT_FALSE(is_series({one}));
    EXPECT_FALSE(is_series({"random:gpt2"}));
    EXPECT_TRUE(is_series({one, "x"}));
    write("shards/model-00001-of-00002.safetensors");
    write("shards/model-00002-of-00002.safetensors");
    EXPECT_FALSE(is_series({folder / "shards"}));
    std::ofstream(folder / "shards/model.safetensors.index.json") << "{}";
    EXPECT_FALSE(is_series({folder / "shards"}));
    write("own/a_1.safetensors");
    write("own/a_2.safetensors");
    EXPECT_TRUE(is_series({folder / "own"}));
    std::ofstream(folder / "own/a.safetensors.index.json") << "{}";
    EXPECT_FALSE(is_series({folder / "own"}));
    write("trained/checkpoints/step-1/model.safetensors");
    write("trained/checkpoints/step-2/model.safetensors");
    EXPECT_TRUE(is_series({folder / "trained"}));
    write("single/only.safetensors");
    EXPECT_FALSE(is_series({folder / "single"}));
    EXPECT_THROW(checkpoints_in(folder / "none"), FormatError);
}

TEST_F(CheckpointSeriesTest, LeavesOutACopyAndRefusesATie) {
    write("run/step_1.safetensors", 1);
    write("run/step_2.safetensors", 2);
    write("run/final_step2.safetensors", 2);
    const CheckpointSeries series = find_series({folder / "run"});
    EXPECT_EQ(series.members.size(), 2u);
    ASSERT_EQ(series.notes.size(), 1u);
    EXPECT_NE(series.notes[0].find("a copy of"), std::string::npos);
    EXPECT_NE(refusal({folder / "run/step_2.safetensors", folder / "run/final_step2.safetensors"})
                  .find("is the only checkpoint"),
              std::string::npos);
    write("run/final_step2.safetensors", 3);
    EXPECT_NE(refusal({folder / "run"}).find("the two differ"), std::string::npos);
}

TEST_F(CheckpointSeriesTest, AFileWithTheSameTensorsIsACopyWhateverElseItSays) {
    write("run/step_1.safetensors", 1);
    const std::string numbered = write("run/epoch=1-step=2.safetensors", 2);
    const std::string last = write("run/last-step2.safetensors", 2, Json().set("archive", "last"));
    const CheckpointSeries series = find_series({folder / "run"});
    ASSERT_EQ(series.members.size(), 2u);
    EXPECT_EQ(series.members[1].path, numbered);
    ASSERT_EQ(series.notes.size(), 1u);
    EXPECT_EQ(series.notes[0], last + ": a copy of " + numbered + " (the same tensors), skipped");

    const std::vector<float> numbers = {2, 2};
    const std::vector<double> wide = {2, 2};
    const auto other = [&](NamedArray array) {
        write_npz(folder / "other-step2.npz", std::span(&array, 1));
        return refusal({folder / "run/step_1.safetensors", numbered, folder / "other-step2.npz"});
    };
    EXPECT_EQ(other({.name = "w", .shape = {2}, .f32 = numbers, .f64 = {}}), "was taken");
    for (const NamedArray& array :
         {NamedArray{.name = "v", .shape = {2}, .f32 = numbers, .f64 = {}},
          {.name = "w", .shape = {1, 2}, .f32 = numbers, .f64 = {}},
          {.name = "w", .shape = {2}, .f32 = {}, .f64 = wide}})
        EXPECT_NE(other(array).find("the tensors of the two differ"), std::string::npos)
            << other(array);
}

/// Lightning's last.ckpt: a copy of the step whose tensors it has, whatever step it says or lacks.
TEST_F(CheckpointSeriesTest, ACopyUnderTheNameLastIsNoStepOfItsOwn) {
    write("run/epoch=0-step=1.safetensors", 1);
    const std::string twin = write("run/epoch=1-step=2.safetensors", 2);
    const auto steps = [&] {
        std::vector<Index> out;
        for (const SeriesMember& one : find_series({folder / "run"}).members)
            out.push_back(one.step);
        return out;
    };
    const std::string last = write("run/last.safetensors", 2);
    EXPECT_EQ(steps(), (std::vector<Index>{1, 2}));
    EXPECT_EQ(
        find_series({folder / "run"}).notes,
        std::vector<std::string>{last + ": a copy of " + twin + " (the same tensors), skipped"});
    write("run/last.safetensors", 2, Json().set("global_step", "3"));
    EXPECT_EQ(steps(), (std::vector<Index>{1, 2}));
    EXPECT_EQ(find_series({folder / "run"}).notes,
              std::vector<std::string>{
                  last + ": a copy of " + twin +
                  " (the same tensors), skipped, though global_step of the file says step 3"});
    write("run/last.safetensors", 3, Json().set("global_step", "3"));
    EXPECT_EQ(steps(), (std::vector<Index>{1, 2, 3}));
    write("run/last.safetensors", 3);
    EXPECT_NE(refusal({folder / "run"}).find("last.safetensors: neither its metadata nor its name"),
              std::string::npos);
    write("run/last.safetensors", 3, Json().set("global_step", "2"));
    EXPECT_NE(refusal({folder / "run"}).find("the tensors of the two differ"), std::string::npos);
}

TEST_F(CheckpointSeriesTest, TensorsAreTheSameInEveryLayout) {
    const std::string first = write_matrix("a.npy", {1, 2, 3, 4, 5, 6}),
                      later = write_matrix("later.npy", {0, 0, 0, 0, 0, 0});
    std::vector<float> swapped = {1, 2, 3, 4, 5, 6};
    for (float& number : swapped) {
        auto bytes = std::bit_cast<std::array<char, 4>>(number);
        std::ranges::reverse(bytes);
        number = std::bit_cast<float>(bytes);
    }
    const std::string columns = write_matrix("b.npy", {1, 4, 2, 5, 3, 6}, "Fortran"),
                      big = write_matrix("c.npy", swapped, "C", ">f4");
    const CheckpointSeries series = find_series({first, columns, big, later}, {1, 1, 1, 2});
    EXPECT_EQ(series.members.size(), 2u);
    EXPECT_EQ(series.notes.size(), 2u);
    write_matrix("b.npy", {1, 2, 3, 4, 5, 6}, "Fortran");
    EXPECT_NE(refusal({first, columns, later}, {1, 1, 2}).find("the two differ"),
              std::string::npos);
}

TEST_F(CheckpointSeriesTest, NamesTheFirstLeafThatDiffers) {
    const auto differs = [&](const Json& changed, const std::string& words) {
        const std::string found = difference(changed);
        EXPECT_NE(found.find(words), std::string::npos) << found;
    };
    differs(Json().set("rope_theta", 500.0), ": blocks[0].rotary.theta is 500, expected 10000;");
    differs(Json().set("hidden_act", "relu"),
            ": blocks[0].activation is \"relu\", expected \"silu\";");
    differs(Json().set("rope_scaling", Json().set("type", "linear").set("factor", 2.0)),
            ": blocks[0].rotary.scaling is \"linear\", expected none;");
}

TEST_F(CheckpointSeriesTest, TheLongestInputIsNoDifferenceWherePositionsRotate) {
    EXPECT_EQ(difference(Json().set("max_position_embeddings", 16)), "none");
}

TEST_F(CheckpointSeriesTest, ReadsTheStepsOfNanoGptAndLightning) {
    const fs::path shared = fs::path(test::shared_data()) / "torch";
    const fs::path nanogpt = shared / "nanogpt-style-ckpt.pt",
                   lightning = shared / "lightning-legacy-ReverseTask.ckpt";
    if (!fs::exists(nanogpt) || !fs::exists(lightning)) GTEST_SKIP() << "no shared data";
    // iter_num and global_step differ, so the two are no series
    const std::string found = refusal({nanogpt.string(), lightning.string()});
    EXPECT_NE(found.find("gives its step (global_step of the file 1170)"), std::string::npos)
        << found;
    EXPECT_NE(found.find("its iteration"), std::string::npos) << found;
}

TEST_F(CheckpointSeriesTest, RefusesInOneSentence) {
    const std::string a = write("step_1.safetensors"), b = write("step_2.safetensors", 2),
                      best = write("best.safetensors", 3), epoch = write("epoch_4.safetensors", 4);
    EXPECT_NE(refusal({a, best}).find("neither its metadata nor its name"), std::string::npos);
    EXPECT_NE(refusal({a, epoch}).find("expected the same for all; pass --steps"),
              std::string::npos);
    EXPECT_NE(refusal({a, b}, {1}).find("1 numbers given, expected 2"), std::string::npos);
    EXPECT_NE(refusal({a, b}, {1, 1}).find("the two differ"), std::string::npos);
    EXPECT_NE(refusal({a, "random:gpt2"}).find("is a random model"), std::string::npos);
    EXPECT_NE(refusal({a, folder / "missing"}).find("no such file"), std::string::npos);
    EXPECT_EQ(find_series({a, best, epoch}, {3, 2, 1}).members.front().path, epoch);
}

TEST_F(CheckpointSeriesTest, TheDigestSeesEveryByteOfTheModelAndNoOptimizer) {
    const std::string file = write("d/model.safetensors");
    const std::string before = contents_digest(folder / "d");
    std::ofstream(folder / "d/optimizer.pt") << "x";
    EXPECT_EQ(contents_digest(folder / "d"), before);
    const std::string bytes = test::read_file(file);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] = char(changed[i] ^ 1);
        std::ofstream(file, std::ios::binary) << changed;
        EXPECT_NE(contents_digest(folder / "d"), before) << i;
    }
    std::ofstream(file, std::ios::binary) << bytes;
    EXPECT_EQ(contents_digest(folder / "d"), before);
    std::ofstream(folder / "d/config.json") << "{}";
    EXPECT_NE(contents_digest(folder / "d"), before);
}

TEST_F(CheckpointSeriesTest, TheSettingsThatDecideNumbersAreInTheirDigest) {
    const RunOptions plain;
    const auto changed = [&](const auto& change) {
        RunOptions options;
        change(options);
        return settings_digest(options) != settings_digest(plain);
    };
    EXPECT_TRUE(changed([](RunOptions& o) { o.seed = 1; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.tokens = 1; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.samples = 1; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.loss = "lm"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.heads = {0}; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.probes = {"core"}; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.dtype = Type::f64; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trials = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.redraw = "attn.v.weight"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.subject.heads = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.subject.width = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.subject.memory_tokens = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.subject.map = "names.toml"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.text = "a"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.text_file = "a.txt"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.text_lines = "a.txt"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.preprocessor = "preprocessor_config.json"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.maps = {{0, 0}}; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.tolerance = 1e-3; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.cross_check = 1; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.allow_nonfinite = true; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.device = "cuda"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.products = Products::tf32; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trace.attention = "softmax"; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trace.causal = true; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trace.scale = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trace.a2 = 2; }));
    EXPECT_TRUE(changed([](RunOptions& o) { o.trace.placement = NormPlacement::post; }));
    EXPECT_TRUE(changed([](RunOptions& o) {
        o.own_input = OwnInput{.kind = "held out", .origin = "", .digest = "1", .make = {}};
    }));
    EXPECT_FALSE(changed([](RunOptions& o) { o.memory = 1; }));
    EXPECT_FALSE(changed([](RunOptions& o) { o.batch = 2; }));
    EXPECT_FALSE(changed([](RunOptions& o) { o.subject.model = "x"; }));
    RunOptions named;
    named.input = "ids:" + (folder / "ids.txt");
    std::ofstream(folder / "ids.txt") << "1 2 3";
    const std::string before = settings_digest(named);
    std::ofstream(folder / "ids.txt") << "1 2 4";
    EXPECT_NE(settings_digest(named), before);
}

MetricRow row(Index step, Index layer, double value, std::optional<double> error, Index count) {
    MetricRow out{.model = "m", .at = {.step = step, .layer = layer, .stage = "out"}};
    out.metric = "t_sim";
    out.value = value;
    out.standard_error = error;
    out.count = count;
    return out;
}

TEST(MetricChanges, AreCertainWhereStudentsIntervalSaysSo) {
    // two changes: t at confidence 1 - 0.05/2 with 7 degrees of freedom, times 0.01 + 0.01, the
    // most that the error of a difference can be: with inputs of which one rises where the other
    // falls it is, and sqrt(2) 0.01 would call too many changes certain
    const double limit = student_quantile(0.975, 7) * 0.02;
    Table table("m");
    table.append(
        {row(0, 0, 0.1, 0.01, 8), row(10, 0, 0.3, 0.01, 8), row(20, 0, 0.1 + 1.01 * limit, 0.01, 8),
         row(0, 1, 0.1, 0.01, 8), row(20, 1, 0.1 + 0.99 * limit, 0.01, 8)},
        {});
    const auto changes = metric_changes(table);
    ASSERT_EQ(changes.size(), 2u);
    EXPECT_TRUE(changes[0].certain);
    EXPECT_FALSE(changes[1].certain);
    EXPECT_EQ(changes[0].from, 0);
    EXPECT_EQ(changes[0].to, 20);
    EXPECT_EQ(changes[0].steepest_from, 0);
    EXPECT_EQ(changes[0].steepest_to, 10);
    EXPECT_NEAR(changes[0].error.value(), 0.02, 1e-15);  // a sum: some eps
}

TEST(MetricChanges, AreNeverCertainOfOneInput) {
    Table table("m");
    table.append({row(0, 0, 0.1, {}, 1), row(20, 0, 0.9, {}, 1)}, {});
    ASSERT_EQ(metric_changes(table).size(), 1u);
    EXPECT_FALSE(metric_changes(table)[0].certain);
    EXPECT_FALSE(metric_changes(table)[0].error);
}

}  // namespace
}  // namespace tsdiag
