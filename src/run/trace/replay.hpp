#pragma once
#include <string>
#include <vector>

#include "tsdiag/events.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

/// Settings of a replay.
struct ReplaySettings {
    TraceOptions trace;
    Type type = Type::f32;
    Index samples = 1;                     ///< the first so many of the file
    std::vector<std::vector<bool>> masks;  ///< one per sample, or none at all
    std::string mask_source;
    Index memory = 0;  ///< bytes for row blocks; 0: no limit
    Index first_layer = 0, last_layer = -1;
    bool allow_nonfinite = false;
};

/// What a replay found out about the arrays.
struct Replayed {
    std::vector<std::string> notes;
    /// The sentence that says why given matrices P are no attention; empty where they are.
    std::string no_attention;
};

/// Emits the events of a saved trace as a model would: `hidden_states.L` is `in` of layer L and
/// `hidden_states.L+1` its `out`; `STAGE.L` is a stage inside it, in the order of
/// `TraceOptions::placement`; P is `attentions.L`, or computed from `queries.L` and `keys.L`.
/// Layer by layer, within a layer sample by sample; the arrays of a layer are read when needed.
///
/// The placement is that of one sample; throws `UsageError` where it does not hold in another one
/// that is replayed (`require_placement`).
///
/// Rows of a P that was computed in a coarser format than it is measured in, and whose sums are 1
/// up to the rounding of that format, are divided by their sums (docs/metrics.md).  A P that is no
/// attention matrix (rows that do not sum to 1 within that rounding, at least 1e-4, negative
/// entries, weight on hidden tokens) is measured without its activation.
Replayed replay(const Checkpoint& file, const Backend& backend, Observer& observer,
                const ReplaySettings& settings);

/// Of the first `samples`, which tokens `attention_mask` keeps; empty where it hides none.
std::vector<std::vector<bool>> saved_masks(const Checkpoint& file, Index samples);

/// Lines for run.json and the terminal: which arrays were used, ignored, assumed, or are missing.
struct TraceNotes {
    std::vector<std::string> recognised, ignored, defaults, warnings;
    NormPlacement placement = NormPlacement::post;
};
/// Throws `UsageError` where the trace holds stages inside layers of an unknown layout.
TraceNotes describe_trace(const Checkpoint& file, const TraceOptions& options,
                          const std::vector<std::vector<bool>>& masks = {});

}  // namespace tsdiag
