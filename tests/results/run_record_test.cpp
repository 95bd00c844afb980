#include "tsdiag/run_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/files.hpp"
#include "support/places.hpp"

namespace tsdiag {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using Kind = RunRecord::Kind;

/// The file that version 0.1.0 wrote.
std::string written(const std::string& command) {
    return test::read_file(test::test_data() + "/run-json/" + command + ".json");
}

RunRecord read(const std::string& text) { return Json::parse(text, "run.json"); }

TEST(RunRecord, GivesBackWhatItRead) {
    for (const char* command : {"probe", "train", "gradients"}) {
        const std::string text = written(command);
        const RunRecord run = read(text);
        EXPECT_EQ(run.json().dump(2) + "\n", text);
        EXPECT_EQ(name(run.kind), command);
        EXPECT_EQ(run.version, "0.1.0");
        EXPECT_EQ(run.command.at(1), command);
        EXPECT_EQ(run.seed, 0u);
        EXPECT_TRUE(run.has_table("metrics.csv"));
        EXPECT_FALSE(run.has_table("maps.npz"));
    }
}

TEST(RunRecord, OfAProbeHasModelAndInput) {
    const RunRecord run = read(written("probe"));
    EXPECT_EQ(run.model.argument, "random:post-norm,d=8,heads=2,layers=2");
    EXPECT_EQ(run.model.deescalated, "random:post-norm,d=8,heads=2,layers=2,deesc=0.5");
    EXPECT_EQ(run.model.kind, "random");
    EXPECT_EQ(run.model.trained, false);
    EXPECT_EQ(run.model.layers, 2);
    EXPECT_EQ(run.model.placement, "post");
    EXPECT_FALSE(run.model.deescalates);
    EXPECT_EQ(run.input.kind, "gaussian");
    EXPECT_EQ(run.input.tokens, 4);
    EXPECT_EQ(run.input.samples, 2);
    EXPECT_EQ(run.input.trials, 1);
    EXPECT_EQ(run.device, "cpu");
    EXPECT_EQ(run.dtype, "float32");
    EXPECT_TRUE(run.definitions.contains("t_sim"));
    EXPECT_THAT(*run.tables, SizeIs(2));
    EXPECT_FALSE(run.train || run.setting);
}

TEST(RunRecord, OfATrainingHasItsSettings) {
    const RunRecord run = read(written("train"));
    ASSERT_TRUE(run.train);
    EXPECT_EQ(run.train->model, run.model.argument);
    EXPECT_EQ(run.train->data, "copy:4");
    EXPECT_EQ(run.train->steps, 2);
    EXPECT_EQ(run.train->tokens, run.train->all["tokens"].integer());
    EXPECT_EQ(run.train->loss, run.train->all["loss"].string());
    EXPECT_EQ(run.train->seed, run.train->all["seed"].integer());
    EXPECT_EQ(run.train->probe_every, run.train->all["probe_every"].integer());
    EXPECT_EQ(run.train->all["clip"].number(), 1);
    EXPECT_EQ(run.parameters, 1144);
    EXPECT_FALSE(run.model.described);
}

TEST(RunRecord, OfLogsHasEachSeries) {
    const RunRecord run = read(written("gradients"));
    ASSERT_THAT(run.logs, SizeIs(1));
    EXPECT_EQ(run.logs.front().series, "grad_norm");
    EXPECT_EQ(run.logs.front().last_step, 9);
    EXPECT_FALSE(run.logs.front().drift);
    EXPECT_EQ(run.confidence, 0.95);
}

TEST(RunRecord, OfASeriesHasCheckpointsChangesAndAlarms) {
    const RunRecord run = read(R"({"unit": "epoch", "digest": "a-b",
        "checkpoints": [{"path": "c/1", "step": 1, "origin": "its name", "digest": "d", "kept": true}],
        "changes": [{"metric": "t_sim", "stage": "out", "layer": 3, "from": 1, "to": 4, "first": 0.5,
                     "last": 0.75, "error": null, "certain": false, "steepest_from": 2,
                     "steepest_to": 3, "steepest": 0.125}],
        "watch": {"alarms": [{"sentence": "It fell."}], "refresh": 60}})");
    EXPECT_EQ(run.unit, "epoch");
    ASSERT_TRUE(run.checkpoints.has_value());
    ASSERT_THAT(*run.checkpoints, SizeIs(1));
    EXPECT_EQ(run.checkpoints->front().path, "c/1");
    EXPECT_EQ(run.checkpoints->front().contradiction, "");
    ASSERT_THAT(run.changes, SizeIs(1));
    EXPECT_EQ(run.changes.front().steepest_to, 3);
    EXPECT_EQ(run.changes.front().last, 0.75);
    EXPECT_FALSE(run.changes.front().error);
    EXPECT_THAT(run.alarms, ElementsAre("It fell."));
    EXPECT_EQ(run.refresh, 60);
}

