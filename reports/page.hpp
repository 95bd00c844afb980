#pragma once
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

/// The definition list of model, input and run; empty where run.json says nothing.
std::string facts_html(const Json& run);
/// The table of the layers, and how many of them it leaves out.
std::string summary_html(const Table& table);

}  // namespace tsdiag::reports
