#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "rows.hpp"
#include "text.hpp"
#include "tsdiag/error.hpp"

/// Figures of results for a paper: panels by their names, overlays, captions.
namespace tsdiag {
namespace {

using namespace reports;

/// What all results have of a panel: theirs, in the order of the results.
using SamePanel = std::vector<const Plot*>;

SamePanel same_panel(std::span<const PaperFigure> all, const Plot& first) {
    SamePanel found;
    for (const PaperFigure& one : all) {
        const auto at = std::ranges::find(one.figure.panels, first.title, &Plot::title);
        if (at == one.figure.panels.end())
            throw UsageError(
                fmt::format("{}: its figure {} has no panel '{}', so it cannot lie over that of "
                            "{}; choose a panel that both have with --panel.",
                            one.label, one.figure.name, first.title, all.front().label));
        if (at->x.title != first.x.title || at->y.title != first.y.title)
            throw UsageError(fmt::format(
                "{}: its panel '{}' has the axes {} and {}, so it cannot lie over that of {}, "
                "which has {} and {}.",
                one.label, first.title, at->x.title, at->y.title, all.front().label, first.x.title,
                first.y.title));
        found.push_back(&*at);
    }
    return found;
}

/// The lines of one name in the panels of all; empty where one lacks it.
std::vector<const Series*> same_line(const SamePanel& panels, const std::string& line) {
    std::vector<const Series*> found;
    for (const Plot* panel : panels) {
        const auto at = std::ranges::find(panel->series, line, &Series::name);
        if (at == panel->series.end()) return {};
        found.push_back(&*at);
    }
    return found;
}

/// A bound or a reference that is the same in all results.
bool is_shared(const std::vector<const Series*>& lines) {
    return std::ranges::all_of(lines, [&](const Series* s) {
        return s->dashed && s->x == lines.front()->x && s->y == lines.front()->y;
    });
}

/// A limit that all axes have, wide enough for all; none where one has none.
void share_limits(Axis& axis, const Axis& other) {
    axis.low =
        axis.low && other.low ? std::optional(std::min(*axis.low, *other.low)) : std::nullopt;
    axis.high =
        axis.high && other.high ? std::optional(std::max(*axis.high, *other.high)) : std::nullopt;
}

/// Logarithmic where one of the results is drawn so, and all numbers are positive.
void share_scale(Plot& plot, const SamePanel& panels) {
    const bool logarithmic =
        std::ranges::any_of(panels, [](const Plot* p) { return p->y.scale == Scale::log; });
    const bool positive = std::ranges::all_of(plot.series, [](const Series& s) {
        return std::ranges::all_of(s.y, [](const auto& y) { return !y || *y > 0; });
    });
    plot.y.scale = logarithmic && positive ? Scale::log : Scale::linear;
    if (plot.y.scale == Scale::linear) return;
    for (Series& s : plot.series)  // as `line_of_means` has it for such an axis
        for (std::size_t i = 0; i < s.low.size(); ++i)
            if (s.low[i] && s.y[i]) s.low[i] = std::max(*s.low[i], *s.y[i] / 10);
}

Plot overlaid_panel(std::span<const PaperFigure> all, const Plot& first) {
    const SamePanel panels = same_panel(all, first);
    Plot out = first;
    out.runs = all.size();
    out.series.clear();
    std::vector<Series> references;
    for (const Series& line : first.series) {
        const std::vector<const Series*> same = same_line(panels, line.name);
        if (same.empty()) continue;
        if (is_shared(same)) {
            references.push_back(line);
            continue;
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            out.series.push_back(*same[i]);
            out.series.back().name = fmt::format("{}: {}", all[i].label, line.name);
        }
    }
    if (out.series.empty())
        throw UsageError(fmt::format("--overlay: no line of '{}' is in all of the results.",
                                     first.title.empty() ? all.front().figure.name : first.title));
    for (Series& line : references) out.series.push_back(std::move(line));
    for (const Plot* panel : panels) {
        share_limits(out.x, panel->x);
        share_limits(out.y, panel->y);
        for (const auto& mark : panel->marks)
            if (std::ranges::find(out.marks, mark) == out.marks.end()) out.marks.push_back(mark);
    }
    share_scale(out, panels);
    return out;
}

/// Where each result has one line in every panel, its label names it.
void shorten_names(Figure& figure, std::span<const PaperFigure> all) {
    std::set<std::string> ends;
    const auto label_of_line = [&](const std::string& line) {
        const auto at = std::ranges::find_if(
            all, [&](const PaperFigure& one) { return line.starts_with(one.label + ": "); });
        return at == all.end() ? std::string() : at->label;
    };
    for (const Plot& plot : figure.panels)
        for (const Series& s : plot.series)
            if (const std::string owner = label_of_line(s.name); !owner.empty())
                ends.insert(s.name.substr(owner.size()));
    if (ends.size() != 1) return;
    for (Plot& plot : figure.panels)
        for (Series& s : plot.series)
            if (const std::string owner = label_of_line(s.name); !owner.empty()) s.name = owner;
}

std::string panel_letter(std::size_t i) { return fmt::format("({})", char('a' + int(i % 26))); }

std::string heading(const Plot& plot) {
    if (!plot.title.empty() || plot.grid) return plot.title;
    return fmt::format("{} over {}", plot.y.title, plot.x.title);
}

/// "(a) t_sim: token similarity; (b) ..."
std::string panels_in_words(const Figure& figure) {
    if (figure.panels.size() == 1) return heading(figure.panels.front());
    std::string out;
    for (std::size_t i = 0; i < figure.panels.size(); ++i)
        out += fmt::format("{}{} {}", i ? "; " : "", panel_letter(i), heading(figure.panels[i]));
    return out;
}

/// Is the figure over all checkpoints of a series?  Others are of the last one.
bool is_over_all(const RunRecord& run, const Figure& figure) {
    return run.checkpoints && figure.name.starts_with("trajectory_");
}

std::string model_in_words(const RunRecord& run, const Figure& figure) {
    const RunRecord::Model& model = run.model;
    const bool drawn = model.argument.starts_with("random:");
    std::string given = is_over_all(run, figure) && !run.series.empty() ? label(run.series)
                        : drawn                                         ? model.argument
                                                                        : label(model.argument);
    if (model.name.empty() || model.name == given) return given;
    return given.empty() ? model.name : fmt::format("{} ({})", given, model.name);
}

std::string count_of(const std::optional<Index>& count, std::string_view noun) {
    return count ? counted(std::size_t(*count), noun) : std::string();
}

/// "4 samples of 64 tokens (ids:random)"
std::string input_in_words(const RunRecord::Input& input) {
    std::string out = count_of(input.samples, "sample");
    if (input.trials.value_or(1) > 1)
        out = fmt::format("{}{}", count_of(input.trials, "trial"),
                          out.empty() ? "" : " with " + out + " each");
    if (input.tokens) out += " of " + input.tokens_in_words();
    if (!input.kind.empty()) out += fmt::format(" ({})", label(input.kind));
    return out;
}

/// Of a series of checkpoints: all that a trajectory is over, or the last, which other figures are
/// of.
std::string checkpoints_in_words(const RunRecord& run, const Figure& figure) {
    const auto& all = *run.checkpoints;
    if (all.empty()) return {};
    if (!is_over_all(run, figure)) return fmt::format("{} {}", run.unit, all.back().step);
    return fmt::format("{}, {} {} to {}", counted(all.size(), "checkpoint"), run.unit,
                       all.front().step, all.back().step);
}

std::string training_in_words(const RunRecord::Training& train) {
    std::string out =
        fmt::format("trained on {} with batches of {}", label(train.data), train.batch);
    if (train.eval_samples > 0)
        out += fmt::format(", loss of {} held out",
                           counted(std::size_t(train.eval_samples), "sample"));
    if (train.probe_samples)
        out += fmt::format(", metrics of {} held out", count_of(train.probe_samples, "sample"));
    return out;
}

std::string setting_in_words(const RunRecord& run) {
    std::string out = fmt::format("experiment {}", run.experiment);
    if (!run.setting) return out;
    out += fmt::format(" at scale {}", run.setting->scale);
    for (const auto& [key, value] : run.setting->keys) out += fmt::format(", {} = {}", key, value);
    for (const std::string& used : {run.setting->model, run.setting->data})
        if (!used.empty()) out += ", " + label(used);
    return out;
}

std::string logs_in_words(const std::vector<RunRecord::Log>& logs) {
    std::string out;
    for (const RunRecord::Log& log : logs)
        out += fmt::format("{}{}, {}", out.empty() ? "" : "; ", label(log.model),
                           counted(std::size_t(log.count), "number"));
    return out;
}

/// Of what the numbers are: model, input, counts, seed.
std::string subject_in_words(const PaperFigure& one) {
    const RunRecord& run = one.run;
    std::vector<std::string> parts;
    const auto add = [&](std::string part) {
        if (!part.empty()) parts.push_back(std::move(part));
    };
    if (run.kind == RunRecord::Kind::figure) {
        add(setting_in_words(run));
    } else if (run.kind == RunRecord::Kind::gradients) {
        add(logs_in_words(run.logs));
    } else {
        add(model_in_words(run, one.figure));
        if (run.checkpoints) add(checkpoints_in_words(run, one.figure));
        if (run.train) add(training_in_words(*run.train));
        if (!run.train) add(input_in_words(run.input));
    }
    if (run.seed && run.input.kind != "trace") add(fmt::format("seed {}", *run.seed));
    return fmt::format("{}{}", one.label.empty() ? "" : one.label + ": ", fmt::join(parts, ", "));
}

/// The sentences of a caption that say what bands are.
std::string about_bands(const std::string& caption) {
    std::string out;
    for (std::size_t at = 0; at < caption.size();) {
        std::size_t end = at;
        do {
            end = std::min(caption.find(". ", end + 1), caption.size());
        } while (end + 2 < caption.size() &&
                 !std::isupper(static_cast<unsigned char>(caption[end + 2])));
        std::string sentence = caption.substr(at, end - at);
        at = end + 2;
        if (sentence.find("band") == sentence.npos && sentence.find("Bands") == sentence.npos)
            continue;
        std::erase(sentence, '`');
        if (sentence.ends_with('.')) sentence.pop_back();
        out += (out.empty() ? "" : " ") + sentence + ".";
    }
    return out;
}

/// Of an overlay: the bands of all results, whose captions may differ.
std::string about_all_bands(std::span<const PaperFigure> all) {
    std::vector<std::string> said;
    for (const PaperFigure& one : all)
        if (std::string text = about_bands(one.figure.caption);
            !text.empty() && std::ranges::find(said, text) == said.end())
            said.push_back(std::move(text));
    return fmt::format("{}", fmt::join(said, " "));
}

/// "norm1, norm2", and of more than `most_named` how many.
std::string some_of(const std::vector<std::string>& lines) {
    constexpr std::size_t most_named = 6;
    const std::size_t named = lines.size() > most_named ? most_named / 2 : lines.size();
    std::string out = fmt::format("{}", fmt::join(std::span(lines).first(named), ", "));
    if (named < lines.size()) out += fmt::format(" and {} more", lines.size() - named);
    return out;
}

/// The lines of the panels that an overlay lacks: "A: norm1, norm2; B: layer 3".
std::string left_out(std::span<const PaperFigure> all) {
    std::vector<std::vector<std::string>> lacking(all.size());
    for (const Plot& panel : all.front().figure.panels) {
        const SamePanel panels = same_panel(all, panel);
        for (std::size_t i = 0; i < all.size(); ++i)
            for (const Series& s : panels[i]->series)
                if (same_line(panels, s.name).empty() &&
                    std::ranges::find(lacking[i], s.name) == lacking[i].end())
                    lacking[i].push_back(s.name);
    }
    std::string out;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (!lacking[i].empty())
            out +=
                fmt::format("{}{}: {}", out.empty() ? "" : "; ", all[i].label, some_of(lacking[i]));
    return out;
}

/// "Measured with tsdiag 0.1.0 (tsdiag probe)."
std::string programs_in_words(std::span<const PaperFigure> all) {
    std::vector<std::string> used;
    for (const PaperFigure& one : all) {
        const std::string text =
            fmt::format("tsdiag {} (tsdiag {})", one.run.version, name(one.run.kind));
        if (std::ranges::find(used, text) == used.end()) used.push_back(text);
    }
    return fmt::format("Measured with {}.", fmt::join(used, " and "));
}

}  // namespace

std::vector<std::string> panel_names(const Figure& figure) {
    std::vector<std::string> starts, titles, names;
    for (const Plot& plot : figure.panels) {
        titles.push_back(plot.title);
        starts.push_back(plot.title.substr(0, plot.title.find(": ")));
    }
    const auto alone = [](const std::vector<std::string>& all, const std::string& one) {
        return !one.empty() && std::ranges::count(all, one) == 1;
    };
    for (std::size_t i = 0; i < titles.size(); ++i)
        names.push_back(alone(starts, starts[i])   ? starts[i]
                        : alone(titles, titles[i]) ? titles[i]
                                                   : fmt::format("{}", i + 1));
    return names;
}

Figure overlaid(std::span<const PaperFigure> all) {
    Figure out = all.front().figure;
    for (Plot& panel : out.panels) {
        if (panel.grid)
            throw UsageError(
                fmt::format("--overlay: '{}' is a panel of cells, which cannot lie over others; "
                            "choose one of lines with --panel.",
                            panel.title.empty() ? out.name : panel.title));
        panel = overlaid_panel(all, panel);
    }
    shorten_names(out, all);
    return out;
}

Figure for_paper(Figure figure, bool titles) {
    const bool several = figure.panels.size() > 1;
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
        std::string& title = figure.panels[i].title;
        if (!titles) title.clear();
        if (auto& grid = figure.panels[i].grid; grid && !titles) grid->bar_named = true;
        if (several) title = panel_letter(i) + (title.empty() ? "" : " " + title);
    }
    return figure;
}

std::string paper_caption(const Figure& shown, std::span<const PaperFigure> all, bool tex) {
    const std::string panels = panels_in_words(shown);
    std::string subjects;
    for (const PaperFigure& one : all)
        subjects += (subjects.empty() ? "" : "; ") + subject_in_words(one);
    const std::string title =
        panels.empty() || panels == shown.title ? shown.title : shown.title + ": " + panels;
    std::string out = fmt::format("{}. Numbers of {}.", title, subjects);
    if (shows_bands(shown))
        if (const std::string bands = about_all_bands(all); !bands.empty()) out += " " + bands;
    if (const std::string lines = left_out(all); !lines.empty())
        out += fmt::format(" Left out are lines that not all have: {}.", lines);
    out += " " + programs_in_words(all);
    return tex ? tex_words(out) : out;
}

}  // namespace tsdiag
