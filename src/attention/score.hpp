#pragma once
#include <memory>

#include "tsdiag/attention.hpp"

/// The base of every attention whose rows are an activation of logits S = scale q k^T.
namespace tsdiag::variants {

/// What turns logits into rows of P.
struct ScoreRule {
    /// From logits (h, b, n): p, slope = a'(S)/z and divided of a block whose `first` and `visible`
    /// are set.  Entries that a row does not see become 0.  `s` is nobody else's: its memory may be
    /// reused.
    void (*fill)(Tensor s, RowBlock& block) = nullptr;
    bool row_stochastic = false;
};

/// Throws `ShapeError` where q, k and the positions do not fit together.
std::unique_ptr<AttentionOperator> score_attention(AttentionInput input, ScoreRule rule);

}  // namespace tsdiag::variants
