#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/packed.hpp"
#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/layouts.hpp"

/// The table of readers in docs/formats.md: from the lists, each with a test that opens its files.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

const fs::path root = fs::path(test_data()) / "../..";

/// A test that opens such files, as "Suite.Name".
using Tests = std::map<std::string, std::string, std::less<>>;

const Tests of_formats = {{"safetensors", "EverySample.HoldsWhatItsWriterSays"},
                          {"npz", "EverySample.HoldsWhatItsWriterSays"},
                          {"npy", "EverySample.HoldsWhatItsWriterSays"},
                          {"torch zip", "EverySample.HoldsWhatItsWriterSays"},
                          {"torch legacy", "TorchLegacy.IsReadWhateverTheProtocolOfItsPickles"},
                          {"gguf", "EveryGgmlType.GivesTheExactValuesRoundedOnce"},
                          {"flax msgpack", "EverySample.HoldsWhatItsWriterSays"},
                          {"llama2.c", "EverySample.HoldsWhatItsWriterSays"}};
/// What several files hold together; `open_directory` knows these by their names.
const std::vector<std::array<const char*, 3>> of_folders = {
    {"shards", "an index `*.index.json`", "OpenShards.JoinsThemInTheOrderOfTheIndex"},
    {"TensorFlow", "checkpoints V2, `PREFIX.index`", "TensorFlow.OpensByItsFolderAndByItsIndex"},
    {"torch.distributed.checkpoint", "`.metadata`",
     "Distributed.HasTheTensorsThatItsProcessesSaved"},
    {"Meta's parts", "`consolidated.00.pth`, ...", "Consolidated.JoinsRowsAndColumns"},
    {"DeepSpeed's parts", "ZeRO of stage 3",
     "Layouts.DeepSpeedsPartsOfStage3AreJoinedWhereAllAreThere"},
    {"an adapter of PEFT", "`adapter_config.json`", "AdapterTest.LoraAddsTheScaledProduct"},
    {"sentence-transformers", "`modules.json`",
     "ModulesOfAProgram.TheTransformerIsMeasuredAndTheOthersAreNamed"}};
constexpr const char* packing = "EveryPacking.HasTheValuesOfItsEncoder";
const Tests of_names = {
    {"Flax", "Layouts.OfOtherLibrariesOpenByTheirNamesAlone"},
    {"ViT of Google's own code", "Layouts.OfOtherLibrariesOpenByTheirNamesAlone"},
    {"OpenAI's own gpt-oss", "Layouts.OfOtherLibrariesOpenByTheirNamesAlone"},
    {"BERT in TensorFlow", "Layouts.ATensorFlowCheckpointOpensByItsFolderItsIndexAndItsPrefix"},
    {"TransformerLens", "Layouts.OfOtherLibrariesOpenByTheirNamesAlone"}};

std::string row(std::string_view kind, std::string_view name, std::string_view what,
                std::string_view test) {
    std::ostringstream out;
    out << "| " << kind << " | " << name << " | " << what << " | `" << test << "` |\n";
    return out.str();
}

std::string test_of(const Tests& tests, std::string_view name) {
    const auto found = tests.find(name);
    EXPECT_NE(found, tests.end()) << name << ": name a test that opens such a file";
    return found == tests.end() ? "" : found->second;
}

std::string markdown() {
    std::string out = "| | reader | of | opened by |\n|---|---|---|---|\n";
    for (const FormatEntry* one : formats())
        out += row("file", one->name, one->description, test_of(of_formats, one->name));
    for (const auto& [name, what, test] : of_folders) out += row("folder", name, what, test);
    for (const checkpoint::PackedLayout* one : checkpoint::packed_layouts())
        out +=
            row("packed weights", one->title,
                "`" + std::string(one->method) + "`, `*" + std::string(one->codes) + "`", packing);
    for (const std::string_view title : layout_titles())
        out += row("names", title, "its own names of tensors", test_of(of_names, title));
    return out;
}

TEST(FormatsPage, HasTheTableOfTheReaders) {
    EXPECT_EQ(of_formats.size(), formats().size());
    EXPECT_EQ(of_names.size(), layout_titles().size());
    const fs::path file = root / "docs/formats.md";
    const std::string begin = "<!-- readers -->\n", end = "<!-- end -->\n";
    std::string after = read_file(file);
    const std::size_t from = after.find(begin), to = after.find(end, from);
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    after.replace(from + begin.size(), to - from - begin.size(), markdown());
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << after;
    EXPECT_EQ(read_file(file), after)
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write the table of docs/formats.md anew";
}

TEST(FormatsPage, NamesTestsThatThereAre) {
    std::string sources;
    for (const auto& entry : fs::recursive_directory_iterator(root / "tests"))
        if (entry.path().filename().string().ends_with("_test.cpp"))
            sources += read_file(entry.path());
    const auto there = [&](const std::string& test) {
        const std::size_t dot = test.find('.');
        return sources.find("(" + test.substr(0, dot) + ", " + test.substr(dot + 1) + ") {") !=
               std::string::npos;
    };
    EXPECT_FALSE(there("FormatsPage.IsNot"));
    std::istringstream lines(markdown());
    std::string line;
    for (int i = 0; i < 2; ++i) std::getline(lines, line);  // the head
    while (std::getline(lines, line)) {
        const std::size_t end = line.rfind('`'), begin = line.rfind('`', end - 1) + 1;
        const std::string test = line.substr(begin, end - begin);
        EXPECT_TRUE(there(test)) << test;
    }
}

}  // namespace
}  // namespace tsdiag::test
