#include "train/data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data_models.hpp"
#include "support/files.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using training::Data;
using training::Example;
using training::Fit;

ModelSpec image_model(Index channels, Index side) {
    ModelSpec spec;
    spec.name = "model";
    spec.embedding.image.channels = channels;
    spec.embedding.image.height = spec.embedding.image.width = side;
    spec.blocks.resize(1);
    return spec;
}

std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "(no error)";
}

std::string big_endian(std::uint32_t x) {
    return {char(x >> 24), char(x >> 16), char(x >> 8), char(x)};
}

TEST(Data, CopiesAndReversesAroundASeparator) {
    const ModelSpec spec = tokens_model(9);
    const Fit fit{spec, cpu(), Type::f32, 7};
    for (const bool reversed : {false, true}) {
        const Example e = opened(reversed ? "reverse:8" : "copy:8")->training(fit, Rng(1), 5);
        const std::vector<Index>& ids = e.input.ids;
        ASSERT_EQ(ids.size(), 7U);
        EXPECT_EQ(ids[3], 8);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(ids[4 + i], ids[reversed ? 2 - i : i]);
        EXPECT_THAT(e.loss.rows, ElementsAre(3, 4, 5));
        EXPECT_THAT(e.loss.targets, ElementsAre(ids[4], ids[5], ids[6]));
    }
}

TEST(Data, TextKeepsItsLastTenthForEvaluation) {
    TemporaryDirectory folder;
    write_file(folder / "text", std::string(900, 'a') + std::string(100, 'b'));
    const ModelSpec spec = tokens_model(256);
    const Fit fit{spec, cpu(), Type::f32, 10};
    const auto data = opened("text:" + folder / "text");
    for (Index i = 0; i < 50; ++i) {
        EXPECT_THAT(data->training(fit, Rng(2), i).input.ids, Each('a'));
        EXPECT_THAT(data->held_out(fit, Rng(2), i).input.ids, Each('b'));
    }
}

TEST(Data, CharactersAreCodePoints) {
    TemporaryDirectory folder;
    write_file(folder / "text", "\u00e4\u20acz\U0001f600");
    const auto data = opened("chars:" + folder / "text");
    EXPECT_EQ(data->vocabulary(), 4);
    EXPECT_EQ(data->words({})["characters"].array()[3].string(), "\U0001f600");
    EXPECT_EQ(data->words({})["characters"].array()[1].string(), "\u00e4");
    write_file(folder / "broken", "ab\xff");
    EXPECT_THAT(error_of([&] { opened("chars:" + folder / "broken"); }),
                HasSubstr("byte 2 is not UTF-8"));
    // Overlong forms of '/' and U+20AC, a surrogate, more than U+10FFFF, a sequence cut off.
    for (const char* bytes : {"ab\xc0\xaf", "ab\xf0\x82\x82\xac", "ab\xed\xa0\x80",
                              "ab\xf4\x90\x80\x80", "ab\xe2\x82"}) {
        write_file(folder / "broken", bytes);
        EXPECT_THAT(error_of([&] { opened("chars:" + folder / "broken"); }),
                    HasSubstr("byte 2 is not UTF-8"))
            << bytes;
    }
}

