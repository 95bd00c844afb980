#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "support/files.hpp"
#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
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
        ASSERT_EQ(table.maps().size(), 2U);
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

/// The golden checkpoint has 6 x 6 patches in windows of 3 x 3, in layer 1 shifted by 1: which
/// patches see each other follows from where they are in the image.
TEST(InWindows, MapsHaveTheOrderOfThePatches) {
    constexpr Index side = 6, window = 3, n = side * side;
    const TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = test_data() + "/golden/swin";
    options.dtype = Type::f64;
    options.samples = 1;
    options.maps = {{0, 0}, {0, 1}, {1, 1}};
    const RunResult result = run(options);
    write_tables(result, folder.path());
    const auto maps = open_checkpoint(folder / "maps.npz");
    EXPECT_THAT(maps->names(),
                testing::UnorderedElementsAre("attention.0.0", "attention.0.1", "windows.0",
                                              "attention.1.1", "windows.1"));
    const auto values = [&](const std::string& name) {
        const RawTensor array = maps->tensor(name);
        std::vector<double> out(std::size_t(array.count()));
        widen<double>(array, out);
        return out;
    };
    for (const Index shift : {0, 1}) {  // of layer 0 and of layer 1
        const std::vector<double> p = values(fmt::format("attention.{}.1", shift)),
                                  order = values(fmt::format("windows.{}", shift));
        ASSERT_EQ(p.size(), std::size_t(n * n));
        const auto sees = [&](Index i, Index j) {
            const auto home = [&](Index at) { return (at + side - shift) % side / window; };
            return home(i / side) == home(j / side) && home(i % side) == home(j % side) &&
                   std::abs(i / side - j / side) < window && std::abs(i % side - j % side) < window;
        };
        double squares = 0;
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) {
                const double entry = p[std::size_t(i * n + j)];
                EXPECT_EQ(entry != 0, sees(i, j)) << shift << ": " << i << ", " << j;
                squares += entry * entry;
            }
        // The order that the metrics have: neighbours in it see each other, block by block.
        ASSERT_EQ(order.size(), std::size_t(n));
        EXPECT_EQ(std::set<double>(order.begin(), order.end()).size(), order.size());
        Index blocks = 1;
        for (std::size_t i = 1; i < order.size(); ++i)
            blocks += !sees(Index(order[i - 1]), Index(order[i]));
        EXPECT_EQ(blocks, shift == 0 ? 4 : 9);
        const auto fro =
            result.table.find({.layer = shift, .stage = "attn", .head = 1}, "attn_fro");
        ASSERT_TRUE(fro && fro->value);
        EXPECT_CLOSE(*fro->value, std::sqrt(squares), rounding(1e3));
    }
}

}  // namespace
}  // namespace tsdiag::test::windows
