#include <gtest/gtest.h>

#include <cmath>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

class ProbeSeries : public testing::Test {
  protected:
    void init(const std::string& name, const std::string& seed,
              const std::string& model = "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=16") {
        const Finished done = tsdiag(folder, {"init", model, "--seed", seed, "-o", name});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    void init_three() {
        init("run/checkpoint-100", "1");
        init("run/checkpoint-200", "2");
        init("run/checkpoint-1000", "3");
    }
    Finished probe(std::vector<std::string> more = {},
                   const std::vector<std::string>& environment = {}) {
        more.emplace_back("--no-report");
        return probe_with_page(more, environment);
    }
    Finished probe_with_page(const std::vector<std::string>& more = {},
                             const std::vector<std::string>& environment = {}) {
        std::vector<std::string> words = {
            "probe",     "run", "--tokens", "8",
            "--samples", "3",   "--probes", "t_sim,lambda2_abs,local_acc"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words, environment);
    }
    std::string metrics(const std::string& out) {
        return read_file(folder / (out + "/metrics.csv"));
    }
    TemporaryDirectory folder;
};

/// The rows of one step, without model and step.
std::vector<std::string> rows_of(const std::string& csv, const std::string& prefix) {
    std::vector<std::string> rows;
    for (std::size_t at = 0; at < csv.size();) {
        const std::size_t end = std::min(csv.find('\n', at), csv.size());
        const std::string line = csv.substr(at, end - at);
        if (line.starts_with(prefix)) rows.push_back(line.substr(prefix.size()));
        at = end + 1;
    }
    return rows;
}

TEST_F(ProbeSeries, GivesAtEachStepWhatProbeGivesAlone) {
    init_three();
    const Finished done = probe_with_page();
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("3 checkpoints, step 100 to 1000"), std::string::npos) << done.out;
    for (const char* step : {"100", "200", "1000"}) {
        const std::string path = std::string("run/checkpoint-") + step;
        ASSERT_EQ(tsdiag(folder, {"probe", path, "--tokens", "8", "--samples", "3", "--probes",
                                  "t_sim,lambda2_abs,local_acc", "--no-report", "-o", "alone"})
                      .code,
                  0);
        const auto alone = rows_of(metrics("alone"), path + ",,");
        EXPECT_FALSE(alone.empty());
        EXPECT_EQ(rows_of(metrics("run.tsdiag"), std::string("run,") + step + ","), alone);
    }
    const std::string page = read_file(folder / "run.tsdiag/report.html");
    EXPECT_NE(page.find("id=\"trajectory_t_sim_out\""), std::string::npos);
    EXPECT_NE(page.find("Last checkpoint: "), std::string::npos);
    ASSERT_EQ(tsdiag(folder, {"report", "run.tsdiag"}).code, 0);
    EXPECT_EQ(read_file(folder / "run.tsdiag/report.html"), page);
}

TEST_F(ProbeSeries, DoesAgainOnlyWhatChanged) {
    init_three();
    ASSERT_EQ(probe().code, 0);
    const std::string first = metrics("run.tsdiag");
    EXPECT_NE(probe().out.find("3 reused from an earlier run"), std::string::npos);
    EXPECT_EQ(metrics("run.tsdiag"), first);
    const Finished other = probe({"--seed", "5"});
    EXPECT_EQ(other.out.find("reused"), std::string::npos) << other.out;
    ASSERT_EQ(probe().code, 0);
    fs::remove_all(folder / "run/checkpoint-200");
    init("run/checkpoint-200", "9");
    EXPECT_NE(probe().out.find("2 reused from an earlier run"), std::string::npos);
    EXPECT_NE(rows_of(metrics("run.tsdiag"), "run,200,"), rows_of(first, "run,200,"));
    EXPECT_EQ(rows_of(metrics("run.tsdiag"), "run,1000,"), rows_of(first, "run,1000,"));
    std::ofstream(folder / "run.tsdiag/checkpoints/100/metrics.csv") << "changed";
    const Finished refused = probe();  // it belongs to the user now
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("checkpoints/100/metrics.csv: was changed"), std::string::npos)
        << refused.err;
    fs::remove(folder / "run.tsdiag/checkpoints/100/metrics.csv");
    EXPECT_NE(probe().out.find("2 reused from an earlier run"), std::string::npos);
    EXPECT_EQ(rows_of(metrics("run.tsdiag"), "run,100,"), rows_of(first, "run,100,"));
}

