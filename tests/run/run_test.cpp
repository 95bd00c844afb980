#include "tsdiag/run.hpp"

#include <gmock/gmock.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <set>

#include "run/needs.hpp"
#include "support/files.hpp"
#include "support/memory.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/model.hpp"

namespace tsdiag::test {
namespace {

constexpr const char* tiny_post = "random:post-norm,d=24,heads=3,layers=3,ffn=32";
constexpr const char* tiny_gpt = "random:gpt2,layers=2,d=24,heads=3,vocab=50";

RunOptions options_for(const char* model, Index tokens = 10) {
    RunOptions options;
    options.subject.model = model;
    options.tokens = tokens;
    options.dtype = Type::f64;
    return options;
}

std::string csv(const RunResult& result) {
    return metrics_csv(result.table.metrics()) + curves_csv(result.table.curves());
}

const MetricRow& only(const std::vector<MetricRow>& rows, const MetricRow& like) {
    for (const MetricRow& row : rows)
        if (row.at == like.at && row.metric == like.metric) return row;
    ADD_FAILURE() << "no " << like.metric << " at layer " << like.at.layer << " stage "
                  << like.at.stage;
    return like;
}

TEST(Run, TheSameSeedGivesTheSameBytes) {
    for (const char* model : {tiny_post, tiny_gpt}) {
        RunOptions options = options_for(model);
        options.seed = 5;
        options.samples = 2;
        const std::string first = csv(run(options));
        EXPECT_EQ(first, csv(run(options))) << model;
        options.seed = 6;
        EXPECT_NE(first, csv(run(options))) << model;
    }
}

TEST(Run, TrialsSideBySideGiveTheNumbersOfTrialsInTurn) {
    RunOptions options = options_for(tiny_post);
    options.trials = 4;
    options.probes = {"core"};
    const int before = omp_get_max_threads();
    std::set<std::string> tables;
    for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        tables.insert(csv(run(options)));
    }
    omp_set_num_threads(8);  // more threads than trials: one after the other, each on all of them
    const RunResult in_turn = run(options);
    omp_set_num_threads(before);
    EXPECT_EQ(tables.size(), 1u);
    const std::vector<MetricRow> concurrent = run(options).table.metrics();
    for (const MetricRow& found : in_turn.table.metrics()) {
        const MetricRow& row = only(concurrent, found);
        EXPECT_EQ(found.count, row.count);
        if (found.value) {
            EXPECT_CLOSE(*found.value, *row.value, rounding(1e6));
        }
    }
}

TEST(Run, RedrawingOneTensorKeepsInputsAndAllOthers) {
    RunOptions options = options_for(tiny_post);
    options.trials = 5;
    options.redraw = "attn.v.weight";
    options.probes = {"t_sim", "lambda2_abs", "r"};
    const RunResult result = run(options);
    const Place first{.layer = 0, .stage = "attn"}, second{.layer = 1, .stage = "attn"};
    // the first layer's attention depends on neither W_V nor the trial, that of the second on both
    EXPECT_EQ(*result.table.find(first, "lambda2_abs")->standard_error, 0);
    EXPECT_GT(*result.table.find(first, "r")->standard_error, 0);
    EXPECT_GT(*result.table.find(second, "lambda2_abs")->standard_error, 0);
    options.redraw = "attn.w.weight";
    EXPECT_THROW(run(options), UsageError);
}

TEST(Run, WhatATrialDerivesIsAveragedOverTheTrials) {
    RunOptions options = options_for(tiny_post);
    options.trials = 3;
    options.probes = {"t_sim"};
    options.derive = [](const Table& trial, Sink& out) {
        const auto found = trial.find({.layer = 0, .stage = "out"}, "t_sim");
        out.scalar({}, "twice", 2 * *found->value);
    };
    const RunResult result = run(options);
    const auto twice = result.table.find({}, "twice");
    EXPECT_EQ(twice->count, 3);
    EXPECT_CLOSE(*twice->value,
                 2 * *result.table.find({.layer = 0, .stage = "out"}, "t_sim")->value, rounding(8));
}

TEST(RunTogether, GivesWhatTheRunsGiveAloneOnOneThread) {
    RunOptions a = options_for(tiny_post), b = options_for(tiny_gpt);
    a.trials = 2;
    const RunOptions both[] = {a, b};
    double last = 0;
    const std::vector<RunResult> results =
        run_together(both, [&](const Progress& p) { last = std::max(last, p.fraction); });
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    EXPECT_EQ(csv(results.at(0)), csv(run(a)));
    EXPECT_EQ(csv(results.at(1)), csv(run(b)));
    omp_set_num_threads(before);
    EXPECT_EQ(last, 1);
}

TEST(InOrder, CommitsInOrderWhateverIsDoneFirst) {
    std::vector<Index> committed;
    const std::vector<Index> order = {4, 3, 2, 1, 0};
    in_order(
        5, [&](Index i) { return [&committed, i] { committed.push_back(i); }; }, order);
    EXPECT_THAT(committed, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(InOrder, ThrowsOnWhatTheWorkThrows) {
    const auto work = [](Index i) -> std::function<void()> {
        if (i == 2) throw UsageError("the third");
        return [] {};
    };
    EXPECT_THROW(in_order(8, work), UsageError);
}

TEST(Run, FirstTrialsDoNotDependOnLaterOnes) {
    RunOptions one = options_for(tiny_post), three = options_for(tiny_post);
    three.trials = 3;
    const RunResult a = run(one), b = run(three);
    const Place at{.layer = 1, .stage = "out"};
    EXPECT_EQ(a.table.find(at, "t_sim")->count, 1);
    EXPECT_EQ(b.table.find(at, "t_sim")->count, 3);
    EXPECT_NE(*a.table.find(at, "t_sim")->value, *b.table.find(at, "t_sim")->value);
}

/// Values of each sample alone, from separate runs on windows of one file.
std::vector<double> sample_values(RunOptions options, const std::string& folder, Index samples,
                                  const Place& at, const char* metric) {
    std::vector<double> values;
    for (Index s = 0; s < samples; ++s) {
        options.input = "hidden:" + folder + "/" + std::to_string(s) + ".npy";
        values.push_back(*run(options).table.find(at, metric)->value);
    }
    return values;
}

TEST(Run, SamplesAreAveragedWithTheirStandardError) {
    // Arrange: three samples in one file and in three.
    TemporaryDirectory folder;
    const Index n = 7, d = 24, samples = 3;
    std::vector<double> x(std::size_t(samples * n * d));
    Rng(3).fill_normal(std::span<double>(x), 0, 1);
    write_npy<double>(folder / "all.npy", "<f8", {samples, n, d}, x);
    for (Index s = 0; s < samples; ++s)
        write_npy<double>(
            folder / (std::to_string(s) + ".npy"), "<f8", {n, d},
            std::span<const double>(x).subspan(std::size_t(s * n * d), std::size_t(n * d)));
    RunOptions options = options_for(tiny_post, 0);
    options.input = "hidden:" + folder / "all.npy";
    // Act.
    const RunResult all = run(options);
    // Assert.
    for (const auto& [stage, metric] :
         {std::pair{"out", "t_sim"}, {"attn", "xi_ratio"}, {"attn", "lambda2_abs"}}) {
        const Place at{.layer = 2, .stage = stage};
        const std::vector<double> v =
            sample_values(options, folder.path().string(), samples, at, metric);
        const double mean = (v[0] + v[1] + v[2]) / 3;
        double squares = 0;
        for (const double one : v) squares += (one - mean) * (one - mean);
        const auto row = all.table.find(at, metric);
        ASSERT_TRUE(row && row->value);
        EXPECT_EQ(row->count, samples);
        EXPECT_CLOSE(*row->value, mean, rounding(256));
        EXPECT_NEAR(*row->standard_error, std::sqrt(squares / 2 / 3), 1e-12);
    }
    EXPECT_EQ(all.run["input"]["samples"].integer(), samples);
}

/// Records the events of a model as arrays of a trace.
class Recorder final : public Observer {
  public:
    /// `stages`: those inside layers too; `whole`: P, in place of queries and keys.
    Recorder(bool post_norm, bool whole, bool stages)
        : post_norm_(post_norm), whole_(whole), stages_(stages) {}
    void on_hidden(const Hidden& e) override {
        const std::string layer = std::to_string(e.layer);
        if (e.stage == "in") keep("hidden_states." + layer, {e.x.rows(), e.x.cols()}, e.x);
        if (e.stage == "out")
            keep("hidden_states." + std::to_string(e.layer + 1), {e.x.rows(), e.x.cols()}, e.x);
        if (e.stage == "norm1" && !post_norm_ && !stages_)
            keep("attention_inputs." + layer, {e.x.rows(), e.x.cols()}, e.x);
        if (stages_ && e.stage != "in" && e.stage != "out" && e.stage != "final_norm" &&
            e.stage != "embed")
            keep(std::string(e.stage) + "." + layer, {e.x.rows(), e.x.cols()}, e.x);
    }
    bool wants_attention(Index) const override { return true; }
    void on_attention(const Attention& e) override {
        const std::string layer = std::to_string(e.layer);
        const Tensor &q = e.projections->q, &k = e.projections->k, &p = e.op.matrix();
        if (whole_) return keep("attentions." + layer, {p.batch(), p.rows(), p.cols()}, p);
        keep("queries." + layer, {q.batch(), q.rows(), q.cols()}, q);
        keep("keys." + layer, {k.batch(), k.rows(), k.cols()}, k);
    }
    void write(const std::string& file, bool safetensors) const {
        std::vector<NamedArray> arrays;
        for (const auto& [name, array] : arrays_)
            arrays.push_back({name, array.first, {}, array.second});
        safetensors ? write_safetensors(file, arrays) : write_npz(file, arrays);
    }

  private:
    void keep(const std::string& name, std::vector<std::int64_t> shape, const Tensor& x) {
        arrays_[name] = {std::move(shape), x.to_host<double>()};
    }
    bool post_norm_, whole_, stages_;
    std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<double>>> arrays_;
};

struct TracePath {
    const char* what;
    const char* model;
    bool post_norm, whole, causal, safetensors;
    const char* placement = "";  ///< records the stages inside layers too
};
class EveryTracePath : public testing::TestWithParam<TracePath> {};

TEST_P(EveryTracePath, GivesTheNumbersOfTheModel) {
    // Arrange: the same weights and ids, once as a model, once as its recorded trace.
    const TracePath& path = GetParam();
    TemporaryDirectory folder;
    RunOptions options = options_for(path.model);
    options.seed = 11;
    const RunResult of_model = run(options);
    const Subject subject = open_subject(options.subject);
    const Model model(subject.spec(),
                      random_weights(subject.random, weights_rng(11, 0), cpu(), Type::f64), cpu(),
                      Type::f64);
    Rng rng = Rng(11).fork("input").fork(std::uint64_t(0)).fork(std::uint64_t(0));
    std::vector<Input> inputs(1);
    if (subject.spec().embedding.vocabulary > 0) {
        for (Index i = 0; i < options.tokens; ++i)
            inputs[0].ids.push_back(
                Index(rng.below(std::uint64_t(subject.spec().embedding.vocabulary))));
    } else {
        std::vector<double> x(std::size_t(options.tokens * subject.spec().width));
        rng.fill_normal(std::span<double>(x), 0, 1);
        inputs[0].hidden = Tensor::from_host(cpu(), {1, options.tokens, subject.spec().width},
                                             std::span<const double>(x), Type::f64);
    }
    const std::string placement = path.placement;
    Recorder recorder(path.post_norm, path.whole, !placement.empty());
    model.run(inputs, recorder);
    const std::string file = folder / (path.safetensors ? "trace.safetensors" : "trace.npz");
    recorder.write(file, path.safetensors);
    RunOptions replayed;
    replayed.subject.model = file;
    if (path.whole) replayed.trace.attention = "softmax";
    replayed.trace.causal = path.causal;
    if (!placement.empty()) replayed.trace.placement = placement_named(placement);
    replayed.trace.a2 = of_model.run["model"]["a2"].array()[0].number();
    // Act.
    const RunResult of_trace = run(replayed);
    // Assert: all metrics that a trace allows, of the layer whose a2 was given.
    const std::vector<MetricRow> expected = of_model.table.metrics();
    Index compared = 0, rates = 0;
    for (const MetricRow& row : of_trace.table.metrics()) {
        if (row.at.layer != 0) continue;
        if (row.metric == "jac_q_fro" || row.metric == "jac_k_fro") {
            EXPECT_FALSE(row.value);
            continue;
        }
        const MetricRow& twin = only(expected, row);
        ASSERT_EQ(row.value.has_value(), twin.value.has_value())
            << row.metric << ": " << row.note << twin.note;
        if (!row.value) continue;
        EXPECT_NEAR(*row.value, *twin.value, 1e-9 * std::max(1.0, std::abs(*twin.value)))
            << row.metric << " stage " << row.at.stage << " head " << row.at.head;
        compared += 1;
        rates += row.metric == "xi_ratio";
    }
    EXPECT_GT(compared, 60);
    // Of each step that the layout takes.
    EXPECT_EQ(rates, std::ranges::count_if(expected, [&](const MetricRow& row) {
                  return !placement.empty() && row.at.layer == 0 && row.metric == "xi_ratio";
              }));
    EXPECT_EQ(rates > 0, !placement.empty());
}

const TracePath trace_paths[] = {
    {"post_norm_maps", tiny_post, true, true, false, false},
    {"post_norm_queries", tiny_post, true, false, false, true},
    {"causal_maps", tiny_gpt, false, true, false, true},
    {"causal_queries", tiny_gpt, false, false, true, false},
    {"post_norm_stages", "random:post-norm,d=24,heads=3,layers=2,deesc=0.5", true, true, false,
     false, "post"},
    {"pre_norm_stages", "random:pre-norm,d=24,heads=3,layers=2,deesc=0.5", false, true, false,
     false, "pre"},
    {"parallel_stages", "random:pythia-70m,d=24,heads=3,layers=2,vocab=30,ffn=32", false, true,
     false, false, "parallel"},
};
INSTANTIATE_TEST_SUITE_P(Paths, EveryTracePath, testing::ValuesIn(trace_paths),
                         [](const auto& test) { return test.param.what; });

TEST(Run, LayersAndHeadsChooseWhatIsMeasured) {
    RunOptions options = options_for(tiny_post);
    const std::vector<MetricRow> all = run(options).table.metrics();
    options.first_layer = options.last_layer = 1;
    options.heads = {2};
    const std::vector<MetricRow> some = run(options).table.metrics();
    ASSERT_FALSE(some.empty());
    for (const MetricRow& row : some) {
        EXPECT_EQ(row.at.layer, 1);
        EXPECT_TRUE(row.at.head == -1 || row.at.head == 2);
        EXPECT_EQ(row.value, only(all, row).value) << row.metric;
    }
}

TEST(Run, ProbesDoNotDependOnEachOther) {
    RunOptions options = options_for(tiny_gpt);
    const std::vector<MetricRow> all = run(options).table.metrics();
    for (const char* metric :
         {"t_sim", "r_layer", "lambda2_abs", "omega", "jac_fro", "entropy", "est1"}) {
        options.probes = {metric};
        const std::vector<MetricRow> one = run(options).table.metrics();
        ASSERT_FALSE(one.empty()) << metric;
        for (const MetricRow& row : one) {
            EXPECT_EQ(row.metric, metric);
            EXPECT_EQ(row.value, only(all, row).value) << metric;
        }
    }
}

/// Reports the number of rows of each state, whatever `probes` selects.
class RowCounter final : public Probe {
  public:
    explicit RowCounter(const ProbeSettings&) {}
    void on_hidden(const Hidden& event, const StateMoments& moments, Sink& out) override {
        out.scalar({.layer = event.layer, .stage = std::string(event.stage)}, "rows",
                   double(moments.n));
    }
};

TEST(Run, OwnProbesRunBesideThoseOfTheList) {
    constexpr Metric metrics[] = {{.name = "rows", .of = Of::state}};
    const ProbeEntry counter = {.name = "rows",
                                .metrics = metrics,
                                .needs = Needs::hidden,
                                .make = [](const ProbeSettings& s) -> std::unique_ptr<Probe> {
                                    return std::make_unique<RowCounter>(s);
                                }};
    RunOptions options = options_for(tiny_gpt, 7);
    options.probes = {"t_sim"};
    const std::vector<MetricRow> without = run(options).table.metrics();
    options.own_probes = {&counter};
    const RunResult both = run(options);
    for (const MetricRow& row : without)
        EXPECT_EQ(both.table.find(row.at, "t_sim")->value, row.value);
    EXPECT_EQ(both.table.metrics().size(), 2 * without.size());
    EXPECT_EQ(both.table.find({.layer = 1, .stage = "out"}, "rows")->value, 7);
}

TEST(Run, AHiddenTokenChangesNothingElse) {
    // A causal model: tokens after the kept ones have no influence.
    TemporaryDirectory folder;
    write_file(folder / "ids.txt", "1 2 3 4 5 6");
    const std::vector<std::int64_t> keep = {1, 1, 1, 1, 0, 0};
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {6}, keep);
    RunOptions options = options_for(tiny_gpt, 0);
    options.input = "ids:" + folder / "ids.txt";
    options.mask = folder / "mask.npy";
    const std::vector<MetricRow> masked = run(options).table.metrics();
    options.mask.clear();
    options.tokens = 4;
    const std::vector<MetricRow> four = run(options).table.metrics();
    ASSERT_EQ(masked.size(), four.size());
    for (const MetricRow& row : masked) EXPECT_EQ(row.value, only(four, row).value) << row.metric;
}

/// OLMo 2 has no norm before its branches, Gemma 2 has one before and one behind each.
TEST(Run, TheReasonOfAMissingEstimateIsThatOfThePlacement) {
    for (const auto& [model, why] :
         {std::pair("random:olmo-2-1b", "the attention branch is normalised"),
          {"random:gemma-2-2b", "pre-norm"},
          {"random:gpt2", "pre-norm"},
          {"random:pythia-70m", "pre-norm"}}) {
        RunOptions options;
        options.subject.model = std::string(model) + ",layers=1,d=16,heads=2,ffn=16,vocab=32";
        options.tokens = 6;
        const RunResult result = run(options);
        for (const char* metric : {"est1", "est2"}) {
            const auto row = result.table.find({.layer = 0, .stage = "attn"}, metric);
            ASSERT_TRUE(row) << metric;
            EXPECT_FALSE(row->value) << metric;
            EXPECT_EQ(row->note, why) << model;
        }
    }
}

TEST(Run, MemoryChangesNoNumber) {
    RunOptions options = options_for(tiny_gpt, 40);
    const std::vector<MetricRow> roomy = run(options).table.metrics();
    options.memory = least_memory(options);
    const RunResult tight = run(options);
    for (const MetricRow& row : tight.table.metrics()) {
        const MetricRow& twin = only(roomy, row);
        if (!twin.value) continue;
        ASSERT_TRUE(row.value) << row.metric << row.note;
        EXPECT_NEAR(*row.value, *twin.value, 1e-7 * std::max(1.0, std::abs(*twin.value)))
            << row.metric;
    }
}

TEST(Run, MapsAreKeptWhole) {
    TemporaryDirectory folder;
    RunOptions options = options_for(tiny_gpt);
    options.maps = {{1, 2}};
    const RunResult result = run(options);
    ASSERT_EQ(result.table.maps().size(), 1u);
    const Map& map = result.table.maps().front();
    EXPECT_EQ(map.at.layer, 1);
    EXPECT_EQ(map.at.head, 2);
    double sum = 0;
    for (const double p : map.values) sum += p;
    EXPECT_CLOSE(sum, 10.0, rounding(100));
    write_tables(result, folder.path());
    EXPECT_EQ(open_checkpoint(folder / "maps.npz")->names(),
              (std::vector<std::string>{"attention.1.2"}));
}

TEST(Run, WhatWasReadBackIsTheSame) {
    RunOptions options = options_for(tiny_gpt);
    options.samples = 3;
    const RunResult result = run(options);
    Table table(result.table.model());
    table.append(read_metrics_csv(metrics_csv(result.table.metrics()), "metrics.csv"),
                 read_curves_csv(curves_csv(result.table.curves()), "curves.csv"));
    const std::vector<MetricRow> before = result.table.metrics(), after = table.metrics();
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(before[i].at, after[i].at);
        EXPECT_EQ(before[i].value, after[i].value);
        EXPECT_EQ(before[i].count, after[i].count);
        EXPECT_EQ(before[i].note, after[i].note);
        EXPECT_NEAR(before[i].standard_error.value_or(-1), after[i].standard_error.value_or(-1),
                    1e-12);
    }
}

TEST(Run, RunJsonHasWhatWasDone) {
    RunOptions options = options_for(tiny_post);
    options.trials = 2;
    const Json run_json = run(options).run;
    EXPECT_EQ(run_json["model"]["kind"].string(), "random");
    EXPECT_FALSE(run_json["model"]["trained"].boolean());
    EXPECT_EQ(run_json["model"]["layers"].integer(), 3);
    EXPECT_EQ(run_json["model"]["heads"].integer(), 3);
    EXPECT_EQ(run_json["model"]["placement"].string(), "post");
    EXPECT_EQ(run_json["model"]["a2"].array().size(), 3u);
    EXPECT_EQ(run_json["input"]["kind"].string(), "gaussian");
    EXPECT_EQ(run_json["input"]["trials"].integer(), 2);
    EXPECT_EQ(run_json["dtype"].string(), "float64");
    for (const Json& phase : run_json["phases"].array()) {
        EXPECT_GE(phase["seconds"].number(), 0);
        EXPECT_GT(phase["peak_memory"].integer(), 1 << 20);
    }
    EXPECT_NO_THROW(run_json.dump(2));
}

TEST(Run, ProgressEndsARunByThrowing) {
    struct Stop {};
    RunOptions options = options_for(tiny_post);
    double last = 0;
    options.progress = [&](const Progress& progress) {
        if (progress.phase != "measure") return;
        EXPECT_GE(progress.fraction, last);
        last = progress.fraction;
        if (progress.fraction > 0.5) throw Stop();
    };
    EXPECT_THROW(run(options), Stop);
}

/// A row of FLASH's P has logits and slope, 12 n bytes, and a bias with its places, 16 n.
TEST(MemoryNeeds, CountTheRelativeBiasOfRows) {
    RunSizes sizes = sizes_of(random_model("gau,layers=1,d=16").spec, Type::f32);
    sizes.tokens = 64000;
    ASSERT_EQ(sizes.heads, 1);
    const double rows = double(rows_of_a_product(12 * 64000.0));
    EXPECT_DOUBLE_EQ(needs_of(sizes).blocks, 2 * rows * 64000 * (12 + 16));
    const RunSizes other = sizes_of(random_model("bert-base").spec, Type::f32);
    EXPECT_EQ(other.terms, 0);
}

TEST(Run, NonFiniteWeightsBecomeNotesWhereTheyAreAllowed) {
    // Arrange: a state with a NaN in one of its tokens.
    TemporaryDirectory folder;
    std::vector<double> x(6 * 24, 0.5);
    Rng(1).fill_normal(std::span<double>(x), 0, 1);
    x[30] = std::nan("");
    write_npy<double>(folder / "x.npy", "<f8", {6, 24}, x);
    RunOptions options = options_for(tiny_post, 0);
    options.input = "hidden:" + folder / "x.npy";
    EXPECT_THROW(run(options), NonFiniteError);
    // Act.
    options.allow_nonfinite = true;
    const RunResult result = run(options);
    // Assert: every metric is present, undefined with its reason.
    for (const auto& [stage, metric] :
         {std::pair{"in", "t_sim"}, {"attn", "lambda2_abs"}, {"attn", "entropy"}}) {
        const auto row = result.table.find({.layer = 1, .stage = stage}, metric);
        ASSERT_TRUE(row) << metric;
        EXPECT_FALSE(row->value) << metric;
        EXPECT_FALSE(row->note.empty()) << metric;
    }
}

struct BadRun {
    const char* what;
    const char* model;
    void (*change)(RunOptions& options);
    const char* message;
};
class EveryBadRun : public testing::TestWithParam<BadRun> {};

TEST_P(EveryBadRun, IsRefusedInWords) {
    RunOptions options = options_for(GetParam().model);
    GetParam().change(options);
    try {
        run(options);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
    }
}

const BadRun bad_runs[] = {
    {"no_file", "nowhere/model.safetensors", [](auto&) {}, "no such file"},
    {"no_prefix", "bert-base", [](auto&) {}, "random:bert-base"},
    {"no_family", "random:bertt-base", [](auto&) {}, "bert-base"},
    {"trace_options", tiny_post, [](auto& o) { o.trace.causal = true; }, "--causal"},
    {"config", tiny_post, [](auto& o) { o.subject.config = "c.json"; }, "--config"},
    {"layers", tiny_post, [](auto& o) { o.last_layer = 3; }, "layers 0 to 2"},
    {"heads", tiny_post, [](auto& o) { o.heads = {3}; }, "heads 0 to 2"},
    {"maps", tiny_post,
     [](auto& o) {
         o.maps = {{0, 9}};
     },
     "--maps 0:9"},
    {"probes", tiny_post, [](auto& o) { o.probes = {"t_simm"}; }, "t_sim"},
    {"tokens", tiny_gpt, [](auto& o) { o.tokens = 100000; }, "--tokens 100000"},
    {"mask", tiny_gpt, [](auto& o) { o.mask = "nowhere.npy"; }, "nowhere.npy"},
};
INSTANTIATE_TEST_SUITE_P(Runs, EveryBadRun, testing::ValuesIn(bad_runs),
                         [](const auto& test) { return test.param.what; });

}  // namespace
}  // namespace tsdiag::test
