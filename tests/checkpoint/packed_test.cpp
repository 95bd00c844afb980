#include <random>

#include "samples.hpp"
#include "support/packers.hpp"

/// Packed weights, against encoders written from the descriptions of their layouts.
namespace tsdiag {
namespace {

using samples::message_of;
using samples::TemporaryFolder;
using test::Array;
using test::Packer;
using testing::HasSubstr;

constexpr std::int64_t rows = 64, columns = 96;

struct Opened {
    std::shared_ptr<const Checkpoint> file;
    Json config;
    std::vector<std::string> warnings;

    bool obeyed() const { return !config.contains("quantization_config"); }
};

Opened opened(const TemporaryFolder& folder, const std::vector<Array>& arrays,
              const std::string& quantised, const std::string& model_type = "llama") {
    Opened result;
    result.config.set("model_type", model_type)
        .set("quantization_config", Json::parse(quantised, "quantised"));
    const auto path = folder.write("model.safetensors", test::safetensors(arrays));
    result.file = apply_packing(open_checkpoint(path), result.config, result.warnings);
    return result;
}

template <class T>
std::vector<T> read(const RawTensor& tensor) {
    std::vector<T> values(std::size_t(tensor.count()));
    widen<T>(tensor, values);
    return values;
}

class EveryPacking : public testing::TestWithParam<Packer> {
  protected:
    test::PackedMatrixFile packed(const std::string& stem = "layer.") const {
        std::mt19937 random(11);
        return GetParam().pack(stem, rows, columns, random);
    }
    const TemporaryFolder folder;
};

TEST_P(EveryPacking, HasTheValuesOfItsEncoder) {
    auto matrix = packed();
    matrix.arrays.push_back({"layer.bias", "F32", {1}, std::string(4, '\0')});
    const Opened found = opened(folder, matrix.arrays, GetParam().quantised);
    EXPECT_TRUE(found.obeyed());
    ASSERT_EQ(found.warnings.size(), 1U);
    EXPECT_THAT(found.warnings[0], HasSubstr("1 weight is stored in few bits"));
    EXPECT_THAT(found.file->names(), testing::UnorderedElementsAre("layer.weight", "layer.bias"));
    const RawTensor tensor = found.file->tensor("layer.weight");
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{rows, columns}));
    EXPECT_EQ(read<float>(tensor), matrix.values);
    EXPECT_EQ(read<double>(tensor),
              std::vector<double>(matrix.values.begin(), matrix.values.end()));
    EXPECT_NEAR(summarise(tensor).sum,
                std::accumulate(matrix.values.begin(), matrix.values.end(), 0.0),
                1e-9);  // sums of doubles in two orders
    EXPECT_GT(tensor.packed->rounding(), 0.001);
    EXPECT_LT(tensor.packed->rounding(), 0.2);
}

/// Rows, columns, every other row, the transpose: what readers of weights ask for.
TEST_P(EveryPacking, IsReadInPartsAndAcross) {
    const auto matrix = packed();
    const RawTensor whole =
        opened(folder, matrix.arrays, GetParam().quantised).file->tensor("layer.weight");
    const auto at = [&](std::int64_t r, std::int64_t c) {
        return matrix.values[std::size_t(r * columns + c)];
    };
    RawTensor part = whole;
    part.offset = 5 * columns + 7;
    part.shape = {3, 41};
    std::vector<float> expected;
    for (int r = 0; r < 3; ++r)
        for (int c = 0; c < 41; ++c) expected.push_back(at(5 + r, 7 + c));
    EXPECT_EQ(read<float>(part), expected);
    part = whole;
    part.offset = columns;
    part.shape[0] = rows / 2;
    part.strides[0] = 2 * columns;
    expected.clear();
    for (int r = 1; r < rows; r += 2)
        for (int c = 0; c < columns; ++c) expected.push_back(at(r, c));
    EXPECT_EQ(read<float>(part), expected);
    part = whole;
    part.shape = {columns, rows};
    part.strides = {1, columns};
    expected.clear();
    for (int c = 0; c < columns; ++c)
        for (int r = 0; r < rows; ++r) expected.push_back(at(r, c));
    EXPECT_EQ(read<float>(part), expected);
    part = whole;
    part.offset = columns + 1;
    part.shape = {30};
    part.strides = {3};
    expected.clear();
    for (int c = 1; c < 91; c += 3) expected.push_back(at(1, c));
    EXPECT_EQ(read<float>(part), expected);
}

