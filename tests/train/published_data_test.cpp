#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "data_models.hpp"
#include "support/files.hpp"
#include "support/pictures.hpp"
#include "support/places.hpp"
#include "train/data.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Data sets in their published layouts, as tiny files.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using training::Data;
using training::Example;
using training::Fit;

/// The error of opening: one sentence.
std::string error_of(const std::string& data) {
    try {
        opened(data);
    } catch (const Error& error) {
        const std::string what = error.what();
        EXPECT_THAT(what, AllOf(Not(HasSubstr("\n")), testing::ContainsRegex("[^.?][.?]$")))
            << data;
        return what;
    }
    return "(no error)";
}
std::string error_of(const Data& data, const Fit& fit) {
    try {
        data.require(fit);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "(no error)";
}
void write(const fs::path& file, std::string_view text) {
    fs::create_directories(file.parent_path());
    write_file(file, text);
}
std::string text_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// What samples 0 to 63 of a training say, by label.
std::map<Index, std::set<std::vector<Index>>> by_label(const Data& data, const Fit& fit,
                                                       bool held_out = false) {
    std::map<Index, std::set<std::vector<Index>>> out;
    for (Index i = 0; i < 64; ++i) {
        const Example e = held_out ? data.held_out(fit, Rng(1), i) : data.training(fit, Rng(1), i);
        out[e.loss.label].insert(e.input.ids);
    }
    return out;
}

TEST(PublishedData, TheTableOfTheManualIsWrittenFromTheList) {
    const fs::path file = fs::path(test_data()) / "../../docs/train.md";
    const std::string begin = "<!-- data -->\n", end = "<!-- end -->\n";
    std::string after = text_of(file);
    const std::size_t from = after.find(begin), to = after.find(end, from);
    ASSERT_NE(to, std::string::npos);
    after.replace(from + begin.size(), to - from - begin.size(), data_markdown());
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << after;
    EXPECT_EQ(text_of(file), after)
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write the table of docs/train.md anew";
}

TEST(PublishedData, AnOrderShowsEachSampleOnceAnEpochToManyThreads) {
    const training::EpochOrder order;
    constexpr Index count = 50, epochs = 4;
    std::vector<Index> seen(count * epochs);
#pragma omp parallel for schedule(static, 1)
    for (Index i = 0; i < count * epochs; ++i) seen[std::size_t(i)] = order.at(Rng(3), count, i);
    std::set<std::vector<Index>> orders;
    for (Index e = 0; e < epochs; ++e) {
        const std::vector<Index> one(seen.begin() + e * count, seen.begin() + (e + 1) * count);
        EXPECT_EQ(std::set<Index>(one.begin(), one.end()).size(), std::size_t(count));
        orders.insert(one);
    }
    EXPECT_EQ(orders.size(), std::size_t(epochs));
    EXPECT_NE(order.at(Rng(4), count, 0) * count + order.at(Rng(4), count, 1),
              order.at(Rng(3), count, 0) * count + order.at(Rng(3), count, 1));
}

TEST(PublishedData, WikiTextHoldsItsSecondFileOut) {
    TemporaryDirectory folder;
    write_file(folder / "wiki.train.raw", std::string(40, 'a'));
    write_file(folder / "wiki.valid.raw", std::string(20, 'b'));
    const ModelSpec spec = [] {
        ModelSpec s = tokens_model(256, false);
        s.blocks[0].attention.causal = true;
        return s;
    }();
    const Fit fit{spec, cpu(), Type::f32, 10};
    const auto data = opened(folder / "");  // the layout is recognised
    EXPECT_EQ(data->held_out(), 20);
    for (Index i = 0; i < 20; ++i) {
        EXPECT_THAT(data->training(fit, Rng(2), i).input.ids, testing::Each('a'));
        EXPECT_THAT(data->held_out(fit, Rng(2), i).input.ids, testing::Each('b'));
    }
    fs::remove(folder / "wiki.valid.raw");
    EXPECT_THAT(error_of(folder / ""), HasSubstr("wiki.valid.raw"));
}

TEST(PublishedData, ListopsIsReadAsItWasWritten) {
    TemporaryDirectory folder;
    const std::string header = "Source\tTarget\r\n";
    write_file(folder / "basic_train.tsv",
               header + "( ( ( ( [MAX 4 ) 3 ) 9 ) ] )\t9\r\n( ( ( [SM 7 ) 8 ) ] )\t5\r\n");
    write_file(folder / "basic_test.tsv", header + "( ( ( [MIN 2 ) 0 ) ] )\t0\r\n");
    const auto data = opened("listops:" + folder / "");
    EXPECT_EQ(data->vocabulary(), 16);
    EXPECT_EQ(data->classes(), 10);
    const ModelSpec spec = tokens_model(16, false);
    const Fit fit{spec, cpu(), Type::f32, 6};
    // the padding is 0, digits begin at 1, [MIN [MAX [MED [SM ] at 11
    EXPECT_THAT(by_label(*data, fit),
                ElementsAre(testing::Pair(5, ElementsAre(ElementsAre(14, 8, 9, 15, 0, 0))),
                            testing::Pair(9, ElementsAre(ElementsAre(12, 5, 4, 10, 15, 0)))));
    EXPECT_THAT(data->held_out(fit, Rng(1), 0).input.ids, ElementsAre(11, 3, 1, 15, 0, 0));
    const Fit shorter{spec, cpu(), Type::f32, 3};
    EXPECT_THAT(data->held_out(shorter, Rng(1), 0).input.ids, ElementsAre(11, 3, 1));
    EXPECT_NE(dynamic_cast<Data*>(opened(folder / "").get()), nullptr);

    for (const auto& [bad, why] : std::map<std::string, std::string>{
             {"Source,Target\n1,1\n", "line 1: expected the header"},
             {header, "contains no samples"},
             {header + "( [MAX 1 2 ] )\t10\n", "line 2: the label is '10', expected 0 to 9"},
             {header + "( [MAX 1 2 ] )\t-1\n", "the label is '-1'"},
             {header + "( [MAX 1 2 ] )\tx\n", "the label is 'x'"},
             {header + "( [MAX 1 2 ] )\n", "has 1 cells, expected 2"},
             {header + "( [MAX 1 12 ] )\t1\n", "'12' is not a ListOps symbol"},
             {header + "( )\t1\n", "has no expression"}}) {
        write_file(folder / "basic_test.tsv", bad);
        EXPECT_THAT(error_of("listops:" + folder / ""),
                    AllOf(HasSubstr(why), HasSubstr(folder / "")));
    }
    fs::remove(folder / "basic_test.tsv");
    EXPECT_THAT(error_of("listops:" + folder / ""), HasSubstr("basic_test.tsv: cannot be read"));
}

/// The value of drawn ids by their definition.
Index listops_value(const std::vector<Index>& ids, std::size_t& at) {
    const Index id = ids.at(at++);
    if (id <= 10) return id - 1;
    std::vector<Index> values;
    while (ids.at(at) != 15) values.push_back(listops_value(ids, at));
    ++at;
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    EXPECT_GE(n, 2U);
    EXPECT_LE(n, 10U);
    if (id == 11) return values.front();
    if (id == 12) return values.back();
    if (id == 13) return (values[(n - 1) / 2] + values[n / 2]) / 2;
    Index sum = 0;
    for (const Index v : values) sum += v;
    return sum % 10;
}

TEST(PublishedData, DrawnListopsComeToTheirLabels) {
    const auto data = opened("listops");
    const ModelSpec spec = tokens_model(16, false);
    const Fit fit{spec, cpu(), Type::f32, 40};
    std::set<Index> operators, labels;
    for (Index i = 0; i < 200; ++i) {
        const Example e = i % 2 ? data->training(fit, Rng(7), i) : data->held_out(fit, Rng(7), i);
        std::size_t end = 0;
        EXPECT_EQ(listops_value(e.input.ids, end), e.loss.label);
        EXPECT_GT(end, 10U);  // longer than a quarter
        EXPECT_EQ(e.input.ids.size(), 40U);
        for (std::size_t k = end; k < 40; ++k) EXPECT_EQ(e.input.ids[k], 0);
        for (const Index id : e.input.ids) operators.insert(id);
        labels.insert(e.loss.label);
    }
    EXPECT_EQ(operators.size(), 16U);
    EXPECT_EQ(labels.size(), 10U);
    const Fit none{spec, cpu(), Type::f32, 4};
    EXPECT_THAT(error_of(*data, none), HasSubstr("--tokens 4: too few"));
    const ModelSpec small = tokens_model(15, false);
    EXPECT_THAT(error_of(*data, {small, cpu(), Type::f32, 40}), HasSubstr("the data needs 16"));
}

TEST(PublishedData, ReviewsAreLabelledByTheirFolders) {
    TemporaryDirectory folder;
    const fs::path root = folder.path() / "aclImdb";
    write(root / "train/pos/0_9.txt", "good");
    write(root / "train/neg/0_2.txt", "bad");
    write(root / "train/unsup/0_0.txt", "none");
    write(root / "train/urls_pos.txt", "http");
    write(root / "test/pos/0_10.txt", std::string(5000, 'g'));
    const std::string data = "imdb:" + root.string();
    EXPECT_THAT(error_of(data), HasSubstr("test/neg: cannot be read"));
    write(root / "test/neg/0_1.txt", "");
    const ModelSpec spec = tokens_model(256, false);
    const Fit fit{spec, cpu(), Type::f32, 5};
    for (const auto& set : {opened(data), opened(root.string())}) {
        EXPECT_THAT(by_label(*set, fit),
                    ElementsAre(testing::Pair(0, ElementsAre(ElementsAre('b', 'a', 'd', 0, 0))),
                                testing::Pair(1, ElementsAre(ElementsAre('g', 'o', 'o', 'd', 0)))));
        EXPECT_THAT(
            by_label(*set, fit, true),
            ElementsAre(testing::Pair(0, ElementsAre(ElementsAre(0, 0, 0, 0, 0))),
                        testing::Pair(1, ElementsAre(ElementsAre('g', 'g', 'g', 'g', 'g')))));
    }
    fs::remove(root / "train/pos/0_9.txt");
    fs::remove(root / "train/neg/0_2.txt");
    EXPECT_THAT(error_of(data), HasSubstr("contains no samples for training"));
}

TEST(PublishedData, PapersArePairs) {
    TemporaryDirectory folder;
    write_file(folder / "new_aan_pairs.train.tsv", "1.0\tP1\tP2\tabc\tde\n0.0\tP1\tP3\tabc\tf\n");
    write_file(folder / "new_aan_pairs.test.tsv", "1\tP3\tP2\tf\tde\n");
    const auto data = opened("aan:" + folder / "");
    EXPECT_TRUE(data->pairs());
    const ModelSpec spec = tokens_model(256, false);
    const Fit fit{spec, cpu(), Type::f32, 3};
    std::set<std::vector<Index>> seconds;
    for (Index i = 0; i < 2; ++i) {
        const Example e = data->training(fit, Rng(1), i);
        EXPECT_EQ(e.loss.kind, Loss::Kind::pairs);
        EXPECT_THAT(e.input.ids, ElementsAre('a', 'b', 'c'));
        ASSERT_TRUE(e.second);
        EXPECT_EQ(e.second->ids[0], e.loss.label == 1 ? 'd' : 'f');
        seconds.insert(e.second->ids);
    }
    EXPECT_EQ(seconds.size(), 2U);
    for (const auto& [bad, why] :
         std::map<std::string, std::string>{{"2.0\ta\tb\tc\td\n", "the label is '2.0'"},
                                            {"1.0\ta\tb\tc\n", "has 4 cells, expected 5"},
                                            {"label\ta\tb\tc\td\n", "the label is 'label'"},
                                            {"", "contains no samples to hold out"}}) {
        write_file(folder / "new_aan_pairs.test.tsv", bad);
        EXPECT_THAT(error_of(folder / ""), HasSubstr(why));
    }
}

TEST(PublishedData, PixelsAreGreyValuesOfCifar) {
    TemporaryDirectory folder;
    const auto record = [](char label, char red, char green, char blue) {
        return label + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
    };
    for (int k = 1; k <= 5; ++k)
        write_file(folder / ("data_batch_" + std::to_string(k) + ".bin"), record(3, '\xff', 0, 0));
    write_file(folder / "test_batch.bin", record(7, '\xff', '\xff', '\xff'));
    const auto data = opened("pixels:" + folder / "");
    const ModelSpec spec = tokens_model(256, false);
    const Fit fit{spec, cpu(), Type::f32, 1024};
    EXPECT_THAT(data->training(fit, Rng(1), 0).input.ids, testing::Each(int(255.5 * 0.2989)));
    const Example white = data->held_out(fit, Rng(1), 0);
    EXPECT_EQ(white.loss.label, 7);
    EXPECT_THAT(white.input.ids, testing::Each(255));
    EXPECT_THAT(error_of(*data, {spec, cpu(), Type::f32, 100}), HasSubstr("expected 1024"));
    write_file(folder / "test_batch.bin", record(7, 0, 0, 0).substr(1));
    EXPECT_THAT(error_of("pixels:" + folder / ""), HasSubstr("test_batch.bin"));
}

#ifdef TSDIAG_PNG
TEST(PublishedData, PathfinderReadsItsImagesByTheirMetadata) {
    TemporaryDirectory folder;
    const fs::path root = folder.path();
    std::string lines;
    for (int i = 0; i < 20; ++i) {
        const std::string name = "sample_" + std::to_string(i) + ".png";
        write(root / "imgs/0" / name, i == 7 ? "" : png_of(std::string(9, char(10 * i)), 3));
        lines += "imgs/0 " + name + " " + std::to_string(i) + " " + std::to_string(i % 2) +
                 " 1.0 14 4 2 0.5 1 1\n";
    }
    write(root / "metadata/0.npy", lines);
    const std::string data = "pathfinder:" + root.string();
    const auto set = opened(data);
    const ModelSpec spec = tokens_model(256, false);
    const Fit fit{spec, cpu(), Type::f32, 9};
    EXPECT_EQ(set->held_out(), 2);  // of 19: one file is empty
    std::set<Index> seen;
    for (Index i = 0; i < 17; ++i) {
        const Example e = set->training(fit, Rng(1), i);
        EXPECT_THAT(e.input.ids, testing::Each(e.input.ids[0]));
        EXPECT_EQ(e.input.ids[0] / 10 % 2, e.loss.label);
        seen.insert(e.input.ids[0]);
    }
    for (Index i = 0; i < 2; ++i) seen.insert(set->held_out(fit, Rng(1), i).input.ids[0]);
    EXPECT_EQ(seen.size(), 19U);
    EXPECT_THAT(error_of(*set, {spec, cpu(), Type::f32, 16}), HasSubstr("expected 9"));

    const std::string good = png_of(std::string(9, 'x'), 3);
    for (const auto& [bad, why] : std::map<std::string, std::string>{
             {good.substr(0, good.size() - 20), "sample_3.png: cannot be read as PNG"},
             {good.substr(0, 30), "sample_3.png: cannot be read as PNG"},
             {"no image", "sample_3.png: is no picture in PNG, JPEG or WebP"},
             {png_of(std::string(16, 'x'), 4), "expected"}}) {
        write(root / "imgs/0/sample_3.png", bad);
        EXPECT_THAT(error_of(data), HasSubstr(why));
    }
    fs::remove(root / "imgs/0/sample_3.png");
    EXPECT_THAT(error_of(data), HasSubstr("sample_3.png: cannot be read"));
    write(root / "metadata/0.npy", "imgs/0 sample_0.png 0 2 1.0\n");
    EXPECT_THAT(error_of(data), HasSubstr("line 1"));
    fs::remove(root / "metadata/0.npy");
    EXPECT_THAT(error_of(data), HasSubstr("contains no metadata"));
}
#endif

TEST(PublishedData, DrawnPathsAreMarkedAtTheirEnds) {
    const auto data = opened("pathfinder");
    const ModelSpec spec = tokens_model(256, false);
    Index same = 0;
    for (const Index side : {12, 32}) {
        const Fit fit{spec, cpu(), Type::f32, side * side};
        EXPECT_EQ(error_of(*data, fit), "(no error)");
        for (Index i = 0; i < 20; ++i) {
            const Example e = data->training(fit, Rng(5), i);
            ASSERT_EQ(std::ssize(e.input.ids), side * side);
            same += e.loss.label;
            // two full discs of radius 1.5, about 7 pixels each, and thin lines
            Index full = 0, dark = 0;
            for (const Index grey : e.input.ids) full += grey == 255, dark += grey == 0;
            EXPECT_GE(full, 4) << side;
            EXPECT_GT(dark, side * side / 3) << side;
            EXPECT_EQ(e.input.ids, data->training(fit, Rng(5), i).input.ids);
        }
    }
    EXPECT_GE(same, 8);  // of 40 tosses: less than 8 is 5 deviations away
    EXPECT_LE(same, 32);
    for (const Index tokens : {100, 150})
        EXPECT_THAT(error_of(*data, {spec, cpu(), Type::f32, tokens}), HasSubstr("s x s pixels"));
}

#ifdef TSDIAG_JPEG
TEST(PublishedData, TinyImageNetIsFoldersOfJpeg) {
    TemporaryDirectory folder;
    const fs::path root = folder.path();
    write(root / "wnids.txt", "n02\nn01\n");
    write(root / "train/n01/images/n01_0.JPEG", jpeg_of(16, 200, 0, 0));
    write(root / "train/n01/n01_boxes.txt", "n01_0.JPEG\t0\t0\t9\t9\n");
    write(root / "train/n02/images/n02_0.JPEG", jpeg_of(16, 90, 90, 90, true));
    write(root / "val/images/val_0.JPEG", jpeg_of(16, 0, 0, 200));
    write(root / "val/val_annotations.txt", "val_0.JPEG\tn02\t0\t32\t44\t62\n");
    ModelSpec spec;
    spec.name = "model";
    spec.embedding.image.channels = 3;
    spec.embedding.image.height = spec.embedding.image.width = 16;
    spec.blocks.resize(1);
    const Fit fit{spec, cpu(), Type::f32};
    const auto data = opened(root.string());
    EXPECT_EQ(data->classes(), 2);
    const auto colour = [](const Example& e, std::size_t channel) {
        return 127.5 * (double(e.input.image.to_host<float>()[256 * channel + 40]) + 1);
    };
    for (Index i = 0; i < 2; ++i) {
        const Example e = data->training(fit, Rng(1), i);
        const bool red = e.loss.label == 1;            // wnids.txt numbers the classes
        EXPECT_NEAR(colour(e, 0), red ? 200 : 90, 4);  // a JPEG of quality 95
        EXPECT_NEAR(colour(e, 1), red ? 0 : 90, 4);
    }
    const Example held = data->held_out(fit, Rng(1), 0);
    EXPECT_EQ(held.loss.label, 0);
    EXPECT_NEAR(colour(held, 2), 200, 4);

    const std::string good = jpeg_of(16, 1, 2, 3);
    for (const auto& [bad, why] : std::map<std::string, std::string>{
             {good.substr(0, good.size() - 30), "cannot be read as JPEG"},
             {good.substr(0, 20), "cannot be read as JPEG"},
             {"no image", "is no picture in PNG, JPEG or WebP"},
             {jpeg_of(8, 1, 2, 3), "has 8 x 8 pixels, expected 16 x 16"}}) {
        write(root / "val/images/val_0.JPEG", bad);
        EXPECT_THAT(error_of(root.string()), AllOf(HasSubstr("val_0.JPEG"), HasSubstr(why)));
    }
    write(root / "val/val_annotations.txt", "val_0.JPEG\tn03\t0\t32\t44\t62\n");
    EXPECT_THAT(error_of(root.string()), HasSubstr("val_annotations.txt: line 1"));
    write(root / "val/val_annotations.txt", "val_1.JPEG\tn01\t0\t32\t44\t62\n");
    EXPECT_THAT(error_of(root.string()), HasSubstr("val_1.JPEG"));
    fs::remove_all(root / "train/n02");
    EXPECT_THAT(error_of(root.string()), HasSubstr("n02/images: cannot be read"));
}
#endif

TEST(PublishedData, TasksOfGlueAreKnownByTheirHeaders) {
    struct Table {
        const char *name, *header, *row, *dev;
        Index classes, label;
        const char* text;
    };
    const std::string mnli =
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n";
    const Table tables[] = {
        {"MNLI", mnli.c_str(), "0\t1\t1n\tg\t( a\t( b\t(R\t(R\tab\tc\tneutral\tneutral\n",
         "dev_matched.tsv", 3, 2, "ab\nc"},
        {"QNLI", "index\tquestion\tsentence\tlabel\n", "0\tw?\ts\tnot_entailment\n", "dev.tsv", 2,
         1, "w?\ns"},
        {"QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n", "torn\n0\t1\t2\tp\tq\t1\n",
         "dev.tsv", 2, 1, "p\nq"},
        {"MRPC", "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n",
         "0\t11\t12\tone\t\"two\r\n", "dev.tsv", 2, 0, "one\n\"two"},
        {"RTE", "index\tsentence1\tsentence2\tlabel\n", "0\ta\tb\tentailment\n", "dev.tsv", 2, 0,
         "a\nb"},
        {"SST", "sentence\tlabel\n", "good film \t1\n", "dev.tsv", 2, 1, "good film "},
        {"CoLA", "", "gj04\t0\t*\tThe in.\n", "dev.tsv", 2, 0, "The in."}};
    const ModelSpec spec = tokens_model(256, false);
    const Fit fit{spec, cpu(), Type::f32, 30};
    TemporaryDirectory folder;
    for (const Table& table : tables) {
        const fs::path root = folder.path() / table.name;
        write(root / "train.tsv", std::string(table.header) + table.row);
        write(root / table.dev, std::string(table.header) + table.row);
        for (const auto& data : {opened("glue:" + root.string()), opened(root.string())}) {
            EXPECT_EQ(data->classes(), table.classes) << table.name;
            const Example e = data->training(fit, Rng(1), 0);
            EXPECT_EQ(e.loss.label, table.label) << table.name;
            const std::string text = table.text;
            EXPECT_EQ(e.input.ids, std::vector<Index>(text.begin(), text.end())) << table.name;
        }
    }
    const fs::path root = folder.path() / "MNLI";
    EXPECT_THAT(error_of("glue:" + root.string() + ":mismatched"),
                HasSubstr("dev_mismatched.tsv: cannot be read"));
    write(root / "dev_mismatched.tsv", mnli + "0\t1\t1n\tg\t\t\t\t\tq\tr\tx\tentailment\n");
    EXPECT_EQ(opened("glue:" + root.string() + ":mismatched")->held_out(fit, Rng(1), 0).loss.label,
              1);

    const fs::path qnli = folder.path() / "QNLI";
    const std::string header = "index\tquestion\tsentence\tlabel\n";
    for (const auto& [bad, why] : std::map<std::string, std::string>{
             {header + "0\tw?\ts\tmaybe\n", "line 2: the label 'maybe' is not one of QNLI"},
             {header + "0\tw?\ts\t\n", "the label '' is not one of"},
             {header + "0\tw?\ts\n", "has 3 cells, expected 4"},
             {header, "contains no samples to hold out"},
             {"a\tb\n", "is not the header of a known task"},
             {"sentence\tlabel\nx\t1\n", "is a table of SST-2, expected QNLI"}}) {
        write(qnli / "dev.tsv", bad);
        EXPECT_THAT(error_of("glue:" + qnli.string()), HasSubstr(why));
    }
}

TEST(PublishedData, JudgedChainsDifferFromTheirChainWhereTheyHaveErrors) {
    const auto judged = opened("judged:5"), chain = opened("markov:5", "mlm");
    const ModelSpec spec = tokens_model(6, false);
    const Fit fit{spec, cpu(), Type::f32, 40};
    EXPECT_LT(judged->vocabulary(), chain->vocabulary());  // the mask
    // which symbols may follow a pair, by what the good samples show
    std::map<std::pair<Index, Index>, std::set<Index>> follows;
    const auto visit = [&](const Example& e, const auto& at) {
        for (std::size_t i = 2; i < e.input.ids.size(); ++i)
            at(std::pair(e.input.ids[i - 2], e.input.ids[i - 1]), e.input.ids[i]);
    };
    for (Index i = 0; i < 400; ++i)
        if (const Example e = judged->training(fit, Rng(6), i); e.loss.label == 1)
            visit(e, [&](auto pair, Index id) { follows[pair].insert(id); });
    for (const auto& [pair, ids] : follows) EXPECT_LE(ids.size(), 3U);
    Index broken = 0, bad = 0;
    for (Index i = 0; i < 100; ++i) {
        const Example e = judged->held_out(fit, Rng(6), i);
        if (e.loss.label == 1) continue;
        ++bad;
        bool breaks = false;
        visit(e, [&](auto pair, Index id) { breaks = breaks || !follows[pair].contains(id); });
        broken += breaks;
    }
    EXPECT_GT(bad, 25);
    EXPECT_GT(broken, bad * 9 / 10);  // eight errors a sample, two of five symbols are wrong
}

TEST(PublishedData, AFolderOfNoKnownLayoutIsRefused) {
    TemporaryDirectory folder;
    EXPECT_THAT(error_of(folder / ""),
                AllOf(HasSubstr("no known layout"), HasSubstr("wiki.train.raw"),
                      HasSubstr("basic_train.tsv")));
    EXPECT_THAT(error_of("listop:x"), HasSubstr("did you mean listops"));
    for (const char* kind :
         {"wikitext", "listops", "imdb", "aan", "glue", "pathfinder", "pixels", "images"})
        EXPECT_THAT(error_of(std::string(kind) + ":/nowhere"), HasSubstr("/nowhere")) << kind;
    EXPECT_THAT(error_of("imdb"), HasSubstr("expected imdb:DIR"));
}

}  // namespace
}  // namespace tsdiag::test
