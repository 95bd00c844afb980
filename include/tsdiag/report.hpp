#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/run_record.hpp"
#include "tsdiag/table.hpp"

/// Figures are described once, as data, and drawn by two writers: gnuplot (SVG, PDF) for paper, and
/// the page's own SVG.
namespace tsdiag {

enum class Scale { linear, log };
enum class Palette { sequential, diverging };  ///< viridis; RdBu centred on 0

struct Axis {
    std::string title = {};
    Scale scale = Scale::linear;
    std::optional<double> low = {}, high = {};  ///< absent: from the data
    bool whole = false;                         ///< ticks at whole numbers only (layers, heads)
};

/// y over x, with an optional band; undefined points leave gaps.
struct Series {
    std::string name = {};  ///< equal names in one figure share their colour and their legend entry
    std::vector<double> x = {};
    std::vector<std::optional<double>> y = {}, low = {}, high = {};  ///< low, high: empty, or as y
    bool dashed = false;  ///< a prediction, a bound or a reference, not a measurement
    /// Of bubbles, each point one, in any unit: the largest of a panel is drawn 40 pixels wide.
    /// Empty: a line.
    std::vector<double> areas = {};
};

/// A mean at x with its standard error and that error's degrees of freedom.
struct MeanAt {
    double x = 0;
    std::optional<double> mean = {}, error = {};
    double freedom = 0;
};
/// Means with the 95 % intervals of Student's t, from three numbers on: with one degree of freedom
/// they are 13 errors wide.  `positive`: for a logarithmic axis, where a band that reaches zero
/// ends at a tenth of the mean, and means up to 0 are omitted.
Series line_of_means(std::string name, std::span<const MeanAt> means, bool positive = false);

/// Cells (row, column) -> value; nullopt where undefined.
struct Grid {
    Index rows = 0, cols = 0;
    std::vector<std::optional<double>> values = {};  ///< row-major
    std::string row_title = {}, col_title = {}, value_title = {};
    bool tokens = false;  ///< rows and columns are tokens, which the run may name
    Palette palette = Palette::sequential;
    std::optional<double> low = {}, high = {};  ///< colour limits; absent: minimum, maximum
    Index step = 1;      ///< rows and columns that one cell stands for, on the axes
    bool image = false;  ///< a large matrix (an attention map): drawn as an image, not as cells
    std::vector<std::string> row_labels = {}, col_labels = {};  ///< of cells; empty: their numbers
    bool bar_named = false;  ///< `value_title` stands above the colour bar, for want of a title
    bool turned = false;     ///< labels of columns are written upwards; the cells are squares
    int decimals = -1;       ///< of the values, written into the cells; -1: not written
    std::string model = {};  ///< whose heads the cells are, layers downwards; empty: other cells
    Index layer = -1, head = -1;  ///< whose P it is; -1: no P
    Index tile = 0;               ///< of a gallery: rows and columns of one of its images, whose
                                  ///< rows and columns are named by the labels; 0: no gallery
};

/// One panel: lines or a grid.
struct Plot {
    std::string title = {};
    Axis x = {}, y = {};
    std::vector<Series> series = {};
    std::optional<Grid> grid = {};
    std::vector<std::pair<double, std::string>> marks = {};  ///< horizontal lines: y and label
    std::string area_title = {};                             ///< of bubbles
    bool ordered = false;  ///< the series follow an order (layers): coloured along viridis
    std::size_t runs = 1;  ///< of an overlay: every series is one of so many results in turn
};

/// A figure of the report: one or more panels, drawn into figures/NAME.svg and .pdf.
struct Figure {
    std::string name = {};  ///< file name and anchor: [a-z0-9_]
    std::string title = {};
    std::string caption = {};  ///< what is shown, with the formula and its source
    std::string alt = {};      ///< text alternative; required, with the main numbers
    std::string group = {};    ///< the heading below which the page folds it; may be empty
    std::vector<Plot> panels = {};
};

/// Is a band seen?  It takes two neighbouring points that have one.
bool shows_bands(const Figure& figure);

/// A figure of the list: what it needs and how it is made.  `make` returns none when the table
/// lacks what it needs (the report says which metrics were missing).
struct FigureEntry {
    std::string_view name;
    std::string_view title;
    std::array<std::string_view, 5> needs;  ///< metrics, any one suffices; "maps"; none: the rest
    std::vector<Figure> (*make)(const Table& table);
};
std::span<const FigureEntry* const> figures();

/// One sentence of the verdict: what was found, with its numbers.
struct Finding {
    enum class Level { good, note, warning } level = Level::note;
    std::string text = {};
    std::string figure = {};  ///< the name of the figure that shows it; may be empty
    bool headline = false;    ///< what a reader repeats to a colleague
};
/// The verdict in words, headlines first, then warnings, notes and the rest: what becomes of the
/// tokens, the escalation rate against 1 + a2, which heads are nearly rank one, identity-like or
/// sink-like, gradients, what is undefined.  What `run` lacks is left out.
std::vector<Finding> verdict(const Table& table, const RunRecord& run);

/// Headlines, then warnings, notes and the rest, each in the order given.
std::vector<Finding> by_severity(std::vector<Finding> findings);

/// How figures are drawn for paper.
struct FigureStyle {
    /// Inches; 0: as wide as on the page.  At a width, lines are told apart in grey, too.
    double width = 0;
    double font_size = 0;  ///< points; 0: 8 at a width, else 11
    std::string font = "sans-serif";
    double line_width = 1;  ///< relative
    std::vector<std::string> colours =
        {};             ///< "#0072b2", of lines without an order; empty: Okabe-Ito
    bool tikz = false;  ///< NAME.tex as well, for gnuplot-lua-tikz.sty
};

/// Draws the figures with gnuplot into directory/NAME.svg and NAME.pdf (`directory` is created
/// where its parent exists), and leaves NAME.gp and NAME.dat (with NAME_PANEL.png for a panel that
/// is an image) for the user to edit: `gnuplot NAME.gp` draws it again.  At a width, panels stand
/// beside each other as far as there is room.  One child process for all, no shell.  Throws
/// `NotAvailable` where gnuplot is not installed.
void draw(std::span<const Figure> figures, const std::filesystem::path& directory,
          const FigureStyle& look = {});

enum class FigureFormat { pdf, svg, png, tikz };
/// Draws one figure as `draw` does, in that format alone, and returns the file: SVG, PDF, PNG of
/// 300 pixels an inch, or TeX for gnuplot-lua-tikz.sty.  `directory` exists, and is for files that
/// nobody needs afterwards.
std::string drawn_as(const Figure& figure, FigureFormat format,
                     const std::filesystem::path& directory, const FigureStyle& look);

/// A figure of a result for a paper.
struct PaperFigure {
    std::string label = {};  ///< of the result, where there are several
    Figure figure = {};
    RunRecord run = {};
};
/// The names of the panels: what stands in front of ": " in their titles; where another has that,
/// too, the whole title; where there is none or another has it, the number of the panel, from 1.
std::vector<std::string> panel_names(const Figure& figure);
/// The first figure with the lines of all: in each panel those that all results have (same stage,
/// same layer), named by the labels.  What is the same line in all (`dashed`) stays one.  Throws
/// `UsageError` for a panel of cells, and where another lacks a panel or all lines of one.
Figure overlaid(std::span<const PaperFigure> all);
/// The figure without titles of panels: of several, (a), (b), ... remain, and a colour bar has its
/// name.  `titles`: with them.
Figure for_paper(Figure figure, bool titles);
/// Three or four sentences: what `shown`, the figure or the overlay of `all`, has in its panels,
/// of which models, numbers of samples and seeds; what its bands are; what measured it.  `tex`: for
/// LaTeX.
std::string paper_caption(const Figure& shown, std::span<const PaperFigure> all, bool tex);

/// Facts of a page, name and value, as far as `run` says them: when, where and with what it was
/// measured, "2026-11-28 on AMD EPYC, 2 threads, tsdiag 0.1.0 (commit 1c981607cc)", and how to cite
/// it.
std::vector<std::pair<std::string, std::string>> origin_facts(const RunRecord& run);

/// The figures of the page that `write_report` writes.
std::vector<Figure> report_figures(const Table& table, const RunRecord& run);

/// Writes figures/ and report.html (self-contained, no network) for `table` into `directory`.
/// Parts that `run` lacks are omitted.  The page is written even where the static figures cannot be
/// drawn.  Returns one line for each thing that could not be drawn, with the reason; figures whose
/// metrics the table lacks are named on the page only.
std::vector<std::string> write_report(const Table& table, const RunRecord& run,
                                      const std::filesystem::path& directory,
                                      const FigureStyle& look = {});

/// A stated value of a quantity, compared with the measured one.
struct Comparison {
    /// Relation of the measured number x to `expected`; an order is x > 0, x the difference of two
    /// numbers; comparable is |x - expected| <= `resolution`, the margin that the claim sets.
    enum class Kind { equal, at_most, at_least, order, comparable };
    /// What the trials say: an order or a likeness is found, a number or a bound is consistent with
    /// them.
    enum class Outcome { unjudged, found, consistent, contradicted, open };

