#pragma once
#include <string>
#include <vector>

#include "tsdiag/backend.hpp"
#include "tsdiag/spec.hpp"

/// Estimates of the time that a run takes.
namespace tsdiag {

/// What a run computes in addition to the forward pass.
struct ExtraCosts {
    bool rows = false;       ///< a pass over P with its logarithms
    double an_entry = 0;     ///< seconds per entry of P on one core, beyond that pass
    bool gradients = false;  ///< a reverse sweep
    double drawn = 0;        ///< random numbers drawn for the weights of a trial
};
ExtraCosts extra_costs(const std::vector<std::string>& wanted, bool rows, Index tokens);

/// Estimated seconds: matrix products at the measured rate of this machine, the rest at typical
/// rates. `runs`: samples times trials.  Cost: some milliseconds.
double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, const ExtraCosts& costs);

}  // namespace tsdiag
