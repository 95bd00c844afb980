#include <gmock/gmock.h>

#include "program.hpp"
#include "support/packers.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"

/// Meta's files: LLaMA's tensors under its own names, with queries and keys in pairs, and
/// params.json.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path golden = fs::path(test_data()) / "golden/llama";

constexpr const char* parameters =
    R"({"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1, "norm_eps": 1e-05,
        "multiple_of": 1, "ffn_dim_multiplier": 0.48, "rope_theta": 10000.0, "max_seq_len": 16})";

std::string meta_name(const std::string& name) {
    static const std::pair<const char*, const char*> words[] = {
        {"model.", ""},
        {"embed_tokens", "tok_embeddings"},
        {"lm_head", "output"},
        {"input_layernorm", "attention_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attention.wq"},
        {"self_attn.k_proj", "attention.wk"},
        {"self_attn.v_proj", "attention.wv"},
        {"self_attn.o_proj", "attention.wo"},
        {"mlp.gate_proj", "feed_forward.w1"},
        {"mlp.down_proj", "feed_forward.w2"},
        {"mlp.up_proj", "feed_forward.w3"}};
    std::string out = name;
    for (const auto& [from, to] : words)
        if (const std::size_t at = out.find(from); at != out.npos)
            out.replace(at, std::string_view(from).size(), to);
    return out;
}

struct Matrix {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/// The golden model as Meta's code has it: of a head of 4 rows, row i and row i + 2 are neighbours.
std::vector<Matrix> meta_model() {
    std::vector<Matrix> out;
    const auto file = open_checkpoint(golden / "model.safetensors");
    for (const std::string& name : file->names()) {
        const RawTensor raw = file->tensor(name);
        Matrix matrix{meta_name(name), raw.shape, std::vector<float>(std::size_t(raw.count()))};
        widen<float>(raw, matrix.values);
        if (name.find("q_proj") != name.npos || name.find("k_proj") != name.npos) {
            const std::vector<float> rows = matrix.values;
            for (std::int64_t r = 0; r < raw.shape[0]; ++r) {
                const std::int64_t in_head = r % 4,
                                   to = r - in_head + in_head % 2 * 2 + in_head / 2;
                std::copy_n(rows.begin() + r * 16, 16, matrix.values.begin() + to * 16);
            }
        }
        out.push_back(std::move(matrix));
    }
    return out;
}

std::string whole_file(const std::vector<Matrix>& model) {
    std::vector<Array> arrays;
    for (const Matrix& m : model) arrays.push_back({m.name, "F32", m.shape, bytes_of(m.values)});
    return safetensors(arrays);
}

/// The part of process `rank` of two: rows, or columns of the embedding, wo and w2.
std::string part_file(const std::vector<Matrix>& model, std::int64_t rank) {
    std::vector<Array> arrays;
    for (const Matrix& m : model) {
        if (m.shape.size() == 1) {
            arrays.push_back({m.name, "F32", m.shape, bytes_of(m.values)});
            continue;
        }
        const bool across = m.name.find("tok_embeddings") != m.name.npos ||
                            m.name.find(".wo.") != m.name.npos ||
                            m.name.find(".w2.") != m.name.npos;
        const std::int64_t rows = m.shape[0] / (across ? 1 : 2),
                           columns = m.shape[1] / (across ? 2 : 1);
        std::vector<float> part;
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
                part.push_back(m.values[std::size_t((r + (across ? 0 : rank * rows)) * m.shape[1] +
                                                    c + (across ? rank * columns : 0))]);
        arrays.push_back({m.name, "F32", {rows, columns}, bytes_of(part)});
    }
    return safetensors(arrays);
}

class Meta : public testing::Test {
  protected:
    Meta() { fs::create_directories(folder / "model"); }

