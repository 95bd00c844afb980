#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "token_set.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

/// Tasks of GLUE by bytes: the two sentences of a pair, with a newline between them, are one
/// sample.
namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

/// A task, known by the columns of its header.
struct Task {
    std::string_view name, first, second, label;  ///< second: empty where there is one sentence
    std::array<std::string_view, 3> labels;
    bool torn_rows = false;  ///< the published file has some, which are skipped
};
constexpr std::array tasks = {
    Task{
        "MNLI", "sentence1", "sentence2", "gold_label", {"contradiction", "entailment", "neutral"}},
    Task{"QQP", "question1", "question2", "is_duplicate", {"0", "1"}, true},
    Task{"QNLI", "question", "sentence", "label", {"entailment", "not_entailment"}},
    Task{"MRPC", "#1 String", "#2 String", "Quality", {"0", "1"}},
    Task{"RTE", "sentence1", "sentence2", "label", {"entailment", "not_entailment"}},
    Task{"SST-2", "sentence", "", "label", {"0", "1"}}};
/// Without a header: source, label, the author's mark, sentence.
constexpr Task cola = {"CoLA", "", "", "", {"0", "1"}};

/// Places of a task's columns.
struct Columns {
    const Task* task = nullptr;
    std::size_t first = 0, second = 0, label = 0, count = 0;
};

std::optional<std::size_t> place(const std::vector<std::string>& header, std::string_view name) {
    const auto at = std::ranges::find(header, name);
    if (at == header.end()) return std::nullopt;
    return std::size_t(at - header.begin());
}

Columns columns_of(const std::vector<std::string>& line, const fs::path& file) {
    if (line.size() == 4 && (line[1] == "0" || line[1] == "1"))
        return {.task = &cola, .first = 3, .label = 1, .count = 4};
    for (const Task& task : tasks) {
        const auto first = place(line, task.first), label = place(line, task.label);
        const auto second = task.second.empty() ? first : place(line, task.second);
        if (first && second && label) return {&task, *first, *second, *label, line.size()};
    }
    std::string known;
    for (const Task& task : tasks) known += fmt::format("{}, ", task.name);
    throw FormatError(fmt::format("{}: line 1 is not the header of a known task: {}or CoLA.",
                                  file.string(), known));
}

void read(const fs::path& file, TokenSet& set, std::vector<TokenSet::Sample>& samples,
          const Task*& task) {
    const std::string all = file_text(file, "a GLUE table", longest_data);
    constexpr std::string_view mark = "\xef\xbb\xbf";  // of UTF-8, which one table begins with
    Lines lines(std::string_view(all).substr(all.starts_with(mark) ? mark.size() : 0));
    Columns at;
    while (lines.next()) {
        const std::vector<std::string> cells = split(lines.line(), '\t');
        if (!at.task) {
            at = columns_of(cells, file);
            if (task && task != at.task)
                throw FormatError(fmt::format("{}: is a table of {}, expected {}.", file.string(),
                                              at.task->name, task->name));
            task = at.task;
            if (task != &cola) continue;
        }
        if (cells.size() != at.count && task->torn_rows) continue;
        const std::string where = fmt::format("{}: line {}", file.string(), lines.number());
        if (cells.size() != at.count)
            throw FormatError(
                fmt::format("{}: has {} cells, expected {}.", where, cells.size(), at.count));
        const std::string& label = cells[at.label];
        const auto known = std::ranges::find(task->labels, label);
        if (label.empty() || known == task->labels.end())
            throw FormatError(fmt::format("{}: the label '{}' is not one of {}.", where,
                                          visible(shortened(label, 40)), task->name));
        std::string text = cells[at.first];
        if (!task->second.empty()) text += '\n' + cells[at.second];
        samples.push_back(
            {.text = std::ssize(set.texts), .label = Index(known - task->labels.begin())});
        set.texts.push_back(std::move(text));
    }
}

/// The file to hold out, and the folder.
std::pair<fs::path, std::string> parts_of(const std::string& argument) {
    constexpr std::string_view other = ":mismatched";
    if (argument.ends_with(other)) {
        const fs::path folder = argument.substr(0, argument.size() - other.size());
        return {folder, "dev_mismatched.tsv"};
    }
    const fs::path folder = argument;
    std::error_code none;
    return {folder, fs::exists(folder / "dev_matched.tsv", none) ? "dev_matched.tsv" : "dev.tsv"};
}

}  // namespace

extern const DataEntry glue = {
    .kind = {.name = "glue",
             .argument = "DIR[:mismatched]",
             .samples = "a GLUE task [GLUE] as bytes, a newline between two sentences: MNLI, QQP, "
                        "QNLI, MRPC, RTE, SST-2 or CoLA, identified by its header",
             .held_out = "`dev.tsv`; for MNLI `dev_matched.tsv` or `dev_mismatched.tsv`",
             .layout = "the task's folder: `train.tsv`, `dev.tsv`; for MNLI `dev_matched.tsv`, "
                       "`dev_mismatched.tsv`",
             .labelled = true},
    .holds =
        [](const fs::path& folder) {
            return fs::exists(folder / "train.tsv") &&
                   (fs::exists(folder / "dev.tsv") || fs::exists(folder / "dev_matched.tsv"));
        },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        const auto [folder, dev] = parts_of(r.argument);
        TokenSet set{.name = folder.string(), .filled = false};
        const Task* task = nullptr;
        read(folder / "train.tsv", set, set.training, task);
        read(folder / dev, set, set.held_out, task);
        set.classes = task && !task->labels[2].empty() ? 3 : 2;
        return token_data(std::move(set));
    }};

}  // namespace tsdiag::training::data_list
