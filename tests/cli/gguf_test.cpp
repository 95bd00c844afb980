#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"
#include "support/gguf_writer.hpp"
#include "tsdiag/json.hpp"

/// A GGUF file by its name alone.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::int64_t width = 32, heads = 2, hidden = 64, vocabulary = 20;

/// A LLaMA of one layer; matrices are Q8_0, a scale of 2^-6 and small numbers that differ.
GgufWriter tiny_llama() {
    GgufWriter file;
    file.word("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"context_length", 16},
                                     {"embedding_length", int(width)},
                                     {"block_count", 1},
                                     {"feed_forward_length", int(hidden)},
                                     {"attention.head_count", int(heads)}})
        file.number(std::string("llama.") + key, std::uint32_t(value));
    file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    std::int64_t drawn = 1;
    const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
        std::string bytes;
        for (std::int64_t block = 0; block < rows * columns / 32; ++block) {
            bytes += little(std::uint16_t((15 - 6) << 10));
            for (int i = 0; i < 32; ++i) {
                drawn = drawn * 48271 % 2147483647;
                bytes += char(std::int8_t(drawn % 41 - 20));
            }
        }
        file.tensor(name + ".weight", {rows, columns}, 8, bytes);
    };
    const std::vector<float> ones(std::size_t(width), 1.0F);
    const auto norm = [&](const std::string& name) {
        file.floats(name + ".weight", {width}, ones);
    };
    matrix("token_embd", vocabulary, width);
    norm("output_norm");
    norm("blk.0.attn_norm");
    norm("blk.0.ffn_norm");
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
        matrix(std::string("blk.0.") + name, width, width);
    matrix("blk.0.ffn_gate", hidden, width);
    matrix("blk.0.ffn_up", hidden, width);
    matrix("blk.0.ffn_down", width, hidden);
    return file;
}

TEST(GgufByName, IsInspectedAndProbed) {
    const TemporaryDirectory folder;
    write_file(folder / "m.gguf", tiny_llama().bytes());
    const Finished listed = Running(folder.path(), {"inspect", "m.gguf"}).wait();
    EXPECT_EQ(listed.code, 0) << listed.err;
    EXPECT_THAT(listed.out, HasSubstr("blk.0.attn_q.weight"));
    EXPECT_THAT(listed.out, HasSubstr("Q8_0"));
    EXPECT_THAT(listed.out, HasSubstr("bits per weight"));
    const Finished json = Running(folder.path(), {"inspect", "m.gguf", "--json"}).wait();
    const double matrices = double(vocabulary * width + 4 * width * width + 3 * width * hidden),
                 norms = 3 * double(width);
    EXPECT_EQ(Json::parse(json.out, "inspect")["bits_a_weight"].number(),
              (8.5 * matrices + 32 * norms) / (matrices + norms));
    const Finished probed = Running(folder.path(), {"probe", "m.gguf", "--tokens", "8", "--samples",
                                                    "1", "--no-report"})
                                .wait();
    EXPECT_EQ(probed.code, 0) << probed.err;
    EXPECT_THAT(probed.out, HasSubstr("LLaMA, 1 layer, d = 32, 2 heads"));
}

TEST(GgufByName, SaysWhichDimensionIsNegative) {
    const TemporaryDirectory folder;
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{4, -3}, {-3}, {2, -3, 4}}) {
        GgufWriter file;
        file.word("general.architecture", "llama");
        file.tensor("w", shape, 0, std::string(64, '\0'));
        write_file(folder / "m.gguf", file.bytes());
        const Finished found = Running(folder.path(), {"inspect", "m.gguf"}).wait();
        EXPECT_EQ(found.code, 1);
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr("tensor 'w' has -3 as dimension"));
        EXPECT_THAT(found.err, HasSubstr("expected no negative number"));
    }
}

/// The ids of a text are those of the file's own tokenizer.
TEST(GgufByName, MakesIdsOfATextByItsOwnTokenizer) {
    const TemporaryDirectory folder;
    GgufWriter file = tiny_llama();
    const std::string mark = "\xe2\x96\x81";  // U+2581
    const std::vector<std::string> tokens{"<unk>",    "<s>", "</s>", mark, "a",  "b",  "c",
                                          mark + "a", "ab",  "bc",   "x1", "x2", "x3", "x4",
                                          "x5",       "x6",  "x7",   "x8", "x9", "x0"};
    std::vector<float> scores;
    std::vector<std::int32_t> types{2, 3, 3};
    types.resize(tokens.size(), 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) scores.push_back(-float(i));
    file.word("tokenizer.ggml.model", "llama");
    file.list("tokenizer.ggml.tokens", tokens);
    file.list("tokenizer.ggml.scores", scores);
    file.list("tokenizer.ggml.token_type", types);
    write_file(folder / "m.gguf", file.bytes());
    fs::create_directory(folder / "folder");
    fs::copy_file(folder / "m.gguf", folder / "folder/m.gguf");
    // U+2581 and a have the best score, so ab is never joined, but bc is.
    for (const char* model : {"m.gguf", "folder"}) {
        const Finished done =
            Running(folder.path(), {"probe", model, "--text", "ab abc", "--no-report", "--out",
                                    std::string("run-") + model})
                .wait();
        ASSERT_EQ(done.code, 0) << done.err;
        const Json text =
            Json::parse(read_file(folder.path() / (std::string("run-") + model) / "run.json"),
                        "run.json")["input"]["text"];
        std::vector<std::int64_t> ids;
        for (const Json& id : text["ids"].array()) ids.push_back(id.integer());
        EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 7, 5, 7, 9}));
        EXPECT_THAT(text["tokenizer_files"].dump(), HasSubstr("tokenizer.ggml.model llama"));
    }
    const Finished none =
        Running(folder.path(), {"probe", "m.gguf", "--text", "a", "--tokenizer", "none.gguf"})
            .wait();
    EXPECT_NE(none.code, 0);
    write_file(folder / "bare.gguf", tiny_llama().bytes());
    const Finished bare = Running(folder.path(), {"probe", "bare.gguf", "--text", "a"}).wait();
    EXPECT_EQ(bare.code, 1);
    EXPECT_THAT(bare.err, HasSubstr("has no tokenizer"));
}

TEST(GgufByName, RefusesInOneSentence) {
    const TemporaryDirectory folder;
    GgufWriter unknown = tiny_llama();
    unknown.real("llama.attention.logit_cap", 30);
    const std::string whole = tiny_llama().bytes();
    for (const auto& [bytes, said] : {std::pair{unknown.bytes(), "llama.attention.logit_cap"},
                                      {whole.substr(0, whole.size() / 2), "truncated"},
                                      {std::string("GGUF\0\0\0\3", 8), "big-endian"}}) {
        write_file(folder / "m.gguf", bytes);
        const Finished done = Running(folder.path(), {"probe", "m.gguf", "--tokens", "8"}).wait();
        EXPECT_EQ(done.code, 1) << said;
        EXPECT_THAT(done.err, HasSubstr(said));
        EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    }
}

}  // namespace
}  // namespace tsdiag::test
