#include <gmock/gmock.h>

#include <random>

#include "program.hpp"
#include "support/packers.hpp"

/// Models whose weights are packed, against the same models with these as float32.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t width = 64, keys = 32, inner = 96, words = 32;

Array plain(const std::string& name, const std::vector<std::int64_t>& shape,
            const std::vector<float>& values) {
    return {name, "F32", shape, bytes_of(values)};
}

/// A LLaMA of two layers, below `folder`: `packed/model` and `plain/model`.
void write_pair(const fs::path& folder, const Packer& packer) {
    std::mt19937 random(7);
    const auto drawn = [&](std::int64_t count) {
        std::vector<float> values(std::size_t(count), 0);
        for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(random);
        return values;
    };
    std::vector<Array> as_packed{
        plain("model.embed_tokens.weight", {words, width}, drawn(words * width)),
        plain("model.norm.weight", {width}, drawn(width)),
        plain("lm_head.weight", {words, width}, drawn(words * width))};
    std::vector<Array> as_plain = as_packed;
    const auto both = [&](const Array& array) {
        as_packed.push_back(array);
        as_plain.push_back(array);
    };
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
        const std::string l = layer;
        both(plain(l + "input_layernorm.weight", {width}, drawn(width)));
        both(plain(l + "post_attention_layernorm.weight", {width}, drawn(width)));
        const struct {
            const char* name;
            std::int64_t rows, columns;
        } linear[] = {{"self_attn.q_proj.", width, width}, {"self_attn.k_proj.", keys, width},
                      {"self_attn.v_proj.", keys, width},  {"self_attn.o_proj.", width, width},
                      {"mlp.gate_proj.", inner, width},    {"mlp.up_proj.", inner, width},
                      {"mlp.down_proj.", width, inner}};
        for (const auto& [name, rows, columns] : linear) {
            const PackedMatrixFile file = packer.pack(l + name, rows, columns, random);
            as_packed.insert(as_packed.end(), file.arrays.begin(), file.arrays.end());
            as_plain.push_back(plain(l + name + "weight", {rows, columns}, file.values));
        }
    }
    Json config;
    config.set("model_type", "llama").set("hidden_size", width).set("intermediate_size", inner);
    config.set("num_hidden_layers", 2).set("num_attention_heads", 4).set("num_key_value_heads", 2);
    config.set("rms_norm_eps", 1e-5).set("rope_theta", 10000.0).set("hidden_act", "silu");
    config.set("tie_word_embeddings", false).set("max_position_embeddings", 16);
    config.set("vocab_size", words);
    for (const bool packed : {false, true}) {
        const fs::path to = folder / (packed ? "packed" : "plain") / "model";
        fs::create_directories(to);
        if (packed) config.set("quantization_config", Json::parse(packer.quantised, "quantised"));
        write_file(to / "model.safetensors", safetensors(packed ? as_packed : as_plain));
        write_file(to / "config.json", config.dump());
    }
}

Finished probe(const TemporaryDirectory& folder, const std::string& which) {
    return tsdiag(folder, {"probe", which + "/model", "--no-report", "--dtype", "f32", "--probes",
                           "core", "-o", which + "/out", "--force"});
}

/// Without the column of the model's path.
std::string without_path(const fs::path& table) {
    std::istringstream lines(read_file(table));
    std::string out;
    for (std::string line; std::getline(lines, line);) out += line.substr(line.find(',')) + "\n";
    return out;
}

class EveryPackedModel : public testing::TestWithParam<Packer> {};

TEST_P(EveryPackedModel, HasTheNumbersOfItsValues) {
    const TemporaryDirectory folder;
    write_pair(folder / "", GetParam());
    const Finished found = probe(folder, "packed");
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("14 weights are stored in few bits with scales"));
    ASSERT_EQ(probe(folder, "plain").code, 0);
    const std::string expected = without_path(folder / "plain/out/metrics.csv");
    EXPECT_GT(expected.size(), 1000U);
    EXPECT_EQ(without_path(folder / "packed/out/metrics.csv"), expected);
}

TEST_P(EveryPackedModel, IsInspectedWithItsBitsAndTheirBound) {
    const TemporaryDirectory folder;
    write_pair(folder / "", GetParam());
    const Finished listed = tsdiag(folder, {"inspect", "packed/model", "--json"});
    ASSERT_EQ(listed.code, 0) << listed.err;
    const Json json = Json::parse(listed.out, "inspect");
    EXPECT_GT(json["bits_a_weight"].number(), 2);
    EXPECT_LT(json["bits_a_weight"].number(), 12);  // embeddings and norms are float32
    EXPECT_GT(json["rounding"].number(), 0.001);
    EXPECT_LT(json["rounding"].number(), 0.2);
    EXPECT_EQ(json["quantised_weights"].integer(), 14);
}

/// Without its configuration, or with a key of it that nobody obeys: never run as something else.
TEST_P(EveryPackedModel, IsRefusedWhereItIsNotUnderstood) {
    const TemporaryDirectory folder;
    write_pair(folder / "", GetParam());
    const fs::path config = fs::path(folder / "packed") / "model/config.json";
    Json said = Json::parse(read_file(config), "config");
    said.set("quantization_config", Json(said["quantization_config"]).set("rotation", "R1"));
    write_file(config, said.dump());
    Finished found = probe(folder, "packed");
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("'quantization_config'"));
    write_file(config, read_file(folder / "plain/model/config.json"));
    found = probe(folder, "packed");
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("quantised weights"));
    EXPECT_FALSE(fs::exists(folder / "packed/out"));
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryPackedModel, testing::ValuesIn(all_packers()),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace tsdiag::test