/// Equal, refused, or left as it is with its configuration, which families refuse.
TEST_P(EveryPacking, WithoutOneOfItsTensorsIsNeverAnotherMatrix) {
    const auto matrix = packed();
    for (const Array& gone : matrix.arrays) {
        SCOPED_TRACE(gone.name);
        auto arrays = matrix.arrays;
        std::erase_if(arrays, [&](const Array& a) { return a.name == gone.name; });
        try {
            const Opened found = opened(folder, arrays, GetParam().quantised);
            if (found.obeyed()) {
                EXPECT_EQ(read<float>(found.file->tensor("layer.weight")), matrix.values);
            }
        } catch (const FormatError& error) {
            EXPECT_THAT(error.what(), HasSubstr("'layer."));
        }
    }
}

/// Each tensor cut to a shape of half the size.
TEST_P(EveryPacking, OfAnotherShapeIsRefused) {
    const auto matrix = packed();
    for (std::size_t i = 0; i < matrix.arrays.size(); ++i) {
        const Array& whole = matrix.arrays[i];
        if (whole.shape.empty() || whole.shape[0] < 2) continue;
        const bool passed = whole.name.find("input_") != std::string::npos;
        if (passed) continue;
        SCOPED_TRACE(whole.name);
        auto arrays = matrix.arrays;
        arrays[i].shape[0] /= 2;
        arrays[i].bytes.resize(whole.bytes.size() / std::size_t(whole.shape[0]) *
                               std::size_t(arrays[i].shape[0]));
        EXPECT_THROW(opened(folder, arrays, GetParam().quantised), Error);
    }
}

TEST_P(EveryPacking, WithAKeyThatIsNotObeyedIsLeftAlone) {
    const auto matrix = packed();
    Json said = Json::parse(GetParam().quantised, "quantised");
    said.set("rotation", "R1");
    const Opened found = opened(folder, matrix.arrays, said.dump());
    EXPECT_FALSE(found.obeyed());
    EXPECT_EQ(found.file->names().size(), matrix.arrays.size());
}

TEST_P(EveryPacking, SurvivesChangedBytes) {
    const auto matrix = packed();
    const std::string whole = test::safetensors(matrix.arrays);
    const Json quantised = Json::parse(GetParam().quantised, "quantised");
    std::mt19937 random(3);
    for (int trial = 0; trial < 60; ++trial) {
        std::string damaged = whole;
        for (int changes = 1 + int(random() % 3); changes > 0; --changes)
            damaged[random() % damaged.size()] = char(random());
        Json config;
        config.set("quantization_config", quantised);
        std::vector<std::string> warnings;
        try {
            const auto file = apply_packing(
                open_checkpoint(folder.write("model.safetensors", damaged)), config, warnings);
            for (const std::string& name : file->names())
                if (const RawTensor tensor = file->tensor(name); tensor.count() < 1 << 20)
                    read<float>(tensor);
        } catch (const Error&) {
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryPacking, testing::ValuesIn(test::all_packers()),
                         [](const auto& p) { return p.param.name; });

/// One input's zero point is 0, which the first version stores as the largest code.
TEST(Gptq, OfTheFirstVersionWithAZeroPointOfZeroIsRefused) {
    const TemporaryFolder folder;
    std::mt19937 random(11);
    auto matrix = test::packers::gptq("layer.", rows, columns, random, 4, 32, true, false);
    matrix.arrays[1].bytes[5] = char(matrix.arrays[1].bytes[5] | 0x0f);
    const std::string said = R"({"quant_method": "gptq", "bits": 4, "group_size": 32})";
    EXPECT_THAT(
        message_of<FormatError>([&] { opened(folder, matrix.arrays, said); }),
        HasSubstr("'layer.qweight' has the zero point 15 less one in group 0 of output 10"));
    Json second = Json::parse(said, "said");
    second.set("checkpoint_format", "gptq_v2");
    EXPECT_TRUE(opened(folder, matrix.arrays, second.dump()).obeyed());
}

TEST(Gptq, WithAnOrderThatItsConfigurationDeniesIsRefused) {
    const TemporaryFolder folder;
    std::mt19937 random(11);
    const auto matrix = test::packers::gptq("layer.", rows, columns, random, 4, 32, true, true);
    EXPECT_THAT(message_of<FormatError>([&] {
                    opened(folder, matrix.arrays,
                           R"({"quant_method": "gptq", "bits": 4, "group_size": 32})");
                }),
                HasSubstr("a g_idx that is not the order of the inputs"));
}

TEST(Gptq, OfProjectionsThatGpt2StoresTransposedIsTurned) {
    const TemporaryFolder folder;
    std::mt19937 random(11);
    const auto matrix =
        test::packers::gptq("h.0.mlp.c_fc.", rows, columns, random, 4, 32, true, false);
    const Opened found = opened(folder, matrix.arrays,
                                R"({"quant_method": "gptq", "bits": 4, "group_size": 32})", "gpt2");
    const RawTensor tensor = found.file->tensor("h.0.mlp.c_fc.weight");
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{columns, rows}));
    const auto values = read<float>(tensor);
    for (std::int64_t i = 0; i < columns; ++i)
        for (std::int64_t o = 0; o < rows; ++o)
            ASSERT_EQ(values[std::size_t(i * rows + o)],
                      matrix.values[std::size_t(o * columns + i)]);
}

