#include "tsdiag/report.hpp"

#include <fmt/format.h>

#include "page.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

std::string what_is_missing(const FigureEntry& entry) {
    if (entry.needs == "maps")
        return fmt::format("{}: none were asked for (--maps LAYER:HEAD,...).", entry.title);
    std::string names(entry.needs);
    for (std::size_t at = 0; (at = names.find(' ', at)) != std::string::npos; at += 4)
        names.replace(at, 1, " or ");
    return fmt::format("{}: the table has no value of {}.", entry.title, names);
}

}  // namespace

namespace reports {

std::vector<std::string> draw_beside(const std::vector<Figure>& figures,
                                     const std::filesystem::path& directory, bool& drawn) {
    try {
        draw(figures, directory / "figures");
        drawn = true;
    } catch (const NotAvailable& e) {
        return {e.what()};
    } catch (const Error& e) {
        return {fmt::format("{} The page has all figures nevertheless.", e.what())};
    }
    return {};
}

}  // namespace reports

std::vector<std::string> write_report(const Table& table, const Json& run,
                                      const std::filesystem::path& directory) {
    reports::Page page{.table = table, .run = run};
    page.findings = verdict(table, run);
    for (const FigureEntry* entry : figures()) {
        std::vector<Figure> made = entry->make(table);
        if (made.empty()) page.missing.push_back(what_is_missing(*entry));
        for (Figure& f : made) page.figures.push_back(std::move(f));
    }
    const std::vector<std::string> undrawn =
        reports::draw_beside(page.figures, directory, page.drawn);
    write_atomically(directory / "report.html", reports::page_html(page));
    return undrawn;
}

}  // namespace tsdiag
