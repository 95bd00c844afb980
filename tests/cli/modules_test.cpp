#include <gtest/gtest.h>

#include <sstream>

#include "program.hpp"
#include "support/files.hpp"
#include "support/places.hpp"

/// Folders of sentence-transformers.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

/// The rows of a table without their first column, the model's name.
std::string numbers(const fs::path& table) {
    std::istringstream rows(read_file(table));
    std::string out, row;
    while (std::getline(rows, row)) out += row.substr(row.find(',')) + "\n";
    return out;
}

TEST(ModulesOfAProgram, TheTransformerIsMeasuredAndTheOthersAreNamed) {
    const TemporaryDirectory folder;
    const fs::path bert = fs::path(test_data()) / "golden/bert", model = folder.path() / "model";
    fs::create_directories(model / "0_Transformer");
    for (const char* name : {"config.json", "model.safetensors"})
        fs::copy_file(bert / name, model / "0_Transformer" / name);
    write_file(model / "0_Transformer/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n");
    write_file(model / "modules.json",
               R"([{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
                   {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
    const Finished done = tsdiag(folder, {"probe", "model", "--text", "a b a", "--probes", "core",
                                          "--no-report", "--out", "a"});
    ASSERT_EQ(done.code, 0) << done.err;
    write_file(folder.path() / "ids", "2 4 5 4 3\n");
    const Finished plain = tsdiag(folder, {"probe", bert.string(), "--input", "ids:ids", "--probes",
                                           "core", "--no-report", "--out", "b"});
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_EQ(numbers(folder.path() / "a/metrics.csv"), numbers(folder.path() / "b/metrics.csv"));
    EXPECT_NE(read_file(folder.path() / "a/run.json")
                  .find("the transformer alone is measured, not "
                        "Pooling"),
              std::string::npos);
    write_file(model / "0_Transformer/sentence_bert_config.json", R"({"do_lower_case": true})");
    const Finished lowered =
        tsdiag(folder, {"probe", "model", "--text", "a b a", "--probes", "core", "--out", "c"});
    EXPECT_EQ(lowered.code, 1);
    EXPECT_NE(lowered.err.find("says do_lower_case = true"), std::string::npos) << lowered.err;
    const Finished inspected = tsdiag(folder, {"inspect", "model"});
    EXPECT_EQ(inspected.code, 0) << inspected.err;
    EXPECT_NE(inspected.out.find("not Pooling"), std::string::npos) << inspected.out;
}

}  // namespace
}  // namespace tsdiag::test