/// gpt-oss: (experts, rows, blocks, 16); Hugging Face's parameter is (experts, columns, rows).
TEST(Mxfp4, OfExpertsHasTheAxesOfItsParameter) {
    const TemporaryFolder folder;
    std::mt19937 random(5);
    constexpr std::int64_t experts = 3, out = 20, in = 64;
    const auto fours = test::packers::draw_fours(random, experts * out * in);
    std::vector<double> scales;
    const auto powers = test::packers::draw_powers(random, experts * out * in / 32, scales);
    for (const bool own : {false, true}) {
        const std::string mark = own ? "." : "_";
        const Opened found = opened(
            folder,
            {{"mlp.up" + mark + "blocks",
              "U8",
              {experts, out, in / 32, 16},
              test::bytes_of(fours.bytes)},
             {"mlp.up" + mark + "scales", "U8", {experts, out, in / 32}, test::bytes_of(powers)}},
            R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})");
        EXPECT_TRUE(found.obeyed());
        const RawTensor tensor = found.file->tensor("mlp.up");
        EXPECT_EQ(tensor.shape,
                  (std::vector<std::int64_t>{experts, own ? out : in, own ? in : out}));
        const auto values = read<double>(tensor);
        for (std::int64_t e = 0; e < experts; ++e)
            for (std::int64_t r = 0; r < out; ++r)
                for (std::int64_t c = 0; c < in; ++c) {
                    const auto from = std::size_t((e * out + r) * in + c);
                    const auto to = own ? from : std::size_t((e * in + c) * out + r);
                    ASSERT_EQ(values[to], fours.numbers[from] * scales[from / 32]);
                }
    }
}

TEST(Mxfp4, OfTheLargestExponentIsNaN) {
    const TemporaryFolder folder;
    const Opened found = opened(folder,
                                {{"up_blocks", "U8", {1, 1, 1, 16}, std::string(16, '\x21')},
                                 {"up_scales", "U8", {1, 1, 1}, std::string(1, '\xff')}},
                                R"({"quant_method": "mxfp4"})");
    EXPECT_TRUE(std::isnan(read<float>(found.file->tensor("up"))[0]));
}

TEST(PackedIntegers, WithAShapeBeyondTheirWordsAreRefused) {
    const TemporaryFolder folder;
    std::mt19937 random(11);
    auto matrix = test::packers::integers("layer.", rows, columns, random, 4, 32, true, false);
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 62}) {
        matrix.arrays[2].bytes = test::bytes_of(std::vector<std::int64_t>{rows, size});
        EXPECT_THAT(message_of<FormatError>([&] {
                        opened(folder, matrix.arrays,
                               test::packers::compressed(
                                   "pack-quantized",
                                   R"({"num_bits": 4, "type": "int", "group_size": 32})"));
                    }),
                    HasSubstr("a weight_shape with"));
    }
}

TEST(BitsAndBytes, WithOtherLevelsIsRefused) {
    const TemporaryFolder folder;
    std::mt19937 random(11);
    const auto matrix = test::packers::bitsandbytes("layer.", rows, columns, random,
                                                    test::packers::fp4(), "nf4", 64, 0);
    EXPECT_THAT(message_of<FormatError>([&] {
                    opened(folder, matrix.arrays,
                           R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
                }),
                HasSubstr("has the level 0 for code 0 beside it, expected -1 of nf4"));
}

/// Half of the widest step of 16 equidistant values over their 15 steps; of NF4, the first step.
TEST(PackedMatrix, TellsTheBoundOfItsRounding) {
    const TemporaryFolder folder;
    for (const Packer& packer : test::all_packers()) {
        std::mt19937 random(11);
        const auto matrix = packer.pack("layer.", rows, columns, random);
        const double bound = opened(folder, matrix.arrays, packer.quantised)
                                 .file->tensor("layer.weight")
                                 .packed->rounding();
        if (packer.name == "awq") {
            EXPECT_EQ(bound, 1.0 / 30);
        }
        if (packer.name == "gptq_8_v1") {
            EXPECT_EQ(bound, 1.0 / 510);
        }
        if (packer.name == "nf4") {
            EXPECT_NEAR(bound, 0.3038072 / 4, 1e-7);
        }
        if (packer.name == "mxfp4") {
            EXPECT_EQ(bound, 2.0 / 2 / 12);
        }
    }
}

}  // namespace
}  // namespace tsdiag
