#include <gmock/gmock.h>

#include "program.hpp"
#include "support/places.hpp"

/// Transformer-XL through the program.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path golden = fs::path(test_data()) / "golden";
const std::string drawn = "random:transformer-xl,layers=2,d=16,heads=2,ffn=24,vocab=20,memory=4";

/// Lines of a table that have this metric.
std::vector<std::string> lines_of(const fs::path& table, const std::string& metric) {
    std::istringstream in(read_file(table));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);)
        if (line.find("," + metric + ",") != std::string::npos) out.push_back(line);
    return out;
}

TEST(TransformerXlProgram, SaysWhyAPWithAMemoryHasNoSpectrum) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, {"probe", drawn, "--tokens", "12", "--loss", "lm",
                                           "--maps", "0:1", "--out", "out"});
    ASSERT_EQ(found.code, 0) << found.err;
    const fs::path table = folder.path() / "out" / "metrics.csv";
    for (const char* metric : {"lambda2_abs", "omega", "est_mu"}) {
        const std::vector<std::string> lines = lines_of(table, metric);
        EXPECT_FALSE(lines.empty());
        for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("P is n x (m + n)"));
    }
    for (const char* metric : {"delta", "entropy", "attn_fro", "local_auc", "t_sim"}) {
        const std::vector<std::string> lines = lines_of(table, metric);
        EXPECT_FALSE(lines.empty());
        for (const std::string& line : lines) EXPECT_EQ(line.find("n x (m"), line.npos) << line;
    }
}

TEST(TransformerXlProgram, GivesACheckpointAMemory) {
    TemporaryDirectory folder;
    const std::string model = (golden / "transformer-xl-memory").string();
    const auto probe = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {"probe", model,   "--no-report", "--tokens",
                                          "9",     "--out", "out",         "--force"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    };
    const fs::path table = folder.path() / "out" / "metrics.csv";
    ASSERT_EQ(probe({}).code, 0);
    EXPECT_EQ(lines_of(table, "lambda2_abs").front().find("n x (m"), std::string::npos);
    ASSERT_EQ(probe({"--memory-tokens", "4"}).code, 0);
    EXPECT_THAT(lines_of(table, "lambda2_abs").front(), HasSubstr("n x (m + n)"));
}

TEST(TransformerXlProgram, RefusesAMemoryInOneSentence) {
    TemporaryDirectory folder;
    const auto refused = [&](std::vector<std::string> words, const char* why) {
        words.insert(words.begin(), "probe");
        words.insert(words.end(), {"--no-report", "--out", "out"});
        const Finished found = tsdiag(folder, words);
        EXPECT_EQ(found.code, 2);
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr(why));
        EXPECT_FALSE(fs::exists(folder.path() / "out" / "metrics.csv"));
    };
    refused({drawn, "--tokens", "4"}, "the first 4 are its memory");
    refused({drawn, "--memory-tokens", "3"}, "--memory-tokens");
    refused({(golden / "gpt2").string(), "--memory-tokens", "3"},
            "softmax attention does not support it");
    refused({(golden / "bert").string(), "--memory-tokens", "3"}, "bidirectional softmax");
}

}  // namespace
}  // namespace tsdiag::test
