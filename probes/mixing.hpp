#pragma once
#include <vector>

#include "support.hpp"

/// The action of P on the mean of the tokens.
namespace tsdiag::probe {

/// Why metrics of X or R are undefined for a trace that holds attention alone.
inline constexpr const char* no_input =
    "the trace has no hidden_states or attention_inputs for this layer";
inline constexpr const char* no_residual = "the trace has no hidden_states for this layer";

/// Of one head: |e^T P X|^2 = |Pi1 P X|_F^2, and |e^T P Pi2 X|^2, its part from outside the mean.
struct MeanRow {
    Wide whole = 0, across = 0;
};

/// 1^T P of each head, (1, h, n) in float64; derived once.  Cost: one pass over P.
const Tensor& column_sums(const Attention& e);

/// From e^T P = (P^T e)^T, in float64.  Where the rows of a head sum to 1, e^T P Pi1 X = e^T X
/// exactly. Cost: one pass over P and O(h n d).
std::vector<MeanRow> mean_rows(const Attention& e, const RowSums& sums);

/// Asks a device for what `mean_rows` reads, of all samples at once, and does not wait.
void ask_mean_rows(const Attention& e);

/// omega = |e^T P Pi2 X| / |e^T X| of each head.  [TSE] (12)
/// Undefined when e^T X = 0 or the rows do not sum to 1.
std::vector<Value> omegas(const std::vector<MeanRow>& rows, const StateMoments& x,
                          const RowSums& sums);

/// Of X in float64 four times, and of P X of all heads in blocks of columns.
MetricBytes mixing_bytes(const MetricSizes& sizes);

}  // namespace tsdiag::probe
