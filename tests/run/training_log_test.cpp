#include "tsdiag/training_log.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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
            const std::string text = error.what(), file = folder / name;
            EXPECT_TRUE(text.starts_with(file)) << text;
            return text.substr(std::min(file.size(), text.size()));
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
    EXPECT_TRUE(all[0].notes.empty());
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
    ASSERT_EQ(all[0].notes.size(), 1u);
    EXPECT_EQ(all[0].notes[0],
              "2 steps were written more than once (a resumed run?): the later record is used");
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
    expect("{\"step\": 1, \"grad_norm\": [1]}\n", "'grad_norm' is not a number");
    expect("{\"step\": 1, \"grad_norm\": 1", "line 1");
    expect("{\"log_history\": 3}", "'log_history': is not a list of records");
    expect("[\"log_history\"]", "'log_history': is not a list of records");
    expect("[1, 2]\n", "is not a JSON object");
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
    for (const char* name : {"loss", "max_grad_norm", "grad_norm_clip", "layer_norm", "grad_rsd"})
        EXPECT_FALSE(names_gradient_norm(name)) << name;
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
    const LogSummary summary = summarise_logs({a, b, c}, {.seed = 4});
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
    EXPECT_EQ(summary.run["logs"].array().size(), 3u);
    EXPECT_THROW(summarise_logs({a, a}), UsageError);
}

}  // namespace
}  // namespace tsdiag
