#pragma once
#include <vector>

#include "tsdiag/model.hpp"

namespace tsdiag::model {

/// A sample on its way through the layers.
struct Sample {
    Tensor x;                      ///< (1, n, d), hidden tokens left out
    std::vector<double> position;  ///< of each token in the whole sequence
    Index length = 0;              ///< tokens of the whole sequence
    bool embedded = false;         ///< x came out of the embedding, not from the caller
};

/// Layer 0's `in` for `input`.  Throws `UsageError` for an input that does not fit the model.
Sample embed(const ModelSpec& spec, const Weights& weights, const Input& input,
             const Backend& backend, Type type, bool allow_nonfinite);

}  // namespace tsdiag::model
