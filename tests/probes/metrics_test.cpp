#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "by_hand.hpp"
#include "support/places.hpp"
#include "tsdiag/metric.hpp"

/// Laws of the list of metrics, and the dictionary generated from it.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

const fs::path root = fs::path(test_data()) / "../..";

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Metrics, AreDeclaredWhole) {
    std::set<std::string_view> names;
    for (const Metric* m : metrics()) {
        EXPECT_TRUE(std::regex_match(std::string(m->name), std::regex("[a-z][a-z0-9_]*")))
            << m->name;
        EXPECT_TRUE(names.insert(m->name).second) << m->name << " is declared twice";
        EXPECT_EQ(find_metric(m->name), m);
        for (const std::string_view text : {m->symbol, m->definition, m->range, m->undefined})
            EXPECT_FALSE(text.empty()) << m->name;
        EXPECT_TRUE(m->of != Of::step || m->stage == "attn") << m->name;
    }
    EXPECT_EQ(find_metric("no_such_metric"), nullptr);
}

TEST(Metrics, ThatAreSpokenOfExist) {
    const std::string header = text_of(root / "include/tsdiag/metric.hpp");
    const std::regex constant(R"re(\b([a-z0-9_]+) = "([a-z0-9_]+)")re");
    std::size_t count = 0;
    for (std::sregex_iterator it(header.begin(), header.end(), constant), end; it != end; ++it) {
        if ((*it)[1] == "stage") continue;  // a default
        EXPECT_EQ((*it)[1], (*it)[2]);
        EXPECT_NE(find_metric((*it)[2].str()), nullptr) << (*it)[2];
        ++count;
    }
    EXPECT_GT(count, 20u);
}

/// The name of a metric occurs only where it is declared, in metric.hpp and in texts on papers.
TEST(Metrics, AreSpeltNowhereElse) {
    // Other uses of the same words: names of Greek letters, PEFT's name of a rank, a word of logs.
    const std::set<std::pair<std::string, std::string>> other = {{"terminal.cpp", "delta"},
                                                                 {"terminal.cpp", "omega"},
                                                                 {"lora_config.cpp", "r"},
                                                                 {"norm_names.cpp", "delta"}};
    const std::regex literal(R"re("([a-z0-9_]+)")re"), comment("//[^\n]*");
    std::size_t read = 0;
    for (const char* folder :
         {"src/core", "src/attention", "src/model", "src/families", "src/run", "src/train",
          "src/cli", "src/output", "src/checkpoint", "reports", "gpu"})
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
            const std::string extension = entry.path().extension();
            if (extension != ".cpp" && extension != ".hpp" && extension != ".cu") continue;
            const std::string text = std::regex_replace(text_of(entry.path()), comment, "");
            ++read;
            for (std::sregex_iterator it(text.begin(), text.end(), literal), end; it != end; ++it) {
                const std::string word = (*it)[1], file = entry.path().filename();
                if (other.contains({file, word})) continue;
                EXPECT_EQ(find_metric(word), nullptr) << entry.path() << " spells the metric \""
                                                      << word << "\": write metric::" << word;
            }
        }
    EXPECT_GT(read, 100u);
}

/// Escapes |, which Markdown takes for the border of a cell.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
}

std::string dictionary(const std::vector<Of>& of) {
    std::string out = "| metric | definition | range | undefined when |\n|---|---|---|---|\n";
    for (const Metric* m : metrics()) {
        if (std::ranges::find(of, m->of) == of.end()) continue;
        out += "| " + std::string(m->name) + " | " + cell(m->definition);
        if (!m->unit.empty()) out += ", " + std::string(m->unit);
        if (!m->source.empty()) out += " " + std::string(m->source);
        out += " | " + cell(m->range) + " | " + cell(m->undefined) + " |\n";
    }
    return out;
}

TEST(Metrics, DictionaryIsWrittenFromTheList) {
    const std::vector<std::pair<std::string, std::vector<Of>>> tables = {
        {"states", {Of::state, Of::step, Of::layer}},
        {"attention", {Of::head}},
        {"gradients", {Of::gradient}},
        {"series", {Of::series}},
        {"curves", {Of::curve}}};
    const fs::path file = root / "docs/metrics.md";
    const std::string before = text_of(file);
    std::string after = before;
    for (const auto& [name, of] : tables) {
        const std::string begin = "<!-- metrics: " + name + " -->\n", end = "<!-- end -->\n";
        const std::size_t from = after.find(begin), to = after.find(end, from);
        ASSERT_NE(from, std::string::npos) << name;
        ASSERT_NE(to, std::string::npos) << name;
        after.replace(from + begin.size(), to - from - begin.size(), dictionary(of));
    }
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << after;
    EXPECT_EQ(text_of(file), after) << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write the "
                                       "tables of docs/metrics.md anew";
}

}  // namespace
}  // namespace tsdiag::test
