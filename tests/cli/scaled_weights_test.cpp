#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "program.hpp"
#include "support/packers.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"

/// Models whose weights are 8-bit numbers with scales, against the same model with the products
/// written as float32.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path golden = fs::path(test_data()) / "golden/llama";

/// The definition of e4m3: a sign, an exponent of bias 7, three bits; 15 with all bits is NaN.
double e4m3(unsigned code) {
    const int exponent = int(code >> 3 & 15), mantissa = int(code & 7);
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return code >> 7 ? -magnitude : magnitude;
}

struct ScaledLayout {
    const char* name;
    const char* dtype;      ///< of the weights
    const char* scale;      ///< the name of their scales
    const char* quantised;  ///< `quantization_config`; null: none
    /// rows and columns of a block, 0: all
    std::int64_t block_rows, block_columns;
    int dimensions;  ///< of the tensor of scales
    std::vector<const char*> more = {};
    float value = 0;  ///< of these
};

/// A golden model twice, below `folder`: `scaled/model` and `plain/model`.
void write_pair(const fs::path& folder, const ScaledLayout& layout,
                const std::string& without = {}) {
    std::mt19937 random(7);
    const auto file = open_checkpoint(golden / "model.safetensors");
    std::vector<Array> scaled, plain;
    for (const std::string& name : file->names()) {
        const RawTensor raw = file->tensor(name);
        std::vector<float> values(std::size_t(raw.count()));
        widen<float>(raw, values);
        const bool linear = name.find("_proj.weight") != name.npos;
        if (!linear) {
            scaled.push_back({name, "F32", raw.shape, bytes_of(values)});
            plain.push_back(scaled.back());
            continue;
        }
        const bool integer = std::string_view(layout.dtype) == "I8";
        const bool bitsandbytes = std::string_view(layout.scale) == "SCB";
        const std::int64_t rows = raw.shape[0], columns = raw.shape[1];
        const std::int64_t high = layout.block_rows ? layout.block_rows : rows;
        const std::int64_t wide = layout.block_columns ? layout.block_columns : columns;
        const std::int64_t down = (rows + high - 1) / high, across = (columns + wide - 1) / wide;
        std::vector<float> factors(std::size_t(down * across));
        for (float& factor : factors)
            factor = std::uniform_real_distribution<float>(0.001f, 0.01f)(random);
        std::vector<std::uint8_t> codes(values.size());
        for (std::size_t i = 0; i < codes.size(); ++i) {
            unsigned code = random() & 0xff;
            if (!integer && (code & 0x7f) == 0x7f) code = 0;
            codes[i] = std::uint8_t(code);
            const double stored = integer ? double(std::int8_t(code)) : e4m3(code);
            const std::int64_t row = std::int64_t(i) / columns, column = std::int64_t(i) % columns;
            const float factor = factors[std::size_t(row / high * across + column / wide)];
            values[i] = float(bitsandbytes ? stored * (double(factor) * (1.0 / 127))
                                           : stored * double(factor));
        }
        std::vector<std::int64_t> shape;
        if (layout.dimensions == 1) shape = {down * across};
        if (layout.dimensions == 2) shape = {down, across};
        const std::string stem = name.substr(0, name.size() - 6);
        scaled.push_back({name, layout.dtype, raw.shape, bytes_of(codes)});
        if (stem + layout.scale != without)
            scaled.push_back({stem + layout.scale, "F32", shape, bytes_of(factors)});
        for (const char* other : layout.more)
            scaled.push_back({stem + other, "F32", {}, bytes_of(std::vector<float>{layout.value})});
        plain.push_back({name, "F32", raw.shape, bytes_of(values)});
    }
    Json config = Json::parse(read_file(golden / "config.json"), "config");
    for (const char* which : {"plain", "scaled"}) {
        fs::create_directories(folder / which / "model");
        const bool is_scaled = std::string_view(which) == "scaled";
        write_file(folder / which / "model/model.safetensors",
                   safetensors(is_scaled ? scaled : plain));
        if (is_scaled && layout.quantised)
            config.set("quantization_config", Json::parse(layout.quantised, "quantised"));
        write_file(folder / which / "model/config.json", config.dump());
    }
}

