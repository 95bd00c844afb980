#pragma once
#include <string>

#include "options.hpp"

/// What `probe`, its series, `watch` and `compare` share.
namespace tsdiag::cli {

/// `probe` of checkpoints of one training, into `out`; returns the exit code.
int run_series(const ProbeOptions& probe, const std::string& out);
/// Checkpoints of a training are measured on its held-out samples unless an input is given.
ProbeOptions with_held_out(ProbeOptions probe);
/// `compare` of folders, into `out` (empty: printed only); returns the exit code.
int compare_results(const std::vector<std::string>& results, const std::string& out,
                    const FigureStyle& look, bool force, bool quiet);
/// NAME.tsdiag in the working directory, NAME that of the file, directory or random model.
std::string default_directory(const std::string& model);

}  // namespace tsdiag::cli
