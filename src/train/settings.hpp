#pragma once
#include "tsdiag/run_record.hpp"
#include "tsdiag/train.hpp"

/// Checks of the training settings, before anything is drawn or written.
namespace tsdiag::training {

/// Throws `UsageError` for an invalid number.
void require_sane(const TrainOptions& options);

/// The batch size of a forward and backward pass: on a CPU by the sizes alone, so that the sums do
/// not depend on the machine; on a device as many samples as fit into its memory.
Index samples_together(const ModelSpec& spec, Index tokens, Index batch, const Backend& backend);

/// Throws `UsageError` where parameters, moments, gradients and the activations of `samples`
/// samples exceed the memory of the machine or device.
void require_memory(const ModelSpec& spec, Index tokens, Index samples, const Backend& backend);

/// The settings that must be equal for a run to be resumed.  `contents`: a digest of the data.
RunRecord::Training identity_of(const TrainOptions& options, const ModelSpec& spec,
                                const std::string& loss, const std::string& contents, Index tokens);

}  // namespace tsdiag::training
