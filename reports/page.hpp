#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/report.hpp"

namespace tsdiag::reports {

/// The files beside a page: name, content.
using Files = std::vector<std::pair<std::string, std::string>>;

/// What a page shows; HTML where a member says so.
struct Page {
    std::string title = {}, lead = {};
    std::string facts_title = {}, facts = {};      ///< a definition list; HTML; may be empty
    std::string numbers_title = {}, numbers = {};  ///< a table; HTML; may be empty
    std::string wordless = {};                     ///< said where there is no finding
    std::vector<Figure> figures = {};
    std::vector<Finding> findings = {};
    std::vector<std::string> missing = {};  ///< one line for each figure that was not made, why
    Files files = {};
    bool drawn = false;  ///< figures/ has them as SVG and PDF
};

/// The whole of report.html.
std::string page_html(const Page& page);

/// Draws the figures of `page` and writes it; returns what could not be drawn, and why.
std::vector<std::string> write_page(Page page, const std::filesystem::path& directory);

/// A page that needs nothing else: style, scripts and licences around `body`.
struct Document {
    std::string kind;  ///< "report"
    std::string main;  ///< what the anchor `verdict` leads to
    std::string title, lead;
    std::string body;  ///< HTML
    const std::vector<Figure>& figures;
};
std::string document_html(const Document& document);
/// A section with a heading; the body is HTML.
std::string section_html(std::string_view anchor, std::string_view title, std::string_view body);
/// A table that can be moved sideways; HTML but for the label.
struct HtmlTable {
    struct Column {
        std::string title, attributes = {};  ///< attributes with a space in front
    };
    std::string label, caption;
    std::vector<Column> columns;
    std::string rows;
    bool wordy = false;  ///< its columns hold sentences
};
std::string table_html(const HtmlTable& table);
/// A definition list of what has a value; nothing where nothing has one.
std::string list_html(const std::vector<std::pair<std::string, std::string>>& facts);
/// The figures one after the other; `drawn`: with links to their files.
std::string figures_html(const std::vector<Figure>& figures, bool drawn);
/// Draws into directory/figures and says so in `drawn`; else one line why not.
std::vector<std::string> draw_beside(const std::vector<Figure>& figures,
                                     const std::filesystem::path& directory, bool& drawn);
/// What a run leaves beside its page.
Files files_of(const Table& table);
/// The section that names the files beside the page.
std::string data_html(const Files& files);
/// `in`, `out` and the like, written between backquotes, become code.
std::string caption_html(std::string_view caption);

/// The definition list of model, input and run; empty where run.json says nothing.
std::string facts_html(const Json& run);
/// Metrics over the steps of a series of checkpoints; none where the table has one step.
std::vector<Figure> trajectories(const Table& table, const Json& run);
/// The rows of the last step, without it.
Table last_step(const Table& table);
/// The table of the layers, and how many of them it leaves out.
std::string summary_html(const Table& table);

}  // namespace tsdiag::reports
