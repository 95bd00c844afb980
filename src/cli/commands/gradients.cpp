#include <fmt/format.h>

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
    bool force = false, no_report = false, quiet = false;
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

std::string table_of(const LogSummary& summary) {
    std::vector<std::vector<std::string>> rows = {
        {"log", "series", std::string(metric::grad_rsd), "low", "high", "stderr", "mean", "count"}};
    const std::vector<MetricRow> metrics = summary.table.metrics();
    for (std::size_t i = 0; i < metrics.size(); ++i) {
        const MetricRow& row = metrics[i];
        if (row.metric != metric::grad_rsd) continue;
        const bool has_mean = i + 1 < metrics.size() && metrics[i + 1].metric == metric::grad_mean;
        std::string file = row.model;
        if (const std::string tail = ": " + row.at.tensor; file.ends_with(tail))
            file.resize(file.size() - tail.size());
        rows.push_back({file, row.at.tensor, text_of(row.value), text_of(row.low),
                        text_of(row.high), text_of(row.standard_error),
                        has_mean ? text_of(metrics[i + 1].value) : "-",
                        fmt::format("{}", row.count)});
    }
    const std::string text = aligned(rows, 2);
    const std::size_t end = text.find('\n');
    return styled(text.substr(0, end), Style::bold) + text.substr(end);
}

Json described_settings(const GradientsCommand& command) {
    Json settings;
    const LogOptions& log = command.log;
    settings.set("column", log.column).set("step_column", log.step_column);
    settings.set("from", log.first).set("to", log.last >= 0 ? Json(log.last) : Json());
    settings.set("allow_nonfinite", log.allow_nonfinite);
    settings.set("allow_truncated", log.allow_truncated);
    return settings;
}

}  // namespace

GradientsCommand::GradientsCommand(CLI::App& app) {
    app.add_option("FILE", files,
                   "CSV, JSON lines, trainer_state.json, TensorBoard event file or\ndirectory")
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
    LogSummary summary = summarise_logs(all, dispersion);
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
    print(table_of(summary) + "\n");
    for (const Finding& finding : findings) {
        const bool warns = finding.level == Finding::Level::warning;
        print(styled(warns ? "! " : "- ", warns ? Style::warning : Style::plain) +
              wrapped(printable(finding.text), terminal_width(), 2) + "\n");
    }
    print_place(out, !no_report);
    return 0;
}

extern const CommandEntry gradients_command = {
    .name = "gradients",
    .about = "how much gradient norms vary during training",
    .examples = R"(Examples:
  tsdiag gradients trainer_state.json
  tsdiag gradients vanilla.csv linear.csv norm.csv --from 1000
  tsdiag gradients runs/a runs/b --tag train/total_norm -o compared)",
    .make = made<GradientsCommand>,
    .has_settings = true};

}  // namespace tsdiag::cli