Finished probe_weights(const TemporaryDirectory& folder, const std::string& which,
                       const std::string& type = "f32") {
    return tsdiag(folder, {"probe", which + "/model", "--no-report", "--dtype", type, "--probes",
                           "core", "-o", which + "/out", "--force"});
}

/// Without the column of the model's path.
std::string numbers_in(const fs::path& table) {
    std::istringstream lines(read_file(table));
    std::string out;
    for (std::string line; std::getline(lines, line);) out += line.substr(line.find(',')) + "\n";
    return out;
}

class EveryScaledLayout : public testing::TestWithParam<ScaledLayout> {};

TEST_P(EveryScaledLayout, HasTheNumbersOfItsProducts) {
    const TemporaryDirectory folder;
    write_pair(folder / "", GetParam());
    const Finished found = probe_weights(folder, "scaled");
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("14 weights are stored in 8 bits with scales"));
    const Json run = Json::parse(read_file(folder / "scaled/out/run.json"), "run");
    const Finished listed = tsdiag(folder, {"inspect", "scaled/model", "--json"});
    EXPECT_EQ(Json::parse(listed.out, "inspect")["digest"].string(),
              run["model"]["digest"].string());
    ASSERT_EQ(probe_weights(folder, "plain").code, 0);
    const std::string expected = numbers_in(folder / "plain/out/metrics.csv");
    EXPECT_GT(expected.size(), 1000U);
    EXPECT_EQ(numbers_in(folder / "scaled/out/metrics.csv"), expected);
}

/// A scale that is missing, and a configuration that is: refused, never run as if it were whole.
TEST_P(EveryScaledLayout, IsRefusedInParts) {
    const TemporaryDirectory folder;
    const ScaledLayout& layout = GetParam();
    write_pair(folder / "", layout, std::string("model.layers.1.mlp.up_proj.") + layout.scale);
    const Finished found = probe_weights(folder, "scaled");
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("'model.layers.1.mlp.up_proj.weight' of dtype"));
    EXPECT_THAT(found.err, HasSubstr("has no scale, while 13 others have one"));
    write_pair(folder / "", layout);
    const std::string config = read_file(folder / "plain/model/config.json");
    write_file(folder / "scaled/model/config.json", config);
    const Finished without = probe_weights(folder, "scaled");
    if (layout.block_rows > 1 || layout.block_columns > 0) {
        EXPECT_EQ(without.code, 1);
        EXPECT_THAT(without.err, HasSubstr("each block that quantization_config"));
    } else {
        EXPECT_EQ(without.code, 0) << without.err;
    }
}

