#include "page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "assets.hpp"
#include "rows.hpp"
#include "text.hpp"

/// The page: verdict, facts, table, figures, in one file that needs nothing else.
namespace tsdiag::reports {
namespace {

/// 'sha256-...' in base64, as a policy names a script that may run.
std::string source_of(const Asset& asset) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < asset.sha256.size(); i += 2)
        bytes += char(std::stoi(std::string(asset.sha256.substr(i, 2)), nullptr, 16));
    return " 'sha256-" + base64(bytes) + "'";
}

/// Nothing is loaded from anywhere, and no script runs and no style counts but those of this
/// program: the page says so to the browser, which then refuses whatever a name might have smuggled
/// in.
std::string policy() {
    std::string scripts;
    for (const Asset& script : {vega_js(), vega_lite_js(), vega_embed_js(), page_js()})
        scripts += source_of(script);
    return fmt::format(
        "default-src 'none'; script-src{}; style-src{}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'",
        scripts, source_of(page_css()));
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
    std::string items;
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
        items += fmt::format("<li class=\"{0}\"><span class=\"level\">{0}</span>{1}{2}</li>\n",
                             level, html(f.text), link);
    }
    if (items.empty()) items = "<li class=\"note\">" + html(page.wordless) + "</li>";
    return "<section aria-labelledby=\"verdict\">\n<h2 id=\"verdict\">Verdict</h2>\n<ul "
           "class=\"findings\">\n" +
           items + "</ul>\n</section>\n";
}

std::string contents(const Page& page) {
    std::string items;
    const auto add = [&](std::string_view anchor, const std::string& title) {
        items += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", anchor, title);
    };
    if (!page.facts.empty()) add("facts", html(page.facts_title));
    if (!page.numbers.empty()) add("numbers", html(page.numbers_title));
    for (const Figure& f : page.figures) add(f.name, html(f.title));
    add("data", "Data");
    return "<nav aria-label=\"Contents\">\n<h2>Contents</h2>\n<ol class=\"contents\">\n" + items +
           "</ol>\n</nav>\n";
}

std::string figure_html(const Figure& f, bool drawn) {
    std::string files, fallback = "<noscript><p>" + html(f.alt) + "</p>";
    if (drawn) {
        for (const char* ending : {"svg", "pdf", "gp", "dat"})
            files += fmt::format(" <a href=\"figures/{0}.{1}\">{2}</a>", f.name, ending,
                                 std::string_view(ending) == "gp"    ? "gnuplot script"
                                 : std::string_view(ending) == "dat" ? "data"
                                 : ending == std::string_view("svg") ? "SVG"
                                                                     : "PDF");
        fallback += fmt::format(
            "<p>Without JavaScript: <a href=\"figures/{0}.svg\">figures/{0}.svg</a></p>", f.name);
    }
    return fmt::format(
        "<figure id=\"{0}\" tabindex=\"-1\" aria-labelledby=\"{0}-title\">\n<h3 "
        "id=\"{0}-title\">{1}</h3>\n<div class=\"plot\" data-figure=\"{0}\" "
        "data-alt=\"{2}\"></div>\n{3}</noscript>\n<figcaption>{4}</figcaption>\n"
        "<p class=\"tools\"><button type=\"button\" disabled>Save as "
        "shown</button>{5}</p>\n</figure>\n",
        f.name, html(f.title), html(f.alt), fallback, caption_html(f.caption), files);
}

}  // namespace

std::string figures_html(const std::vector<Figure>& figures, bool drawn) {
    std::string out;
    for (const Figure& f : figures) out += figure_html(f, drawn);
    return out;
}

std::string data_html(const Files& files) {
    std::string items;
    for (const auto& [file, content] : files)
        items += fmt::format("<li><a href=\"{0}\" download>{0}</a>: {1}</li>\n", html(file),
                             html(content));
    return "<section aria-labelledby=\"data\">\n<h2 id=\"data\">Data</h2>\n<p>Beside this page "
           "lie:</p>\n<ul>\n" +
           items + "</ul>\n</section>\n";
}

namespace {

std::string figures_section(const Page& page) {
    std::string out = "<section aria-labelledby=\"figures\">\n<h2 id=\"figures\">Figures</h2>\n" +
                      figures_html(page.figures, page.drawn);
    if (!page.missing.empty()) {
        out += "<h3>Not drawn</h3>\n<ul>\n";
        for (const std::string& line : page.missing) out += "<li>" + html(line) + "</li>\n";
        out += "</ul>\n";
    }
    return out + "</section>\n";
}

/// A section with a heading and HTML; nothing where that is empty.
std::string section_html(std::string_view anchor, std::string_view title, const std::string& body) {
    if (body.empty()) return {};
    return fmt::format(
        "<section aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n{2}</section>\n", anchor,
        html(title), body);
}

Json specifications(const std::vector<Figure>& figures) {
    Json specs = Json::Object{};
    for (const Figure& f : figures) specs.set(f.name, vega_lite(f));
    return specs;
}

void append(std::string& out, std::string_view open, std::string_view body,
            std::string_view close) {
    out += open;
    out += body;
    out += close;
}

}  // namespace

std::string document_html(const Document& document) {
    const std::string title = html(document.title);
    std::string out = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>{} - tsdiag</title>\n",
        policy(), title);
    append(out, "<style>", page_css().text, "</style>\n</head>\n<body>\n");
    out += fmt::format(
        "<a class=\"skip\" href=\"#verdict\">Skip to the {0}</a>\n<header>\n<p "
        "class=\"tool\">tsdiag {1}</p>\n<h1>{2}</h1>\n",
        document.main, document.kind, title);
    if (!document.lead.empty()) append(out, "<p class=\"lead\">", html(document.lead), "</p>\n");
    append(out, "</header>\n<main>\n", document.body, "</main>\n<footer>\n");
    append(
        out,
        "<p>Keys in brackets name the papers: [TSE] arXiv 2312.06182, [DEVIL] The Devil in Linear "
        "Transformer, [POLY] Rethinking Attention. Layers and heads count from 0.</p>\n"
        "<details><summary>Drawn with Vega, Vega-Lite and Vega-Embed: licences</summary><pre>",
        html(licences().text), "</pre></details>\n</footer>\n");
    append(out, "<script id=\"specs\" type=\"application/json\">",
           script_json(specifications(document.figures)), "</script>\n");
    for (const Asset& script : {vega_js(), vega_lite_js(), vega_embed_js(), page_js()})
        append(out, "<script>", script.text, "</script>\n");
    return out + "</body>\n</html>\n";
}

std::string page_html(const Page& page) {
    std::string body = verdict_section(page) + contents(page);
    body += section_html("facts", page.facts_title, page.facts);
    body += section_html("numbers", page.numbers_title, page.numbers);
    body += figures_section(page) + data_html(page.files);
    return document_html({.kind = "report",
                          .main = "verdict",
                          .title = page.title,
                          .lead = page.lead,
                          .body = std::move(body),
                          .figures = page.figures});
}

}  // namespace tsdiag::reports
