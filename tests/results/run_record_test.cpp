#include "tsdiag/run_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <set>

#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/error.hpp"

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
    EXPECT_EQ(run.train->tokens, 8);
    EXPECT_EQ(run.train->loss, "lm");
    EXPECT_EQ(run.train->seed, 0u);
    EXPECT_EQ(run.train->probe_every, 0);
    EXPECT_EQ(run.train->clip, 1);
    EXPECT_FALSE(run.train->config || run.train->ignore || run.train->length);
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
    ASSERT_TRUE(run.watch);
    ASSERT_THAT(run.watch->alarms, SizeIs(1));
    EXPECT_EQ(run.watch->alarms.front().sentence, "It fell.");
    EXPECT_EQ(run.watch->refresh, 60);
}

/// A description of each kind with every member that it may have, in the order of its writers.
const char* const full[] = {
    // a text with a loss on a device whose memory was full, one checkpoint of a series
    R"({"tsdiag": "1", "command": ["tsdiag", "probe", "m"],
        "measured": {"date": "2026-11-28T14:03:05Z", "commit": "1c98", "processor": "AMD EPYC"},
        "seed": 18446744073709551615,
        "device": "cuda:0", "device_name": "NVIDIA H200", "threads": 2, "dtype": "float32",
        "model": {"argument": "m", "kind": "checkpoint", "trained": true, "deescalated": "m,deesc",
                  "format": "safetensors", "digest": "ab", "family": "gpt2", "name": "GPT-2",
                  "layers": 2, "heads": 3, "placement": "pre", "width": 6,
                  "spec": {"blocks": [{"deesc": 0}], "width": 6}, "recognised": ["a line"],
                  "ignored": [], "defaults": [], "warnings": ["assumed"], "a2": [0.5, null]},
        "input": {"kind": "text", "tokens": 2, "samples": 1, "trials": 1, "defaults": [],
                  "text": {"sha256": "cd", "bytes": 9, "tokens": 2, "tokenizer": "BPE",
                           "tokenizer_files": ["tokenizer.json"], "ids": [4, 7],
                           "pieces": ["a", "b"]}},
        "loss": {"name": "mlm", "mask_id": 3, "value": null},
        "settings": {"input": "text", "mask": "", "tolerance": 1e-06, "probes": ["core"]},
        "schema": [{"name": "t_sim", "definition": "d"}],
        "solver": [{"layer": 0, "residual": null}],
        "fast": {"products": "tf32", "first_layer_error": 1e-05}, "shortages": ["halved"],
        "phases": [{"name": "open", "seconds": 0.5, "peak_memory": 4096}],
        "warnings": [], "findings": [{"level": "warning", "text": "Tokens collapse.",
                                      "figure": "similarity", "headline": true}],
        "digest": "ab-ef", "tables": {"metrics.csv": "01"}})",
    R"({"seed": 0, "device": "cpu", "dtype": "float64",
        "model": {"argument": "t", "kind": "trace", "trained": true, "format": "npz",
                  "digest": "ab", "family": "trace", "name": "a saved trace", "layers": 1,
                  "heads": 2, "width": 6, "placement": "post", "recognised": [], "ignored": [],
                  "defaults": [], "no_attention": "rows sum to 2"},
        "input": {"kind": "trace", "tokens": 4, "samples": 1, "trials": 1},
        "settings": {}, "schema": [], "solver": [], "warnings": ["a line"]})",
    R"({"seed": 1, "model": {"argument": "v", "kind": "random", "trained": false, "family": "vit",
                  "name": "ViT", "layers": 1, "heads": 1, "placement": "pre", "width": 2,
                  "spec": {}, "recognised": [], "ignored": [], "defaults": []},
        "input": {"kind": "pictures", "tokens": 5, "samples": 1, "trials": 1,
                  "defaults": ["taken"], "pictures": {"files": [{"file": "a.png"}]}},
        "loss": {"name": "classify", "classes": 10, "labels": "drawn", "value": 2.5},
        "settings": {}, "schema": [], "solver": [],
        "phases": [{"name": "open", "seconds": 0.0, "peak_memory": 0}], "warnings": [],
        "series": "run", "unit": "epoch",
        "checkpoints": [{"path": "c/1", "step": 1, "origin": "its name", "digest": "d",
                         "kept": true, "contradiction": "c/1: is taken for step 1"}],
        "changes": [{"metric": "t_sim", "stage": "out", "layer": 3, "from": 1, "to": 4,
                     "first": 0.1, "last": 0.75, "error": 0.01, "certain": true,
                     "steepest_from": 2, "steepest_to": 3, "steepest": 1e-300},
                    {"metric": "delta", "stage": "", "layer": 0, "from": -1, "to": 0,
                     "first": -0.0, "last": 2e20, "error": null, "certain": false,
                     "steepest_from": 0, "steepest_to": 0, "steepest": 0.0}],
        "watch": {"alarms": [{"kind": "change", "number": "t_sim", "step": 4,
                              "sentence": "It rose."}], "false_alarms": 0.01, "refresh": null},
        "tables": {}})",
    R"({"seed": 0, "device": "cpu", "threads": 1, "dtype": "float32", "model": "random:a",
        "parameters": 9, "deescalated": "random:a,deesc", "samples": "digits",
        "train": {"model": "random:a", "config": "c", "n_heads": 2, "width": 8,
                  "ignore": ["x.*"], "map": "m", "architecture": "ab", "data": "copy:4",
                  "contents": "cd", "loss": "lm", "tokens": 8, "batch": 2, "steps": 3,
                  "schedule": "multistep", "rate": 0.001, "warmup": 1, "floor": 0.0, "length": 9,
                  "milestones": [1, 2], "factor": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-08,
                  "decay": 0.0, "clip": 1.0, "dropout": 0.0, "seed": 18446744073709551615,
                  "draws": "by seed and update", "eval_every": 1, "eval_samples": 64,
                  "probe_every": 2, "probe_samples": 1, "probes": ["core"]}, "guess": 0.5,
        "shortages": ["halved"], "warnings": ["a line"]})",
    R"({"experiment": "devil.fig1", "seed": 0, "threads": 1,
        "setting": {"scale": "quick", "model": "m", "data": "d", "keys": {"trials": "2"}},
        "phases": [{"name": "measure", "seconds": 1.5, "peak_memory": 1}], "device": "cpu",
        "runs": [{"model": {}}], "warnings": [], "tables": {"metrics.csv": "01"}})",
    R"({"logs": [{"model": "a", "source": "a", "series": "g", "count": 0, "order": 0, "window": 5,
                  "drift": null, "notes": []},
                 {"model": "b", "source": "b", "series": "g", "count": 9, "order": 1, "window": 5,
                  "first_step": 1, "last_step": 9, "drift": 0.25, "notes": ["a line"]}],
        "seed": 0, "confidence": 0.95, "resamples": 2000, "comparisons": 1,
        "settings": {"column": "", "to": null}, "warnings": []})",
    R"({"compared": [{"letter": "A", "name": "a@2", "model": "m", "step": 2,
                      "tables": {"metrics.csv": "01"}},
                     {"letter": "B", "name": "b", "model": "m", "step": null, "tables": {}}],
        "assertions": [{"holds": true, "value": 0.5, "sentence": "It holds."},
                       {"holds": false, "value": null, "sentence": "It fails."}],
        "verdict": "No change.", "notes": [], "remarks": ["a line"], "rate": 0.05,
        "interval_confidence": 0.95, "tested": 1, "paired": 1, "significant": 0, "untested": 2, "equal": 3,
        "undefined": 4, "only_in_one": 5, "differences": [{"where": "t_sim@out:0"}],
        "tables": {"compare.csv": "01"}})",
    R"({"compared": [{"letter": "A", "name": "a", "model": "m", "step": null, "tables": {}}],
        "assertions": []})",
    R"({"seed": 0, "confidence": 0.95, "distribution": "gaussian",
        "claims": [{"name": "devil.eq59"}], "tables": {"claims.csv": "01"}})"};

