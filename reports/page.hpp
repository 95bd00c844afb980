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

/// A part of a page that is shown when its title is opened, and in print.
struct Fold {
    std::string anchor, title;
    std::string body;  ///< HTML; empty: left out
};

/// The content of a page; HTML where a member says so.  Open are the headlines with one figure,
/// the first findings and every warning, the figures that they name, and `list`; the rest is
/// folded.
struct Page {
    std::string kind = "report";
    std::string title = {}, lead = {};
    std::vector<Finding> findings = {};  ///< headlines first
    std::size_t open_findings = 3;       ///< beside the headlines; 0: none, not even warnings
    std::string no_findings_text = {};   ///< shown where there is no finding
    std::string list = {};               ///< a table that stays open; HTML; may be empty
    std::vector<Figure> figures = {};
    std::vector<Fold> folds = {};           ///< the details, in this order
    std::vector<std::string> missing = {};  ///< one line for each figure that was not drawn, why
    Files files = {};
    bool drawn = false, tikz = false;  ///< figures/ contains them as SVG and PDF; as TikZ, too
    Json heads = {};                   ///< what `heads_data` has of the table
    Index refresh = 0;                 ///< seconds after which a browser loads it again; 0: never
};

/// The whole of report.html.
std::string page_html(const Page& page);

/// Draws the figures of `page` and writes it; returns what could not be drawn, and why.
std::vector<std::string> write_page(Page page, const std::filesystem::path& directory,
                                    const FigureStyle& look);

/// A horizontally scrollable table; HTML except for the label.
struct HtmlTable {
    struct Column {
        std::string title, attributes = {};  ///< attributes with a space in front
    };
    std::string label, caption;
    std::vector<Column> columns;
    std::string rows;
    bool wordy = false;  ///< the columns hold sentences
};
std::string table_html(const HtmlTable& table);
/// A definition list of the facts that have a value; empty where none has.
std::string list_html(const std::vector<std::pair<std::string, std::string>>& facts);
/// The files of a run beside its page.
Files files_of(const Table& table);
/// A paragraph; `caption_html` of the text.
std::string text_html(std::string_view text);
/// Text between backquotes, such as `in` and `out`, becomes code.
std::string caption_html(std::string_view caption);

/// Every number of every head with its 95 % interval, and its curve where it was kept: what the
/// page shows of a cell.  By model, then by metric: rows of layers, of [value, low, high].
Json heads_data(const Table& table);
/// "2026-11-28 on AMD EPYC, 2 threads, tsdiag 0.1.0 (commit 1c981607cc)", as far as it is known.
std::string origin_text(const RunRecord& run);
/// The definition list of model, input and run; empty where it has none.
std::string facts_html(const RunRecord& run);
/// The figure of a metric over those steps.
std::string trajectory_name(std::string_view metric, std::string_view stage);
/// Changes over a series of checkpoints, only as far as their intervals support them.
std::vector<Finding> changes_verdict(const RunRecord& run);
/// Metrics over the steps of a series of checkpoints; none where the table has one step.
std::vector<Figure> trajectories(const Table& table, const RunRecord& run);
/// The rows of the last step, with the step removed.
Table last_step(const Table& table);
/// The table of the layers, and how many of them it leaves out.
std::string summary_html(const Table& table);

}  // namespace tsdiag::reports
