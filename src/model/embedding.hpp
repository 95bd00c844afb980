#pragma once
#include <vector>

#include "convolution.hpp"
#include "tsdiag/input.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::model {

/// Samples passing through the layers together, of equal length and mask.
struct Batch {
    Tensor x;       ///< (s, n, d), masked tokens omitted
    Tensor memory;  ///< (s, m, d): the states of the tokens before, without gradient; empty: none
    std::vector<double> position;  ///< of each token of the memory and of x in the whole sequence
    Index length = 0;              ///< tokens of the whole sequence
    Grid grid;                     ///< of the tokens, where a layer needs it
    bool embedded = false;         ///< x is the output of the embedding, not the caller's
};

/// How many of the first of `inputs`, at most `most`, can form a batch.
Index batchable(std::span<const Input> inputs, Index most);
/// Layer 0's `in` for `inputs` of equal length and mask.  Throws `UsageError` for an input that
/// does not fit the model.
Batch embed(const ModelSpec& spec, const Weights& weights, std::span<const Input> inputs,
            const Backend& backend, Type type, bool allow_nonfinite);

}  // namespace tsdiag::model
