#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tsdiag/error.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

constexpr std::string_view whole_header =
    "model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note,of,unit\n";
/// What earlier versions wrote.
constexpr std::string_view header =
    "model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note\n";

std::string message_of(const auto& action) {
    try {
        action();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

TEST(ResultCsv, FieldsThatDoNotApplyAreEmpty) {
    Table table("gpt2");
    table.scalar({.layer = 0, .stage = "embed"}, "t_sim", 0.25);
    table.scalar({.layer = 1, .stage = "attn", .head = 2}, "omega", undefined("causal"));

    EXPECT_EQ(metrics_csv(table.metrics()), std::string(whole_header) +
                                                "gpt2,,0,embed,,,t_sim,0.25,,,,1,,state,\n"
                                                "gpt2,,1,attn,2,,omega,,,,,0,causal,head,\n");
}

TEST(ResultCsv, ValuesOfSamplesAreOnePerColumn) {
    const MetricRow whole{.at = {.layer = 0, .stage = "out"},
                          .metric = "t_sim",
                          .samples = {0.25, std::nullopt, -1.0}},
        part{.at = {.layer = 1}, .metric = "delta", .samples = {0.5}},
        tensor{.at = {.layer = 1, .tensor = "=q"}, .metric = "fro", .samples = {1.0, 2.0, 3.0}};
    const std::string text = samples_csv({whole, part, tensor}, 3);
    EXPECT_EQ(text, "layer,stage,tensor,metric,0,1,2\n0,out,,t_sim,0.25,,-1\n1,,'=q,fro,1,2,3\n");
    EXPECT_EQ(samples_csv({part}, 1), "");
    EXPECT_EQ(samples_csv({whole, part}, 2), "");

    std::vector<MetricRow> rows = {whole, part, tensor};
    for (MetricRow& row : rows) row.samples.clear();
    const std::vector<MetricRow> bare = rows;
    read_samples_csv(text, "samples.csv", 3, -1, rows);
    EXPECT_EQ(rows[0].samples, whole.samples);
    EXPECT_TRUE(rows[1].samples.empty());
    EXPECT_EQ(rows[2].samples, tensor.samples);

    const auto refusal = [&](const std::string& changed, Index count) {
        return message_of([&] {
            std::vector<MetricRow> again = bare;
            read_samples_csv(changed, "samples.csv", count, -1, again);
        });
    };
    EXPECT_THAT(refusal(text, 2), HasSubstr("the header is"));
    EXPECT_THAT(refusal(text, 1), HasSubstr("expected 2 to 524288"));
    EXPECT_THAT(refusal(text, Index(1) << 60), HasSubstr("expected 2 to 524288"));
    EXPECT_THAT(refusal(text + "7,,,t_sim,1,2,3\n", 3), HasSubstr("no such row"));
    EXPECT_THAT(refusal(text + "0,out,,t_sim,1,2,3\n", 3), HasSubstr("is there twice"));
    EXPECT_THAT(refusal(text + "1,,,delta,1,nan,3\n", 3), HasSubstr("a finite number"));
}

TEST(ResultCsv, HostileTextSurvivesTheRoundTrip) {
    const std::string name = "a,\"b\"\r\nc\n\xce\xbb";
    MetricRow row{.model = name,
                  .at = {.step = 3, .layer = 1, .stage = ",", .head = 0, .tensor = "\""},
                  .metric = "m",
                  .value = 1e-300,
                  .low = -1,
                  .high = 2,
                  .standard_error = 0.5,
                  .count = 9,
                  .note = "x,\ny"};

    const std::vector<MetricRow> back = read_metrics_csv(metrics_csv({row, row}), "t.csv");

    ASSERT_EQ(back.size(), 2u);
    EXPECT_EQ(back[1].model, name);
    EXPECT_EQ(back[1].at, row.at);
    EXPECT_EQ(back[1].value, row.value);
    EXPECT_EQ(back[1].low, row.low);
    EXPECT_EQ(back[1].high, row.high);
    EXPECT_EQ(back[1].standard_error, row.standard_error);
    EXPECT_EQ(back[1].count, 9);
    EXPECT_EQ(back[1].note, row.note);
}

TEST(ResultCsv, NoTextIsAFormulaForASpreadsheet) {
    for (const std::string text : {"=1+1", "+x", "-x", "@x", "\tx", "\rx", "'x", "'=x", "''"}) {
        MetricRow row;
        row.model = row.at.tensor = row.note = text;
        row.metric = "t_sim";
        row.value = -1;
        const std::string csv = metrics_csv({row});
        EXPECT_TRUE(csv.substr(whole_header.size()).starts_with(text[0] == '\r' ? "\"'" : "'"))
            << csv;
        EXPECT_NE(csv.find(",-1,"), std::string::npos) << csv;  // numbers are unchanged
        const MetricRow read = read_metrics_csv(csv, "m").front();
        EXPECT_EQ(read.model, text);
        EXPECT_EQ(read.at.tensor, text);
        EXPECT_EQ(read.note, text);
    }
}

TEST(ResultCsv, CurvesRoundTrip) {
    Table table("m");
    for (double y : {0.1, 0.3}) table.point({.layer = 2, .head = 1}, "local_acc", 1.0 / 3, y);
    table.point({.layer = 2}, "local_acc", 1, undefined("none"));

    const std::vector<CurveRow> rows = table.curves();
    const std::vector<CurveRow> back = read_curves_csv(curves_csv(rows), "c.csv");

    ASSERT_EQ(back.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(back[i].at, rows[i].at);
        EXPECT_EQ(back[i].curve, rows[i].curve);
        EXPECT_EQ(back[i].x, rows[i].x);
        EXPECT_EQ(back[i].y, rows[i].y);
        EXPECT_EQ(back[i].standard_error, rows[i].standard_error);
    }
}

TEST(ResultCsv, ReadsCarriageReturnsAMissingLastNewlineAndAByteOrderMark) {
    const std::string text = "\xef\xbb\xbf" + std::string(header.substr(0, header.size() - 1)) +
                             "\r\nm,,0,in,,,fro,1,,,,1,\r\nm,,1,in,,,fro,2,,,,1,";
    const std::vector<MetricRow> rows = read_metrics_csv(text, "t.csv");
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].value, 2.0);
}

