#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "page.hpp"
#include "text.hpp"
#include "tsdiag/claim.hpp"

/// The page of an examination: a verdict per claim, a row per reading, a figure per claim.
namespace tsdiag {
namespace {

using reports::html;
using reports::number;

std::string figure_name(const Claim& claim) {
    std::string text(claim.name);
    for (char& c : text)
        if (c == '.' || c == '-') c = '_';
    for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

bool is_open(Verdict v) { return v == Verdict::not_decided || v == Verdict::hypothesis_not_met; }
bool is_false(Verdict v) { return v == Verdict::false_as_stated || v == Verdict::ambiguous; }

/// The value of a trace whose draws all give the same, within rounding; none of means, which a
/// claimed value stands beside.
std::optional<double> only_value(const Trace& t) {
    constexpr double rounding = 1e-9;  // of bounds in float64, which lose some digits
    if (t.y.empty() || t.y_title == "mean") return std::nullopt;
    const auto [low, high] = std::ranges::minmax(t.y);
    const bool same = high - low <= rounding * std::max(std::abs(low), std::abs(high));
    return same ? std::optional(t.y.back()) : std::nullopt;
}

/// Would the figure be flat lines?
bool is_flat(const Examined& e) {
    return std::ranges::all_of(
        e.readings, [](const Reading& r) { return r.trace.x.empty() || only_value(r.trace); });
}

/// "2 of 3" controls failed; empty where there is none.
std::string failed_controls(const Examined& e) {
    if (e.controls.empty()) return "";
    return fmt::format("{} of {}",
                       std::ranges::count(e.controls, Verdict::false_as_stated, &Reading::verdict),
                       e.controls.size());
}

/// " Reading as printed: ", before what is said of it.
std::string of_reading(const Reading& r) {
    return r.name.empty() ? " " : fmt::format(" Reading {}: ", r.name);
}

Finding finding(const Examined& e) {
    Finding f;
    f.level = is_false(e.verdict)  ? Finding::Level::warning
              : is_open(e.verdict) ? Finding::Level::note
                                   : Finding::Level::good;
    f.text = fmt::format("{}: {}. {}", e.claim->name, name(e.verdict), e.claim->statement);
    if (!e.claim->proof.empty()) f.text += fmt::format(" Proof: {}", e.claim->proof);
    for (const Reading& r : e.readings) {
        if (r.verdict == Verdict::hypothesis_not_met && r.role != Role::sharper)
            f.text += fmt::format("{}{}.", of_reading(r), r.note);
        if (r.verdict != Verdict::false_as_stated || r.role == Role::sharper) continue;
        f.text += fmt::format("{}{} fails", of_reading(r), r.formula);
        if (r.measured && r.bound)
            f.text += fmt::format(", {} against {}", number(*r.measured), number(*r.bound));
        f.text += ".";
    }
    for (const Reading& r : e.controls)
        if (r.verdict != Verdict::false_as_stated && r.verdict != Verdict::hypothesis_not_met)
            f.text += fmt::format(" Control, {}: {}, so \"holds\" is weak evidence here.", r.name,
                                  control_outcome(r));
    if (!e.controls.empty())
        f.text += fmt::format(" {} controls failed as they must.", failed_controls(e));
    if (is_flat(e))
        for (const Reading& r : e.readings)
            if (const auto value = only_value(r.trace))
                f.text +=
                    fmt::format(" {}: {} is {} in every draw.", r.name.empty() ? r.formula : r.name,
                                r.trace.y_title, number(*value));
    f.figure = figure_name(*e.claim);
    return f;
}

/// "a, b and 3 more".
std::string names(const std::vector<const Examined*>& claims) {
    constexpr std::size_t most = 6;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, claims.size()); ++i)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", claims[i]->claim->name);
    if (claims.size() > most) text += fmt::format(" and {} more", claims.size() - most);
    return text;
}

/// "0.5 against 0.35" of the first reading that is false; empty where it has no numbers.
std::string numbers_of_failure(const Examined& e) {
    for (const Reading& r : e.readings)
        if (r.verdict == Verdict::false_as_stated && r.role != Role::sharper && r.measured &&
            r.bound)
            return fmt::format(": {} against {}", number(*r.measured), number(*r.bound));
    return "";
}

/// `within`: to which the number is judged; 0: nothing is said of it.
std::string cell(std::optional<double> v, double within = 0) {
    if (!v) return "<td></td>";
    return fmt::format("<td>{}{}</td>", number(*v),
                       within > 0 ? fmt::format(" (to {:g})", within) : "");
}

std::string count(Index number) {
    return fmt::format("<td>{}</td>", number > 0 ? std::to_string(number) : "");
}

std::string row(const Examined& e, const Reading& r, const std::string& reading,
                std::string_view verdict) {
    const std::string range =
        r.low && r.high ? fmt::format("{} .. {}", number(*r.low), number(*r.high)) : "";
    return fmt::format(
        "<tr><th "
        "scope=\"row\">{}</th><td>{}</td><td>{}</td>{}{}{}<td>{}</td>{}{}<td>{}</td></tr>\n",
        html(e.claim->name), html(reading), verdict, cell(r.measured), cell(r.bound, r.resolution),
        cell(r.tightness), range, count(r.trials), count(r.steps), html(r.note));
}

std::string readings_html(std::span<const Examined> examined) {
    std::string body;
    for (const Examined& e : examined) {
        for (const Reading& r : e.readings)
            body += row(e, r, r.name + (r.role == Role::sharper ? " *" : ""), name(r.verdict));
        for (const Reading& r : e.controls)
            body += row(e, r, "control: " + r.name, control_outcome(r));
    }
    return reports::table_html(
        {.label = "Readings",
         .caption =
             "One row per reading or control. Holds: no counterexample in these draws and search "
             "steps, which is not a proof. A control breaks a hypothesis and must be found false. "
             "Ratio: measured/bound; bound/measured for &gt;=; difference/rounding for an "
             "equation; above 1 the statement fails. Interval: of the measured value, at the "
             "deciding level. Star: sharper than the statement; not counted.",
         .columns = {{"claim"},
                     {"reading"},
                     {"verdict"},
                     {"measured"},
                     {"bound"},
                     {"ratio"},
                     {"interval"},
                     {"draws"},
                     {"steps"},
                     {"note"}},
         .rows = body});
}

/// Of the readings that are counted: one that decides against the statement, else the one that
/// comes closest to it.
const Reading* decisive(const Examined& e) {
    const Reading* found = nullptr;
    for (const Reading& r : e.readings) {
        if (r.role == Role::sharper) continue;
        const auto rank = [&](const Reading& one) {
            return std::pair(one.verdict == Verdict::false_as_stated, one.tightness.value_or(0));
        };
        if (!found || rank(r) > rank(*found)) found = &r;
    }
    return found;
}

/// One row a statement.
std::string statements_html(std::span<const Examined> examined) {
    std::string body;
    for (const Examined& e : examined) {
        const Reading none, *found = decisive(e);
        const Reading& r = found ? *found : none;
        body += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td>{}{}{}{}<td>{}</td></tr>\n",
                            html(e.claim->name), name(e.verdict), cell(r.measured),
                            cell(r.bound, r.resolution), cell(r.tightness), count(r.trials),
                            failed_controls(e));
    }
    return reports::table_html(
        {.label = "Statements",
         .caption =
             "Each statement by the reading that fails, or comes closest to it: its ratio is "
             "above 1 by more than rounding and scatter. Controls: how many failed, as all "
             "must; where one did not, \"holds\" is weak evidence.",
         .columns = {{"statement"},
                     {"verdict"},
                     {"measured"},
                     {"bound"},
                     {"ratio"},
                     {"draws"},
                     {"controls"}},
         .rows = body});
}

