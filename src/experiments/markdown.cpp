#include <fmt/format.h>

#include "tsdiag/experiment.hpp"

namespace tsdiag {
namespace {

/// Escapes bars, which would end the cell of a table.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
}

std::string values_of(const ExperimentKey& key) {
    std::string text;
    for (const char c : key.words) text += c == ' ' ? std::string(", ") : std::string(1, c);
    if (key.numbers)
        text += fmt::format("{}{} from {:.6g} to {:.6g}", text.empty() ? "" : ", or ",
                            key.whole ? "whole number" : "number", key.least, key.most);
    return key.list ? text + "; several, apart by commas" : text;
}

std::string section(const ExperimentEntry& entry) {
    std::string out = fmt::format(
        "## {}\n\n{}. Source: {}.\n\nClaim: {}\n\nMethod: {}\n\nTable: {}.\n\n| reading | quick | "
        "paper | "
        "values | meaning |\n|---|---|---|---|---|\n",
        entry.name, entry.title, entry.source, entry.claim, entry.method, entry.table);
    for (const ExperimentKey& key : entry.keys)
        out += fmt::format("| `{}` | `{}` | `{}` | {} | {} |\n", key.name, key.quick, key.paper,
                           cell(values_of(key)), cell(key.description));
    if (entry.takes_model) out += "\n`--model PATH` adds a checkpoint.\n";
    if (entry.takes_data)
        out += "\n`--data KIND` trains on other data, as `tsdiag train` names them.\n";
    return out + "\n";
}

}  // namespace

std::string experiments_markdown() {
    std::string out =
        "# Experiments\n\n"
        "Written by `experiments_markdown()` from the list in `src/experiments/experiments.cpp`; a "
        "test "
        "compares the two.\n\n"
        "`tsdiag figure NAME...` makes each into a folder of its own: `metrics.csv`, `curves.csv`, "
        "`run.json`, `figures/` as SVG and PDF, and `report.html`, which sets the claim beside "
        "what was "
        "measured. Without a name all are made. `--scale quick` (the default) or `paper` sets the "
        "readings below; "
        "`--reading KEY=VALUE` sets one of them. Quotations are the papers'; what their text does "
        "not "
        "tell is a reading, and a number that they measured in another setting stands beside ours "
        "without a distance.\n\n"
        "Every number is a mean over trials with its standard error. It is judged by Student's t "
        "with "
        "the trials that there are, two means by Welch's, a bound on its own side; below three "
        "trials "
        "nothing is decided. All orders of a page together call something true false with a "
        "probability of at most 5 %, and so do all its comparisons with a number (Holm); beside "
        "what is not told apart stands from how many standard errors on it would be. Where a "
        "resolution is told, differences up to it are none. Bands are 95 % intervals of each mean "
        "alone. Trials that share their seeds count as independent, so that orders are found "
        "rather "
        "too seldom.\n\n"
        "A trial runs on one thread, so the same seed gives the same tables with any number of "
        "threads (but for seconds and bytes).\n\n";
    for (const ExperimentEntry* entry : experiments()) out += section(*entry);
    out.pop_back();
    return out;
}

}  // namespace tsdiag
