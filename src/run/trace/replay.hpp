#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/events.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

/// How a trace is replayed.
struct ReplaySettings {
    TraceOptions trace;
    Type type = Type::f32;
    Index samples = 1;                     ///< the first so many
    std::vector<std::vector<bool>> masks;  ///< one a sample, or none at all
    std::string mask_source;
    Index memory = 0;  ///< bytes for row blocks; 0: no limit
    Index first_layer = 0, last_layer = -1;
    bool allow_nonfinite = false;
};

/// Emits the events of a saved trace as a model would: `hidden_states.L` is `in` of layer L and
/// `hidden_states.L+1` its `out`; P is `attentions.L`, or formed from `queries.L` and `keys.L`.
/// Layer by layer, inside a layer sample by sample; arrays are read when their layer comes.
///
/// Rows of a P in half precision that sum to 1 within what that format rounds are divided by their
/// sums (docs/metrics.md).  Returns what is to be said of that.
std::vector<std::string> replay(const Checkpoint& file, const Backend& backend, Observer& observer,
                                const ReplaySettings& settings);

/// Lines for run.json and the terminal: which arrays were used, left alone, or assumed.
struct TraceNotes {
    std::vector<std::string> recognised, ignored, defaults;
};
TraceNotes describe_trace(const Checkpoint& file, const TraceOptions& options);

}  // namespace tsdiag
