#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "command.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct PlotCommand final : Command {
    explicit PlotCommand(CLI::App& app);
    int run() const override;

    std::string directory, figure, panel, format, out;  ///< `figure` empty: they are listed
    std::vector<std::string> overlay, labels;
    bool titles = false, force = false;
    FigureStyle look;
};

constexpr double column_width = 3.25;  // inches, of most papers with two columns

/// What `--format` accepts, and names of files end with.
struct FormatName {
    std::string_view name, ending;
    FigureFormat format;
};
constexpr std::array<FormatName, 5> format_names = {{{"pdf", ".pdf", FigureFormat::pdf},
                                                     {"svg", ".svg", FigureFormat::svg},
                                                     {"png", ".png", FigureFormat::png},
                                                     {"tikz", ".tex", FigureFormat::tikz},
                                                     {"pgf", ".tex", FigureFormat::tikz}}};

/// By `--format`, else by the ending of `--out`, else PDF.
const FormatName& format_of(const PlotCommand& command) {
    const fs::path ending = fs::path(command.out).extension();
    const auto by_ending = std::ranges::find(format_names, ending.string(), &FormatName::ending);
    const auto found = command.format.empty()
                           ? by_ending
                           : std::ranges::find(format_names, command.format, &FormatName::name);
    if (found != format_names.end() && by_ending != format_names.end() &&
        by_ending->ending != found->ending)
        throw UsageError(fmt::format("--out: {} ends as {} does, expected {} for --format {}.",
                                     printable(command.out), by_ending->name, found->ending,
                                     found->name));
    if (found != format_names.end()) return *found;
    if (command.format.empty() && ending.empty()) return format_names.front();
    if (command.format.empty())
        throw UsageError(
            fmt::format("--out: {} ends as no format does; add --format pdf, svg, png or tikz.",
                        printable(command.out)));
    throw UsageError(fmt::format("--format: '{}' is not a format, expected pdf, svg, png or tikz.",
                                 printable(command.format)));
}

/// Those of the page of a result.
std::vector<Figure> figures_of(const RunResult& result, const fs::path& from) {
    const RunRecord run = result.run;
    switch (run.kind) {
        case RunRecord::Kind::gradients:
            return log_figures(result.table, run);
        case RunRecord::Kind::train:
            return training_page(recorded_training(from, result.run)).figures;
        case RunRecord::Kind::figure:
            return study(experiment(run.experiment), result, recorded_options(run)).figures;
        case RunRecord::Kind::probe:
        case RunRecord::Kind::compare:  // without tables: refused before
        case RunRecord::Kind::check:
            break;
    }
    return report_figures(result.table, run);
}

struct Drawable {
    RunRecord run;
    std::vector<Figure> figures;
};

Drawable read_drawable(const fs::path& from) {
    std::error_code failed;
    if (!fs::is_directory(from, failed))
        throw FormatError(
            fmt::format("{}: is not a directory, expected one written by tsdiag.", from.string()));
    if (RunRecord(read_description(from)).kind == RunRecord::Kind::compare)
        throw FormatError(fmt::format(
            "{}: is a comparison, whose figures need the results that were compared; plot one of "
            "them with --overlay and the other.",
            from.string()));
    const RunResult result = read_result(from);
    return {result.run, figures_of(result, from)};
}

/// Throws `UsageError` with the nearest of `known`.
[[noreturn]] void refuse_name(const std::string& option, const std::string& name,
                              const std::string& what, const std::vector<std::string>& known) {
    const std::string near = nearest(name, known);
    throw UsageError(fmt::format("{}: '{}' is no {}; {}", option, printable(name), what,
                                 near.empty() ? fmt::format("it has {}.", fmt::join(known, ", "))
                                              : fmt::format("did you mean {}?", near)));
}

Figure figure_named(const std::string& name, const Drawable& from, const std::string& directory) {
    std::vector<std::string> known;
    for (const Figure& one : from.figures) {
        if (one.name == name) return one;
        known.push_back(one.name);
    }
    if (known.empty())
        throw FormatError(fmt::format("{}: its tables give no figure.", printable(directory)));
    refuse_name("plot", name, "figure of " + printable(directory), known);
}

/// The panel of that name alone.
Figure with_panel(Figure figure, const std::string& name) {
    const std::vector<std::string> names = panel_names(figure);
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) refuse_name("--panel", name, "panel of " + figure.name, names);
    figure.panels = {figure.panels[std::size_t(at - names.begin())]};
    return figure;
}

/// Names of the results in the legend: as given, else their folders without ".tsdiag".
std::vector<std::string> labels_of(const PlotCommand& command) {
    std::vector<std::string> folders = {command.directory};
    folders.insert(folders.end(), command.overlay.begin(), command.overlay.end());
    if (!command.labels.empty() && command.labels.size() != folders.size())
        throw UsageError(fmt::format("--labels: has {} for {}.",
                                     counted(command.labels.size(), "name"),
                                     counted(folders.size(), "result")));
    if (std::ranges::find(command.labels, "") != command.labels.end())
        throw UsageError("--labels: has an empty name.");
    std::vector<std::string> labels = command.labels;
    for (const std::string& folder : folders) {
        if (labels.size() == folders.size()) break;
        fs::path name = fs::path(folder).lexically_normal();
        if (!name.has_filename()) name = name.parent_path();
        if (name.extension() == ".tsdiag") name.replace_extension();
        labels.push_back(name.filename().string());
    }
    std::vector<std::string> sorted = labels;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end())
        throw UsageError("--overlay: two results have the same name; name them with --labels A,B.");
    return labels;
}

