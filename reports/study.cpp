#include <fmt/format.h>

#include <cmath>

#include "page.hpp"
#include "text.hpp"
#include "tsdiag/file.hpp"

/// The page that sets a claim beside measurements.
namespace tsdiag {
namespace {

using namespace reports;

/// A word or a list as a line of the facts.
std::string fact_value(const Json& v) {
    if (v.is_string()) return v.string();
    if (v.is_integer()) return fmt::format("{}", v.integer());
    if (v.is_number()) return number(v.number());
    return v.is_null() ? "" : v.dump();
}

std::string settings_html(const Study& study, const Json& run) {
    std::string items;
    const auto add = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) items += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html(value));
    };
    add("Source", study.source);
    add("Scale", fact_value(run["setting"]["scale"]));
    if (run["setting"]["keys"].is_object())
        for (const auto& [key, value] : run["setting"]["keys"].object())
            add(html(key), fact_value(value));
    add("seed", fact_value(run["seed"]));
    return "<section aria-labelledby=\"facts\">\n<h2 id=\"facts\">Setting</h2>\n<dl "
           "class=\"facts\">\n" +
           items + "</dl>\n</section>\n";
}

std::string measured_text(const Comparison& c) {
    if (!c.measured) return c.unknown.empty() ? "not measured" : c.unknown;
    if (!c.error) return number(*c.measured);
    return fmt::format("{} \u00b1 {:.2g}", number(*c.measured), *c.error);
}

std::string comparisons_html(const std::vector<Comparison>& comparisons) {
    if (comparisons.empty()) return "<p>Nothing of it is a number; see the figures.</p>\n";
    std::string body;
    for (const Comparison& c : comparisons)
        body += fmt::format(
            "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td>{}</td><td>{}</td>"
            "<td>{}</td><td class=\"words\">{}</td></tr>\n",
            caption_html(c.what), caption_html(c.says), c.expected ? number(*c.expected) : "",
            html(measured_text(c)), c.count > 0 ? fmt::format("{}", c.count) : "",
            html(c.judgement));
    return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Comparisons\">\n"
           "<table class=\"claims\">\n<caption>Measured: mean \u00b1 standard error over the "
           "trials. Judged by Student's t with the trials that there are (Welch's for two means), "
           "bounds on one side; all orders of the page together err with a probability of at most "
           "5 %, and so do all its comparisons with a number (Holm). A row of words alone, or of a "
           "number of another setting, is not judged.</caption>"
           "\n<thead><tr><th scope=\"col\">quantity</th><th scope=\"col\">what is said of "
           "it</th><th "
           "scope=\"col\">as a number</th><th scope=\"col\">measured</th><th "
           "scope=\"col\">trials</th><th scope=\"col\">judgement</th></tr></thead>\n<tbody>\n" +
           body + "</tbody>\n</table>\n</div>\n";
}

std::string claim_html(const Study& study) {
    std::string notes;
    for (const std::string& note : study.notes)
        notes += "<li class=\"note\">" + caption_html(note) + "</li>\n";
    return fmt::format(
        "<section aria-labelledby=\"verdict\">\n<h2 id=\"verdict\">Claim and measurement</h2>\n"
        "<dl class=\"claim\">\n<dt>The claim</dt><dd>{}</dd>\n<dt>Done "
        "here</dt><dd>{}</dd>\n</dl>\n{}"
        "{}</section>\n",
        caption_html(study.claim), caption_html(study.method), comparisons_html(study.comparisons),
        notes.empty() ? "" : "<ul class=\"findings\">\n" + notes + "</ul>\n");
}

}  // namespace

std::vector<std::string> write_study(const Study& study, const Table& table, const Json& run,
                                     const std::filesystem::path& directory) {
    bool drawn = false;
    const std::vector<std::string> undrawn = draw_beside(study.figures, directory, drawn);
    const std::string body = claim_html(study) +
                             "<section aria-labelledby=\"figures\">\n<h2 "
                             "id=\"figures\">Figures</h2>\n" +
                             figures_html(study.figures, drawn) + "</section>\n" +
                             settings_html(study, run) + data_html(files_of(table));
    write_atomically(directory / "report.html", document_html({.kind = "figure " + study.name,
                                                               .main = "claim",
                                                               .title = study.title,
                                                               .lead = study.source,
                                                               .body = body,
                                                               .figures = study.figures}));
    return undrawn;
}

}  // namespace tsdiag
