#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "support/near.hpp"
#include "tsdiag/run.hpp"

/// A model of windows and stages, from its name to the table.
namespace tsdiag::test::windows {
namespace {

using testing::HasSubstr;

RunOptions options_of(const std::string& keys) {
    RunOptions options;
    options.subject.model =
        "random:swin-tiny,depths=2-1,d=12,heads=2,ffn=16,image=16,window=2,patch=2" + keys;
    options.dtype = Type::f64;
    options.samples = 2;
    return options;
}

/// Layers 0 and 1 have 8 x 8 patches in 16 windows, the second of them shifted; layer 2 has 4 x 4.
TEST(InWindows, NumbersOfEachLayerHaveItsOwnSizes) {
    RunOptions options = options_of("");
    options.loss = "classify:3";
    const RunResult result = run(options);
    std::map<Index, std::set<Index>> heads;
    for (const MetricRow& row : result.table.metrics()) {
        if (row.metric == "attn_fro" && row.at.head >= 0) heads[row.at.layer].insert(row.at.head);
        if (row.metric == "lambda2_abs" && row.at.head >= 0) {
            EXPECT_EQ(row.value, 1);
            EXPECT_THAT(row.note, HasSubstr("diagonal blocks of P have the eigenvalue 1 each"));
        }
        if (row.metric == "gap" && row.at.head >= 0) {
            EXPECT_EQ(row.value, 0);
        }
        if (row.metric == "delta_pi") {
            EXPECT_EQ(row.note, "pi is not unique");
        }
        if (row.metric == "entropy" && row.value) {
            EXPECT_LE(*row.value, std::log(4.0) + 1e-12);
        }
        if (row.metric == "stable_rank" && row.value) {
            EXPECT_LE(*row.value, row.at.layer < 2 && row.at.stage != "merge" ? 12 : 16);
        }
    }
    EXPECT_EQ(heads[0].size(), 2U);
    EXPECT_EQ(heads[2].size(), 4U);
    const auto note = [&](Index layer) {
        const auto row = result.table.find({.layer = layer, .stage = "attn", .head = 0}, "gap");
        return row ? row->note : "";
    };
    EXPECT_THAT(note(0), HasSubstr("16 diagonal blocks"));
    // Of its 16 windows 9 are whole, 6 fall into two parts and 1 into four.
    EXPECT_THAT(note(1), HasSubstr("25 diagonal blocks"));
    EXPECT_THAT(note(2), HasSubstr("4 diagonal blocks"));
    EXPECT_TRUE(result.table.find({.layer = 1, .stage = "merge"}, "t_sim")->value);
    EXPECT_FALSE(result.table.find({.layer = 1, .stage = "merge"}, "xi1"));
    // The reverse sweep passes the merging.
    EXPECT_GT(*result.table.find({.layer = 0, .stage = "in"}, "grad_norm")->value, 0);
}

/// Norms, entropy and Jacobian of P by definition, from the map.
TEST(InWindows, MetricsAreOfTheWholeMatrix) {
    for (const char* keys : {"", ",attention=polynomial,p=2,scale=none"}) {
        RunOptions options = options_of(keys);
        options.samples = 1;
        options.maps = {{1, 0}};
        const Table table = run(options).table;
        ASSERT_EQ(table.maps().size(), 1U);
        const Map& map = table.maps().front();
        ASSERT_EQ(map.rows, 64);
        double squares = 0, jacobian = 0;
        Index seen = 0;
        const bool softmax = *keys == 0;
        for (Index i = 0; i < 64; ++i) {
            double s2 = 0, s3 = 0;
            for (Index j = 0; j < 64; ++j) {
                const double p = map.values[std::size_t(i * 64 + j)];
                seen += p != 0;
                s2 += p * p;
                s3 += p * p * p;
                jacobian += softmax ? 0 : 4 * p;  // (2 S)^2, and P = S^2
            }
            squares += s2;
            jacobian += softmax ? s2 - 2 * s3 + s2 * s2 : 0;
        }
        // 9 windows of 4 that see each other, 6 of 2 + 2, 1 of four alone.
        EXPECT_EQ(seen, 9 * 16 + 6 * 8 + 4);
        const auto value = [&](const char* metric) {
            return *table.find({.layer = 1, .stage = "attn", .head = 0}, metric)->value;
        };
        EXPECT_CLOSE(value("attn_fro"), std::sqrt(squares), rounding(1e3));
        EXPECT_CLOSE(value("jac_fro"), std::sqrt(jacobian), rounding(1e3));
    }
}

}  // namespace
}  // namespace tsdiag::test::windows
