#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "commands.hpp"
#include "terminal.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag::cli {
namespace {

constexpr Index most_rows = 40;
constexpr std::size_t short_list = 3;
constexpr std::size_t margin = 11;  // of the paragraphs above and below the table

struct Column {
    std::string_view metric, stage;
};
constexpr std::array columns = {Column{"t_sim", "out"},        Column{"t_div", "out"},
                                Column{"r_layer", "out"},      Column{"xi_ratio", "attn"},
                                Column{"lambda2_abs", "attn"}, Column{"delta", "attn"},
                                Column{"entropy", "attn"},     Column{"jac_fro", "attn"}};

std::string paragraph(std::string_view head, std::string_view text) {
    return styled(fmt::format("{:<{}}", head, margin), Style::dim) +
           wrapped(printable(text), terminal_width(), margin) + "\n";
}

/// All lines of `list`, or the first ones in one paragraph.
std::string paragraphs(std::string_view head, const Json::Array& list, bool all) {
    if (list.empty()) return "";
    std::string text, few;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (all) text += paragraph(i == 0 ? head : "", list[i].string());
        if (i < short_list) few += (i > 0 ? "; " : "") + list[i].string();
    }
    if (all) return text;
    if (list.size() > short_list)
        few += fmt::format("; and {} more (-v)", list.size() - short_list);
    return paragraph(head, few);
}

std::string what_was_run(const Json& run) {
    const Json &model = run["model"], &input = run["input"];
    const auto counted = [](Index count, const char* noun) {
        return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
    };
    std::string text = fmt::format("{}, {}, {}", input["kind"].string(),
                                   counted(input["tokens"].integer(), "token"),
                                   counted(input["samples"].integer(), "sample"));
    if (input["trials"].integer() > 1)
        text += fmt::format(", {} trials", input["trials"].integer());
    text += fmt::format(", {}, {}, {}", run["dtype"].string(), run["device"].string(),
                        counted(run["threads"].integer(), "thread"));
    if (model["kind"].string() != "trace") text += fmt::format(", seed {}", run["seed"].integer());
    return text;
}

std::string heading(const Json& run, bool verbose) {
    const Json& model = run["model"];
    std::string text =
        paragraph("model", model["name"].string().empty() ? model["argument"].string()
                                                          : model["name"].string());
    text += paragraph("run", what_was_run(run));
    Json::Array assumed = model["defaults"].array();
    if (run["input"].contains("defaults"))
        for (const Json& line : run["input"]["defaults"].array()) assumed.push_back(line);
    text += paragraphs("recognised", model["recognised"].array(), verbose);
    text += paragraphs("ignored", model["ignored"].array(), verbose);
    text += paragraphs("assumed", assumed, verbose);
    for (const Json& line : run["warnings"].array()) text += paragraph("warning", line.string());
    return text;
}

std::string cell(const Table& table, Index layer, const Column& column) {
    for (const std::string_view stage : {column.stage, std::string_view("ffn")}) {
        const auto row = table.find({.layer = layer, .stage = std::string(stage)}, column.metric);
        if (row && row->value) return fmt::format("{:.4g}", *row->value);
        if (column.metric != "xi_ratio") break;  // a parallel layer has one step, `ffn`
    }
    return "-";
}

/// A row a layer; of many layers each k-th and the last.
std::string layer_table(const Table& table, Index layers) {
    std::vector<std::vector<std::string>> rows{{"layer"}};
    const Index step = (layers + most_rows - 1) / most_rows;
    for (Index layer = 0; layer < layers; ++layer)
        if (layer % step == 0 || layer == layers - 1) rows.push_back({fmt::format("{}", layer)});
    for (const Column& column : columns) {
        std::vector<std::string> cells;
        for (std::size_t i = 1; i < rows.size(); ++i)
            cells.push_back(cell(table, std::stoll(rows[i].front()), column));
        if (std::ranges::all_of(cells, [](const std::string& c) { return c == "-"; })) continue;
        rows.front().emplace_back(column.metric);
        for (std::size_t i = 1; i < rows.size(); ++i) rows[i].push_back(cells[i - 1]);
    }
    // Layers that were not measured say nothing.
    std::erase_if(rows, [](const std::vector<std::string>& row) {
        return row.front() != "layer" && std::all_of(row.begin() + 1, row.end(),
                                                     [](const std::string& c) { return c == "-"; });
    });
    if (rows.size() == 1) return "";
    const std::string text = aligned(rows, 0);
    const std::size_t end = text.find('\n');
    return "\n" + styled(text.substr(0, end), Style::bold) + text.substr(end);
}

}  // namespace

std::string summary(const RunResult& result, bool verbose) {
    std::string text = heading(result.run, verbose);
    text += layer_table(result.table, result.run["model"]["layers"].integer());
    const std::vector<Finding> findings = verdict(result.table, result.run);
    if (!findings.empty()) text += "\n";
    for (const Finding& finding : findings) {
        const bool warns = finding.level == Finding::Level::warning;
        text += styled(warns ? "! " : "- ", warns ? Style::warning : Style::plain) +
                wrapped(printable(finding.text), terminal_width(), 2) + "\n";
    }
    return text;
}

}  // namespace tsdiag::cli
