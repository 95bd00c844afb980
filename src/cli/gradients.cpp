#include <fmt/format.h>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/training_log.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

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

Json with_settings(Json run, const GradientsCommand& command) {
    Json settings;
    const LogOptions& log = command.log;
    settings.set("column", log.column).set("step_column", log.step_column);
    settings.set("from", log.first).set("to", log.last >= 0 ? Json(log.last) : Json());
    settings.set("allow_nonfinite", log.allow_nonfinite);
    settings.set("allow_truncated", log.allow_truncated);
    return std::move(run.set("settings", std::move(settings)));
}

}  // namespace

int run_command(const GradientsCommand& command) {
    OutputFolder directory(command.out, result_plan(command.force));
    std::vector<LoggedSeries> all;
    for (const std::string& file : command.files)
        for (LoggedSeries& one : read_training_log(file, command.log))
            all.push_back(std::move(one));
    LogSummary summary = summarise_logs(all, command.dispersion);
    Json run = with_settings(described(summary.run), command);
    write_tables({summary.table, run}, directory.temporary());
    Json::Array undrawn;
    if (!command.no_report)
        for (const std::string& line :
             write_log_report(summary.table, run, directory.temporary(), command.look)) {
            if (!command.quiet) say("tsdiag: " + printable(line));
            undrawn.emplace_back(line);
        }
    run.set("warnings", std::move(undrawn));
    write_description(run, directory.temporary());
    directory.commit();
    print_json("gradients", Json()
                                .set("out", command.out)
                                .set("series", series_json(summary))
                                .set("findings", findings_json(log_verdict(summary.table, run))));
    if (command.quiet) return 0;
    print(table_of(summary) + "\n");
    for (const Finding& finding : log_verdict(summary.table, run)) {
        const bool warns = finding.level == Finding::Level::warning;
        print(styled(warns ? "! " : "- ", warns ? Style::warning : Style::plain) +
              wrapped(printable(finding.text), terminal_width(), 2) + "\n");
    }
    const char* made = command.no_report ? "metrics.csv" : "report.html";
    print(fmt::format("\n{}\n",
                      styled(printable((fs::path(command.out) / made).string()), Style::bold)));
    return 0;
}

}  // namespace tsdiag::cli
