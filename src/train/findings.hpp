#pragma once
#include <vector>

#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// What a run says, of its whole course: whether the loss fell and stayed down, in training and
/// held out; whether tokens became alike at a step that was probed; whether gradients jumped or
/// died.  `result` has a step at least.
std::vector<Finding> findings(const TrainResult& result);

}  // namespace tsdiag::training
