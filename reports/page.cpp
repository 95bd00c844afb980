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

namespace {

bool has_figure(const Page& page, const std::string& name) {
    return std::any_of(page.figures.begin(), page.figures.end(),
                       [&](const Figure& f) { return f.name == name; });
}

std::string verdict_section(const Page& page) {
    std::string headlines, items;
    for (const Finding& f : page.findings) {
        const char* level = f.level == Finding::Level::good      ? "good"
                            : f.level == Finding::Level::warning ? "warning"
                                                                 : "note";
        std::string link;
        if (has_figure(page, f.figure)) {
            const auto figure = std::find_if(page.figures.begin(), page.figures.end(),
                                             [&](const Figure& g) { return g.name == f.figure; });
            link =
                fmt::format(" <a href=\"#{}\">Figure: {}</a>", figure->name, html(figure->title));
        }
        (f.headline ? headlines : items) +=
            filled(f.headline ? "headline" : "finding",
                   {{"level", level}, {"text", caption_html(f.text)}, {"link", link}});
    }
    if (items.empty() && headlines.empty())
        items = filled("note", {{"text", html(page.no_findings_text)}});
    return section_html("verdict", "Verdict",
                        headlines + (items.empty() ? "" : filled("findings", {{"items", items}})));
}

std::string contents(const Page& page) {
    std::string items;
    const auto add = [&](std::string_view anchor, const std::string& title) {
        items += filled("contents-item", {{"anchor", anchor}, {"title", html(title)}});
    };
    if (!page.facts.empty()) add("facts", page.facts_title);
    if (!page.numbers.empty()) add("numbers", page.numbers_title);
    for (const Figure& f : page.figures) add(f.name, f.title);
    add("data", "Data");
    return filled("contents", {{"items", items}});
}

std::string figure_html(const Figure& f, bool drawn, bool tikz) {
    constexpr std::pair<std::string_view, std::string_view> kinds[] = {
        {"svg", "SVG"}, {"pdf", "PDF"}, {"tex", "TikZ"}, {"gp", "gnuplot script"}, {"dat", "data"}};
    std::string files;
    for (const auto& [ending, name] : kinds)
        if (drawn && (tikz || ending != "tex"))
            files += fmt::format(" <a href=\"figures/{}.{}\">{}</a>", f.name, ending, name);
    return filled("figure", {{"name", f.name},
                             {"title", html(f.title)},
                             {"alt", html(f.alt)},
                             {"drawing", drawing_html(f)},
                             {"caption", caption_html(f.caption)},
                             {"files", files}});
}

}  // namespace

std::string figures_html(const std::vector<Figure>& figures, bool drawn, bool tikz) {
    std::string out;
    for (const Figure& f : figures) out += figure_html(f, drawn, tikz);
    return out;
}

std::string data_html(const Files& files) {
    std::string items;
    for (const auto& [file, content] : files)
        items += filled("data-item", {{"file", html(file)}, {"content", html(content)}});
    return section_html("data", "Data", filled("data", {{"items", items}}));
}

namespace {

std::string figures_section(const Page& page) {
    std::string out = figures_html(page.figures, page.drawn, page.tikz), items;
    for (const std::string& line : page.missing) items += filled("item", {{"text", html(line)}});
    if (!items.empty()) out += filled("not-drawn", {{"items", items}});
    return section_html("figures", "Figures", out);
}

/// What page.js knows: the numbers of each figure, and those of the heads.
Json data_of(const Document& document) {
    Json figures = Json::Object{};
    for (const Figure& f : document.figures) figures.set(f.name, figure_data(f));
    return Json::Object{{"figures", std::move(figures)}, {"heads", document.heads}};
}

}  // namespace

std::string section_html(std::string_view anchor, std::string_view title, std::string_view body) {
    return filled("section", {{"anchor", anchor}, {"title", html(title)}, {"body", body}});
}

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

std::string document_html(const Document& document) {
    const std::string title = html(document.title);
    std::string lead, refresh;
    if (document.refresh > 0)
        refresh = filled("refresh", {{"seconds", std::to_string(document.refresh)}});
    if (!document.lead.empty()) lead = filled("lead", {{"text", html(document.lead)}});
    const std::string style = std::string(page_css()) + drawing_css(document.figures);
    return filled("document", {{"policy", policy(style)},
                               {"refresh", refresh},
                               {"title", title},
                               {"style", style},
                               {"definitions", shared_definitions()},
                               {"main", document.main},
                               {"kind", document.kind},
                               {"lead", lead},
                               {"body", document.body},
                               {"data", script_json(data_of(document))},
                               {"script", page_js()}});
}

std::string page_html(const Page& page) {
    std::string body = verdict_section(page) + contents(page);
    if (!page.facts.empty()) body += section_html("facts", page.facts_title, page.facts);
    if (!page.numbers.empty()) body += section_html("numbers", page.numbers_title, page.numbers);
    body += figures_section(page) + data_html(page.files);
    return document_html({.kind = "report",
                          .main = "verdict",
                          .title = page.title,
                          .lead = page.lead,
                          .body = std::move(body),
                          .figures = page.figures,
                          .heads = page.heads,
                          .refresh = page.refresh});
}

}  // namespace tsdiag::reports
