#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "command.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

struct ListCommand final : Command {
    explicit ListCommand(CLI::App& app);
    int run() const override;

    std::string what;
};

using Rows = std::vector<std::vector<std::string>>;

/// What tables hold beside metrics.
struct Column {
    std::string name, by, kind, meaning;
};
std::vector<Column> further_columns() {
    std::vector<Column> all = {
        {"loss", "train", "column",
         "L in nats, of each step on the batch, of evaluations on held-out data"},
        {"accuracy", "train", "column", "share of held-out predictions that are right"},
        {"predictions", "train", "column", "how many held-out predictions there are"},
        {"rate", "train", "column", "learning rate of each step"}};
    for (const ExperimentEntry* entry : experiments())
        all.push_back({std::string(entry->name), "figure", "table", std::string(entry->table)});
    return all;
}

/// What stands in the tables of every command, and which makes it.
Rows list_metrics() {
    Rows rows{{"name", "made by", "", "", "symbol", "meaning"}};
    const auto add = [&](std::string_view by, const Metric& m) {
        rows.push_back({std::string(m.name), std::string(by), m.core ? "core" : "",
                        m.of == Of::curve ? "curve" : "", std::string(m.symbol),
                        std::string(m.definition)});
    };
    for (const ProbeEntry* entry : probes())
        for (const Metric& m : entry->metrics) add(entry->name, m);
    for (const Metric& m : series_metrics()) add("gradients", m);
    for (const Column& c : further_columns())
        rows.push_back({c.name, c.by, "", c.kind, "", c.meaning});
    return rows;
}

template <class List>
Rows names_and_descriptions(const List& list) {
    Rows rows;
    for (const auto* entry : list)
        rows.push_back({std::string(entry->name), std::string(entry->description)});
    return rows;
}

/// Each variant with its formula, then its structure and options.
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

Rows list_steps() {
    Rows rows;
    for (const StepEntry* entry : further_steps()) {
        rows.push_back({std::string(entry->name), std::string(entry->description)});
        for (const NamedOption& option : entry->options)
            rows.push_back(
                {"", fmt::format("{}={}: {}", option.name, option.fallback, option.description)});
    }
    return rows;
}

/// Each route with its purpose, then its guarantee and cost.
Rows list_spectra() {
    Rows rows;
    for (const SpectralRoute& route : spectral_routes()) {
        rows.push_back({std::string(route.name), std::string(route.applies)});
        rows.push_back({"", fmt::format("certified by: {}", route.certifies)});
        rows.push_back({"", fmt::format("cost per head: {}", route.cost)});
    }
    return rows;
}

Rows list_probes() {
    Rows rows;
    for (const ProbeEntry* entry : probes()) {
        std::string names;
        for (const Metric& m : entry->metrics)
            names += fmt::format("{}{}", names.empty() ? "" : " ", m.name);
        rows.push_back({std::string(entry->name), names});
    }
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

Rows list_outputs() {
    Rows rows;
    for (const JsonOutput& output : json_outputs())
        rows.push_back({std::string(output.command), std::string(output.prints)});
    return rows;
}

Rows list_claims() {
    Rows rows;
    for (const Claim* claim : claims())
        rows.push_back({std::string(claim->name), std::string(claim->source)});
    return rows;
}

/// The first column, and the others joined; a row without a name continues the one above.
Json::Array as_json(std::span<const std::vector<std::string>> rows) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const std::vector<std::string>& row : rows) {
        if (!row.front().empty() || entries.empty()) entries.emplace_back(row.front(), "");
        for (std::size_t i = 1; i < row.size(); ++i)
            if (!row[i].empty())
                entries.back().second += (entries.back().second.empty() ? "" : "; ") + row[i];
    }
    Json::Array all;
    for (auto& [name, description] : entries)
        all.push_back(Json().set("name", name).set("description", description));
    return all;
}

Json::Array metrics_as_json() {
    Json::Array all;
    for (const Metric* metric : metrics()) all.push_back(metric_schema(*metric));
    for (const Metric& metric : series_metrics()) all.push_back(metric_schema(metric));
    for (const Column& c : further_columns())
        all.push_back(Json().set("name", c.name).set("definition", c.meaning).set("of", c.kind));
    return all;
}

struct List {
    const char* name;
    const char* about;
    std::function<Rows()> rows;
    bool titled = false;  ///< the first row names the columns
};

const std::vector<List>& lists() {
    static const std::vector<List> all = {
        {"formats", "files that are read", [] { return names_and_descriptions(formats()); }},
        {"architectures", "families of models",
         [] { return names_and_descriptions(architectures()); }},
        {"attentions", "kinds of attention, with their options", list_attentions},
        {"steps", "further steps of a layer, with their options", list_steps},
        {"probes", "groups of metrics, for --probes", list_probes},
        {"metrics", "what every number means", list_metrics, true},
        {"spectra", "ways to lambda2_abs and delta, for --spectra", list_spectra},
        {"figures", "figures of a report, and those of tsdiag figure", list_figures, true},
        {"claims", "statements of the papers, for tsdiag check", list_claims},
        {"outputs", "what each command prints with --json", list_outputs},
        {"backends", "where models run, for --device", list_backends_here},
        {"random", "models that can be drawn", list_random}};
    return all;
}

/// What else the members of a list are called, or the command that takes them.
struct OtherWord {
    std::string_view word, list;
};
constexpr OtherWord other_words[] = {{"check", "claims"},        {"statements", "claims"},
                                     {"theorems", "claims"},     {"papers", "claims"},
                                     {"experiments", "figures"}, {"models", "random"},
                                     {"probe", "random"},        {"init", "random"},
                                     {"devices", "backends"},    {"families", "architectures"}};

std::vector<std::string> listed() {
    std::vector<std::string> names;
    for (const List& list : lists()) names.emplace_back(list.name);
    return names;
}

int list_lists() {
    Rows rows, shown;
    for (const List& list : lists()) {
        rows.push_back({list.name, list.about});
        shown.push_back({fmt::format("tsdiag list {}", list.name), list.about});
    }
    print_json_list("list", as_json(rows));
    print(aligned(shown, 2));
    return 0;
}

}  // namespace

ListCommand::ListCommand(CLI::App& app) {
    app.add_option("WHAT", what, fmt::format("{} (default: the lists)", fmt::join(listed(), ", ")))
        ->type_name("");
}

int ListCommand::run() const {
    if (what.empty()) return list_lists();
    for (const List& list : lists())
        if (what == list.name) {
            const Rows rows = list.rows();
            const auto members = std::span(rows).subspan(list.titled ? 1 : 0);
            print_json_list("list", what == "metrics" ? metrics_as_json() : as_json(members));
            print(what == "outputs" ? json_outputs_markdown()
                                    : aligned(rows, rows.empty() ? 0 : rows.front().size()));
            return 0;
        }
    const auto other = std::ranges::find(other_words, what, &OtherWord::word);
    const std::string near =
        other != std::end(other_words) ? std::string(other->list) : nearest(what, listed());
    throw UsageError(fmt::format(
        "'{}' cannot be listed; {}", what,
        near.empty() ? "see tsdiag list." : fmt::format("did you mean tsdiag list {}?", near)));
}

extern const CommandEntry list_command = {.name = "list",
                                          .about = "list the names that options accept",
                                          .examples = R"(Examples:
  tsdiag list
  tsdiag list metrics
  tsdiag list random)",
                                          .make = made<ListCommand>,
                                          .names = listed};

}  // namespace tsdiag::cli
