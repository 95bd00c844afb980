#include <map>
#include <sstream>

#include "checkpoint/samples.hpp"
#include "support/places.hpp"

/// Files from public repositories, if present, against the values that PyTorch and NumPy gave.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;

struct ExpectedTensor {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    double sum, first, last;
};

fs::path folder() { return test::shared_data(); }

std::vector<std::int64_t> integers(const std::string& list) {
    std::vector<std::int64_t> result;
    std::istringstream in(list);
    for (std::string item; std::getline(in, item, ',');) result.push_back(std::stoll(item));
    return result;
}

/// The text between `before` and `after`; removes it from `text` with everything before it.
std::string between(std::string& text, const std::string& before, const std::string& after) {
    const std::size_t begin = text.find(before);
    if (begin == std::string::npos) return "";
    text.erase(0, begin + before.size());
    const std::size_t end = std::min(text.find(after), text.size());
    const std::string found = text.substr(0, end);
    text.erase(0, end);
    return found;
}

/// The lines "- `name` dtype [shape] sum S first [F, ...] last L" under each "**path**".
std::map<std::string, std::vector<ExpectedTensor>> read_expected() {
    std::map<std::string, std::vector<ExpectedTensor>> expected;
    std::istringstream in(samples::read_file(folder() / "README.md"));
    std::string file;
    for (std::string text; std::getline(in, text);) {
        if (text.starts_with("**")) file = between(text, "**", "**");
        if (!text.starts_with("- `") || text.find(" first [") == std::string::npos) continue;
        ExpectedTensor t;
        t.name = between(text, "`", "`");
        t.dtype = between(text, "` ", " ");
        t.shape = integers(between(text, "[", "]"));
        t.sum = std::stod(between(text, " sum ", " "));
        t.first = std::stod(between(text, " first [", "]"));  // up to the first comma
        t.last = std::stod(between(text, " last ", " "));
        expected[file].push_back(std::move(t));
    }
    return expected;
}

std::string our_name(const std::string& theirs) {
    static const std::map<std::string, std::string> names = {
        {"float32", "f32"}, {"float64", "f64"}, {"bfloat16", "bf16"}, {"int64", "i64"},
        {"F16", "f16"},     {"F32", "f32"},     {"F64", "f64"},       {"I8", "i8"},
        {"I16", "i16"},     {"I32", "i32"},     {"I64", "i64"},       {"U8", "u8"},
        {"U16", "u16"},     {"U32", "u32"}};
    const auto found = names.find(theirs);
    return found == names.end() ? theirs : found->second;
}

/// The values were printed with nine digits, and summed in another order: 1e-6 covers both.
bool near(double a, double b) { return std::abs(a - b) <= 1e-6 + 1e-6 * std::abs(b); }

TEST(SharedData, EveryFileHoldsWhatItsReadmeSays) {
    if (!fs::exists(folder() / "README.md")) GTEST_SKIP() << "no files at " << folder();
    const auto expected = read_expected();
    EXPECT_GE(expected.size(), 8u);
    for (const auto& [path, tensors] : expected) {
        SCOPED_TRACE(path);
        const auto file = open_checkpoint(folder() / path);
        EXPECT_GE(file->names().size(), tensors.size());
        for (const ExpectedTensor& t : tensors) {
            SCOPED_TRACE(t.name);
            ASSERT_TRUE(file->has(t.name));
            const RawTensor tensor = file->tensor(t.name);
            EXPECT_EQ(name(tensor.dtype), our_name(t.dtype));
            EXPECT_EQ(tensor.shape, t.shape);
            const std::vector<double> values = samples::values(tensor);
            ASSERT_FALSE(values.empty());
            EXPECT_PRED2(near, summarise(tensor).sum, t.sum);
            EXPECT_PRED2(near, values.front(), t.first);
            EXPECT_PRED2(near, values.back(), t.last);
        }
    }
}

TEST(SharedData, UnwrappingFindsTheModel) {
    if (!fs::exists(folder() / "README.md")) GTEST_SKIP() << "no files at " << folder();
    std::vector<std::string> notes;
    const auto gpt = unwrap(open_checkpoint(folder() / "torch/nanogpt-style-ckpt.pt"), &notes);
    EXPECT_EQ(gpt->names().size(), 16u);
    EXPECT_TRUE(gpt->has("transformer.wte.weight"));
    EXPECT_TRUE(gpt->metadata()["model_args"].is_object());
    EXPECT_THAT(notes, testing::Contains("skipped 45 tensors of 'optimizer'"));
    const auto reverse =
        unwrap(open_checkpoint(folder() / "torch/lightning-legacy-ReverseTask.ckpt"), nullptr);
    EXPECT_TRUE(reverse->has("transformer.layers.0.self_attn.qkv_proj.weight"));
    EXPECT_TRUE(reverse->metadata().contains("hyper_parameters"));
}

TEST(SharedData, ReadsTheMetadataOfTheGgufFile) {
    if (!fs::exists(folder() / "README.md")) GTEST_SKIP() << "no files at " << folder();
    const auto file = open_checkpoint(folder() / "gguf/ggml-vocab-bert-bge.gguf");
    EXPECT_TRUE(file->names().empty());
    EXPECT_EQ(file->metadata()["general.architecture"].string(), "bert");
    EXPECT_EQ(file->metadata()["tokenizer.ggml.tokens"]["length"].integer(), 30522);
}

}  // namespace
}  // namespace tsdiag
