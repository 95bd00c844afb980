#pragma once
#include "tsdiag/train.hpp"

/// What a training is told, looked at before anything is drawn or written.
namespace tsdiag::training {

/// Throws `UsageError` for a number that no training can have.
void require_sane(const TrainOptions& options);

/// Samples of a step that go forward and back as one: on a processor by the sizes alone, so that
/// the sums do not depend on the machine; on a device as many as its memory holds.
Index samples_together(const ModelSpec& spec, Index tokens, Index batch, const Backend& backend);

/// Throws `UsageError` where parameters, moments and gradients, and so many samples with all their
/// layers, are more than the machine or the device has.
void require_memory(const ModelSpec& spec, Index tokens, Index samples, const Backend& backend);

/// What must be the same for a run to be gone on with.  `contents`: a digest of the data.
Json identity_of(const TrainOptions& options, const ModelSpec& spec, const std::string& loss,
                 const std::string& contents, Index tokens);

}  // namespace tsdiag::training
