#pragma once
#include <vector>

#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// A summary of the whole run: whether the loss decreased and stayed low, in training and held out;
/// whether tokens became alike at a probed step; whether gradients jumped or vanished.  `result`
/// has at least one step.
std::vector<Finding> findings(const TrainResult& result);

}  // namespace tsdiag::training