/// The figure of each result, or the panel that was asked for.
std::vector<PaperFigure> chosen_figures(const PlotCommand& command, const Drawable& first) {
    const auto chosen = [&](const Drawable& from, const std::string& folder) {
        Figure figure = figure_named(command.figure, from, folder);
        return command.panel.empty() ? figure : with_panel(std::move(figure), command.panel);
    };
    std::vector<PaperFigure> all;
    all.push_back({.figure = chosen(first, command.directory), .run = first.run});
    for (const std::string& folder : command.overlay) {
        const Drawable other = read_drawable(folder);
        all.push_back({.figure = chosen(other, folder), .run = other.run});
    }
    if (all.size() == 1 && command.labels.empty()) return all;
    const std::vector<std::string> labels = labels_of(command);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].label = labels[i];
    return all;
}

/// "similarity-t_sim.pdf"
fs::path file_of(const PlotCommand& command, const FormatName& format) {
    if (!command.out.empty()) return command.out;
    std::string name = command.figure;
    if (!command.panel.empty()) name += '-';
    for (const char c : command.panel)
        name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return name + std::string(format.ending);
}

void require_free(const fs::path& place, bool force) {
    refuse_inputs(place);
    const FilePlace kind = place_of_file(place);
    if (kind == FilePlace::stream)
        throw UsageError(
            fmt::format("--out: {} is no regular file, into which a figure is drawn; standard "
                        "output has its caption.",
                        printable(place.string())));
    if (kind == FilePlace::replaced && !force)
        throw UsageError(fmt::format("--out: {} exists; choose another name or add --force.",
                                     printable(place.string())));
}

/// In a folder beside the file, of which nothing remains.
void draw_file(const Figure& figure, const FormatName& format, const fs::path& place,
               const FigureStyle& look) {
    const fs::path beside =
        place.parent_path() / fmt::format(".{}.drawing", place.filename().string());
    const OutputFolder scratch(beside, {.writes = {"*"}});
    write_atomically(place, drawn_as(figure, format.format, scratch.temporary(), look));
}

int list_drawable(const Drawable& from) {
    std::vector<std::vector<std::string>> rows;
    Json::Array listed;
    for (const Figure& figure : from.figures) {
        const std::vector<std::string> names = panel_names(figure);
        Json::Array panels(names.begin(), names.end());
        rows.push_back({figure.name, figure.title, fmt::format("{}", fmt::join(names, "; "))});
        listed.push_back(
            Json().set("name", figure.name).set("title", figure.title).set("panels", panels));
    }
    print_json("plot", Json().set("figures", std::move(listed)));
    print(aligned(rows, 3));
    return 0;
}

}  // namespace

PlotCommand::PlotCommand(CLI::App& app) {
    app.add_option("DIR", directory, "directory written by tsdiag")->required()->type_name("");
    app.add_option("FIGURE", figure, "which of its figures (default: list them, with their panels)")
        ->type_name("");
    text(app, "--panel", panel, "NAME", "one panel of the figure (default: all of them)");
    app.add_option("--overlay", overlay,
                   "the same lines of another result in the same panels (repeatable)")
        ->type_name("DIR")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--labels", "LIST", "names of the results in the legend, with commas between",
          [&](const std::string& t) { labels = split(t, ','); });
    text(app, "--format", format, "FORMAT",
         "pdf, svg, png (300 pixels an inch) or tikz (default: as --out ends, or pdf)");
    add_paper(app, look, "--width");
    app.add_flag("--title", titles, "titles in the panels, which the caption has otherwise");
    place(app, out, "FILE", "the figure (default: FIGURE.pdf, or FIGURE-PANEL.pdf)");
    app.add_flag("--force", force, "replace an existing file");
}

int PlotCommand::run() const {
    const FormatName& as = format_of(*this);
    if (figure.empty() && !(panel.empty() && overlay.empty() && out.empty()))
        throw UsageError(
            "plot: --panel, --overlay and --out need a FIGURE; tsdiag plot DIR lists them.");
    const fs::path file = file_of(*this, as);
    if (!figure.empty()) require_free(file, force);
    const Drawable from = read_drawable(directory);
    if (figure.empty()) return list_drawable(from);

    const std::vector<PaperFigure> all = chosen_figures(*this, from);
    const Figure shown = all.size() > 1 ? overlaid(all) : all.front().figure;
    FigureStyle style = look;
    if (style.width <= 0) style.width = column_width;
    draw_file(for_paper(shown, titles), as, file, style);
    const std::string caption = paper_caption(shown, all, as.format == FigureFormat::tikz);
    print_json("plot", Json().set("out", file.string()).set("caption", caption));
    print(printable(caption, caption.size()) + "\n");
    say("tsdiag: " + printable(file.string()));
    return 0;
}

extern const CommandEntry plot_command = {
    .name = "plot",
    .about = "one figure of a result for a paper, and its caption",
    .examples = R"(Examples:
  tsdiag plot result                                  its figures and their panels
  tsdiag plot result similarity --panel t_sim         similarity-t_sim.pdf, as wide as a column
  tsdiag plot result heads_mixing --width 5.5in -o heads.svg
  tsdiag plot base mixing --overlay tuned --labels base,tuned
  tsdiag plot result similarity --format tikz >caption.tex)",
    .make = made<PlotCommand>};

}  // namespace tsdiag::cli
