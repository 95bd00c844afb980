#include "run/inputs.hpp"

#include <gmock/gmock.h>

#include "support/files.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

ModelSpec language_model() {
    ModelSpec spec;
    spec.width = spec.embedding.width = 6;
    spec.embedding.vocabulary = 20;
    spec.embedding.max_tokens = 16;
    spec.embedding.positions = Positions::learned;
    return spec;
}

ModelSpec image_model() {
    ModelSpec spec;
    spec.width = spec.embedding.width = 6;
    spec.embedding.image.channels = 3;
    spec.embedding.image.height = spec.embedding.image.width = 8;
    spec.embedding.image.patch_height = spec.embedding.image.patch_width = 4;
    spec.embedding.prefix_tokens = 1;
    return spec;
}

InputSource source(const RunOptions& options, const ModelSpec& spec) {
    return InputSource(options, spec, cpu(), Type::f64);
}

TEST(Inputs, DefaultsFollowTheModel) {
    const RunOptions options;
    const ModelSpec language = language_model(), images = image_model();
    ModelSpec encoder;
    encoder.width = 6;
    EXPECT_EQ(source(options, language).kind(), "ids:random");
    EXPECT_EQ(source(options, language).tokens(), 16);
    EXPECT_EQ(source(options, encoder).kind(), "gaussian");
    EXPECT_EQ(source(options, encoder).tokens(), 512);
    EXPECT_EQ(source(options, images).kind(), "gaussian");
    EXPECT_EQ(source(options, images).tokens(), 5);
    EXPECT_EQ(source(options, images).samples(0)[0].image.shape(), (Shape{3, 8, 8}));
}

TEST(Inputs, SamplesAndTrialsDifferAndRepeat) {
    RunOptions options;
    options.samples = 2;
    const ModelSpec spec = language_model();
    const auto first = source(options, spec).samples(0), again = source(options, spec).samples(0);
    EXPECT_EQ(first[0].ids, again[0].ids);
    EXPECT_NE(first[0].ids, first[1].ids);
    EXPECT_NE(first[0].ids, source(options, spec).samples(1)[0].ids);
    options.seed = 1;
    EXPECT_NE(first[0].ids, source(options, spec).samples(0)[0].ids);
}

TEST(Inputs, RandomIdsCoverTheVocabularyButThePadding) {
    RunOptions options;
    options.samples = 200;
    ModelSpec spec = language_model();
    spec.embedding.padding_id = 3;
    std::vector<Index> counts(20);
    for (const Input& input : source(options, spec).samples(0))
        for (const Index id : input.ids) counts[std::size_t(id)] += 1;
    EXPECT_EQ(counts[3], 0);
    const double mean = 200.0 * 16 / 19;
    for (std::size_t id = 0; id < counts.size(); ++id)
        if (id != 3) {
            EXPECT_NEAR(double(counts[id]), mean, 6 * std::sqrt(mean)) << id;
        }
}

TEST(Inputs, GaussianStatesAreStandardNormal) {
    RunOptions options;
    options.input = "gaussian";
    options.tokens = 4000;  // hidden states have no position limit
    const ModelSpec spec = language_model();
    const std::vector<double> x = source(options, spec).samples(0)[0].hidden.to_host<double>();
    double mean = 0, square = 0;
    for (const double v : x) {
        mean += v / double(x.size());
        square += v * v / double(x.size());
    }
    EXPECT_CLOSE(mean, 0.0, sampling(Index(x.size()), 1));
    EXPECT_CLOSE(square, 1.0, sampling(Index(x.size()), std::sqrt(2)));
}

struct TextIds {
    const char* what;
    const char* text;
    std::vector<std::vector<Index>> ids;  // empty: refused
};
class EveryTextOfIds : public testing::TestWithParam<TextIds> {};

TEST_P(EveryTextOfIds, IsReadOrRefused) {
    TemporaryDirectory folder;
    write_file(folder / "ids.txt", GetParam().text);
    if (GetParam().ids.empty())
        EXPECT_THROW(read_text_ids(folder / "ids.txt"), FormatError);
    else
        EXPECT_EQ(read_text_ids(folder / "ids.txt"), GetParam().ids);
}