/// The padding id of RoBERTa and TransNormer has no position and begins as a row of zeros.
TEST(Data, IdsSkipThePaddingOfTheModel) {
    TemporaryDirectory folder;
    std::string text;
    while (text.size() < 90) text += "abc";
    write_file(folder / "text", text);
    const std::string chars = "chars:" + folder / "text";
    for (const auto& [kind, loss] : {std::pair{std::string("markov:5"), "mlm"},
                                     {std::string("judged:5"), "classify"},
                                     {std::string("listops"), "classify"},
                                     {chars, "mlm"}}) {
        const auto data = opened(kind, loss);
        const Index symbols = data->vocabulary();
        const ModelSpec plain = tokens_model(symbols, false);
        ModelSpec padded = tokens_model(symbols + 1, false);
        padded.embedding.padding_id = 1;
        const Fit fit{plain, cpu(), Type::f32, 8};
        std::set<Index> seen;
        for (Index i = 0; i < 40; ++i) {
            const Example e = data->training(fit, Rng(2), i),
                          f = data->training({padded, cpu(), Type::f32, 8}, Rng(2), i);
            const auto moved = [](std::vector<Index> ids) {
                for (Index& id : ids) id += id >= 1;
                return ids;
            };
            EXPECT_EQ(f.input.ids, moved(e.input.ids)) << kind;
            EXPECT_EQ(f.loss.targets, moved(e.loss.targets)) << kind;
            EXPECT_EQ(f.loss.label, e.loss.label) << kind;
            seen.insert(e.input.ids.begin(), e.input.ids.end());
        }
        EXPECT_TRUE(seen.contains(1)) << kind;
        padded.embedding.vocabulary = symbols;
        EXPECT_THAT(error_of([&] {
                        data->require({padded, cpu(), Type::f32, 8});
                    }),
                    HasSubstr("the data needs " + std::to_string(symbols + 1)));
        padded.embedding.padding_id = symbols;  // behind them
        EXPECT_NO_THROW(data->require({padded, cpu(), Type::f32, 8}));
    }
    ModelSpec padded;
    padded.embedding.padding_id = 1;
    const Json characters = opened(chars)->words(padded)["characters"];
    EXPECT_EQ(characters.array()[0].string(), "a");
    EXPECT_EQ(characters.array()[1].string(), "");
    EXPECT_EQ(characters.array()[2].string(), "b");
}

TEST(Data, MaskingHidesFifteenPercentBehindAnIdOfItsOwn) {
    TemporaryDirectory folder;
    write_file(folder / "text", std::string(1000, 'x'));
    const auto data = opened("text:" + folder / "text", "mlm");
    EXPECT_EQ(data->vocabulary(), 257);
    const ModelSpec spec = tokens_model(257, false);
    const Example e = data->training({spec, cpu(), Type::f32, 40}, Rng(3), 0);
    EXPECT_EQ(e.loss.rows.size(), 6U);
    EXPECT_THAT(e.loss.targets, Each('x'));
    for (const Index row : e.loss.rows) EXPECT_EQ(e.input.ids[std::size_t(row)], 256);
    EXPECT_EQ(std::set<Index>(e.loss.rows.begin(), e.loss.rows.end()).size(), 6U);
}

TEST(Data, ReadsCifarAndShowsEachImageOnceAnEpoch) {
    TemporaryDirectory folder;
    const auto record = [](int label) {
        return std::string(1, char(label)) + std::string(3072, char(10 * label));
    };
    for (int k = 1; k <= 5; ++k)
        write_file(folder / ("data_batch_" + std::to_string(k) + ".bin"),
                   record(k) + record(k + 4));
    write_file(folder / "test_batch.bin", record(0));
    const auto data = opened("images:" + folder / "");
    const ModelSpec spec = image_model(3, 32);
    const Fit fit{spec, cpu(), Type::f32};
    EXPECT_EQ(data->classes(), 10);
    std::multiset<Index> labels;
    for (Index i = 10; i < 20; ++i) {
        const Example e = data->training(fit, Rng(4), i);
        labels.insert(e.loss.label);
        EXPECT_FLOAT_EQ(e.input.image.to_host<float>()[77], float(10 * e.loss.label) / 127.5F - 1);
    }
    EXPECT_THAT(labels, ElementsAre(1, 2, 3, 4, 5, 5, 6, 7, 8, 9));
    EXPECT_EQ(data->held_out(fit, Rng(4), 3).loss.label, 0);

    write_file(folder / "data_batch_3.bin", record(3) + "x");
    EXPECT_THAT(error_of([&] { opened("images:" + folder / ""); }), HasSubstr("multiple of 3073"));
    write_file(folder / "data_batch_3.bin", record(11));
    EXPECT_THAT(error_of([&] { opened("images:" + folder / ""); }), HasSubstr("label 11"));
}

