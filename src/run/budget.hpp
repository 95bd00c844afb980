#pragma once
#include <string>
#include <vector>

#include "tsdiag/backend.hpp"
#include "tsdiag/spec.hpp"

/// What a run will take, before it begins.
namespace tsdiag {

/// What is computed beside the forward pass.
struct Extras {
    bool rows = false;       ///< a pass over P with its logarithms
    double an_entry = 0;     ///< seconds of one core for an entry of P, beyond that pass
    bool gradients = false;  ///< a reverse sweep
    double drawn = 0;        ///< random numbers for weights, a trial
};
Extras extras_of(const std::vector<std::string>& wanted, bool rows, Index tokens);

/// Seconds, roughly: the products at this machine's measured rate, the rest at rates of a usual
/// one. `runs`: samples times trials.  Cost: some milliseconds.
double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, const Extras& extras);

}  // namespace tsdiag
