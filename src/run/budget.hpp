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
    bool spectra = false;    ///< lambda_2, delta, delta_pi and what is made of them
    bool dobrushin = false;  ///< n^3/2 a head
    bool jacobians = false;  ///< dP/dW_Q, dP/dW_K
    bool gradients = false;  ///< a reverse sweep
    double drawn = 0;        ///< random numbers for weights, a trial
};
Extras extras_of(const std::vector<std::string>& metrics, bool rows, Index tokens);

/// Seconds, roughly: the products at this machine's measured rate, the rest at rates of a usual
/// one. `runs`: samples times trials.  Cost: some milliseconds.
double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, const Extras& extras);

}  // namespace tsdiag