TEST(Data, ReadsMnistAndRepeatsItsChannel) {
    TemporaryDirectory folder;
    const auto images = [](Index count) {
        return big_endian(0x803) + big_endian(std::uint32_t(count)) + big_endian(28) +
               big_endian(28) + std::string(std::size_t(count) * 784, '\x7f');
    };
    const auto labels = [](const std::string& all) {
        return big_endian(0x801) + big_endian(std::uint32_t(all.size())) + all;
    };
    write_file(folder / "train-images-idx3-ubyte", images(2));
    write_file(folder / "train-labels-idx1-ubyte", labels("\x07\x07"));
    write_file(folder / "t10k-images-idx3-ubyte", images(1));
    write_file(folder / "t10k-labels-idx1-ubyte", labels("\x03"));
    const auto data = opened("images:" + folder / "");
    const ModelSpec spec = image_model(3, 28);
    const Example e = data->training({spec, cpu(), Type::f32}, Rng(4), 1);
    EXPECT_EQ(e.loss.label, 7);
    EXPECT_EQ(e.input.image.shape(), (Shape{3, 28, 28}));
    EXPECT_FLOAT_EQ(e.input.image.to_host<float>().back(), 127 / 127.5F - 1);

    write_file(folder / "train-labels-idx1-ubyte", labels("\x07"));
    EXPECT_THAT(error_of([&] { opened("images:" + folder / ""); }), HasSubstr("has 2 images, but"));
    write_file(folder / "train-images-idx3-ubyte", images(2).substr(0, 900));
    EXPECT_THAT(error_of([&] { opened("images:" + folder / ""); }),
                HasSubstr("has 884 bytes after its header, expected 1568"));
}

TEST(Data, EachDirectionOfThePatternsHasItsGradient) {
    const ModelSpec spec = image_model(1, 24);
    const Fit fit{spec, cpu(), Type::f32};
    const auto data = opened("patterns:2");  // horizontal and vertical waves
    Index right = 0;
    constexpr Index count = 40;
    for (Index i = 0; i < count; ++i) {
        const Example e = data->training(fit, Rng(5), i);
        const std::vector<double> p = e.input.image.to_host<double>();
        std::vector<double> across(24), down(24);
        for (std::size_t y = 0; y < 24; ++y)
            for (std::size_t x = 0; x < 24; ++x)
                across[x] += p[24 * y + x], down[y] += p[24 * y + x];
        const auto spread = [](const std::vector<double>& v) {
            double mean = 0, squares = 0;
            for (const double x : v) mean += x / double(v.size());
            for (const double x : v) squares += (x - mean) * (x - mean);
            return squares;
        };
        right += (spread(across) > spread(down)) == (e.loss.label == 0);
    }
    EXPECT_GE(right, count - 1);  // sums over 24 noisy pixels: the wave dominates
}

TEST(Data, RefusesWhatDoesNotFit) {
    const ModelSpec small = tokens_model(8), open = tokens_model(17, false),
                    images = image_model(3, 32);
    const auto data = opened("copy");
    EXPECT_THAT(error_of([&] {
                    data->require({small, cpu(), Type::f32, 9});
                }),
                HasSubstr("has a vocabulary of 8, but the data needs 17"));
    EXPECT_THAT(error_of([&] {
                    data->require({open, cpu(), Type::f32, 9});
                }),
                HasSubstr("is not causal; use --loss mlm"));
    EXPECT_THAT(error_of([&] {
                    data->require({images, cpu(), Type::f32, 9});
                }),
                HasSubstr("takes no tokens"));
    EXPECT_THAT(error_of([] { opened("copie"); }), HasSubstr("unknown data 'copie'"));
    EXPECT_THAT(error_of([] { opened("copy:1"); }), HasSubstr("from 2 to"));
    EXPECT_THAT(error_of([] { opened("patterns", "lm"); }), HasSubstr("needs --loss classify"));
    EXPECT_THAT(error_of([] { opened("text:/nowhere/at/all"); }), HasSubstr("cannot be read"));
    EXPECT_THAT(error_of([] { opened("images:/nowhere"); }),
                HasSubstr("contains no data_batch_1.bin"));
}

}  // namespace
}  // namespace tsdiag::test
