#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "page.hpp"
#include "text.hpp"
#include "tsdiag/table_view.hpp"

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
    std::ranges::move(origin_facts(run), std::back_inserter(facts));
    return list_html(facts);
}

std::string measured_text(const Comparison& c) {
    if (!c.measured) return c.unknown.empty() ? "not measured" : c.unknown;
    return with_error(*c.measured, c.error);
}

std::string expected_text(const Comparison& c) {
    if (!c.expected) return "";
    const bool margin = c.kind == Comparison::Kind::comparable;
    return number(*c.expected) + (margin ? fmt::format(" \u00b1 {:.2g}", c.resolution) : "");
}

constexpr std::size_t most_open_comparisons = 12;

/// Those that stand open on a page, in their order: of many what is contradicted or open first.
std::vector<Comparison> chosen(const std::vector<Comparison>& all) {
    using Outcome = Comparison::Outcome;
    const auto rank = [&](std::size_t i) {
        const Outcome outcome = all[i].outcome;
        return outcome == Outcome::contradicted ? 0 : outcome == Outcome::open ? 1 : 2;
    };
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::ranges::stable_sort(order, {}, rank);
    order.resize(std::min(order.size(), most_open_comparisons));
    std::ranges::sort(order);
    std::vector<Comparison> out;
    for (const std::size_t i : order) out.push_back(all[i]);
    return out;
}

/// `all`: how many there are.
std::string comparisons_html(const std::vector<Comparison>& comparisons, std::size_t all) {
    if (comparisons.empty())
        return text_html("No quantity here is a single number; see the figures.");
    std::string body;
    for (const Comparison& c : comparisons)
        body += fmt::format(
            "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td>{}</td><td>{}</td>"
            "<td>{}</td><td>{}</td><td class=\"words\">{}</td></tr>\n",
            caption_html(c.what), caption_html(c.says), html(expected_text(c)),
            html(measured_text(c)), c.count > 0 ? fmt::format("{}", c.count) : "",
            c.seen ? fmt::format("{:.2g}", *c.seen) : "", html(c.judgement));
    return table_html(
        {.label = "Comparisons",
         .caption = "Measured: mean \u00b1 standard error over the trials. Seen from: the true "
                    "distance that so many trials tell with a probability of 80 %." +
                    (all > comparisons.size()
                         ? fmt::format(" {} of {} are shown, contradicted and open ones "
                                       "before others; all are folded below.",
                                       comparisons.size(), all)
                         : ""),
         .columns = {{"quantity"},
                     {"claim"},
                     {"paper's value"},
                     {"measured"},
                     {"trials"},
                     {"seen from"},
                     {"judgement"}},
         .rows = body,
         .wordy = true});
}

constexpr std::string_view how_judged =
    "Numbers are judged by Student's t over the trials (Welch's for two means), one-sided for "
    "bounds; they are comparable by two one-sided tests within the margin that the claim states. "
    "The probability of any error among all orders and likenesses of the page is at most 5 %, and "
    "likewise among all comparisons with a number (Holm). The order of several models is compared "
    "with the paper's by Kendall's tau, with the exact probability of one as near, or as far, by "
    "chance. A claim without a number, or with a "
    "number for another setting, is not judged.";

}  // namespace

std::vector<Finding> study_findings(const Study& study) {
    using Outcome = Comparison::Outcome;
    const auto any = [&](auto... outcomes) {
        return std::ranges::any_of(study.comparisons, [&](const Comparison& c) {
            return ((c.outcome == outcomes) || ...);
        });
    };
    std::vector<Finding> out;
    if (!study.outcome.empty()) {
        const bool good = any(Outcome::found, Outcome::consistent) && !any(Outcome::open);
        out.push_back({.level = any(Outcome::contradicted) ? Finding::Level::warning
                                : good                     ? Finding::Level::good
                                                           : Finding::Level::note,
                       .text = study.outcome,
                       .figure = study.figures.empty() ? "" : study.figures.front().name,
                       .headline = true});
    }
    for (const Comparison& c : study.comparisons)
        if (c.outcome == Outcome::contradicted)
            out.push_back({.level = Finding::Level::warning,
                           .text = fmt::format("Contradicted: {}, measured {}; {}.", c.what,
                                               measured_text(c), c.says)});
    for (const std::string& note : study.notes) out.push_back({.text = note});
    return out;
}

std::vector<std::string> write_study(const Study& study, const Table& table, const RunRecord& run,
                                     const std::filesystem::path& directory,
                                     const FigureStyle& look) {
    const std::vector<Comparison>& all = study.comparisons;
    return write_page(
        {.kind = "figure " + study.name,
         .title = study.title,
         .lead = study.source,
         .findings = study_findings(study),
         .no_findings_text = "No quantity here is judged.",
         .list = comparisons_html(chosen(all), all.size()),
         .figures = study.figures,
         .folds = {{"comparisons", fmt::format("All {} comparisons", all.size()),
                    all.size() > most_open_comparisons ? comparisons_html(all, all.size()) : ""},
                   {"claim", "The claim", text_html(study.claim)},
                   {"method", "Method", text_html(study.method)},
                   {"judged", "How numbers are judged", text_html(how_judged)},
                   {"facts", "Settings", settings_html(study, run)}},
         .files = files_of(table)},
        directory, look);
}

}  // namespace tsdiag
