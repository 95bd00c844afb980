#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/json.hpp"

/// Mixtures of experts, measured by the program.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

/// The value of a metric by layer.
std::map<Index, double> by_layer(const fs::path& result, const std::string& metric) {
    std::map<Index, double> found;
    const fs::path file = result / "metrics.csv";
    for (const MetricRow& row : read_metrics_csv(read_file(file), file.string()))
        if (row.metric == metric) found[row.at.layer] = row.value.value();
    return found;
}

TEST(ExpertsOfAProgram, AreInTheTablesAndDrawn) {
    const TemporaryDirectory folder;
    const fs::path golden = fs::path(test_data()) / "golden";
    const double experts =
        Json::parse(read_file(golden / "mixtral/config.json"), "config.json")["num_local_experts"]
            .number();
    for (const char* model : {"mixtral", "llama"})
        ASSERT_EQ(
            tsdiag(folder, {"probe", (golden / model).string(), "--tokens", "12", "--out", model})
                .code,
            0);
    const fs::path result = folder.path() / "mixtral";
    const auto load = by_layer(result, "expert_load"), unused = by_layer(result, "expert_unused"),
               dropped = by_layer(result, "routing_dropped");
    ASSERT_EQ(load.size(), 2U);
    for (const auto& [layer, value] : load) {
        // The most chosen expert has at least its even share, and 12 tokens choose it once each of
        // two choices.
        EXPECT_GE(value, 1);
        EXPECT_LE(value, experts / 2);
        // Experts without a token are whole ones; two of them have a token's two choices.
        EXPECT_EQ(unused.at(layer) * experts, std::round(unused.at(layer) * experts));
        EXPECT_LE(unused.at(layer), 1 - 2 / experts);
        // The two largest of E probabilities leave at most (E - 2) / E.
        EXPECT_GT(dropped.at(layer), 0);
        EXPECT_LE(dropped.at(layer), (experts - 2) / experts);
    }
    EXPECT_TRUE(fs::exists(result / "figures/routing.svg"));
    EXPECT_TRUE(by_layer(folder.path() / "llama", "expert_load").empty());
    EXPECT_FALSE(fs::exists(folder.path() / "llama/figures/routing.svg"));
}

/// What gpt-oss's sinks leave of P: rows that sum to less than 1, and what then has no meaning.
TEST(SinksOfAProgram, LeaveUndefinedWhatNeedsRowsThatSumToOne) {
    const TemporaryDirectory folder;
    const fs::path golden = fs::path(test_data()) / "golden";
    for (const char* model : {"gpt-oss", "gpt-oss-mxfp4"}) {
        ASSERT_EQ(tsdiag(folder, {"probe", (golden / model).string(), "--tokens", "9",
                                  "--no-report", "--out", model})
                      .code,
                  0);
        const fs::path file = folder.path() / model / "metrics.csv";
        std::map<std::string, Index> seen;
        for (const MetricRow& row : read_metrics_csv(read_file(file), file.string())) {
            if (row.at.stage != "attn" || row.at.head < 0) continue;
            ++seen[row.metric];
            for (const char* needs : {"spectral_gap", "gap", "omega", "delta_pi", "entropy"})
                if (row.metric == needs) {
                    EXPECT_FALSE(row.value) << needs;
                    EXPECT_THAT(row.note, testing::HasSubstr("rows do not sum to 1")) << needs;
                }
            for (const char* defined : {"lambda2_abs", "delta", "attn_fro", "mu1", "mu2", "jac_fro",
                                        "jac_q_fro", "jac_k_fro", "row_max"})
                if (row.metric == defined) {
                    EXPECT_TRUE(row.value) << defined << row.note;
                }
            if (row.metric != "row_sum_dev") continue;
            ASSERT_TRUE(row.value);
            EXPECT_GT(*row.value, 0.01);  // the sinks are about as large as the logits
            EXPECT_LT(*row.value, 1);
        }
        for (const char* metric :
             {"spectral_gap", "omega", "entropy", "lambda2_abs", "mu1", "jac_q_fro", "row_sum_dev"})
            EXPECT_EQ(seen[metric], 8) << metric;  // two layers of four heads
    }
}

