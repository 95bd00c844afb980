#pragma once
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/spec.hpp"

/// The numbers that attentions learn (`AttentionEntry::learned`) as parameters of a model.
namespace tsdiag::families {

/// Those whose parameters are layer `layer`'s: of its own attention, and of the layers that share
/// its parameters.  `tokens`: as of `AttentionEntry::learned`.
std::vector<LearnedNumber> learned_by(const ModelSpec& spec, Index layer, Index tokens = 1);

}  // namespace tsdiag::families
