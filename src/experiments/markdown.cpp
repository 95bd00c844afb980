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
    return key.list ? text + "; several, separated by commas" : text;
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
        out += "\n`--data KIND` trains on other data, named as for `tsdiag train`.\n";
    return out + "\n";
}

}  // namespace

std::string experiments_markdown() {
    std::string out =
        "# Experiments\n\nWritten by `experiments_markdown()` from the list in "
        "`src/experiments/experiments.cpp`; a test compares the two.\n\n`tsdiag figure NAME...` "
        "writes each to a folder of its own: `metrics.csv`, `curves.csv`, `run.json`, `figures/` "
        "as SVG and PDF, and `report.html`, which shows the claim beside the measurements. Without "
        "a name it makes all of them. `--scale quick` (the default) or `paper` sets the readings "
        "below; `--reading KEY=VALUE` sets one of them. Quotations are from the papers; what their "
        "text leaves open is a reading, and a number that they measured in another setting is "
        "shown beside ours without a judgement.\n\nEvery number is a mean over trials with its "
        "standard error. Comparisons use Student's t test, with Welch's for the difference of two "
        "means and a one-sided test for a bound; with fewer than three trials nothing is decided. "
        "Holm's correction keeps the probability of any false rejection on a page at 5 % or less, "
        "separately for its orders and likenesses and for its comparisons with a number; a "
        "difference that is not "
        "significant is shown with the number of standard errors from which it would be, and with "
        "the difference that these trials see: if it is the true one, they tell it with a "
        "probability of 80 %. Models with the same seed see the "
        "same samples, and orders and likenesses of trained models are differences within a seed, "
        "from the curves METRIC_by_trial. A claim on several models, \"outperforms all\", is one "
        "comparison: it is found where its least certain order is significant, and contradicted "
        "where the opposite of one of them is, by Bonferroni's correction. The order of all models "
        "of a table is compared with the paper's by Kendall's tau of their means over trials, with "
        "the exact probability of a tau as far from 0 where one order has nothing to do with the "
        "other: that takes five models, and no more than three trials. Where a "
        "resolution is given, differences up to it are ignored. \"Comparable\", \"similar\" and "
        "their like are claims that two one-sided tests support or refute within a margin; the "
        "claim says which, and where it comes from. A page begins with how many claims are "
        "contradicted, found, consistent and open, and with about how many trials would decide "
        "half of the open ones. Trials of equal value, as accuracies on few samples may be, "
        "decide by their sign alone. Bands are 95 % intervals of each "
        "mean separately.\n\nA trial runs on one thread, so the same seed "
        "gives the same tables with any number of threads (except for seconds and bytes).\n\n";
    for (const ExperimentEntry* entry : experiments()) out += section(*entry);
    out.pop_back();
    return out;
}

}  // namespace tsdiag