const TextIds texts[] = {
    {"one_line", "1 2 3\n", {{1, 2, 3}}},
    {"commas", "1,2, 3", {{1, 2, 3}}},
    {"one_a_line", "1\n2\n\n3\n", {{1, 2, 3}}},
    {"a_sample_a_line", "1 2\n3 4\r\n", {{1, 2}, {3, 4}}},
    {"ragged", "1 2\n3\n", {}},
    {"ragged_from_the_second", "1\n2 3\n", {}},
    {"empty", " \n", {}},
    {"words", "1 two 3", {}},
    {"fraction", "1 2.5", {}},
    {"overflow", "99999999999999999999", {}},
};
INSTANTIATE_TEST_SUITE_P(Texts, EveryTextOfIds, testing::ValuesIn(texts),
                         [](const auto& test) { return test.param.what; });

TEST(Inputs, OneSequenceIsCutIntoConsecutiveSamples) {
    TemporaryDirectory folder;
    write_file(folder / "ids.txt", "0 1 2 3 4 5 6 7 8 9");
    RunOptions options;
    options.input = "ids:" + folder / "ids.txt";
    options.tokens = 3;
    options.samples = 3;
    const ModelSpec spec = language_model();
    const auto samples = source(options, spec).samples(0);
    EXPECT_EQ(samples[0].ids, (std::vector<Index>{0, 1, 2}));
    EXPECT_EQ(samples[2].ids, (std::vector<Index>{6, 7, 8}));
    options.samples = 4;
    EXPECT_THROW(source(options, spec), FormatError);
}

TEST(Inputs, TheFileSaysHowManyTokensAndSamples) {
    TemporaryDirectory folder;
    const std::vector<std::int64_t> ids = {1, 2, 3, 4, 5, 6};
    write_npy<std::int64_t>(folder / "ids.npy", "<i8", {2, 3}, ids);
    RunOptions options;
    options.input = "ids:" + folder / "ids.npy";
    const ModelSpec spec = language_model();
    const InputSource two = source(options, spec);
    EXPECT_EQ(two.count(), 2);
    EXPECT_EQ(two.tokens(), 3);
    EXPECT_EQ(two.samples(0)[1].ids, (std::vector<Index>{4, 5, 6}));
    options.tokens = 2;
    EXPECT_EQ(source(options, spec).samples(0)[1].ids, (std::vector<Index>{4, 5}));
}

TEST(Inputs, RowsOfAFileEnterWhereTheyShould) {
    TemporaryDirectory folder;
    std::vector<float> rows(2 * 3 * 6);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = float(i);
    write_npy<float>(folder / "x.npy", "<f4", {2, 3, 6}, rows);
    RunOptions options;
    const ModelSpec spec = language_model();
    options.input = "hidden:" + folder / "x.npy";
    EXPECT_EQ(source(options, spec).samples(0)[1].hidden.to_host<double>()[0], 18);
    options.input = "embeddings:" + folder / "x.npy";
    options.tokens = 2;
    const Input second = source(options, spec).samples(0)[1];
    EXPECT_EQ(second.embeddings.shape(), (Shape{1, 2, 6}));
    EXPECT_EQ(second.embeddings.to_host<double>()[0], 18);
}

struct BadInput {
    const char* what;
    void (*write)(const TemporaryDirectory& folder);
    const char* input;  // FOLDER stands for the folder
    const char* message;
    bool images = false;
};

template <class T>
void npy(const TemporaryDirectory& folder, const char* descr, std::vector<std::int64_t> shape,
         T value) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    const std::vector<T> values(std::size_t(count), value);
    write_npy<T>(folder / "a.npy", descr, shape, values);
}

class EveryBadInput : public testing::TestWithParam<BadInput> {};

TEST_P(EveryBadInput, IsRefusedInWords) {
    TemporaryDirectory folder;
    GetParam().write(folder);
    RunOptions options;
    options.input = GetParam().input;
    if (const auto at = options.input.find("FOLDER"); at != std::string::npos)
        options.input.replace(at, 6, folder.path().string());
    const ModelSpec spec = GetParam().images ? image_model() : language_model();
    try {
        source(options, spec).samples(0);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
    }
}

