#include <gmock/gmock.h>

#include <cmath>

#include "run/arrays.hpp"
#include "support/files.hpp"
#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/run.hpp"

/// The whole path from a checkpoint to the table, against metrics computed by definition from an
/// independent forward.
namespace tsdiag::test {
namespace {

struct Row {
    Place at;
    std::string metric;
    std::optional<double> value;
};

/// `layer,stage,head,metric,value`
std::vector<Row> read_golden(const std::string& file) {
    std::istringstream in(read_file(file));
    std::vector<Row> rows;
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
        std::vector<std::string> cells;
        std::istringstream parts(line + ",");
        for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
        cells.resize(5);
        Row row;
        row.at.layer = std::stoll(cells[0]);
        row.at.stage = cells[1];
        if (!cells[2].empty()) row.at.head = std::stoll(cells[2]);
        row.metric = cells[3];
        if (!cells[4].empty()) row.value = std::stod(cells[4]);
        rows.push_back(std::move(row));
    }
    return rows;
}

class EveryGoldenTable : public testing::TestWithParam<const char*> {};

TEST_P(EveryGoldenTable, IsReproduced) {
    const std::string folder = test_data() + "/golden/" + GetParam();
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
    TemporaryDirectory work;
    const std::unique_ptr<Checkpoint> golden = open_checkpoint(folder + "/golden.npz");
    std::string ids;
    for (const Index id : integers(golden->tensor("ids"), "ids")) ids += std::to_string(id) + " ";
    write_file(work / "ids.txt", ids);
    RunOptions options;
    options.subject.model = folder;
    options.input = "ids:" + work / "ids.txt";
    options.dtype = Type::f64;
    const RunResult result = run(options);
    Index compared = 0;
    for (const Row& expected : read_golden(folder + "/metrics.csv")) {
        const auto found = result.table.find(expected.at, expected.metric);
        const std::string what = expected.metric + " of layer " +
                                 std::to_string(expected.at.layer) + " stage " + expected.at.stage +
                                 " head " + std::to_string(expected.at.head);
        ASSERT_TRUE(found) << what;
        ASSERT_EQ(found->value.has_value(), expected.value.has_value())
            << what << ": " << found->note;
        if (!expected.value) continue;
        EXPECT_NEAR(*found->value, *expected.value, 1e-8 * std::max(1.0, std::abs(*expected.value)))
            << what;
        compared += 1;
    }
    EXPECT_GT(compared, 100);
    const Json expected = Json::parse(read_file(folder + "/metrics.json"), "metrics.json");
    const Json::Array& a2 = result.run["model"]["a2"].array();
    ASSERT_EQ(a2.size(), expected["a2"].array().size());
    for (std::size_t layer = 0; layer < a2.size(); ++layer)
        EXPECT_CLOSE(a2[layer].number(), expected["a2"].array()[layer].number(), stopped_at(1e-10));
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryGoldenTable,
                         testing::Values("bert", "gpt2", "llama", "qwen3", "gpt-neox"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::erase(name, '-');
                             return name;
                         });

}  // namespace
}  // namespace tsdiag::test