std::string facts(const RunRecord& run) {
    std::vector<std::pair<std::string, std::string>> all = {
        {"Seed", run.seed ? std::to_string(*run.seed) : ""},
        {"Confidence", run.confidence ? number(*run.confidence) : ""},
        {"Distribution", run.distribution},
        {"Command", reports::shell_command(run.command)}};
    std::ranges::move(origin_facts(run), std::back_inserter(all));
    return reports::list_html(all);
}

Series line(std::string name, const Trace& t, const std::vector<double>& y, bool dashed) {
    Series s{.name = std::move(name), .x = t.x, .dashed = dashed};
    s.y.assign(y.begin(), y.end());
    if (!dashed && !t.low.empty()) {
        s.low.assign(t.low.begin(), t.low.end());
        s.high.assign(t.high.begin(), t.high.end());
    }
    return s;
}

/// Readings whose traces have the same axes share a panel, except means, which have own scales.
bool shares(const Plot& panel, const Trace& t) {
    return panel.x.title == t.x_title && panel.y.title == t.y_title && t.y_title != "mean";
}

void add_reading(Figure& figure, const Reading& r) {
    const Trace& t = r.trace;
    if (t.x.empty()) return;
    const bool means = t.y_title == "mean";
    const std::string title = r.name.empty() ? r.formula : r.name;
    if (figure.panels.empty() || !shares(figure.panels.back(), t)) {
        figure.panels.push_back(
            {.title = means ? title : "measured and bound",
             .x = {.title = t.x_title, .scale = t.log_x ? Scale::log : Scale::linear},
             .y = {.title = t.y_title, .scale = t.log_y ? Scale::log : Scale::linear}});
        if (!means) figure.panels.back().marks.emplace_back(1.0, "bound");
    }
    Plot& panel = figure.panels.back();
    panel.series.push_back(line(means ? "measured" : title, t, t.y, false));
    if (means) panel.series.push_back(line("claimed", t, t.claimed, true));
}

}  // namespace