const BadInput bad_inputs[] = {
    {"id_too_large", [](auto& f) { npy<std::int64_t>(f, "<i8", {4}, 20); }, "ids:FOLDER/a.npy",
     "is 20, expected 0 to 19"},
    {"id_negative",
     [](auto& f) {
         npy<std::int64_t>(f, "<i8", {2, 4}, -1);
     },
     "ids:FOLDER/a.npy", "is -1"},
    {"id_fraction", [](auto& f) { npy<double>(f, "<f8", {4}, 0.5); }, "ids:FOLDER/a.npy",
     "expected an integer"},
    {"id_nan", [](auto& f) { npy<double>(f, "<f8", {4}, std::nan("")); }, "ids:FOLDER/a.npy",
     "expected an integer"},
    {"ids_rank",
     [](auto& f) {
         npy<std::int64_t>(f, "<i8", {1, 2, 3}, 1);
     },
     "ids:FOLDER/a.npy", "(1, 2, 3)"},
    {"ids_empty", [](auto& f) { npy<std::int64_t>(f, "<i8", {0}, 1); }, "ids:FOLDER/a.npy", "(0)"},
    {"ids_long",
     [](auto& f) {
         npy<std::int64_t>(f, "<i8", {2, 17}, 1);
     },
     "ids:FOLDER/a.npy", "at most 16"},
    {"ids_missing", [](auto&) {}, "ids:FOLDER/none.txt", "none.txt"},
    {"npy_missing", [](auto&) {}, "ids:FOLDER/none.npy", "none.npy"},
    {"hidden_width",
     [](auto& f) {
         npy<float>(f, "<f4", {4, 5}, 1);
     },
     "hidden:FOLDER/a.npy", "(4, 5), expected (tokens, 6)"},
    {"hidden_nan",
     [](auto& f) {
         npy<float>(f, "<f4", {4, 6}, std::nanf(""));
     },
     "hidden:FOLDER/a.npy", "element (0, 0)"},
    {"embeddings_long",
     [](auto& f) {
         npy<float>(f, "<f4", {17, 6}, 1);
     },
     "embeddings:FOLDER/a.npy", "at most 16"},
    {"kind", [](auto&) {}, "idz:random", "unknown input 'idz:random'"},
    {"no_file", [](auto&) {}, "hidden:", "unknown input"},
    {"image_for_tokens", [](auto&) {}, "image:FOLDER/a.npy", "takes tokens"},
    {"ids_for_images", [](auto&) {}, "ids:random", "no token embedding", true},
    {"image_size",
     [](auto& f) {
         npy<float>(f, "<f4", {3, 8, 9}, 1);
     },
     "image:FOLDER/a.npy", "(3, 8, 9), expected (3, 8, 8)", true},
};
INSTANTIATE_TEST_SUITE_P(Inputs, EveryBadInput, testing::ValuesIn(bad_inputs),
                         [](const auto& test) { return test.param.what; });

TEST(Masks, ServeAllSamplesOrEach) {
    TemporaryDirectory folder;
    const std::vector<std::int64_t> one = {1, 0, 1}, two = {1, 1, 1, 0, 0, 1};
    write_npy<std::int64_t>(folder / "one.npy", "<i8", {3}, one);
    write_npy<std::int64_t>(folder / "two.npy", "<i8", {2, 3}, two);
    RunOptions options;
    options.tokens = 3;
    options.samples = 2;
    const ModelSpec spec = language_model();
    options.mask = folder / "one.npy";
    EXPECT_EQ(source(options, spec).samples(0)[1].keep, (std::vector<bool>{true, false, true}));
    options.mask = folder / "two.npy";
    EXPECT_EQ(source(options, spec).samples(0)[1].keep, (std::vector<bool>{false, false, true}));
    options.tokens = 4;
    EXPECT_THROW(source(options, spec), ShapeError);
}

TEST(Masks, ThatHideEverythingAreRefused) {
    TemporaryDirectory folder;
    const std::vector<std::int64_t> none = {0, 0, 0}, odd = {1, 2, 1};
    write_npy<std::int64_t>(folder / "none.npy", "<i8", {3}, none);
    write_npy<std::int64_t>(folder / "odd.npy", "<i8", {3}, odd);
    RunOptions options;
    options.tokens = 3;
    const ModelSpec spec = language_model();
    options.mask = folder / "none.npy";
    EXPECT_THROW(source(options, spec), FormatError);
    options.mask = folder / "odd.npy";
    EXPECT_THROW(source(options, spec), FormatError);
}

}  // namespace
}  // namespace tsdiag::test