    void write(const std::string& name, const std::string& content) const {
        write_file(fs::path(folder / "model") / name, content);
    }
    Finished probe(const std::string& model = "model") const {
        return tsdiag(folder, {"probe", model, "--no-report", "--dtype", "f32", "--probes", "core",
                               "--tokens", "8", "--samples", "1", "-o", "out", "--force"});
    }
    std::string numbers() const {
        std::istringstream lines(read_file(folder / "out/metrics.csv"));
        std::string out;
        for (std::string line; std::getline(lines, line);)
            out += line.substr(line.find(',')) + "\n";
        return out;
    }
    std::string expected() const {
        const Finished found = probe(golden.string());
        EXPECT_EQ(found.code, 0) << found.err;
        return numbers();
    }
    const TemporaryDirectory folder;
};

TEST_F(Meta, HasTheNumbersOfItsConvertedModel) {
    write("consolidated.00.pth", whole_file(meta_model()));
    write("params.json", parameters);
    const std::string as_converted = expected();
    EXPECT_GT(as_converted.size(), 1000U);
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(numbers(), as_converted);
    EXPECT_EQ(probe("model/consolidated.00.pth").code, 0);
    EXPECT_EQ(numbers(), as_converted);
}

TEST_F(Meta, InPartsHasTheSameNumbers) {
    const std::vector<Matrix> model = meta_model();
    write("consolidated.00.pth", part_file(model, 0));
    write("consolidated.01.pth", part_file(model, 1));
    write("params.json", parameters);
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    const std::string in_parts = numbers();
    EXPECT_EQ(in_parts, expected());
}

/// torchtune keeps Meta's order of rows under names of its own.
TEST_F(Meta, UnderTorchtunesNamesHasTheSameNumbers) {
    constexpr std::pair<const char*, const char*> words[] = {
        {"attention_norm.weight", "sa_norm.scale"},
        {"ffn_norm.weight", "mlp_norm.scale"},
        {"attention.wq", "attn.q_proj"},
        {"attention.wk", "attn.k_proj"},
        {"attention.wv", "attn.v_proj"},
        {"attention.wo", "attn.output_proj"},
        {"feed_forward", "mlp"},
    };
    std::vector<Matrix> model = meta_model();
    for (Matrix& matrix : model) {
        if (matrix.name == "norm.weight") matrix.name = "norm.scale";
        for (const auto& [from, to] : words)
            if (const std::size_t at = matrix.name.find(from); at != std::string::npos)
                matrix.name.replace(at, std::string_view(from).size(), to);
    }
    write("model.safetensors", whole_file(model));
    const std::string config = read_file(golden / "config.json");
    write("config.json", config);
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    const std::string own = numbers();
    EXPECT_EQ(own, expected());
    write("config.json", Json::parse(config, "config").set("model_type", "qwen3").dump());
    EXPECT_THAT(probe().err, HasSubstr("torchtune's names, which are read of LLaMA and Mistral"));
    write("config.json", config);
    model.push_back({"norm.weight", {16}, std::vector<float>(16)});
    write("model.safetensors", whole_file(model));
    EXPECT_THAT(probe().err, HasSubstr("is 'norm.weight' under another name"));
    model.back().name = "layers.0.attn.q_norm.scale";
    write("model.safetensors", whole_file(model));
    EXPECT_THAT(probe().err, HasSubstr("'layers.0.attn.q_norm.scale' is unknown to"));
}

/// config.json is read before params.json, which must say the same.
TEST_F(Meta, IsRefusedWhereTwoFilesContradictEachOther) {
    write("consolidated.00.pth", whole_file(meta_model()));
    write("config.json", read_file(golden / "config.json"));
    write("params.json", parameters);
    EXPECT_EQ(probe().code, 0);
    write("params.json", Json::parse(parameters, "parameters").set("norm_eps", 0.1).dump());
    const Finished found = probe();
    EXPECT_EQ(found.code, 1);
    expect_one_sentence(found.err);
    EXPECT_THAT(found.err, HasSubstr("config.json says rms_norm_eps = "));
    EXPECT_THAT(found.err, HasSubstr("params.json says rms_norm_eps = 0.1"));
}

TEST_F(Meta, IsRefusedWhereItIsNotUnderstood) {
    auto model = meta_model();
    write("consolidated.00.pth", whole_file(model));
    EXPECT_THAT(probe().err, HasSubstr("put its params.json next to it"));
    const Json said = Json::parse(parameters, "parameters");
    const std::pair<Json, const char*> cases[] = {
        {Json(said).set("use_scaled_rope", true), "has use_scaled_rope, but not the factor"},
        {Json(said).set("moe", Json::Object{{"num_experts", 8}}), "the key 'moe'"},
        {Json(said).set("multiple_of", 32), "intermediate_size"},
        {Json(said).set("n_layers", 3), "num_hidden_layers"},
        {Json(said).set("dim", nullptr), "lacks 'dim'"},
        {Json(said).set("hidden_dim", 20).set("head_dim", 4).set("rope_theta", nullptr),
         "lacks rope_theta"},
    };
    for (const auto& [wrong, sentence] : cases) {
        write("params.json", wrong.dump());
        const Finished found = probe();
        EXPECT_EQ(found.code, 1) << wrong.dump();
        EXPECT_THAT(found.err, HasSubstr(sentence));
    }
    write("params.json", parameters);
    model.push_back({"layers.0.attention.wq.bias", {16}, std::vector<float>(16)});
    write("consolidated.00.pth", whole_file(model));
    EXPECT_THAT(probe().err, HasSubstr("'layers.0.attention.wq.bias' is unknown to Meta's LLaMA"));
    model.back() = {"rope.freqs", {2}, {1, 0.02f}};
    write("consolidated.00.pth", whole_file(model));
    EXPECT_THAT(probe().err, HasSubstr("differs from the frequencies of the rotary base 10000"));
    model.back().values[1] = 0.01f;
    write("consolidated.00.pth", whole_file(model));
    EXPECT_EQ(probe().code, 0);
}

}  // namespace
}  // namespace tsdiag::test
