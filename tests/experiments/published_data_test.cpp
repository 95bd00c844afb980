#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/files.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"

/// Experiments on published sets, as tiny files.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

ExperimentOptions tiny(const std::string& data, std::map<std::string, std::string> readings) {
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.data = data;
    options.readings = std::move(readings);
    return options;
}
std::string error_of(const char* name, const ExperimentOptions& options) {
    try {
        perform(experiment(name), options);
    } catch (const Error& error) {
        return error.what();
    }
    return "(no error)";
}
void write(const fs::path& file, std::string_view text) {
    fs::create_directories(file.parent_path());
    write_file(file, text);
}
/// A row of the table without a step, layer and head.
double value_of(const Table& table, const std::string& model, const std::string& metric,
                const std::string& stage) {
    for (const MetricRow& row : table.metrics())
        if (row.model == model && row.metric == metric && row.at.stage == stage)
            return row.value.value_or(-1000);
    return -1000;
}

TEST(PublishedSets, ScoresOfGlueAreF1AndMatthews) {
    TemporaryDirectory folder;
    const fs::path root = folder.path();
    for (const char* part : {"train", "valid"})
        write(root / "wikitext-103-raw" / (std::string("wiki.") + part + ".raw"),
              std::string(200, 'a'));
    // All labels that are learnt are 1, so 1 is what every model says.
    const std::string mrpc = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
                      one = "1\t1\t2\ta\tb\n";
    write(root / "MRPC/train.tsv", mrpc + one + one + one + one);
    write(root / "MRPC/dev.tsv", mrpc + one + one + "0\t1\t2\ta\tb\n");
    const std::string good = "x\t1\t\ta\n";
    write(root / "CoLA/train.tsv", good + good + good + good);
    write(root / "CoLA/dev.tsv", good + "x\t0\t*\ta\n");
    const auto options = tiny(
        root.string(),
        {{"tasks", "mrpc,cola"}, {"trials", "1"}, {"epochs", "10"}, {"tuning_rates", "1e-8,3e-2"}});
    const RunResult result = perform(experiment("devil.table5"), options);
    for (const char* model : {"Vanilla", "Performer", "TransNormer T2"}) {
        // two of three: precision 2/3, recall 1
        EXPECT_NEAR(value_of(result.table, model, "score", "MRPC"), 80, 1e-9) << model;
        EXPECT_NEAR(value_of(result.table, model, "score", "CoLA"), 0, 1e-9) << model;
        EXPECT_NEAR(value_of(result.table, model, "score", ""), 40, 1e-9) << model;
    }
    const Findings found =
        experiment("devil.table5")
            .find(result.table, ExperimentSetting(experiment("devil.table5"), options));
    EXPECT_EQ(found.figures[0].panels[0].grid->cols, 3);
    fs::remove_all(root / "CoLA");
    EXPECT_THAT(error_of("devil.table5", options), HasSubstr("CoLA"));
}

TEST(PublishedSets, TasksOfTheArenaAreFoundByTheirFolders) {
    TemporaryDirectory folder;
    const fs::path root = folder.path();
    EXPECT_THAT(
        error_of("devil.table6", tiny("", {{"tasks", "text"}})),
        HasSubstr("the task text is not generated; pass --data DIR, a folder with aclImdb"));
    EXPECT_THAT(error_of("devil.table6", tiny(root.string(), {})), HasSubstr("listops-1000"));
    EXPECT_THAT(error_of("devil.table6", tiny("", {{"batch", "2,2"}})),
                HasSubstr("batch has 2 values, expected 5"));
    EXPECT_THAT(error_of("devil.fig1", tiny("", {{"length", "200"}})),
                HasSubstr("length=200 is not a multiple of 128"));
    for (const char* part : {"train/pos/1_9", "train/neg/1_1", "test/pos/1_9", "test/neg/1_1"})
        write(root / "aclImdb" / (std::string(part) + ".txt"), "some text");
    for (const char* part : {"train", "test"})
        write(root / "tsv_data" / ("new_aan_pairs." + std::string(part) + ".tsv"),
              "1.0\ta\tb\tone\ttwo\n0.0\ta\tc\tone\tthree\n");
    const auto options =
        tiny(root.string(), {{"tasks", "retrieval,text"}, {"trials", "1"}, {"steps", "10"}});
    const RunResult result = perform(experiment("devil.table6"), options);
    for (const char* model :
         {"Linformer on Text", "LS on Retrieval", "TransNormer T1 on Retrieval"})
        EXPECT_GE(value_of(result.table, model, "final_accuracy", ""), 0) << model;
}

TEST(PublishedSets, NystromformersTasksAreThoseOfTheArena) {
    TemporaryDirectory folder;
    const fs::path root = folder.path();
    const auto error = [](const std::string& data, std::map<std::string, std::string> readings) {
        return error_of("poly.table4", tiny(data, std::move(readings)));
    };
    EXPECT_THAT(
        error("", {{"tasks", "text"}}),
        HasSubstr("the task text is not generated; pass --data DIR, a folder with aclImdb"));
    EXPECT_THAT(error(root.string(), {{"tasks", "listops"}}), HasSubstr("listops-1000"));
    EXPECT_THAT(error("", {{"batch", "2,2"}}), HasSubstr("batch has 2 values, expected 6"));
    EXPECT_THAT(error("", {{"landmarks", "5"}}),
                HasSubstr("landmarks=5 is not a divisor of the 8 tokens of listops"));
    EXPECT_THAT(error("", {{"tasks", "gratings"}, {"tokens", "8,8,8,1024,16,12"}}),
                HasSubstr("12 tokens of gratings are not a square number"));
    for (const char* part : {"train", "test"})
        write(root / "tsv_data" / ("new_aan_pairs." + std::string(part) + ".tsv"),
              "1.0\ta\tb\tone\ttwo\n0.0\ta\tc\tone\tthree\n");
    const RunResult result = perform(
        experiment("poly.table4"), tiny(root.string(), {{"tasks", "retrieval"}, {"trials", "1"}}));
    for (const char* model : {"Retrieval, softmax", "Retrieval, x^3 + dynamic scale"})
        EXPECT_GE(value_of(result.table, model, "final_accuracy", ""), 0) << model;
}

}  // namespace
}  // namespace tsdiag::test
