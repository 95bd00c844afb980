#pragma once
#include <vector>

#include "tsdiag/model.hpp"

namespace tsdiag::model {

/// Samples on their way through the layers, all of one length and under one mask.
struct Batch {
    Tensor x;                      ///< (s, n, d), hidden tokens left out
    std::vector<double> position;  ///< of each token in the whole sequence
    Index length = 0;              ///< tokens of the whole sequence
    bool embedded = false;         ///< x came out of the embedding, not from the caller
};

/// How many of the first of `inputs`, at most `most`, can go together.
Index alike(std::span<const Input> inputs, Index most);
/// Layer 0's `in` for `inputs`, which are alike.  Throws `UsageError` for an input that does not
/// fit the model.
Batch embed(const ModelSpec& spec, const Weights& weights, std::span<const Input> inputs,
            const Backend& backend, Type type, bool allow_nonfinite);

}  // namespace tsdiag::model
