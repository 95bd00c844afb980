#pragma once
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/spec.hpp"

/// What attentions learn (`AttentionEntry::learned`) as parameters of a model.
namespace tsdiag::families {

/// Those whose parameters are layer `layer`'s: of its own attention, and of the layers that share
/// its parameters.  `drawn`: as of `LearnedFor`.
std::vector<LearnedParameter> learned_by(const ModelSpec& spec, Index layer, bool drawn);

}  // namespace tsdiag::families
