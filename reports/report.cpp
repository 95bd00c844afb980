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

std::vector<std::string> write_report(const Table& table, const Json& run,
                                      const std::filesystem::path& directory) {
    reports::Page page{.table = table, .run = run};
    page.findings = verdict(table, run);
    for (const FigureEntry* entry : figures()) {
        std::vector<Figure> made = entry->make(table);
        if (made.empty()) page.missing.push_back(what_is_missing(*entry));
        for (Figure& f : made) page.figures.push_back(std::move(f));
    }
    std::vector<std::string> undrawn;
    try {
        draw(page.figures, directory / "figures");
        page.drawn = true;
    } catch (const NotAvailable& e) {
        undrawn.push_back(e.what());
    } catch (const Error& e) {
        undrawn.push_back(fmt::format("{} The page has all figures nevertheless.", e.what()));
    }
    write_atomically(directory / "report.html", reports::page_html(page));
    return undrawn;
}

}  // namespace tsdiag
