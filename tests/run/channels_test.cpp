#include <gmock/gmock.h>

#include <cmath>

#include "support/memory.hpp"
#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/run.hpp"

/// A model whose attention is over channels, from the checkpoint to the table.
namespace tsdiag::test {
namespace {

using testing::StartsWith;

RunOptions options_of(const std::string& model = test_data() + "/golden/xcit-timm") {
    RunOptions options;
    options.subject.model = model;
    options.dtype = Type::f64;
    return options;
}

TEST(OverChannels, NumbersOfPSayWhatPIs) {
    RunOptions options = options_of();
    options.loss = "classify:3";
    const RunResult result = run(options);
    std::map<std::string, std::string> reasons;
    Index said = 0;
    for (const MetricRow& row : result.table.metrics()) {
        const Metric* metric = find_metric(row.metric);
        ASSERT_TRUE(metric) << row.metric;
        if (metric->of != Of::head) {
            EXPECT_THAT(row.note, testing::Not(testing::HasSubstr("channels"))) << row.metric;
        } else if (row.value) {
            EXPECT_THAT(row.note, StartsWith("P is over 8 channels")) << row.metric;
            ++said;
        } else {
            reasons[row.metric] = row.note;
        }
    }
    EXPECT_GT(said, 60);
    for (const char* metric :
         {"omega", "mu1", "mu2", "est1", "est2", "est_mu", "jac_q_fro", "jac_k_fro", "local_auc"})
        EXPECT_EQ(reasons[metric], "P is over channels") << metric;
    for (const auto& [metric, reason] : reasons) EXPECT_FALSE(reason.empty()) << metric;
    for (const Json& gain : result.run["model"]["a2"].array()) EXPECT_TRUE(gain.is_null());
    for (const CurveRow& row : result.table.curves())
        EXPECT_THAT(row.curve, testing::Not(StartsWith("local_acc")));
    // Token metrics are of tokens: 6 patches, and the class token behind them.
    const auto rank = result.table.find({.layer = 0, .stage = "out"}, "stable_rank");
    ASSERT_TRUE(rank && rank->value);
    EXPECT_LE(*rank->value, 6);
    EXPECT_TRUE(result.table.find({.layer = 1, .stage = "class"}, "t_sim")->value);
}

/// Metrics of P by definition, from the map.
TEST(OverChannels, MetricsAreOfTheChannelMatrix) {
    for (const char* keys : {"", ",attention=polynomial,p=2,scale=none"}) {
        RunOptions options = options_of(
            std::string("random:xcit-nano,d=32,heads=2,layers=1,ffn=24,image=16,patch=8") + keys);
        options.maps = {{0, 0}, {0, 1}};
        const Table table = run(options).table;
        ASSERT_EQ(table.maps().size(), 2U);
        for (const Map& map : table.maps()) {
            EXPECT_EQ(map.name, "channels");
            ASSERT_EQ(map.rows, 16);
            ASSERT_EQ(map.cols, 16);
            double squares = 0, jacobian = 0, entropy = 0, most = 0;
            const bool softmax = *keys == 0;
            for (Index i = 0; i < 16; ++i) {
                double s2 = 0, s3 = 0, largest = 0;
                for (Index j = 0; j < 16; ++j) {
                    const double p = map.values[std::size_t(i * 16 + j)];
                    s2 += p * p;
                    s3 += p * p * p;
                    largest = std::max(largest, std::abs(p));
                    entropy -= softmax ? p * std::log(p) / 16 : 0;
                    jacobian += softmax ? 0 : 4 * p;  // (2 S)^2, and P = S^2
                }
                squares += s2;
                jacobian += softmax ? s2 - 2 * s3 + s2 * s2 : 0;
                most += largest / 16;
            }
            const auto value = [&](const char* metric) {
                const auto row = table.find(map.at, metric);
                return row && row->value ? *row->value : NAN;
            };
            EXPECT_CLOSE(value("attn_fro"), std::sqrt(squares), rounding(1e3));
            EXPECT_CLOSE(value("jac_fro"), std::sqrt(jacobian), rounding(1e4));
            EXPECT_CLOSE(value("row_max"), most, rounding(1e3));
            if (softmax) {
                EXPECT_CLOSE(value("entropy"), entropy, rounding(1e3));
            } else {
                EXPECT_THAT(table.find(map.at, "entropy")->note,
                            StartsWith("rows do not sum to 1"));
            }
        }
    }
}

TEST(OverChannels, LittleMemoryChangesNoNumber) {
    RunOptions options =
        options_of("random:xcit-nano,d=32,heads=2,layers=2,ffn=24,image=32,patch=8");
    options.probes = {"core"};
    const std::vector<MetricRow> roomy = run(options).table.metrics();
    options.memory = least_memory(options);
    const std::vector<MetricRow> tight = run(options).table.metrics();
    ASSERT_EQ(roomy.size(), tight.size());
    for (std::size_t i = 0; i < roomy.size(); ++i) {
        ASSERT_EQ(roomy[i].value.has_value(), tight[i].value.has_value()) << roomy[i].metric;
        EXPECT_EQ(roomy[i].note, tight[i].note) << roomy[i].metric;
        if (roomy[i].value) {
            // Where P is not kept, spectra are found by products.
            EXPECT_NEAR(*roomy[i].value, *tight[i].value, 1e-6 * (1e-3 + std::abs(*roomy[i].value)))
                << roomy[i].metric;
        }
    }
}

TEST(OverChannels, EveryLossHasItsDerivatives) {
    for (const char* loss : {"classify", "square", "vjp"}) {
        RunOptions options = options_of();
        options.loss = loss;
        options.probes = {"grad_norm"};
        const Table table = run(options).table;
        Index found = 0;
        for (const MetricRow& row : table.metrics())
            if (row.value && *row.value > 0) ++found;
        EXPECT_GT(found, 40) << loss;
    }
}

}  // namespace
}  // namespace tsdiag::test
