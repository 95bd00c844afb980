#pragma once
#include "tsdiag/train.hpp"

/// What a training is told, looked at before anything is drawn or written.
namespace tsdiag::training {

/// Throws `UsageError` for a number that no training can have.
void require_sane(const TrainOptions& options);

/// Throws `UsageError` where parameters, moments and gradients, and one sample on each of `threads`
/// with all its layers, are more than the machine has.
void require_memory(const ModelSpec& spec, Index tokens, Index threads);

/// What must be the same for a run to be gone on with.  `contents`: a digest of the data.
Json identity_of(const TrainOptions& options, const ModelSpec& spec, const std::string& loss,
                 const std::string& contents, Index tokens);

}  // namespace tsdiag::training
