#pragma once
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "trace.hpp"

namespace tsdiag {

/// A sample of a trace, and those of its tokens that a mask keeps.
struct SampleTokens {
    Index number = 0;
    std::vector<Index> tokens = {};
    double rounding = 0;  ///< relative, of the coarsest of the states
    /// Those of a layer that has `rows` tokens.
    std::span<const Index> of(Index rows) const;
};
/// The samples that have one of `masks`, with the tokens that it keeps; without masks all, with
/// those that the mask of the trace keeps, or else all.
std::vector<SampleTokens> kept_tokens(const SavedTrace& trace,
                                      std::vector<std::vector<bool>> masks);
/// The first of those with most tokens.
SampleTokens sample_of(const SavedTrace& trace, const std::vector<std::vector<bool>>& masks);

/// A sample of one of several batches.
struct BatchSample {
    const SavedTrace* batch = nullptr;
    SampleTokens sample;
    Index number = 0;  ///< counted over the batches
};
/// The samples of which a token is kept; `masks` are those of all batches.
std::vector<BatchSample> measured_samples(std::span<const SavedTrace> batches,
                                          const std::vector<std::vector<bool>>& masks);

/// Of the steps that may stand before the feed-forward step or at the end of the layer, those that
/// stand before it: they are not the layer's output, in the first sample and layer that show it.
/// Nothing shows the last layer, whose output may be a norm of it, nor one whose feed-forward step
/// may add nothing: where `ffn` is the output as well, or was not saved.
using StepNames = std::set<std::string_view>;
StepNames steps_before_ffn(std::span<const SavedTrace> batches,
                           const std::vector<std::vector<bool>>& masks = {});

/// The stages that a trace may have inside the layers of this placement, in order.
std::vector<Stage> stages_of(const SavedTrace& trace, NormPlacement placement,
                             const StepNames& before_ffn);

/// Whether attention has a norm before it, so that its input is `norm1` and not `in`.
bool normed_first(NormPlacement placement);

/// The order of the steps in the layers of a trace: `given`, or the one that its arrays have.
/// Looked at is, of each layer, which state is a norm of which (LayerNorm or RMSNorm, each with any
/// weights), which one the sum of which, and which one the layer's output; of the last layer also a
/// norm of it. A trace without stages is post-norm.
///
/// Throws `UsageError`, naming the array, where nothing fits, where what is given does not, and
/// where nothing is given and several orders fit that lead to other numbers.  Cost: some passes
/// over a few rows of one sample, in each layer, of those that `masks` keep, one a sample, or else
/// the mask of the trace.
NormPlacement placement_of(const SavedTrace& trace, std::optional<NormPlacement> given,
                           const std::vector<std::vector<bool>>& masks = {});

/// Throw `UsageError` where a layer of `sample` is not as other samples are.  Named are the array,
/// the sample as `number`, counted over batches, the layer, and what nine of ten elements of a sum
/// or of a state are at most off, or the columns of a norm, relative, beside what is allowed.
/// Cost: some passes over a few rows of the states.
///
/// The layer is in the order of no placement that leads to the numbers of `placement`.
void require_placement(const SavedTrace& trace, NormPlacement placement, Index layer,
                       const SampleTokens& sample, Index number);
/// A step stands before the feed-forward step that is not in `before_ffn`, or the other way round.
void require_steps(const SavedTrace& trace, const StepNames& before_ffn, Index layer,
                   const SampleTokens& sample, Index number);
/// `out.L` or `merge.L` is not the state behind it; the last state may be a norm of it.  Or
/// `final_norm.L` is a norm of no state that the last layer leaves.
void require_same_states(const SavedTrace& trace, Index layer, const SampleTokens& sample,
                         Index number);

}  // namespace tsdiag
