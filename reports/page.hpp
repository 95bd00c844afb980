#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// What the page shows.
struct Page {
    const Table& table;
    const Json& run;
    std::vector<Figure> figures = {};
    std::vector<Finding> findings = {};
    std::vector<std::string> missing = {};  ///< one line for each figure that lacks its metrics
    bool drawn = false;                     ///< figures/ has them as SVG and PDF
};

/// The whole of report.html.
std::string page_html(const Page& page);

/// A page that needs nothing else: style, scripts and licences around `body`.
struct Document {
    std::string kind;  ///< "report"
    std::string main;  ///< what the anchor `verdict` leads to
    std::string title, lead;
    std::string body;  ///< HTML
    const std::vector<Figure>& figures;
};
std::string document_html(const Document& document);
/// The figures one after the other; `drawn`: with links to their files.
std::string figures_html(const std::vector<Figure>& figures, bool drawn);
/// Draws into directory/figures and says so in `drawn`; else one line why not.
std::vector<std::string> draw_beside(const std::vector<Figure>& figures,
                                     const std::filesystem::path& directory, bool& drawn);
/// The section that names the files beside the page.
std::string data_html(const Table& table);
/// `in`, `out` and the like, written between backquotes, become code.
std::string caption_html(std::string_view caption);

/// The definition list of model, input and run; empty where run.json says nothing.
std::string facts_html(const Json& run);
/// The table of the layers, and how many of them it leaves out.
std::string summary_html(const Table& table);

}  // namespace tsdiag::reports
