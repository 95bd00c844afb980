#pragma once
#include <string>
#include <vector>

#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"

/// Results in words, for the terminal.
namespace tsdiag::cli {

/// The summary that `probe` prints: what was run, a row per layer, the verdict.
std::string summary(const RunResult& result, bool verbose);
/// The costs of a run, in processor seconds and in forward passes.
std::string costs(const Profile& profile);
/// Headlines, then at most five other findings, or all of them.
std::string findings_text(const std::vector<Finding>& findings, bool verbose);
/// The description of a run with its verdict, as `findings` of run.json.
Json with_findings(RunRecord run, const std::vector<Finding>& findings);
/// The numbers of each layer that `summary` prints, as `layers` of --json.
Json layers_json(const RunResult& result);
/// All findings, as `findings` of --json: a list of objects.
Json findings_json(const std::vector<Finding>& findings);

}  // namespace tsdiag::cli
