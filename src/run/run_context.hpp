#pragma once
#include <string>
#include <vector>

#include "measurement.hpp"
#include "needs.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

/// Inputs of one run apart from the subject, and its results.
struct RunContext {
    const RunOptions& options;
    const Backend& backend;
    std::vector<std::string> metrics;
    RunResult result;
    RunRecord run = {};  ///< the description of `result`, as far as it is known
    Phases phases = {};
    Index memory = 0;  ///< of the whole run
};
RunContext begin(const RunOptions& options);
RunContext begin(const RunOptions& options, const Backend& backend);

/// Throws `UsageError` for layers, heads or maps that the model does not have.
void check_selection(const RunOptions& options, Index layers, Index heads);
/// How many attention maps are kept, at most.
Index kept_maps(const RunOptions& options, Index layers, Index heads);
/// `layers`: of the model; layers after the last measured one are not run.
MeasurementSettings measurement_settings(const RunContext& context, Index layers, Index samples);
/// Bytes for row blocks and P of each of so many concurrent trials.  Throws
/// `UsageError` with the least sufficient size where it exceeds --memory or the memory of the
/// machine.
Index row_budget(const RunContext& context, const RunSizes& sizes, Index concurrent_trials);
/// Settings of a pass through the layers: the row budget and the batch size.  Concurrent trials
/// use batches of one sample.
RunSettings run_settings(const RunContext& context, const RunSizes& sizes, Index concurrent_trials);

inline void say(const RunOptions& options, const Progress& progress) {
    if (options.progress) options.progress(progress);
}

}  // namespace tsdiag
