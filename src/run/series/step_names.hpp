#pragma once
#include <optional>
#include <string_view>

#include "tsdiag/tensor.hpp"

namespace tsdiag {

/// A number in a name that counts the progress of a training.
struct NamedStep {
    Index step = 0;
    std::string_view unit = "step";  ///< "step", "iteration" or "epoch"
};

/// The step in the name of a checkpoint, without its suffix and in small letters: the number behind
/// "step", "iter", "epoch" and the like, also as "1.5k" or "1e4"; else the number at its end.  None
/// where that counts or measures something else: a date, a decimal number, the digits of a hash,
/// the number of a seed, a layer or a version.
std::optional<NamedStep> step_in_name(std::string_view name);

}  // namespace tsdiag
