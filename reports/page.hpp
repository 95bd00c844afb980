#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// What a page shows; HTML where a member says so.
struct Page {
    std::string title = {}, lead = {};
    std::string facts_title = {}, facts = {};      ///< a definition list; HTML; may be empty
    std::string numbers_title = {}, numbers = {};  ///< a table; HTML; may be empty
    std::string wordless = {};                     ///< said where there is no finding
    std::vector<Figure> figures = {};
    std::vector<Finding> findings = {};
    std::vector<std::string> missing = {};  ///< one line for each figure that was not made, why
    std::vector<std::pair<std::string, std::string>> files =
        {};              ///< beside the page: name, content
    bool drawn = false;  ///< figures/ has them as SVG and PDF
};

/// The whole of report.html.
std::string page_html(const Page& page);

/// Draws the figures of `page` and writes it; returns what could not be drawn, and why.
std::vector<std::string> write_page(Page page, const std::filesystem::path& directory);

/// The definition list of model, input and run; empty where run.json says nothing.
std::string facts_html(const Json& run);
/// The table of the layers, and how many of them it leaves out.
std::string summary_html(const Table& table);

}  // namespace tsdiag::reports
