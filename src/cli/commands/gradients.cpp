#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <regex>

#include "command.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/training_log.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct GradientsCommand final : Command {
    explicit GradientsCommand(CLI::App& app);
    int run() const override;

    std::vector<std::string> files;
    LogOptions log;
    DispersionOptions dispersion;
    std::string out = "gradients.tsdiag";
    bool pairs = false, force = false, no_report = false, quiet = false, verbose = false;
    FigureStyle look;
};

std::string text_of(const std::optional<double>& value) { return number_cell(value, 4); }

Json series_json(const LogSummary& summary) {
    Json::Array all;
    const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
    const std::vector<MetricRow> metrics = summary.table.metrics();
    for (std::size_t i = 0; i < metrics.size(); ++i) {
        const MetricRow& row = metrics[i];
        if (row.metric != metric::grad_rsd) continue;
        const bool has_mean = i + 1 < metrics.size() && metrics[i + 1].metric == metric::grad_mean;
        Json one;
        one.set("log", row.model).set("series", row.at.tensor);
        one.set(std::string(metric::grad_rsd), or_null(row.value)).set("low", or_null(row.low));
        one.set("high", or_null(row.high)).set("stderr", or_null(row.standard_error));
        one.set("mean", has_mean ? or_null(metrics[i + 1].value) : Json());
        all.push_back(one.set("count", row.count));
    }
    return all;
}

constexpr std::size_t most_shown = 20;

/// A series as the terminal shows it.
struct Shown {
    std::string log;
    MetricRow rsd;
    std::optional<double> mean;
};

std::vector<Shown> shown_series(const LogSummary& summary) {
    std::vector<Shown> all;
    for (const MetricRow& row : summary.table.metrics()) {
        if (row.metric == metric::grad_mean && !all.empty()) all.back().mean = row.value;
        if (row.metric != metric::grad_rsd) continue;
        std::string file = row.model;
        if (const std::string tail = ": " + row.at.tensor; file.ends_with(tail))
            file.resize(file.size() - tail.size());
        all.push_back({file, row, std::nullopt});
    }
    return all;
}

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::vector<Shown>& all) {
    Rows rows = {{"log", "series", std::string(metric::grad_rsd), "low", "high", "mean", "count"}};
    for (const Shown& one : all)
        rows.push_back({one.log, one.rsd.at.tensor,
                        number_cell(one.rsd.value, one.rsd.standard_error), text_of(one.rsd.low),
                        text_of(one.rsd.high), text_of(one.mean),
                        fmt::format("{}", one.rsd.count)});
    return rows;
}

/// The layer that the name of a series tells: "grad_norm layer=3", "grad_norm/model.layers.3.mlp".
std::optional<Index> layer_of(const std::string& name) {
    static const std::regex layer("(^|[^a-z])(layers?|blocks?|h)[ ._=/]*([0-9]{1,6})([^0-9]|$)",
                                  std::regex::ECMAScript | std::regex::icase);
    std::smatch found;
    if (!std::regex_search(name, found, layer)) return std::nullopt;
    return std::stoll(found[3]);
}

/// Of sorted rows; of an even number the mean of the middle two.
double median_of(const std::vector<const MetricRow*>& sorted) {
    const std::size_t upper = sorted.size() / 2, lower = (sorted.size() - 1) / 2;
    return std::midpoint(*sorted[lower]->value, *sorted[upper]->value);
}

/// A row a layer of each log: how many series, and the least, middle and greatest grad_rsd.
Rows rows_by_layer(const std::vector<Shown>& all) {
    std::vector<std::pair<std::string, std::optional<Index>>> order;
    std::map<std::pair<std::string, std::optional<Index>>, std::vector<const MetricRow*>> groups;
    for (const Shown& one : all) {
        const std::pair key(one.log, layer_of(one.rsd.at.tensor));
        if (!groups.contains(key)) order.push_back(key);
        if (one.rsd.value) groups[key].push_back(&one.rsd);
    }
    Rows rows = {{"log", "layer", "greatest in", "series", "least", "median", "greatest"}};
    for (const auto& key : order) {
        std::vector<const MetricRow*>& members = groups[key];
        if (members.empty()) continue;
        std::ranges::sort(members, {}, [](const MetricRow* row) { return *row->value; });
        rows.push_back({key.first, key.second ? fmt::format("{}", *key.second) : "none",
                        members.back()->at.tensor, fmt::format("{}", members.size()),
                        text_of(members.front()->value), text_of(median_of(members)),
                        text_of(members.back()->value)});
    }
    return rows;
}