TEST_F(ProbeSeries, GoesOnWhereItWasInterrupted) {
    init_three();
    ASSERT_EQ(probe().code, 0);
    const std::string whole = metrics("run.tsdiag");
    // After an interruption in the second checkpoint: the first one's tables only.
    for (const char* name :
         {"metrics.csv", "curves.csv", "run.json", "checkpoints/200", "checkpoints/1000"})
        fs::remove_all(fs::path(folder / "run.tsdiag") / name);
    const Finished again = probe({}, {"SOURCE_DATE_EPOCH=1900000000"});
    EXPECT_EQ(again.code, 0) << again.err;
    const Json run = Json::parse(read_file(folder / "run.tsdiag/run.json"), "run.json");
    EXPECT_EQ(run["measured"]["date"].string(), "2026-01-01T00:00:00Z") << "that of the first";
    EXPECT_NE(again.out.find("1 reused from an earlier run"), std::string::npos) << again.out;
    EXPECT_EQ(metrics("run.tsdiag"), whole);
}

TEST_F(ProbeSeries, ABadCheckpointIsOneSentenceAndKeepsWhatIsDone) {
    init_three();
    init("run/checkpoint-300", "1", "random:gpt2,layers=3,d=16,heads=2,vocab=32,tokens=16");
    const Finished mixed = probe();
    EXPECT_EQ(mixed.code, 1);
    EXPECT_NE(mixed.err.find("has another architecture"), std::string::npos) << mixed.err;
    EXPECT_EQ(std::count(mixed.err.begin(), mixed.err.end(), '\n'), 1) << mixed.err;
    EXPECT_FALSE(fs::exists(folder / "run.tsdiag"));
    EXPECT_EQ(probe({"--maps", "0:0"}).code, 2);
    EXPECT_EQ(probe({"--trials", "2"}).code, 2);
    EXPECT_EQ(probe({"--steps", "1,2"}).code, 2);
    std::ofstream(folder / "foreign.txt") << "mine";
    fs::create_directory(folder / "theirs");
    fs::rename(folder / "foreign.txt", folder / "theirs/foreign.txt");
    fs::remove_all(folder / "run/checkpoint-300");
    EXPECT_EQ(probe({"-o", "theirs"}).code, 2);
    EXPECT_EQ(names_in(folder / "theirs"), std::vector<std::string>{"foreign.txt"});
}

TEST_F(ProbeSeries, ReadsNoStepInNumbersThatCountOtherThings) {
    init("a", "1");
    init("b", "2");
    constexpr std::pair<const char*, const char*> cases[] = {{"gpt-2", "gpt-3"},
                                                             {"step_1_000", "step_2_000"},
                                                             {"1234567", "7654321"},
                                                             {"client_1", "client_2"},
                                                             {"model0", "model1"},
                                                             {"seed-1", "seed-2"},
                                                             {"patch16-224", "patch16-384"},
                                                             {"step=-5", "step=-6"},
                                                             {"step_1.000", "step_2.000"}};
    for (const auto& [first, second] : cases) {
        fs::create_directory(folder / "run");
        fs::rename(folder / "a", folder / (std::string("run/") + first));
        fs::rename(folder / "b", folder / (std::string("run/") + second));
        const Finished done = probe();
        EXPECT_EQ(done.code, 2) << first;
        EXPECT_NE(done.err.find("gives a training step"), std::string::npos) << done.err;
        expect_one_sentence(done.err);
        EXPECT_NE(probe({"--steps", "1,2", "--force"}).out.find("step 1 to 2"), std::string::npos);
        fs::rename(folder / (std::string("run/") + first), folder / "a");
        fs::rename(folder / (std::string("run/") + second), folder / "b");
        fs::remove_all(folder / "run");
    }
}