/// Maps of DeepSeek's latent state are no projections of the tokens.
TEST(LatentValuesOfAProgram, HaveNoProjectionsAndNoGain) {
    const TemporaryDirectory folder;
    const fs::path model = fs::path(test_data()) / "golden/deepseek-v3";
    ASSERT_EQ(tsdiag(folder, {"probe", model.string(), "--tokens", "9", "--no-report", "--out",
                              "out", "--loss", "lm"})
                  .code,
              0);
    const fs::path file = folder.path() / "out/metrics.csv";
    std::map<std::string, Index> seen;
    for (const MetricRow& row : read_metrics_csv(read_file(file), file.string())) {
        EXPECT_LT(row.at.layer, 3) << "the layer behind the last is not run";
        if (row.at.stage != "attn" || row.at.head < 0) continue;
        ++seen[row.metric];
        if (row.metric == "est_mu") {
            EXPECT_FALSE(row.value);
            EXPECT_THAT(row.note, testing::HasSubstr("latent"));
        }
        if (row.metric == "jac_q_fro" || row.metric == "jac_k_fro") {
            EXPECT_FALSE(row.value);
        }
        for (const char* defined : {"lambda2_abs", "gap", "entropy", "omega", "mu1", "jac_fro",
                                    "ds_max", "c3", "ds_bound"})
            if (row.metric == defined) {
                EXPECT_TRUE(row.value) << defined << row.note;
            }
    }
    for (const char* metric : {"est_mu", "jac_q_fro", "lambda2_abs", "omega", "c3", "ds_bound"})
        EXPECT_EQ(seen[metric], 12) << metric;  // three layers of four heads
    const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
    for (const Json& gain : run["model"]["a2"].array()) EXPECT_TRUE(gain.is_null());
    // Of the layers, the first has no experts.
    EXPECT_EQ(by_layer(folder.path() / "out", "expert_load").size(), 2U);
}

/// Llama 4 beside a vision tower: chunks begin anew, so that 1 is an eigenvalue of P for each.
TEST(ChunksOfAProgram, HaveAnEigenvalueOfOneEach) {
    const TemporaryDirectory folder;
    const fs::path golden = fs::path(test_data()) / "golden";
    ASSERT_EQ(tsdiag(folder, {"probe", (golden / "llama4").string(), "--tokens", "11", "--loss",
                              "lm", "--no-report", "--out", "out"})
                  .code,
              0);
    const fs::path file = folder.path() / "out/metrics.csv";
    std::map<std::string, Index> seen;
    for (const MetricRow& row : read_metrics_csv(read_file(file), file.string())) {
        if (row.at.stage != "attn" || row.at.head < 0) continue;
        ++seen[row.metric];
        if (row.metric == "lambda2_abs" && row.at.layer < 3) {
            EXPECT_EQ(row.value.value(), 1) << "11 tokens are three chunks of 4";
        }
        if (row.metric == "lambda2_abs" && row.at.layer == 3) {
            EXPECT_LT(row.value.value(), 1) << "one piece, without positions";
        }
        for (const char* defined : {"jac_q_fro", "jac_k_fro", "ds_bound", "mu1"})
            if (row.metric == defined) {
                EXPECT_TRUE(row.value) << defined << row.note;
            }
    }
    for (const char* metric : {"lambda2_abs", "jac_q_fro", "jac_k_fro", "ds_bound"})
        EXPECT_EQ(seen[metric], 16) << metric;  // four layers of four heads
    EXPECT_EQ(by_layer(folder.path() / "out", "expert_load").size(), 4U);
    const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
    std::string recognised;
    for (const Json& line : run["model"]["recognised"].array()) recognised += line.string() + '\n';
    for (const char* part : {"the vision tower and its projector are not read",
                             "layers 0 to 2: softmax attention (chunk=4)",
                             "queries at position p times 1 + 0.4 ln(1 + floor((p + 1) / 3)) in 1",
                             "of the input", "no positions in 1 layer\n"})
        EXPECT_THAT(recognised, testing::HasSubstr(part));
    // What stands beside the text model's configuration is not read by the library.
    fs::copy(golden / "llama4", folder.path() / "other");
    std::string config = read_file(folder.path() / "other/config.json");
    config.insert(config.find('{') + 1, "\"attention_chunk_size\": 2,");
    write_file(folder.path() / "other/config.json", config);
    const Finished refused = tsdiag(folder, {"probe", "other", "--out", "no"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, testing::HasSubstr("'attention_chunk_size' beside text_config"));
}

}  // namespace
}  // namespace tsdiag::test
