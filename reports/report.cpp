#include "tsdiag/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "page.hpp"
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

std::vector<std::string> draw_beside(const std::vector<Figure>& figures,
                                     const std::filesystem::path& directory,
                                     const FigureStyle& look, bool& drawn) {
    try {
        draw(figures, directory / "figures", look);
        drawn = true;
    } catch (const NotAvailable& e) {
        return {e.what()};
    } catch (const Error& e) {
        return {fmt::format("{} The page still contains all figures.", e.what())};
    }
    return {};
}

std::vector<std::string> write_page(Page page, const std::filesystem::path& directory,
                                    const FigureStyle& look) {
    page.tikz = look.tikz;
    std::vector<std::string> undrawn = draw_beside(page.figures, directory, look, page.drawn);
    write_atomically(directory / "report.html", page_html(page));
    return undrawn;
}

}  // namespace reports

namespace {

/// The page of a series: its changes, then the last checkpoint as on its own page.
reports::Page with_trajectories(reports::Page page, const Table& table, const RunRecord& run) {
    std::vector<Finding> findings = series_verdict(table, run);
    // Those of the model are told of the series already.
    std::erase_if(page.findings, [&](const Finding& one) {
        return std::ranges::find(findings, one.text, &Finding::text) != findings.end();
    });
    findings.push_back({Finding::Level::note, "The findings below are for the last checkpoint."});
    for (Finding& finding : page.findings) {
        finding.headline = false;
        findings.push_back(std::move(finding));
    }
    page.findings = std::move(findings);
    page.figures = reports::trajectories(table, run);
    page.numbers_title = "Numbers by layer, last checkpoint";
    if (run.watch) page.refresh = run.watch->refresh.value_or(0);
    return page;
}

}  // namespace

std::vector<std::string> write_report(const Table& table, const RunRecord& run,
                                      const std::filesystem::path& directory,
                                      const FigureStyle& look) {
    const bool is_series = run.checkpoints.has_value();
    const Table shown = is_series ? reports::last_step(table) : table;
    reports::Page page{.title = heading_of(table, run),
                       .facts_title = "Model and run",
                       .facts = reports::facts_html(run),
                       .numbers_title = "Numbers by layer",
                       .numbers = reports::summary_html(shown),
                       .no_findings_text = "The table gives no findings.",
                       .findings = verdict(shown, run),
                       .files = reports::files_of(table),
                       .heads = reports::heads_data(shown)};
    if (table.model() != page.title) page.lead = table.model();
    if (is_series) page = with_trajectories(std::move(page), table, run);
    for (const FigureEntry* entry : figures()) {
        std::vector<Figure> made = entry->make(shown);
        if (made.empty()) page.missing.push_back(what_is_missing(*entry));
        if (entry->name == "attention_maps") reports::name_tokens(made, run);
        for (Figure& f : made) page.figures.push_back(std::move(f));
    }
    return reports::write_page(std::move(page), directory, look);
}

std::vector<std::string> write_plain_page(const PlainPage& plain,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look) {
    reports::Page page{.title = plain.title,
                       .lead = plain.lead,
                       .facts_title = "Setting",
                       .figures = plain.figures,
                       .findings = plain.findings,
                       .files = plain.files};
    for (const auto& [name, value] : plain.facts)
        page.facts +=
            fmt::format("<dt>{}</dt><dd>{}</dd>\n", reports::html(name), reports::html(value));
    if (!page.facts.empty()) page.facts = "<dl class=\"facts\">\n" + page.facts + "</dl>\n";
    return reports::write_page(std::move(page), directory, look);
}

}  // namespace tsdiag