/// At most `most_shown`: of more series a row a layer, of more layers those that vary most.
std::string table_of(const LogSummary& summary) {
    std::vector<Shown> all = shown_series(summary);
    const std::size_t count = all.size();
    const bool by_layer = count > most_shown && std::ranges::any_of(all, [](const Shown& one) {
                              return layer_of(one.rsd.at.tensor).has_value();
                          });
    Rows rows;
    if (by_layer) rows = rows_by_layer(all);
    if (!by_layer || rows.size() > most_shown + 1) {
        if (count > most_shown)
            std::ranges::stable_sort(all, std::greater{},
                                     [](const Shown& one) { return one.rsd.value.value_or(-1); });
        all.resize(std::min(count, most_shown));
        rows = rows_of(all);
    }
    const bool grouped = rows.front()[1] == "layer";
    const std::string text = aligned(rows, grouped ? 3 : 2);
    const std::size_t end = text.find('\n');
    std::string out = styled(text.substr(0, end), Style::bold) + text.substr(end);
    if (count > most_shown)
        out += fmt::format("{}{} series; all of them are in metrics.csv\n",
                           grouped ? "" : fmt::format("{} that vary most of ", most_shown), count);
    return out;
}

Json described_settings(const GradientsCommand& command) {
    Json settings;
    const LogOptions& log = command.log;
    settings.set("column", log.column).set("step_column", log.step_column);
    settings.set("from", log.first).set("to", log.last >= 0 ? Json(log.last) : Json());
    settings.set("allow_nonfinite", log.allow_nonfinite);
    settings.set("allow_truncated", log.allow_truncated);
    settings.set("pairs", command.pairs);
    return settings;
}

}  // namespace

GradientsCommand::GradientsCommand(CLI::App& app) {
    app.add_option("FILE", files,
                   "CSV, JSON lines, trainer_state.json, TensorBoard event file, or\na directory "
                   "of a training")
        ->required()
        ->type_name("");
    text(app, "--column,--tag", log.column, "NAME", "column of the series (default: by name)");
    text(app, "--step-column", log.step_column, "NAME", "column of the steps (default: by name)");
    value(app, "--from", "STEP", "first step to use",
          [&](const std::string& t) { log.first = parse_count(t, "--from", 0); });
    value(app, "--to", "STEP", "last step to use",
          [&](const std::string& t) { log.last = parse_count(t, "--to", 0); });
    app.add_flag("--allow-nonfinite", log.allow_nonfinite, "skip NaN and infinity");
    app.add_flag("--allow-truncated", log.allow_truncated, "skip a truncated record at the end");
    app.add_flag("--pairs", pairs,
                 "compare series of one log, too, not only those of different logs");
    value(app, "--confidence", "C", "confidence of the intervals (default 0.95)",
          [&](const std::string& t) {
              dispersion.confidence = parse_probability(t, "--confidence");
          });
    value(app, "--resamples", "B", "resamples of the bootstrap (default 2000)",
          [&](const std::string& t) {
              dispersion.resamples = parse_count(t, "--resamples", 100, 1000000);
          });
    value(app, "--seed", "K", "random seed of the bootstrap (default 0)",
          [&](const std::string& t) { dispersion.seed = parse_seed(t, "--seed"); });
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(place(app, out, "DIR", "output directory (default: gradients.tsdiag)"));
    add_paper(app, look);
    output(app.add_flag("--no-report", no_report, "write tables only, no report"));
    output(app.add_flag("--force", force, "write into a directory that contains other files"));
    output(app.add_flag("-q,--quiet", quiet, "print errors only"));
    output(app.add_flag("-v,--verbose", verbose, "print every finding"));
}

int GradientsCommand::run() const {
    if (log.last >= 0 && log.first > log.last)
        throw UsageError(fmt::format(
            "--from {}: is after --to {}, expected a first step that is not after the last.",
            log.first, log.last));
    ResultWriter writer(out, force);
    std::vector<LoggedSeries> all;
    for (const std::string& file : files)
        for (LoggedSeries& one : read_training_log(file, log)) all.push_back(std::move(one));
    LogSummary summary = summarise_logs(all, dispersion, pairs ? Paired::all : Paired::logs);
    summary.run.settings.all = described_settings(*this);
    const std::vector<Finding> findings = log_verdict(summary.table, summary.run);
    RunResult result{summary.table, with_findings(described(summary.run), findings)};
    const Json& run = result.run;
    ResultWriter::Draw draw;
    if (!no_report)
        draw = [&](const fs::path& folder) {
            return write_log_report(summary.table, run, folder, look);
        };
    writer.write(result, draw, quiet);
    print_json("gradients", Json()
                                .set("out", out)
                                .set("series", series_json(summary))
                                .set("findings", findings_json(findings))
                                .set("files", files_json(out)));
    if (quiet) return 0;
    print(table_of(summary) + findings_text(findings, verbose));
    print_place(out, !no_report);
    return 0;
}

extern const CommandEntry gradients_command = {
    .name = "gradients",
    .about = "how much gradient norms vary during training",
    .examples = R"(Examples:
  tsdiag gradients trainer_state.json
  tsdiag gradients run                        of tsdiag train: all parameters, and each layer
  tsdiag gradients vanilla.csv linear.csv norm.csv --from 1000
  tsdiag gradients runs/a runs/b --tag train/total_norm -o compared)",
    .make = made<GradientsCommand>,
    .has_settings = true};

}  // namespace tsdiag::cli
