#pragma once
#include <span>
#include <string>
#include <vector>

#include "tsdiag/assertion.hpp"

/// Alarms over the checkpoints of a training, as they appear.
namespace tsdiag {

struct WatchOptions {
    std::vector<NumberName> numbers;  ///< tested for changes; empty: `default_numbers`
    double rate = 0.01;               ///< expected false alarms a checkpoint, all numbers together
    std::vector<Assertion> assertions;  ///< of one result
};

using Alarm = RunRecord::Alarm;

/// The numbers that are tested where none are named, of those that `result` has: token similarity
/// and effective rank behind the last layer, the means over all heads of the second eigenvalue and
/// of the spectral gap.
std::vector<NumberName> default_numbers(const MeasuredResult& result);

/// The alarms of a training, in the order of its steps: a function of `results` (ascending `step`,
/// one each) and options alone, so that it may be called again whenever a checkpoint has appeared.
///
///  - change: `ChangeTest` of a number, with its share of `rate`.  A checkpoint at which the number
///    is undefined is passed over.  Expected false alarms up to the t-th checkpoint: at most rate
///    t.
///  - assertion: where it begins to be false.
///
/// `unit`: "step", "epoch", ..., for the sentences.
std::vector<Alarm> alarms(std::span<const MeasuredResult> results, const WatchOptions& options,
                          const std::string& unit = "step");

}  // namespace tsdiag
