#include <fmt/format.h>

#include "page.hpp"
#include "skeleton.hpp"
#include "text.hpp"
#include "tsdiag/file.hpp"

/// The page that compares claims with measurements.
namespace tsdiag {
namespace {

using namespace reports;

std::string settings_html(const Study& study, const RunRecord& run) {
    const RunRecord::Setting setting = run.setting.value_or(RunRecord::Setting());
    std::vector<std::pair<std::string, std::string>> facts = {{"Source", study.source},
                                                              {"Scale", setting.scale}};
    facts.insert(facts.end(), setting.keys.begin(), setting.keys.end());
    facts.emplace_back("seed", run.seed ? std::to_string(*run.seed) : "");
    return section_html("facts", "Setting", list_html(facts));
}

std::string measured_text(const Comparison& c) {
    if (!c.measured) return c.unknown.empty() ? "not measured" : c.unknown;
    if (!c.error) return number(*c.measured);
    return fmt::format("{} \u00b1 {:.2g}", number(*c.measured), *c.error);
}

std::string expected_text(const Comparison& c) {
    if (!c.expected) return "";
    const bool margin = c.kind == Comparison::Kind::comparable;
    return number(*c.expected) + (margin ? fmt::format(" \u00b1 {:.2g}", c.resolution) : "");
}

std::string comparisons_html(const std::vector<Comparison>& comparisons) {
    if (comparisons.empty())
        return "<p>No quantity here is a single number; see the figures.</p>\n";
    std::string body;
    for (const Comparison& c : comparisons)
        body += fmt::format(
            "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td>{}</td><td>{}</td>"
            "<td>{}</td><td class=\"words\">{}</td></tr>\n",
            caption_html(c.what), caption_html(c.says), html(expected_text(c)),
            html(measured_text(c)), c.count > 0 ? fmt::format("{}", c.count) : "",
            html(c.judgement));
    return table_html(
        {.label = "Comparisons",
         .caption = "Measured: mean \u00b1 standard error over the trials. Judged by Student's t "
                    "over the trials (Welch's for two means), one-sided for bounds; numbers are "
                    "comparable by two one-sided tests within the margin that the claim states. "
                    "The probability of any error among all orders and likenesses of the page is "
                    "at most 5 %, and likewise among all comparisons with a number (Holm). A claim "
                    "without a number, or with a number for another setting, is not judged.",
         .columns =
             {{"quantity"}, {"claim"}, {"paper's value"}, {"measured"}, {"trials"}, {"judgement"}},
         .rows = body,
         .wordy = true});
}

std::string claim_html(const Study& study) {
    std::string notes;
    for (const std::string& note : study.notes)
        notes += filled("note", {{"text", caption_html(note)}});
    if (!notes.empty()) notes = filled("findings", {{"items", notes}});
    return section_html("verdict", "Claim and measurement",
                        filled("claim", {{"claim", caption_html(study.claim)},
                                         {"outcome", caption_html(study.outcome)},
                                         {"method", caption_html(study.method)}}) +
                            comparisons_html(study.comparisons) + notes);
}

}  // namespace

std::vector<std::string> write_study(const Study& study, const Table& table, const RunRecord& run,
                                     const std::filesystem::path& directory,
                                     const FigureStyle& look) {
    bool drawn = false;
    const std::vector<std::string> undrawn = draw_beside(study.figures, directory, look, drawn);
    const std::string body =
        claim_html(study) +
        section_html("figures", "Figures", figures_html(study.figures, drawn, look.tikz)) +
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
