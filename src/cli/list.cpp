#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "commands.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows list_metrics() {
    Rows rows{{"name", "probe", "", ""}};
    for (const ProbeEntry* entry : probes())
        for (const bool curve : {false, true}) {
            std::istringstream words{std::string(curve ? entry->curves : entry->metrics)};
            for (std::string word; words >> word;) {
                const bool core = std::ranges::find(core_metrics(), word) != core_metrics().end();
                rows.push_back(
                    {word, std::string(entry->name), core ? "core" : "", curve ? "curve" : ""});
            }
        }
    return rows;
}

template <class List>
Rows described(const List& list) {
    Rows rows;
    for (const auto* entry : list)
        rows.push_back({std::string(entry->name), std::string(entry->description)});
    return rows;
}

/// Each variant with its formula, and below it its structure and options.
Rows list_attentions() {
    Rows rows;
    for (const AttentionEntry* entry : attentions()) {
        rows.push_back({std::string(entry->name), std::string(entry->description)});
        rows.push_back({"", describe(entry->facts)});
        for (const AttentionOption& option : entry->options)
            rows.push_back(
                {"", fmt::format("{}={}: {}", option.name, option.fallback, option.description)});
    }
    for (const AttentionPlan& plan : attention_plans())
        rows.push_back({std::string(plan.name), std::string(plan.description)});
    return rows;
}

Rows list_probes() {
    Rows rows;
    for (const ProbeEntry* entry : probes())
        rows.push_back({std::string(entry->name),
                        fmt::format("{}{}{}", entry->metrics, entry->curves.empty() ? "" : " ",
                                    entry->curves)});
    return rows;
}

Rows list_figures() {
    Rows rows{{"name", "made by", "", "title"}};
    for (const FigureEntry* entry : figures())
        rows.push_back({std::string(entry->name), "probe", "", std::string(entry->title)});
    for (const ExperimentEntry* entry : experiments())
        rows.push_back({std::string(entry->name), "figure", entry->takes_data ? "trains" : "",
                        std::string(entry->title)});
    return rows;
}

Rows list_backends_here() {
    Rows rows;
    for (const auto& [name, description] : list_backends()) rows.push_back({name, description});
    return rows;
}

Rows list_random() {
    Rows rows;
    for (const ArchitectureEntry* entry : architectures()) {
        if (!entry->random_names) continue;
        for (const std::string_view name : entry->random_names())
            rows.push_back({fmt::format("random:{}", name), std::string(entry->description)});
    }
    return rows;
}

Rows list_claims() {
    Rows rows;
    for (const Claim* claim : claims())
        rows.push_back({std::string(claim->name), std::string(claim->source)});
    return rows;
}

struct List {
    const char* name;
    std::function<Rows()> rows;
};

const std::vector<List>& lists() {
    static const std::vector<List> all = {
        {"formats", [] { return described(formats()); }},
        {"architectures", [] { return described(architectures()); }},
        {"attentions", list_attentions},
        {"probes", list_probes},
        {"metrics", list_metrics},
        {"figures", list_figures},
        {"claims", list_claims},
        {"backends", list_backends_here},
        {"random", list_random}};
    return all;
}

}  // namespace

const std::vector<std::string>& listed() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all;
        for (const List& list : lists()) all.emplace_back(list.name);
        return all;
    }();
    return names;
}

int run_command(const ListCommand& command) {
    for (const List& list : lists())
        if (command.what == list.name) {
            const Rows rows = list.rows();
            print(aligned(rows, rows.empty() ? 0 : rows.front().size()));
            return 0;
        }
    const std::string near = nearest(command.what, listed());
    throw UsageError(fmt::format(
        "'{}' cannot be listed; {}", command.what,
        near.empty() ? "see tsdiag list --help." : fmt::format("did you mean {}?", near)));
}

}  // namespace tsdiag::cli
