#include "page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "assets.hpp"
#include "drawing.hpp"
#include "rows.hpp"
#include "skeleton.hpp"
#include "text.hpp"
#include "tsdiag/output.hpp"

/// The page: verdict, facts, table, figures, in one self-contained file.
namespace tsdiag::reports {
namespace {

/// 'sha256-...' in base64, which allows a script or style in the content security policy.
std::string source_of(std::string_view text) {
    const std::string digest = sha256(text);
    std::string bytes;
    for (std::size_t i = 0; i + 1 < digest.size(); i += 2)
        bytes += char(std::stoi(digest.substr(i, 2), nullptr, 16));
    return "'sha256-" + base64(bytes) + "'";
}

/// The content security policy: nothing is loaded, and only the script and style of this program
/// are allowed, so that browsers refuse anything injected through a name.
std::string policy(std::string_view style) {
    return fmt::format(
        "default-src 'none'; script-src {}; style-src {}; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'",
        source_of(page_js()), source_of(style));
}

}  // namespace

std::string caption_html(std::string_view caption) {
    std::string out;
    bool open = false;
    for (char c : html(caption)) {
        if (c == '`')
            out += (open = !open) ? "<code>" : "</code>";
        else
            out += c;
    }
    return open ? out + "</code>" : out;
}

std::string text_html(std::string_view text) {
    return filled("text", {{"text", caption_html(text)}});
}

namespace {

constexpr std::size_t most_open_figures = 3;

std::string section_html(std::string_view anchor, std::string_view title, std::string_view body) {
    return filled("section", {{"anchor", anchor}, {"title", title}, {"body", body}});
}

/// Which findings and figures stand open.
struct Opened {
    std::vector<const Finding*> headlines, findings, folded;
    std::string lead;                  ///< the figure below the headlines; empty: none
    std::vector<std::string> figures;  ///< further ones, in the order of the findings
};

Opened opened(const Page& page) {
    const auto is_drawn = [&](const std::string& name) {
        return std::ranges::find(page.figures, name, &Figure::name) != page.figures.end();
    };
    Opened out;
    std::size_t notes_left = page.open_findings;  // warnings take the places of notes
    for (const Finding& f : page.findings)
        if (!f.headline && f.level == Finding::Level::warning && notes_left > 0) --notes_left;
    for (const Finding& f : page.findings) {
        const bool warns = f.level == Finding::Level::warning && page.open_findings > 0;
        const bool open = f.headline || warns || notes_left > 0;
        if (open && !f.headline && !warns) --notes_left;
        (f.headline ? out.headlines : open ? out.findings : out.folded).push_back(&f);
        if (!open || !is_drawn(f.figure) || f.figure == out.lead) continue;
        if (out.lead.empty())
            out.lead = f.figure;
        else if (std::ranges::find(out.figures, f.figure) == out.figures.end() &&
                 out.figures.size() + 1 < most_open_figures)
            out.figures.push_back(f.figure);
    }
    if (out.lead.empty() && page.list.empty() && !page.figures.empty())
        out.lead = page.figures.front().name;
    return out;
}

std::string finding_html(const Page& page, const Finding& f) {
    const char* level = f.level == Finding::Level::good      ? "good"
                        : f.level == Finding::Level::warning ? "warning"
                                                             : "note";
    std::string link;
    const auto figure = std::ranges::find(page.figures, f.figure, &Figure::name);
    if (!f.headline && figure != page.figures.end())
        link = fmt::format(" <a href=\"#{}\">Figure: {}</a>", figure->name, html(figure->title));
    return filled(f.headline ? "headline" : "finding",
                  {{"level", level}, {"text", caption_html(f.text)}, {"link", link}});
}

std::string findings_html(const Page& page, const std::vector<const Finding*>& findings) {
    std::string items;
    for (const Finding* f : findings) items += finding_html(page, *f);
    return items.empty() ? items : filled("findings", {{"items", items}});
}

/// The figure; `folded`: its title is that of the fold around it.
std::string figure_html(const Page& page, const Figure& f, bool folded) {
    constexpr std::pair<std::string_view, std::string_view> kinds[] = {
        {"svg", "SVG"}, {"pdf", "PDF"}, {"tex", "TikZ"}, {"gp", "gnuplot script"}, {"dat", "data"}};
    std::string files;
    for (const auto& [ending, name] : kinds)
        if (page.drawn && (page.tikz || ending != "tex"))
            files += fmt::format(" <a href=\"figures/{}.{}\">{}</a>", f.name, ending, name);
    const std::string title = html(f.title);
    const std::string heading =
        folded ? "" : filled("figure-heading", {{"name", f.name}, {"title", title}});
    const std::string whole = filled("figure", {{"name", f.name},
                                                {"heading", heading},
                                                {"alt", html(f.alt)},
                                                {"drawing", drawing_html(f)},
                                                {"caption", caption_html(f.caption)},
                                                {"files", files}});
    return folded
               ? filled("fold", {{"anchor", f.name + "-title"}, {"title", title}, {"body", whole}})
               : whole;
}

std::string verdict_section(const Page& page, const Opened& open) {
    std::string body;
    for (const Finding* f : open.headlines) body += finding_html(page, *f);
    for (const Figure& f : page.figures)
        if (f.name == open.lead) body += figure_html(page, f, false);
    body += findings_html(page, open.findings) + page.list;
    if (!open.folded.empty())
        body +=
            filled("more-findings",
                   {{"title", open.findings.empty() ? counted(open.folded.size(), "finding")
                                                    : counted(open.folded.size(), "more finding")},
                    {"body", findings_html(page, open.folded)}});
    if (page.findings.empty())
        body += filled("findings",
                       {{"items", filled("note", {{"text", html(page.no_findings_text)}})}});
    return section_html("verdict", "Verdict", body);
}

std::string folds_section(std::string_view anchor, std::string_view title,
                          const std::string& items) {
    return items.empty() ? items : section_html(anchor, title, filled("folds", {{"items", items}}));
}

/// Those that are open, then the others by their groups.
std::string figures_sections(const Page& page, const Opened& open) {
    std::string shown;
    std::vector<std::pair<std::string, std::string>> groups;  // title, folds
    for (const Figure& f : page.figures) {
        if (f.name == open.lead) continue;
        if (std::ranges::find(open.figures, f.name) != open.figures.end()) {
            shown += figure_html(page, f, false);
            continue;
        }
        if (groups.empty() || groups.back().first != f.group) groups.emplace_back(f.group, "");
        groups.back().second += figure_html(page, f, true);
    }
    std::string out = shown.empty() ? shown : section_html("figures", "Figures", shown);
    std::size_t i = 0;
    for (const auto& [title, items] : groups)
        out += folds_section(fmt::format("figures-{}", ++i),
                             title.empty() ? "More figures" : html(title), items);
    return out;
}

/// A list of lines, which are HTML already; empty where there is none.
std::string lines_html(const std::vector<std::string>& lines) {
    std::string items;
    for (const std::string& line : lines) items += filled("item", {{"text", line}});
    return items.empty() ? items : filled("list", {{"items", items}});
}

std::string details_section(const Page& page) {
    std::vector<std::string> missing;
    for (const std::string& line : page.missing) missing.push_back(html(line));
    std::string files, items;
    for (const auto& [file, content] : page.files)
        files += filled("file", {{"file", html(file)}, {"content", html(content)}});
    if (!files.empty()) files = filled("list", {{"items", files}});
    std::vector<Fold> folds = page.folds;
    folds.push_back({"not-drawn", "Figures that were not drawn", lines_html(missing)});
    folds.push_back({"data", "Files", files});
    for (const Fold& fold : folds)
        if (!fold.body.empty())
            items +=
                filled("fold",
                       {{"anchor", fold.anchor}, {"title", html(fold.title)}, {"body", fold.body}});
    return folds_section("details", "Details", items);
}

/// What page.js knows: the numbers of each figure, and those of the heads.
Json data_of(const Page& page) {
    Json figures = Json::Object{};
    for (const Figure& f : page.figures) figures.set(f.name, figure_data(f));
    return Json::Object{{"figures", std::move(figures)}, {"heads", page.heads}};
}

}  // namespace

std::string table_html(const HtmlTable& table) {
    std::string head;
    for (const HtmlTable::Column& column : table.columns)
        head += fmt::format("<th scope=\"col\"{}>{}</th>", column.attributes, column.title);
    return filled("table", {{"label", table.label},
                            {"class", table.wordy ? " class=\"claims\"" : ""},
                            {"caption", table.caption},
                            {"head", head},
                            {"rows", table.rows}});
}

std::string list_html(const std::vector<std::pair<std::string, std::string>>& facts) {
    std::string items;
    for (const auto& [name, value] : facts)
        if (!value.empty()) items += filled("fact", {{"name", html(name)}, {"value", html(value)}});
    return items.empty() ? items : filled("facts", {{"items", items}});
}

std::string page_html(const Page& page) {
    const std::string title = html(page.title);
    std::string lead, refresh;
    if (page.refresh > 0) refresh = filled("refresh", {{"seconds", std::to_string(page.refresh)}});
    if (!page.lead.empty()) lead = filled("lead", {{"text", html(page.lead)}});
    const std::string style = std::string(page_css()) + drawing_css(page.figures);
    const Opened open = opened(page);
    const std::string body =
        verdict_section(page, open) + figures_sections(page, open) + details_section(page);
    return filled("document", {{"policy", policy(style)},
                               {"refresh", refresh},
                               {"title", title},
                               {"style", style},
                               {"definitions", shared_definitions()},
                               {"kind", page.kind},
                               {"lead", lead},
                               {"body", body},
                               {"data", script_json(data_of(page))},
                               {"script", page_js()}});
}

}  // namespace tsdiag::reports
