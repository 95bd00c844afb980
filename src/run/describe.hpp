#pragma once
#include "inputs.hpp"
#include "measurement.hpp"
#include "trace/replay.hpp"
#include "tsdiag/run.hpp"

/// The content of run.json (docs/run-json.md).
namespace tsdiag {

RunRecord::Model describe_model(const Subject& subject, const Totals& totals);
RunRecord::Model describe_trace_model(const Subject& subject, const TraceOptions& options,
                                      const std::vector<std::vector<bool>>& masks,
                                      const Totals& totals);
/// The definition of each metric.
Json describe_metrics(const std::vector<std::string>& names);
Json describe_solver(const Totals& totals);

}  // namespace tsdiag