TEST(ResultCsv, ErrorsNameFileLineAndWhatWasFound) {
    const auto read = [](const std::string& body) {
        return message_of([&] { read_metrics_csv(std::string(header) + body, "t.csv"); });
    };
    EXPECT_THAT(read("m,,0,in,,,fro,1,,,,1\n"), HasSubstr("t.csv: line 2: 12 fields found"));
    EXPECT_THAT(read("m,,0,in,,,fro,1,,,,1,\nm,,0,in,,,fro,nan,,,,1,\n"),
                HasSubstr("line 3: 'nan' found in column 8, expected a finite number"));
    EXPECT_THAT(read("\"m\nm\",,0,in,,,fro,1,,,,1,\nm,,0,in,,,fro,1e999,,,,1,\n"),
                HasSubstr("line 4: '1e999'"));
    EXPECT_THAT(read("m,,-4,in,,,fro,1,,,,1,\n"), HasSubstr("'-4' found in column 3"));
    EXPECT_THAT(read("\"m,,0"), HasSubstr("a quoted field is not terminated"));
    EXPECT_THAT(read("\"m\"x,,0"), HasSubstr("text follows a closing quote"));
    EXPECT_THAT(message_of([] { read_metrics_csv("a,b\n", "t.csv"); }),
                HasSubstr("line 1: the header is 'a,b'"));
    EXPECT_THAT(message_of([] { read_metrics_csv("", "t.csv"); }), HasSubstr("line 1"));
}