const ScaledLayout layouts[] = {
    {"fp8_blocks", "F8_E4M3", "weight_scale_inv",
     R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [5, 8]})", 5,
     8, 2},
    {"fp8_of_a_matrix",
     "F8_E4M3",
     "weight_scale_inv",
     R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": null})",
     0,
     0,
     0,
     {"activation_scale"}},
    {"modelopt",
     "F8_E4M3",
     "weight_scale",
     R"({"quant_method": "modelopt", "quant_algo": "FP8"})",
     0,
     0,
     0,
     {"input_scale"}},
    {"fbgemm", "F8_E4M3", "weight_scale", R"({"quant_method": "fbgemm_fp8"})", 1, 0, 2},
    {"compressed_channels", "F8_E4M3", "weight_scale",
     R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups":
         {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel",
          "symmetric": true, "group_size": null, "block_structure": null}}}})",
     1, 0, 2},
    {"compressed_groups", "I8", "weight_scale",
     R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups":
         {"group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "group",
          "symmetric": true, "group_size": 4}}}})",
     1, 4, 2},
    {"bitsandbytes",
     "I8",
     "SCB",
     R"({"quant_method": "bitsandbytes", "load_in_8bit": true})",
     1,
     0,
     1,
     {"weight_format"}},
    {"no_configuration", "F8_E4M3", "weight_scale", nullptr, 0, 0, 1},
};
INSTANTIATE_TEST_SUITE_P(Layouts, EveryScaledLayout, testing::ValuesIn(layouts),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(ScaledWeights, InTilesOrWithTwoScalesAreRefused) {
    const TemporaryDirectory folder;
    ScaledLayout layout{"", "I8", "SCB", nullptr, 1, 0, 1, {"weight_format"}, 2};
    write_pair(folder / "", layout);
    EXPECT_THAT(probe_weights(folder, "scaled").err, HasSubstr("is stored in tiles"));
    layout.more = {"weight_scale"};
    write_pair(folder / "", layout);
    EXPECT_THAT(probe_weights(folder, "scaled").err, HasSubstr("has two tensors of scales"));
}

/// Rows where the configuration says blocks: one of them is of another model.
TEST(ScaledWeights, ContradictTheConfiguration) {
    const TemporaryDirectory folder;
    write_pair(folder / "", {"", "F8_E4M3", "weight_scale_inv",
                             R"({"quant_method": "fp8", "weight_block_size": [5, 8]})", 1, 0, 2});
    const Finished found = probe_weights(folder, "scaled");
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("each block that quantization_config"));
}

struct Refused {
    const char* name;
    const char* quantised;
    const char* sentence;
};
class EveryOtherScaling : public testing::TestWithParam<Refused> {};

TEST_P(EveryOtherScaling, IsRefusedByName) {
    const TemporaryDirectory folder;
    ScaledLayout layout = layouts[0];
    layout.quantised = GetParam().quantised;
    write_pair(folder / "", layout);
    const Finished found = probe_weights(folder, "scaled");
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr(GetParam().sentence));
    EXPECT_FALSE(fs::exists(folder / "scaled/out"));
}

const Refused refused[] = {
    {"blocks_of_another_size", R"({"quant_method": "fp8", "weight_block_size": [4, 8]})",
     "each block that quantization_config"},
    {"a_block_that_is_none", R"({"quant_method": "fp8", "weight_block_size": [0, 8]})",
     "'quantization_config' (fp8)"},
    {"rotated",
     R"({"quant_method": "compressed-tensors", "transform_config": {"R1": {}}, "config_groups": {}})",
     "'quantization_config' (compressed-tensors)"},
    {"with_zero_points",
     R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
         {"num_bits": 8, "symmetric": false}}}})",
     "'quantization_config' (compressed-tensors)"},
    {"of_another_layout",
     R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}})",
     "'quantization_config' (compressed-tensors)"},
    {"in_another_order",
     R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "actorder": "group"}}}})",
     "'quantization_config' (compressed-tensors)"},
    {"with_an_unknown_key_of_a_group",
     R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}, "rotation": "R1"}}})",
     "'quantization_config' (compressed-tensors)"},
    {"with_an_unknown_key_of_weights",
     R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "codebook": 4}}}})",
     "'quantization_config' (compressed-tensors)"},
    {"of_a_group_of_another_layout",
     R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 8}}}})",
     "'quantization_config' (compressed-tensors)"},
    {"sparse",
     R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}, "config_groups": {}})",
     "'quantization_config' (compressed-tensors)"},
    {"unknown_key", R"({"quant_method": "fp8", "weight_block_size": [5, 8], "rotation": "R1"})",
     "'quantization_config' (fp8)"},
    {"unknown_method", R"({"quant_method": "tomorrow"})", "'quantization_config' (tomorrow)"},
};
INSTANTIATE_TEST_SUITE_P(Scalings, EveryOtherScaling, testing::ValuesIn(refused),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace tsdiag::test
