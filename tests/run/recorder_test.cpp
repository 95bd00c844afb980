#include "recorder.hpp"

#include <gtest/gtest.h>

#include "measurement.hpp"
#include "support/memory.hpp"
#include "support/units.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/units.hpp"

/// The records of units: what they hold comes back, and nothing else is taken for one.
namespace tsdiag::test {
namespace {

/// Everything a sink is told, as text.
class TextSink final : public Sink {
  public:
    void scalar(const Place& at, std::string_view metric, const Value& v) override {
        add(at, metric, v);
    }
    void point(const Place& at, std::string_view curve, double x, const Value& y) override {
        text += shortest(x) + " ";
        add(at, curve, y);
    }
    void matrix(Map map) override {
        add(map.at, map.name, {});
        for (const double v : map.values) text += shortest(v) + ",";
        text += std::to_string(map.rows) + "x" + std::to_string(map.cols) + "\n";
    }
    std::string text;

  private:
    void add(const Place& at, std::string_view name, const Value& v) {
        for (const Index i : {at.step, at.layer, at.head}) text += std::to_string(i) + " ";
        text += at.stage + " " + at.tensor + " " + std::string(name) + " ";
        for (const auto& number : {v.value, v.low, v.high})
            text += number ? shortest(*number) + " " : "- ";
        text += v.note + "\n";
    }
};

Recorder some() {
    Recorder said;
    said.scalar({.layer = 3, .stage = "out", .head = 2, .tensor = "q"}, "t_sim", 0.1);
    said.scalar({}, "lambda2", undefined("not square"));
    said.mark();
    said.scalar({.step = 7}, "delta", interval(-1.5, 2.5, "not converged"));
    said.point({.layer = 0}, "eta", -0.0, 5e-324);
    said.matrix({.at = {.layer = 1, .head = 0},
                 .name = "attention",
                 .rows = 2,
                 .cols = 3,
                 .values = {1, 0, 0, 0.5, 0.25, 0.25}});
    said.mark();
    return said;
}

std::string bytes_of(const Recorder& said) {
    RecordWriter out;
    said.write(out);
    return out.take();
}

std::string text_of(const Recorder& said) {
    TextSink out;
    said.replay(out);
    return out.text;
}

TEST(Recorder, ComesBackFromItsBytes) {
    const std::string bytes = bytes_of(some());
    RecordReader in(bytes, "record");
    const Recorder again = Recorder::read(in);
    EXPECT_TRUE(in.done());
    EXPECT_EQ(text_of(again), text_of(some()));
    EXPECT_EQ(bytes_of(again), bytes);
    ASSERT_EQ(again.segments(), 3u);
    TextSink parts;
    for (std::size_t s = 0; s < again.segments(); ++s) again.replay(parts, s);
    again.replay_maps(parts);
    EXPECT_EQ(parts.text, text_of(some()));
}

TEST(Recorder, RefusesWhatIsNoRecord) {
    const std::string bytes = bytes_of(some());
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        RecordReader torn(std::string_view(bytes).substr(0, at), "record");
        EXPECT_THROW(Recorder::read(torn), FormatError) << at;
        for (int bit = 0; bit < 8; ++bit) {
            std::string other = bytes;
            other[at] = char(other[at] ^ (1 << bit));
            RecordReader in(other, "record");
            try {
                text_of(Recorder::read(in));  // of a changed number or name, another record
            } catch (const FormatError&) {
            } catch (const NonFiniteError&) {  // as of any trial that says so
            }
        }
    }
}

TEST(Totals, ComeBackFromTheirBytes) {
    Totals totals;
    totals.add_loss(2);
    totals.add_loss(4);
    totals.add_gain(1, 0.5, 1);
    totals.add_gain(0, 0, 0);
    Diagnostics::Entry entry;
    entry.metric = "lambda2_abs";
    entry.estimate = {.value = 0.5, .method = "arnoldi", .iterations = 12, .low = 0.25};
    totals.add(entry);
    RecordWriter out;
    totals.write(out);
    const std::string bytes = out.take();
    RecordReader in(bytes, "record");
    Totals again = Totals::read(in);
    EXPECT_TRUE(in.done());
    EXPECT_EQ(again.loss(), 3);
    again.join(totals);
    EXPECT_EQ(again.loss(), 3);
    EXPECT_EQ(again.branch_gains(), (std::vector<std::optional<double>>{std::nullopt, 0.5}));
    ASSERT_EQ(again.solver().size(), 2u);
    EXPECT_EQ(again.solver()[0].estimate.method, "arnoldi");
    EXPECT_EQ(again.solver()[0].estimate.low, 0.25);
    EXPECT_EQ(again.solver()[0].estimate.high, std::nullopt);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        RecordReader torn(std::string_view(bytes).substr(0, at), "record");
        EXPECT_THROW(Totals::read(torn), FormatError) << at;
    }
}

TEST(EachTrial, MakesAgainWhatAnUnreadableRecordHolds) {
    const auto trial = [](Index i, Sink& out) { out.scalar({.layer = i}, "t_sim", 0.5); };
    test::KeptUnits kept{{{0, 0}, "no record of a trial"}};
    test::OnePart units(kept);
    Table alone, found;
    each_trial(2, alone, trial);
    each_trial(2, found, trial, {}, &units);
    EXPECT_EQ(metrics_csv(found.metrics()), metrics_csv(alone.metrics()));
    EXPECT_EQ(units.computed, 2);
}

