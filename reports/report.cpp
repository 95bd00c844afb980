#include "tsdiag/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "page.hpp"
#include "rows.hpp"
#include "text.hpp"
#include "token_names.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag {
namespace {

std::string what_is_missing(const FigureEntry& entry) {
    std::vector<std::string_view> names(entry.needs.begin(), entry.needs.end());
    std::erase(names, "");
    if (names.empty()) return fmt::format("{}: the table has none.", entry.title);
    if (names.front() == "maps")
        return fmt::format("{}: none were requested (--maps LAYER:HEAD,...).", entry.title);
    return fmt::format("{}: the table has no value of {}.", entry.title, fmt::join(names, " or "));
}

/// Of the page, and one line in `missing` for each that the table has no numbers for.
std::vector<Figure> figures_and_missing(const Table& table, const RunRecord& run,
                                        std::vector<std::string>& missing) {
    const bool is_series = run.checkpoints.has_value();
    std::vector<Figure> all;
    if (is_series) all = reports::trajectories(table, run);
    for (Figure& f : all) f.group = "Over the series";
    const Table shown = is_series ? reports::last_step(table) : table;
    for (const FigureEntry* entry : figures()) {
        std::vector<Figure> made = entry->make(shown);
        if (made.empty()) missing.push_back(what_is_missing(*entry));
        if (entry->name == "attention_maps") reports::name_tokens(made, run);
        for (Figure& f : made) {
            if (is_series) f.group = "Last checkpoint";
            all.push_back(std::move(f));
        }
    }
    return all;
}

std::string heading_of(const Table& table, const RunRecord& run) {
    if (!run.model.name.empty()) return run.model.name;
    return table.model().empty() ? "tsdiag report" : table.model();
}

}  // namespace

namespace reports {

Files files_of(const Table& table) {
    Files files = {{"metrics.csv", "all metrics, one per row"}};
    if (!table.curves().empty()) files.emplace_back("curves.csv", "the points of every curve");
    if (!table.maps().empty()) files.emplace_back("maps.npz", "the attention maps");
    files.emplace_back("run.json", "settings, model, and how each number was computed");
    return files;
}

std::vector<std::string> write_page(Page page, const std::filesystem::path& directory,
                                    const FigureStyle& look) {
    page.tikz = look.tikz;
    note_bands_once(page.figures);
    std::vector<std::string> undrawn;
    try {
        draw(page.figures, directory / "figures", look);
        page.drawn = true;
    } catch (const NotAvailable& e) {
        undrawn.emplace_back(e.what());
    } catch (const Error& e) {
        undrawn.push_back(fmt::format("{} The page still contains all figures.", e.what()));
    }
    write_atomically(directory / "report.html", page_html(page));
    return undrawn;
}

}  // namespace reports

namespace {

/// Of a series: its changes, then the last checkpoint.
std::vector<Finding> with_changes(std::vector<Finding> of_last, const Table& table,
                                  const RunRecord& run) {
    std::vector<Finding> findings = series_verdict(table, run);
    for (Finding& finding : of_last) {
        // Those of the model are told of the series already.
        if (std::ranges::find(findings, finding.text, &Finding::text) != findings.end()) continue;
        finding.headline = false;
        finding.text = "Last checkpoint: " + finding.text;
        findings.push_back(std::move(finding));
    }
    return findings;
}

}  // namespace

std::vector<Figure> report_figures(const Table& table, const RunRecord& run) {
    std::vector<std::string> missing;
    return figures_and_missing(table, run, missing);
}

std::vector<std::string> write_report(const Table& table, const RunRecord& run,
                                      const std::filesystem::path& directory,
                                      const FigureStyle& look) {
    const bool is_series = run.checkpoints.has_value();
    const Table shown = is_series ? reports::last_step(table) : table;
    reports::Page page{.title = heading_of(table, run),
                       .findings = verdict(shown, run),
                       .no_findings_text = "The table gives no findings.",
                       .files = reports::files_of(table),
                       .heads = reports::heads_data(shown)};
    // A page is drawn before the tables are described, or beside those that it is of.
    std::error_code failed;
    if (run.has_table("samples.csv") || std::filesystem::exists(directory / "samples.csv", failed))
        page.files.insert(page.files.end() - 1, {"samples.csv", "the values of each sample"});
    if (table.model() != page.title) page.lead = table.model();
    if (is_series) page.findings = with_changes(std::move(page.findings), table, run);
    page.figures = figures_and_missing(table, run, page.missing);
    page.folds = {{"numbers", is_series ? "Numbers by layer, last checkpoint" : "Numbers by layer",
                   reports::summary_html(shown)},
                  {"facts", "Model and run", reports::facts_html(run)}};
    if (run.watch) page.refresh = run.watch->refresh.value_or(0);
    return reports::write_page(std::move(page), directory, look);
}

std::vector<std::string> write_plain_page(const PlainPage& plain,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look) {
    return reports::write_page({.title = plain.title,
                                .lead = plain.lead,
                                .findings = plain.findings,
                                .figures = plain.figures,
                                .folds = {{"facts", "Settings", reports::list_html(plain.facts)}},
                                .files = plain.files},
                               directory, look);
}

}  // namespace tsdiag