/// torch.nn.TransformerEncoder of one layer, whose file says nothing of its norms and activation.
class SeriesOfEncoders : public ProbeSeries {
  protected:
    void write_encoder(const std::string& name, double seed) {
        std::vector<float> numbers(48);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = float(std::sin(seed + double(i)));
        std::vector<NamedArray> arrays;
        const auto add = [&](const char* tensor, std::vector<std::int64_t> shape) {
            const std::size_t count = std::size_t(shape[0] * (shape.size() > 1 ? shape[1] : 1));
            arrays.push_back({.name = std::string("layers.0.") + tensor,
                              .shape = std::move(shape),
                              .f32 = std::span(numbers).first(count),
                              .f64 = {}});
        };
        add("self_attn.in_proj_weight", {12, 4});
        add("self_attn.in_proj_bias", {12});
        add("self_attn.out_proj.weight", {4, 4});
        add("self_attn.out_proj.bias", {4});
        add("linear1.weight", {8, 4});
        add("linear1.bias", {8});
        add("linear2.weight", {4, 8});
        add("linear2.bias", {4});
        for (const char* norm : {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"})
            add(norm, {4});
        const fs::path path = folder / name;
        fs::create_directories(path);
        write_safetensors(path / "model.safetensors", arrays, {});
    }
    void write_three() {
        for (const int step : {1, 2, 3})
            write_encoder("run/checkpoint-" + std::to_string(step), step);
    }
    Finished measure(const std::string& what, const std::string& out,
                     std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"probe", what, "--n-heads", "2", "--tokens", "8", "--no-report",
                                   "--force", "-o", out});
        return tsdiag(folder, more);
    }
    Json model_of(const std::string& what, const std::string& out) {
        const Finished done = measure(what, out);
        EXPECT_EQ(done.code, 0) << done.err;
        return Json::parse(read_file(folder / (out + "/run.json")), "run.json")["model"];
    }
};

std::string line_of(const Json& list, std::size_t i) {
    return i < list.array().size() ? list.array()[i].string() : "missing";
}

TEST_F(SeriesOfEncoders, TellsOnceWhatIsAssumedOfAll) {
    write_three();
    const Json alone = model_of("run/checkpoint-1", "alone"), all = model_of("run", "all");
    ASSERT_EQ(alone["warnings"].array().size(), 1u);
    for (const char* key : {"recognised", "ignored", "defaults", "warnings"})
        EXPECT_EQ(all[key].dump(), alone[key].dump()) << key;

    const Finished finished = measure("run", "all");
    std::size_t at = 0;  // in the order of a single probe
    for (const char* words : {"\nrecognised ", "\nassumed ", "\n! Assumed, because neither"}) {
        const std::size_t found = finished.out.find(words, at);
        ASSERT_NE(found, std::string::npos) << words << finished.out;
        at = found;
    }
    EXPECT_EQ(finished.out.find("Assumed, because", at + 4), std::string::npos) << finished.out;

    const Json findings = Json::parse(measure("run", "all", {"--json"}).out, "out")["findings"];
    ASSERT_GT(findings.array().size(), 1u);
    EXPECT_TRUE(findings.array()[0]["headline"].boolean());
    EXPECT_EQ(findings.array()[1]["level"].string(), "warning");
    EXPECT_EQ(findings.array()[1]["text"].string(), line_of(alone["warnings"], 0) + ".");
}

TEST_F(SeriesOfEncoders, TellsWithItsStepsWhatIsAssumedOfSome) {
    write_three();
    write_file(folder / "run/checkpoint-2/config.json", "{\"norm_first\": false}");
    const Json first = model_of("run/checkpoint-1", "alone"),
               second = model_of("run/checkpoint-2", "alone");
    const Json all = model_of("run", "all");
    EXPECT_EQ(line_of(all["warnings"], 0), "steps 1 and 3: " + line_of(first["warnings"], 0));
    EXPECT_EQ(line_of(all["warnings"], 1), "step 2: " + line_of(second["warnings"], 0));
    EXPECT_EQ(all["warnings"].array().size(), 2u);
    EXPECT_EQ(line_of(all["recognised"], 0), "step 2: configuration: run/checkpoint-2/config.json");
    EXPECT_EQ(line_of(all["recognised"], 1), line_of(first["recognised"], 0));
    EXPECT_EQ(line_of(all["defaults"], 0), "steps 1 and 3: " + line_of(first["defaults"], 0));

    for (const char* step : {"1", "3"})
        write_file(folder / (std::string("run/checkpoint-") + step + "/config.json"),
                   "{\"norm_first\": false}");
    const Json same = model_of("run", "all");
    EXPECT_EQ(same["warnings"].dump(), second["warnings"].dump());
    EXPECT_EQ(line_of(same["recognised"], 0), "configuration: CHECKPOINT/config.json");
}