    std::string what = {};                            ///< "xi1/xi2 of the attention step, block 0"
    std::string says = {};                            ///< who says what: "[TSE] Cor. 2.7: 2"
    std::optional<double> expected = {};              ///< the same as a number; none: words only
    std::optional<double> measured = {}, error = {};  ///< mean and its standard error
    Index count = 0;                                  ///< number of trials
    std::string unknown = {};                         ///< why nothing was measured
    Kind kind = Kind::equal;
    double freedom = 0;     ///< degrees of freedom of the error; 0: count - 1
    double resolution = 0;  ///< differences up to it count as 0
    bool counted = false;   ///< once, not sampled in trials
    Index chosen_from = 1;  ///< of so many numbers that the claim is of, the least certain one
    /// An exact p-value of an order, on both sides, where it is not Student's.
    std::optional<double> probability = {};
    Outcome outcome = Outcome::unjudged;
    std::string judgement = {};  ///< the outcome in words: "no significant difference (1.2 ...)"
    /// Where open: about so many trials would tell a distance like this one; 0: none would.
    Index trials_needed = 0;
    /// A true distance of this size would be significant with a probability of 80 %.
    std::optional<double> seen = {};
};

/// A page that compares a claim with measurements.
struct Study {
    std::string name = {}, title = {}, source = {};
    std::string claim = {};    ///< what the paper says
    std::string method = {};   ///< what was done here, and how it differs
    std::string outcome = {};  ///< of its comparisons, in one or two sentences
    std::vector<std::string> notes = {};
    std::vector<Comparison> comparisons = {};
    std::vector<Figure> figures = {};
};
/// Its outcome as the headline, each contradicted claim as a warning, its notes.
std::vector<Finding> study_findings(const Study& study);
/// Writes figures/ and report.html (self-contained, no network) into `directory`, as
/// `write_report` does, and returns what it returns.
std::vector<std::string> write_study(const Study& study, const Table& table, const RunRecord& run,
                                     const std::filesystem::path& directory,
                                     const FigureStyle& look = {});
/// A page of facts, findings and figures.
struct PlainPage {
    std::string title = {}, lead = {};
    std::vector<std::pair<std::string, std::string>> facts = {};  ///< name, value
    std::vector<Finding> findings = {};
    std::vector<Figure> figures = {};
    std::vector<std::pair<std::string, std::string>> files = {};  ///< beside it: name, content
};
/// Writes figures/ and report.html into `directory`, as `write_report` does, and returns what it
/// returns.
std::vector<std::string> write_plain_page(const PlainPage& page,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look = {});

/// The verdict over the steps of a training or a series of checkpoints.  Its headline: whether
/// tokens become alike, when, and whether they still are at the last, from `t_sim` and `t_div` of a
/// table with steps.  Then the changes of `run`, as far as their intervals support them.
std::vector<Finding> series_verdict(const Table& table, const RunRecord& run);

/// Findings on logs of gradient norms, from the table and description of `summarise_logs`: each
/// grad_rsd, which series are distinguishable, and caveats of the logs.
std::vector<Finding> log_verdict(const Table& table, const RunRecord& run);
/// Their figures.
std::vector<Figure> log_figures(const Table& table, const RunRecord& run);
/// Their page, as `write_report` does.
std::vector<std::string> write_log_report(const Table& table, const RunRecord& run,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look = {});
struct MeasuredResult;  // comparison.hpp
struct Changes;
/// Writes figures/ and report.html of a comparison, as `write_report` does.  `judged`: findings on
/// assertions, which come first.
std::vector<std::string> write_comparison(std::span<const MeasuredResult> results,
                                          const Changes& changes,
                                          const std::vector<Finding>& judged, const RunRecord& run,
                                          const std::filesystem::path& directory,
                                          const FigureStyle& look = {});

struct Examined;  // claim.hpp

/// The figure of a claim: measured over bound (quantiles over the draws), running means against the
/// claimed value, or means over N against the claimed power.  nullopt where it rests on exact
/// comparisons alone, or where every draw gives the same.
std::optional<Figure> claim_figure(const Examined& examined);

/// "50 of 58 statements hold in these draws; false as stated: ..." of at least one.
Finding claims_headline(std::span<const Examined> examined);

/// Writes figures/ and report.html of an examination, as `write_report` does; `described` is the
/// content of claims.json.
std::vector<std::string> write_claims_report(std::span<const Examined> examined,
                                             const RunRecord& described,
                                             const std::filesystem::path& directory,
                                             const FigureStyle& look = {});

}  // namespace tsdiag
