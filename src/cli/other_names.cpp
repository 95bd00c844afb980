#include "other_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

bool is_claim(const std::string& word) {
    std::vector<std::string_view> names;
    for (const Claim* claim : claims()) names.push_back(claim->name);
    return !named_by(word, names).empty();
}

bool is_experiment(const std::string& word) {
    std::vector<std::string_view> names;
    for (const ExperimentEntry* entry : experiments()) names.push_back(entry->name);
    return !named_by(word, names).empty();
}

bool is_figure_of_reports(const std::string& word) {
    return std::ranges::any_of(figures(),
                               [&](const FigureEntry* entry) { return entry->name == word; });
}

bool is_result(const std::string& word) {
    std::error_code failed;
    return fs::is_regular_file(fs::path(word) / "run.json", failed);
}

/// A table that a command wrote, beside the description of its run.
bool is_table(const std::string& word) {
    const fs::path file = word;
    std::error_code failed;
    return file.extension() == ".csv" && is_result(file.parent_path().string()) &&
           fs::is_regular_file(file, failed);
}

/// What `gradients` reads and no model is.
bool is_log(const std::string& word) {
    const fs::path file = word;
    const std::string name = file.filename().string();
    std::error_code failed;
    return fs::is_regular_file(file, failed) &&
           (file.extension() == ".csv" || file.extension() == ".jsonl" ||
            name == "trainer_state.json" || name.find("tfevents") != name.npos);
}

/// Drawn, or in the cache of the Hub.
bool is_named_model(const std::string& word) {
    return word.starts_with("random:") || local_model(word) != word;
}

/// Whether it is a model is for its readers to say.
bool is_other_path(const std::string& word) {
    std::error_code failed;
    return fs::exists(word, failed) && !is_log(word);
}

/// What a word may be: one that is several things is the first of them.
struct WordKind {
    std::string_view command;
    std::string_view what;
    bool (*has)(const std::string& word);
    std::string (*call)(const std::string& word) = nullptr;  ///< null: the command and the word
};
const WordKind word_kinds[] = {
    {"check", "a statement of a paper", is_claim},
    {"figure", "a figure of a paper", is_experiment},
    {"list", "a metric", [](const std::string& word) { return find_metric(word) != nullptr; },
     [](const std::string&) { return std::string("tsdiag list metrics"); }},
    {"report", "a table of a result", is_table,
     [](const std::string& word) {
         const fs::path folder = fs::path(word).parent_path();
         return fmt::format("tsdiag report {}", shell_word(folder.empty() ? "." : folder.string()));
     }},
    {"gradients", "the log of a training", is_log},
    {"report", "a result", is_result},
    {"probe", "a figure of reports", is_figure_of_reports,
     [](const std::string&) { return std::string("tsdiag probe MODEL"); }},
    {"probe", "a model", is_named_model},
    {"probe", "a path, perhaps of a model", is_other_path}};

}  // namespace

void refuse_names_of_others(std::string_view own, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (std::ranges::any_of(word_kinds, [&](const WordKind& kind) {
                return kind.command == own && kind.has(word);
            }))
            continue;
        const auto other =
            std::ranges::find_if(word_kinds, [&](const WordKind& kind) { return kind.has(word); });
        if (other == std::end(word_kinds)) continue;  // the command says what it expected
        throw UsageError(fmt::format(
            "'{}' is {}: {}.", word, other->what,
            other->call ? other->call(word)
                        : fmt::format("tsdiag {} {}", other->command, shell_word(word))));
    }
}

}  // namespace tsdiag::cli
