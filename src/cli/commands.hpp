#pragma once
#include "options.hpp"

/// One function per command; returns the exit code.  Errors are thrown.
namespace tsdiag::cli {

int run_command(const ProbeCommand& command);
/// `probe` of checkpoints of one training, into `out`.
int run_series(const ProbeCommand& command, const std::string& out);
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
int run_command(const PrintCommand& command);

/// argv, for run.json; set by main.
std::vector<std::string>& command_line();

/// The summary that `probe` prints: what was run, a row per layer, the verdict.
std::string summary(const RunResult& result, bool verbose);
/// Headlines, then at most five other findings, or all of them.
std::string findings_text(const std::vector<Finding>& findings, bool verbose);

}  // namespace tsdiag::cli
