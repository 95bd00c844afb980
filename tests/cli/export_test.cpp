#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "program.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

class Export : public testing::Test {
  protected:
    void SetUp() override {
        const Finished done =
            tsdiag(folder, {"probe", "random:post-norm,d=16,heads=2,layers=2", "--tokens", "1",
                            "--samples", "3", "-o", "result", "--no-report", "-q"});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    TemporaryDirectory folder;
};

std::vector<Json> json_lines_of(const std::string& text) {
    std::vector<Json> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line, "line"));
    return rows;
}

void expect_equal(const Json& found, const std::optional<double>& expected) {
    ASSERT_EQ(found.is_number(), expected.has_value());
    if (expected) {
        EXPECT_EQ(found.number(), *expected);
    }
}

TEST_F(Export, HasEveryNumberOfTheTablesOnce) {
    const Finished done = tsdiag(folder, {"export", "result", "--to", "jsonl"});
    ASSERT_EQ(done.code, 0) << done.err;
    const std::vector<Json> rows = json_lines_of(done.out);
    const auto metrics = read_metrics_csv(read_file(folder / "result/metrics.csv"), "metrics");
    const auto curves = read_curves_csv(read_file(folder / "result/curves.csv"), "curves");
    const std::string of_samples = read_file(folder / "result/samples.csv");
    const auto samples = std::size_t(std::ranges::count(of_samples, '\n')) - 1;
    ASSERT_EQ(rows.size(), metrics.size() + curves.size() + samples);
    std::size_t undefined = 0, heads = 0, means = 0;
    for (std::size_t i = 0; i < metrics.size(); ++i) {
        const MetricRow& m = metrics[i];
        EXPECT_EQ(rows[i]["table"].string(), "metrics");
        EXPECT_EQ(rows[i]["metric"].string(), m.metric);
        EXPECT_TRUE(rows[i]["of"].is_string());
        expect_equal(rows[i]["value"], m.value);
        expect_equal(rows[i]["low"], m.low);
        expect_equal(rows[i]["high"], m.high);
        expect_equal(rows[i]["stderr"], m.standard_error);
        EXPECT_EQ(rows[i]["count"].integer(), m.count);
        EXPECT_EQ(rows[i]["layer"].is_null(), m.at.layer < 0);
        heads += rows[i]["of"].string() == "head";
        means += rows[i]["of"].string() == "mean over heads";
        EXPECT_EQ(rows[i]["of"].string() == "head", !rows[i]["head"].is_null());
        if (m.value || m.low || m.high) {
            EXPECT_TRUE(rows[i]["undefined"].is_null());
        } else {
            EXPECT_EQ(rows[i]["undefined"].string(), m.note);
            ++undefined;
        }
    }
    EXPECT_GT(undefined, 0u);
    EXPECT_GT(means, 0u);
    EXPECT_EQ(heads, 2 * means);
    for (std::size_t i = 0; i < curves.size(); ++i) {
        const Json& row = rows[metrics.size() + i];
        EXPECT_EQ(row["table"].string(), "curves");
        EXPECT_EQ(row["x"].number(), curves[i].x);
        expect_equal(row["y"], curves[i].y);
    }
    CsvReader table(of_samples, "samples.csv");
    const std::vector<std::string> columns = table.fields();
    for (std::size_t i = 0; i < samples; ++i) {
        const Json& row = rows[metrics.size() + curves.size() + i];
        EXPECT_EQ(row["table"].string(), "samples");
        ASSERT_TRUE(table.next());
        for (const std::size_t column : {columns.size() - 1, columns.size() - 3})
            expect_equal(row[columns[column]], table.number(column));
    }
}

TEST(ExportOfATraining, HasTheRecordsOfItsTables) {
    const TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"train", "random:gpt2,layers=1,d=16,heads=2", "--data", "copy",
                              "--tokens", "9", "--steps", "3", "-o", "run", "-q"})
                  .code,
              0);
    const Finished done = tsdiag(folder, {"export", "run", "--to", "jsonl"});
    ASSERT_EQ(done.code, 0) << done.err;
    const std::string table = read_file(folder / "run/steps.csv");
    CsvReader steps(table, "steps.csv");
    const std::vector<std::string> names = steps.fields();
    ASSERT_GE(names.size(), 2u);
    Index found = 0;
    for (const Json& row : json_lines_of(done.out)) {
        if (row["table"].string() != "steps") continue;
        ASSERT_TRUE(steps.next());
        for (std::size_t i = 0; i < names.size(); ++i) {
            SCOPED_TRACE(names[i]);
            expect_equal(row[names[i]], steps.number(i));
        }
        ++found;
    }
    EXPECT_EQ(found, 3);
    EXPECT_FALSE(steps.next());
    EXPECT_THAT(done.out, HasSubstr(R"({"table": "gradients")"));
}

TEST_F(Export, WritesAFileAndReplacesOneOnlyIfAsked) {
    const std::vector<std::string> words = {"export", "result", "--to", "jsonl", "-o", "a.jsonl"};
    ASSERT_EQ(tsdiag(folder, words).code, 0);
    EXPECT_EQ(read_file(folder / "a.jsonl"),
              tsdiag(folder, {"export", "result", "--to", "jsonl"}).out);
    const Finished again = tsdiag(folder, words);
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, HasSubstr("--force"));
    std::vector<std::string> forced = words;
    forced.emplace_back("--force");
    EXPECT_EQ(tsdiag(folder, forced).code, 0);
}

TEST_F(Export, RefusesChangedTablesAndOtherFormats) {
    EXPECT_THAT(tsdiag(folder, {"export", "result", "--to", "xml"}).err,
                HasSubstr("expected jsonl, parquet, tensorboard"));
    EXPECT_THAT(tsdiag(folder, {"export", "result", "--to", "parquet"}).err,
                HasSubstr("name it by --out DIR"));
    EXPECT_EQ(tsdiag(folder, {"export", "absent", "--to", "jsonl"}).code, 1);
    std::ofstream(folder / "result/metrics.csv", std::ios::app) << "\n";
    const Finished changed = tsdiag(folder, {"export", "result", "--to", "jsonl"});
    EXPECT_EQ(changed.code, 1);
    EXPECT_THAT(changed.err, HasSubstr("SHA-256"));
    EXPECT_EQ(changed.out, "");
}

}  // namespace
}  // namespace tsdiag::test