TEST(RunRecord, WritesPhasesAndChangesAsItReadThem) {
    const RunRecord probe = read(written("probe"));
    const Json::Array& phases = probe.json()["phases"].array();
    ASSERT_EQ(probe.phases.size(), phases.size());
    ASSERT_FALSE(phases.empty());
    for (std::size_t i = 0; i < phases.size(); ++i)
        EXPECT_EQ(probe.phases[i].json().dump(), phases[i].dump());

    const RunRecord series = read(R"({"changes": [
        {"metric": "t_sim", "stage": "out", "layer": 3, "from": 1, "to": 4, "first": 0.1,
         "last": 0.75, "error": 0.01, "certain": true, "steepest_from": 2, "steepest_to": 3,
         "steepest": 1e-300},
        {"metric": "delta", "stage": "", "layer": 0, "from": -1, "to": 0, "first": -0.0,
         "last": 2e20, "error": null, "certain": false, "steepest_from": 0, "steepest_to": 0,
         "steepest": 0.0}]})");
    const Json::Array& changes = series.json()["changes"].array();
    ASSERT_EQ(series.changes.size(), changes.size());
    for (std::size_t i = 0; i < changes.size(); ++i)
        EXPECT_EQ(series.changes[i].json().dump(), changes[i].dump());
}

TEST(RunRecord, OfACheckpointHasWhatContradictsItsStep) {
    const RunRecord run = read(R"({"checkpoints": [{"path": "c/1", "step": 7, "origin": "o",
        "digest": "d", "kept": false, "contradiction": "c/1: is taken for step 7"}]})");
    EXPECT_EQ(run.checkpoints->front().contradiction, "c/1: is taken for step 7");
}

TEST(RunRecord, OfAnExperimentHasItsSetting) {
    const RunRecord run = read(R"({"experiment": "tse.fig2", "seed": 18446744073709551615,
        "setting": {"scale": "quick", "keys": {"trials": "2", "depth": "8"}}})");
    EXPECT_EQ(run.kind, Kind::figure);
    EXPECT_EQ(run.experiment, "tse.fig2");
    EXPECT_EQ(run.seed, std::numeric_limits<std::uint64_t>::max());
    ASSERT_TRUE(run.setting);
    EXPECT_THAT(run.setting->keys, ElementsAre(Pair("trials", "2"), Pair("depth", "8")));
}

/// The members of the first version, which had no `schema`, `tables` or defaults of the input.
TEST(RunRecord, ReadsWhatTheFirstVersionWrote) {
    const RunRecord run =
        read(R"({"tsdiag": "0.1.0", "command": ["tsdiag", "probe", "m"], "seed": 3,
        "device": "cpu", "dtype": "float32", "threads": 2,
        "model": {"argument": "m", "kind": "checkpoint", "trained": true, "layers": 2,
                  "a2": [0.5, null]},
        "input": {"kind": "ids:random", "tokens": 16, "samples": 4, "trials": 1},
        "settings": {}, "phases": [], "solver": [], "warnings": ["a line"]})");
    EXPECT_EQ(run.model.trained, true);
    EXPECT_THAT(run.model.a2, ElementsAre(0.5, std::nullopt));
    EXPECT_EQ(run.input.samples, 4);
    EXPECT_THAT(run.input.defaults, IsEmpty());
    EXPECT_THAT(run.warnings, ElementsAre("a line"));
    EXPECT_FALSE(run.tables);
    EXPECT_EQ(run.unit, "step");
}

TEST(RunRecord, LeavesOutWhatHasAnotherType) {
    const RunRecord run = read(R"({"tsdiag": 1, "command": "c", "seed": -0.5, "threads": "two",
        "model": [1], "input": "x", "settings": [], "schema": {}, "warnings": ["a", 3], "tables": [],
        "train": 1, "setting": 2, "logs": {}, "checkpoints": 1, "changes": "none", "watch": null})");
    EXPECT_EQ(run.version, "");
    EXPECT_FALSE(run.seed || run.threads || run.tables || run.train || run.setting);
    EXPECT_FALSE(run.model.described);
    EXPECT_EQ(run.input.kind, "");
    EXPECT_THAT(run.warnings, ElementsAre("a", "3"));
    EXPECT_TRUE(run.logs.empty() && !run.checkpoints && run.changes.empty());
    EXPECT_TRUE(RunRecord().json().is_null());
}

TEST(RunRecord, KnowsABlockThatSubtractsTheMean) {
    const auto deescalates = [](const std::string& block) {
        return read(R"({"model": {"spec": {"blocks": [{"deesc": 0}, )" + block + "]}}}")
            .model.deescalates;
    };
    EXPECT_FALSE(deescalates(R"({"deesc": 0.0})"));
    EXPECT_TRUE(deescalates(R"({"deesc": 0.5})"));
    EXPECT_TRUE(deescalates(R"({"deesc_learned": true})"));
}

}  // namespace
}  // namespace tsdiag