TEST_F(ProbeSeries, TellsOfStepsThatContradictEachOtherAndOfFoldersWithoutAModel) {
    for (const char* step : {"1", "2", "3"}) init(std::string("run/checkpoint-") + step, step);
    fs::create_directory(folder / "run/checkpoint-4");
    fs::create_directory(folder / "run/logs");
    const auto warnings = [&] {
        const Finished done = probe({"--force"});
        EXPECT_EQ(done.code, 0) << done.err;
        return Json::parse(read_file(folder / "run.tsdiag/run.json"), "run.json")["warnings"]
            .dump();
    };
    const std::string empty = warnings();
    EXPECT_NE(empty.find("run/checkpoint-4: has the name of a checkpoint but holds no model"),
              std::string::npos)
        << empty;
    EXPECT_EQ(empty.find("run/logs"), std::string::npos) << empty;
    EXPECT_EQ(empty.find("is taken for"), std::string::npos) << empty;
    write_file(folder / "run/checkpoint-2/trainer_state.json", "{\"global_step\": 2}");
    EXPECT_EQ(warnings(), empty);
    write_file(folder / "run/checkpoint-2/trainer_state.json", "{\"global_step\": 7}");
    const std::string other = warnings();
    EXPECT_NE(other.find("run/checkpoint-2: is taken for step 7 (global_step of "
                         "trainer_state.json), not 2 (its name)"),
              std::string::npos)
        << other;
    EXPECT_FALSE(rows_of(metrics("run.tsdiag"), "run,7,").empty());
}

TEST_F(ProbeSeries, TablesOfEqualFilesInAnotherFolderNameThePlaceOfTheseFiles) {
    for (const char* step : {"1", "2"}) init(std::string("run/checkpoint-") + step, step);
    ASSERT_EQ(probe({"-o", "out"}).code, 0);
    const std::string first =
        Json::parse(read_file(folder / "out/run.json"), "run.json")["model"]["recognised"].dump();
    EXPECT_NE(first.find("configuration: CHECKPOINT/config.json"), std::string::npos) << first;
    for (const char* step : {"1", "2"}) {
        const std::string name = std::string("checkpoint-") + step;
        fs::create_directories(folder / "other");
        fs::rename(folder / ("run/" + name), folder / ("other/" + name));
    }
    const Finished moved =
        tsdiag(folder, {"probe", "other", "--tokens", "8", "--samples", "3", "--probes",
                        "t_sim,lambda2_abs,local_acc", "--no-report", "--force", "-o", "out"});
    EXPECT_EQ(moved.code, 0) << moved.err;
    EXPECT_NE(moved.out.find("2 reused from an earlier run"), std::string::npos) << moved.out;
    const Json run = Json::parse(read_file(folder / "out/run.json"), "run.json");
    EXPECT_EQ(run["model"]["recognised"].dump(), first);
}

TEST_F(ProbeSeries, MeasuresAllOnSamplesOfOneLength) {
    const std::string llama = "random:llama-7b,layers=1,d=8,heads=2,vocab=16,tokens=";
    init("run/checkpoint-100", "1", llama + "8");
    init("run/checkpoint-200", "2", llama + "12");  // the context was extended
    EXPECT_EQ(probe().code, 0);
    const Finished longer = tsdiag(folder, {"probe", "run", "--no-report", "-o", "longer"});
    EXPECT_EQ(longer.code, 2);
    EXPECT_NE(longer.err.find("its samples have 12 tokens, expected 8 as those of"),
              std::string::npos)
        << longer.err;
    init("learned/checkpoint-100", "1");
    init("learned/checkpoint-200", "2", "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=8");
    EXPECT_NE(tsdiag(folder, {"probe", "learned", "--tokens", "8"})
                  .err.find("max_tokens is 8, expected 16"),
              std::string::npos);
}

}  // namespace
}  // namespace tsdiag::test