TEST(RunRecord, WritesEveryMemberThatItReads) {
    for (const char* text : full)
        EXPECT_EQ(read(text).json().dump(2), Json::parse(text, "run.json").dump(2));
}

void add_keys(const Json& json, std::set<std::string>& out) {
    if (json.is_array())
        for (const Json& one : json.array()) add_keys(one, out);
    if (json.is_object())
        for (const auto& [key, value] : json.object()) {
            out.insert(key);
            add_keys(value, out);
        }
}

/// The first column of each table of docs/run-json.md.
TEST(RunRecord, KnowsTheDocumentedKeys) {
    std::set<std::string> known;
    for (const char* text : full) add_keys(read(text).json(), known);
    const std::string page = test::read_file(test::test_data() + "/../../docs/run-json.md");
    const std::regex row(R"(\n\| (`[^|]*) \|)"), word("`(\\w+)`");
    Index found = 0;
    for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
        const std::string cell = (*at)[1];
        for (std::sregex_iterator key(cell.begin(), cell.end(), word); key != end; ++key, ++found)
            EXPECT_TRUE(known.contains((*key)[1])) << (*key)[1];
    }
    EXPECT_GT(found, 0);
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
    EXPECT_EQ(RunRecord().json().dump(), "{}");
}

template <class Read>
std::string refusal(Read read) {
    try {
        read();
    } catch (const FormatError& error) {
        return error.what();
    }
    return {};
}

/// A state from which a training goes on has each of its settings.
TEST(RunRecord, OfATrainingNamesTheSettingThatIsMissing) {
    const Json settings = Json::parse(written("train"), "run.json")["train"];
    const auto said = [](const Json& json) {
        return refusal([&] { RunRecord::Training::of(json, "state"); });
    };
    EXPECT_EQ(said(settings), "");
    // Null where it was not given, or not written by older versions.
    const std::set<std::string> may_be_absent = {"config",       "n_heads",      "width", "ignore",
                                                 "architecture", "tokens",       "steps", "seed",
                                                 "probe_every",  "probe_samples"};
    for (const auto& [left_out, value] : settings.object()) {
        Json fewer = Json::Object{}, other = settings;
        for (const auto& [name, one] : settings.object())
            if (name != left_out) fewer.set(name, one);
        EXPECT_EQ(said(fewer), may_be_absent.contains(left_out)
                                   ? ""
                                   : "state: has no member '" + left_out +
                                         "'; another version may have written it.");
        other.set(left_out, true);
        EXPECT_THAT(said(other),
                    testing::MatchesRegex("state: has .* in member '" + left_out + "', .*"));
    }
}

TEST(RunRecord, OfAnAlarmNamesTheMemberThatIsMissing) {
    Json alarm;
    alarm.set("kind", "change").set("number", "t_sim").set("step", 4);
    const auto said = [&] { return refusal([&] { RunRecord::Alarm::of(alarm, "alarms.json"); }); };
    EXPECT_TRUE(said().starts_with("alarms.json: has no member 'sentence'")) << said();
    alarm.set("sentence", "It rose.");
    EXPECT_EQ(RunRecord::Alarm::of(alarm, "alarms.json").json().dump(), alarm.dump());
    alarm.set("step", "4");
    EXPECT_EQ(said(), "alarms.json: has a string (\"4\") in member 'step', expected an integer.");
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