TEST(ResultCsv, ANumberIsTheWholeField) {
    const auto row = [](const std::string& layer, const std::string& value,
                        const std::string& count) {
        return message_of([&] {
            read_metrics_csv(
                std::string(header) + "m,," + layer + ",in,,,fro," + value + ",,,," + count + ",\n",
                "t.csv");
        });
    };
    EXPECT_EQ(row("1", "-2.5e-3", "7"), "no error");
    for (const std::string more : {"x", " ", ".", "e", "-", "'"}) {
        EXPECT_THAT(row("1" + more, "1", "7"), HasSubstr("'1" + more + "' found in column 3"));
        EXPECT_THAT(row("1", "1", "7" + more), HasSubstr("'7" + more + "' found in column 12"));
        if (more == ".") continue;  // 1. is a number
        EXPECT_THAT(row("1", "1" + more, "7"), HasSubstr("'1" + more + "' found in column 8"));
    }
    for (const std::string what : {"x", " 1", "+1", "-1", "1.5", "9223372036854775808"}) {
        EXPECT_THAT(row(what, "1", "7"), HasSubstr("'" + what + "' found in column 3"));
        EXPECT_THAT(row("1", "1", what), HasSubstr("'" + what + "' found in column 12"));
    }
    EXPECT_EQ(row("1000000", "1", "7"), "no error");
    EXPECT_THAT(row("1000001", "1", "7"),
                HasSubstr("'1000001' found in column 3, expected a layer or head of at most"));
    for (const std::string what : {"x", " 1", "1e400", "inf", "0x1p3"})
        EXPECT_THAT(row("1", what, "7"), HasSubstr("'" + what + "' found in column 8"));
}

TEST(ResultCsv, LayersAndHeadsEndAtAMillion) {
    const std::string before(header);
    EXPECT_EQ(read_metrics_csv(before + "m,,1000000,in,1000000,,fro,1,,,,1,\n", "t.csv")[0].at.head,
              1'000'000);
    for (const char* row : {"m,,1000001,in,,,fro,1,,,,1,\n", "m,,0,in,1000001,,fro,1,,,,1,\n"})
        EXPECT_THROW(read_metrics_csv(before + row, "t.csv"), FormatError) << row;
}

TEST(ResultCsv, EveryPrefixIsReadOrRefused) {
    Table table("a \"quoted\", name");
    table.scalar({.layer = 0, .stage = "in"}, "fro", 1.5);
    table.scalar({.layer = 1, .stage = "in"}, "fro", undefined("line\nbreak"));
    const std::string text = metrics_csv(table.metrics());
    for (std::size_t n = 0; n < text.size(); ++n) {
        try {
            EXPECT_LE(read_metrics_csv(text.substr(0, n), "p").size(), 2u);
        } catch (const FormatError&) {
        }
    }
}

TEST(ResultCsv, SaysWhatEachNumberIsOfAndItsUnit) {
    Table table("m");
    table.scalar({.layer = 0, .stage = "attn", .head = 1}, "entropy", 0.5);
    table.scalar({.layer = 0, .stage = "attn"}, "entropy", 0.5);
    table.scalar({.layer = 0, .stage = "out"}, "r", 2);
    table.scalar({.layer = 0, .stage = "out"}, "of_another_program", 2);
    const std::string csv = metrics_csv(table.metrics());
    for (const char* line : {"m,,0,attn,1,,entropy,0.5,,,,1,,head,nats\n",
                             "m,,0,attn,,,entropy,0.5,,,,1,,mean over heads,nats\n",
                             "m,,0,out,,,r,2,,,,1,,step,\n", ",of_another_program,2,,,,1,,,\n"})
        EXPECT_THAT(csv, HasSubstr(line));
    EXPECT_EQ(read_metrics_csv(csv, "m").size(), 4u);
}

}  // namespace
}  // namespace tsdiag
