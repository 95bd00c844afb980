#pragma once
#include "options.hpp"

/// One function per command; returns the exit code.  Errors are thrown.
namespace tsdiag::cli {

int run_command(const ProbeCommand& command);
/// `probe` of checkpoints of one training, into `out`.
int run_series(const ProbeCommand& command, const std::string& out);
/// Checkpoints of a training are measured on its held-out samples unless an input is given.
ProbeCommand with_held_out(ProbeCommand command);
/// NAME.tsdiag in the working directory, NAME that of the file, directory or random model.
std::string default_directory(const std::string& model);
int run_command(const WatchCommand& command);
int run_command(const InspectCommand& command);
int run_command(const InitCommand& command);
int run_command(const ListCommand& command);
int run_command(const InfoCommand& command);
int run_command(const ReportCommand& command);
int run_command(const ExportCommand& command);
int run_command(const CompareCommand& command);
int run_command(const FigureCommand& command);
int run_command(const GradientsCommand& command);
int run_command(const CheckCommand& command);
int run_command(const TrainCommand& command);
int run_command(const MergeCommand& command);
int run_command(const StatusCommand& command);
int run_command(const SubmitCommand& command);
int run_command(const TraceHookCommand& command);
int run_command(const PrintCommand& command);

/// argv, for run.json; set by main.
std::vector<std::string>& command_line();

/// The summary that `probe` prints: what was run, a row per layer, the verdict.
std::string summary(const RunResult& result, bool verbose);
/// The costs of a run, in processor seconds and in forward passes.
std::string costs(const Profile& profile);
/// Headlines, then at most five other findings, or all of them.
std::string findings_text(const std::vector<Finding>& findings, bool verbose);
/// All findings, as `findings` of --json: a list of objects.
Json findings_json(const std::vector<Finding>& findings);

}  // namespace tsdiag::cli
