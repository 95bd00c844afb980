#include "tsdiag/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "commands.hpp"
#include "output_directory.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) { return file_text(file, "a file that tsdiag wrote"); }

/// "attention.3.5": map, layer, head.
void read_maps(const fs::path& file, Table& table) {
    if (!fs::exists(file)) return;
    const std::unique_ptr<Checkpoint> maps = open_checkpoint(file);
    for (const std::string& name : maps->names()) {
        const std::vector<std::string> parts = split(name, '.');
        const RawTensor array = maps->tensor(name);
        if (parts.size() != 3 || array.shape.size() != 2)
            throw FormatError(fmt::format(
                "{}: array '{}' is no attention map, expected NAME.LAYER.HEAD of two axes.",
                file.string(), name));
        Map map;
        map.name = parts[0];
        map.at.layer = parse_count(parts[1], file.string(), 0);
        map.at.stage = "attn";
        map.at.head = parse_count(parts[2], file.string(), 0);
        map.rows = array.shape[0];
        map.cols = array.shape[1];
        map.values.resize(std::size_t(array.count()));
        widen<double>(array, map.values);
        if (!std::all_of(map.values.begin(), map.values.end(),
                         [](double v) { return std::isfinite(v); }))
            throw FormatError(fmt::format(
                "{}: array '{}' has entries that are not finite, expected an attention map.",
                file.string(), name));
        table.matrix(std::move(map));
    }
}

/// The page of a run, a training, an experiment, or logs.
std::vector<std::string> write_page(const RunResult& result, const fs::path& from,
                                    const fs::path& directory) {
    if (result.run.contains("logs")) return write_log_report(result.table, result.run, directory);
    if (result.run.contains("train"))
        return write_plain_page(training_page(recorded_training(from, result.run)), directory);
    if (!result.run.contains("experiment"))
        return write_report(result.table, result.run, directory);
    const ExperimentEntry& entry = experiment(result.run["experiment"].string());
    const Study page = study(entry, result, recorded_options(result.run));
    return write_study(page, result.table, result.run, directory);
}

}  // namespace

int run_command(const ReportCommand& command) {
    const fs::path from = command.directory;
    const Json run = Json::parse(read_text(from / "run.json"), (from / "run.json").string());
    const fs::path metrics = from / "metrics.csv", curves = from / "curves.csv";
    const std::vector<MetricRow> rows = read_metrics_csv(read_text(metrics), metrics.string());
    Table table(rows.empty() ? "" : rows.front().model);
    table.append(rows, read_curves_csv(read_text(curves), curves.string()));
    read_maps(from / "maps.npz", table);
    OutputDirectory directory(from, {"report.html", "figures"}, "run.json", true);
    for (const std::string& line : write_page({std::move(table), run}, from, directory.temporary()))
        say("tsdiag: " + printable(line));
    directory.commit();
    print(fmt::format("{}\n", printable((from / "report.html").string())));
    return 0;
}

}  // namespace tsdiag::cli
