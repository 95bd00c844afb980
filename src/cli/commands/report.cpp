#include "tsdiag/report.hpp"

#include <fmt/format.h>

#include "command.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct ReportCommand final : Command {
    explicit ReportCommand(CLI::App& app);
    int run() const override;

    std::string directory;
    FigureStyle look;
};

/// The page of a run, a training, an experiment, or logs.
std::vector<std::string> write_page(const RunResult& result, const fs::path& from,
                                    const fs::path& directory, const FigureStyle& look) {
    const RunRecord run = result.run;
    if (run.kind == RunRecord::Kind::gradients)
        return write_log_report(result.table, run, directory, look);
    if (run.kind == RunRecord::Kind::train)
        return write_plain_page(training_page(recorded_training(from, result.run)), directory,
                                look);
    if (run.kind != RunRecord::Kind::figure)
        return write_report(result.table, run, directory, look);
    const ExperimentEntry& entry = experiment(run.experiment);
    const Study page = study(entry, result, recorded_options(run));
    return write_study(page, result.table, run, directory, look);
}

}  // namespace

ReportCommand::ReportCommand(CLI::App& app) {
    app.add_option("DIR", directory,
                   "directory written by tsdiag probe, train, figure or gradients")
        ->required()
        ->type_name("");
    add_paper(app, look);
}

int ReportCommand::run() const {
    const fs::path from = directory;
    std::error_code failed;
    if (!fs::is_directory(from, failed))
        throw FormatError(
            fmt::format("{}: is not a directory, expected one written by tsdiag.", from.string()));
    // Before anything is read: it completes the commit of a killed process.
    OutputFolder folder(from, {.writes = {"report.html", "figures/*"},
                               .force = true,
                               .in_place = fs::is_directory(from / "checkpoints", failed)});
    if (RunRecord(read_description(from)).kind == RunRecord::Kind::compare)
        throw FormatError(
            fmt::format("{}: is a comparison, whose page needs the results that were compared; run "
                        "tsdiag compare again.",
                        from.string()));
    const RunResult result = read_result(from);
    Json::Array undrawn;
    for (const std::string& line : write_page(result, from, folder.temporary(), look)) {
        say("tsdiag: " + printable(line));
        undrawn.emplace_back(line);
    }
    folder.commit();
    print_json("report", Json()
                             .set("out", from.string())
                             .set("warnings", std::move(undrawn))
                             .set("files", files_json(from)));
    print(fmt::format("{}\n", printable((from / "report.html").string())));
    return 0;
}

extern const CommandEntry report_command = {
    .name = "report",
    .about = "rebuild report.html and figures/ from the tables",
    .examples = R"(Example:
  tsdiag report char-gpt.tsdiag)",
    .make = made<ReportCommand>,
    .rewrites_folder = true};

}  // namespace tsdiag::cli