/// One sample of a model, measured in a process that may die.
struct LongCase {
    const char *name, *model;
    Index tokens = 40;
    std::vector<std::string> probes = {"all"};
    void (*set)(RunOptions& options) = [](RunOptions&) {};
};
std::ostream& operator<<(std::ostream& out, const LongCase& c) { return out << c.name; }

class EveryLongUnit : public testing::TestWithParam<LongCase> {
  protected:
    RunOptions options() const {
        RunOptions made;
        made.subject.model = std::string("random:") + GetParam().model;
        made.tokens = GetParam().tokens;
        made.probes = GetParam().probes;
        GetParam().set(made);
        return made;
    }
    /// All that a run says of numbers.
    static std::string of(const RunOptions& options) {
        const RunResult result = run(options);
        std::string text = metrics_csv(result.table.metrics()) + curves_csv(result.table.curves());
        for (const Map& map : result.table.maps())
            for (const double v : map.values) text += shortest(v) + ",";
        return text + result.run["solver"].dump() + result.run["model"].dump();
    }
};

TEST_P(EveryLongUnit, GoesOnBehindTheLayersThatWereKept) {
    RunOptions alone = options();
    const std::string expected = of(alone);
    test::KeptUnits whole;
    test::OnePart uninterrupted(whole);
    alone.units = &uninterrupted;
    EXPECT_EQ(of(alone), expected);
    const Index layers = std::ssize(uninterrupted.layers);
    ASSERT_EQ(layers, 4);

    struct Death {};
    test::KeptUnits kept;
    test::KeptUnits before;  // layers that earlier processes have kept
    std::vector<Index> computed;
    for (const Index dies : {1, 1, 3, 4, 5}) {
        test::OnePart units(kept);
        units.layers = before;
        units.on_part = [&](Index layer) {
            if (layer >= dies) throw Death{};
            computed.push_back(layer);
        };
        RunOptions again = options();
        again.units = &units;
        if (dies < layers) {
            EXPECT_THROW(of(again), Death);
        } else {
            EXPECT_EQ(of(again), expected) << dies;
            EXPECT_EQ(kept, whole);
            kept.clear();  // of all layers known, the next one makes the unit
        }
        before = units.layers;
    }
    EXPECT_EQ(computed, (std::vector<Index>{0, 1, 2, 3}));  // each once
}

TEST_P(EveryLongUnit, ComputesALayerAgainWhoseRecordIsUnreadable) {
    RunOptions made = options();
    test::KeptUnits kept;
    test::OnePart units(kept);
    made.units = &units;
    const std::string expected = of(made);
    kept.clear();
    units.layers[{0, 2}] = "no record of a layer";
    std::vector<Index> computed;
    units.on_part = [&](Index layer) { computed.push_back(layer); };
    test::KeptUnits next;
    test::OnePart again(next);
    again.layers = units.layers;
    again.on_part = units.on_part;
    made.units = &again;
    EXPECT_EQ(of(made), expected);
    EXPECT_EQ(computed, (std::vector<Index>{2, 3}));
}

INSTANTIATE_TEST_SUITE_P(
    Runs, EveryLongUnit,
    testing::Values(LongCase{"all", "post-norm,layers=4,d=24,heads=3"},
                    LongCase{"causal", "llama-7b,layers=4,d=32,heads=4,vocab=16"},
                    LongCase{"embedded", "gpt2,layers=4,d=24,heads=2,vocab=32,tokens=80"},
                    LongCase{
                        "streamed",
                        "post-norm,layers=4,d=16,heads=2",
                        700,
                        {"core"},
                        // What the program has grown by since, beside the least.
                        [](RunOptions& o) { o.memory = test::least_memory(o) + (Index{4} << 20); }},
                    LongCase{"maps",
                             "pre-norm,layers=4,d=24,heads=3",
                             40,
                             {"core"},
                             [](RunOptions& o) {
                                 o.maps = {{0, 1}, {2, 2}};
                             }},
                    LongCase{"some_layers",
                             "pre-norm,layers=7,d=24,heads=3",
                             40,
                             {"all"},
                             [](RunOptions& o) { o.first_layer = 2, o.last_layer = 5; }},
                    LongCase{"float64",
                             "pre-norm,layers=4,d=24,heads=3",
                             40,
                             {"all"},
                             [](RunOptions& o) { o.dtype = Type::f64; }},
                    LongCase{"performer", "pre-norm,layers=4,d=24,heads=3,attention=performer"}),
    [](const auto& test) { return test.param.name; });

/// A reverse sweep needs the states of all layers.
TEST(LongUnit, WithALossKeepsNoLayers) {
    RunOptions options;
    options.subject.model = "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=40";
    options.loss = "lm";
    options.tokens = 20;
    const std::string expected = metrics_csv(run(options).table.metrics());
    test::KeptUnits kept;
    test::OnePart units(kept);
    options.units = &units;
    EXPECT_EQ(metrics_csv(run(options).table.metrics()), expected);
    EXPECT_TRUE(units.layers.empty());
    EXPECT_EQ(kept.size(), 1u);
}

}  // namespace
}  // namespace tsdiag::test
