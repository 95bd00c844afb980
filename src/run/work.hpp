#pragma once
#include <string>
#include <vector>

#include "measurement.hpp"
#include "needs.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

/// What one run needs beside the subject, and what it collects.
struct Work {
    const RunOptions& options;
    const Backend& backend;
    std::vector<std::string> metrics;
    RunResult result;
    Phases phases = {};
    std::vector<std::string> warnings = {};
    Index memory = 0;  ///< of the whole run
};
Work begin(const RunOptions& options);
Work begin(const RunOptions& options, const Backend& backend);

/// Throws `UsageError` for layers, heads or maps that the model does not have.
void check_selection(const RunOptions& options, Index layers, Index heads);
/// `layers`: of the model; those behind the last measured one are not run.
MeasurementSettings measurement_settings(const Work& work, Index layers, Index samples);
/// Bytes for row blocks and P of each of `beside` trials at a time.  Throws `UsageError` with the
/// least that suffices where it is more than --memory, or than the machine has.
Index row_budget(const Work& work, const RunSizes& sizes, Index beside);
/// What a run through the layers may take: the same, and samples that go together.  Trials beside
/// each other take theirs one by one.
RunSettings run_settings(const Work& work, const RunSizes& sizes, Index beside);

inline void say(const RunOptions& options, const Progress& progress) {
    if (options.progress) options.progress(progress);
}

}  // namespace tsdiag
