#pragma once
#include "tsdiag/backend.hpp"
#include "tsdiag/spec.hpp"

/// What a run will take, before it begins.
namespace tsdiag {

/// Bytes that a run holds whatever the row blocks are: the largest layer's weights, the states of
/// all samples, the buffers of one step.
Index resident_bytes(const ModelSpec& spec, Index tokens, Index samples, Type type);

/// Seconds, roughly: the products at this machine's measured rate, a pass over P, and the spectra
/// where they are wanted.  `runs`: samples times trials.  Cost: some milliseconds.
double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, bool rows, bool spectra);

}  // namespace tsdiag