Finding claims_headline(std::span<const Examined> examined) {
    Finding headline{.level = Finding::Level::good, .headline = true};
    std::map<Verdict, std::vector<const Examined*>> by_verdict;
    for (const Examined& e : examined) {
        by_verdict[e.verdict].push_back(&e);
        if (is_false(e.verdict)) headline.level = Finding::Level::warning;
        if (is_open(e.verdict) && headline.level == Finding::Level::good)
            headline.level = Finding::Level::note;
    }
    if (examined.size() == 1) {
        const Examined& e = examined.front();
        headline.text =
            fmt::format("{}: {}{}.", e.claim->name, name(e.verdict), numbers_of_failure(e));
        headline.figure = figure_name(*e.claim);
        return headline;
    }
    const std::size_t hold =
        by_verdict[Verdict::holds].size() + by_verdict[Verdict::holds_asymptotically].size();
    headline.text =
        fmt::format("{} of {} hold in these draws", hold, counted(examined.size(), "statement"));
    for (const auto& [verdict, claims] : by_verdict)
        if (verdict != Verdict::holds && !claims.empty())
            headline.text += fmt::format("; {}: {}", name(verdict), names(claims));
    headline.text += ".";
    return headline;
}

std::optional<Figure> claim_figure(const Examined& e) {
    if (is_flat(e)) return {};
    Figure figure{.name = figure_name(*e.claim),
                  .title = fmt::format("{}: {}", e.claim->name, name(e.verdict)),
                  .caption = fmt::format("{} Source: {}. Examined with n = {}, d = {}, {} trials.",
                                         e.claim->statement, e.claim->source, e.how.n, e.how.d,
                                         e.how.trials)};
    for (const Reading& r : e.readings) {
        add_reading(figure, r);
        if (!r.measured || !r.bound) continue;
        figure.alt += fmt::format("{}{}: {}, {} against {}.", figure.alt.empty() ? "" : " ", r.name,
                                  name(r.verdict), number(*r.measured), number(*r.bound));
    }
    return figure;
}

std::vector<std::string> write_claims_report(std::span<const Examined> examined,
                                             const RunRecord& described,
                                             const std::filesystem::path& directory,
                                             const FigureStyle& look) {
    reports::Page page{.title = "Checked statements",
                       .no_findings_text = "No statement was checked.",
                       .folds = {{"readings", "Readings", readings_html(examined)},
                                 {"facts", "Settings", facts(described)}},
                       .files = {{"claims.csv", "every reading, one per row"},
                                 {"claims.json", "settings, statements, witnesses, replays"}}};
    if (examined.size() > 1) {
        page.list = statements_html(examined);
        page.open_findings = 0;
    }
    if (!examined.empty()) page.findings.push_back(claims_headline(examined));
    for (const Examined& e : examined) {
        page.findings.push_back(finding(e));
        if (std::optional<Figure> f = claim_figure(e))
            page.figures.push_back(std::move(*f));
        else
            page.missing.push_back(fmt::format(
                "{}: no number varies between draws; the table has all.", e.claim->name));
    }
    page.findings = by_severity(std::move(page.findings));
    return reports::write_page(std::move(page), directory, look);
}

}  // namespace tsdiag
