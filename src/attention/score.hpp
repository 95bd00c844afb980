#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "options.hpp"

/// Base of every attention whose rows are an activation of logits S = scale q k^T.
namespace tsdiag::variants {

/// Logits of some rows, owned exclusively: their memory may be reused.
struct Logits {
    Tensor s;     ///< scale q k^T, (h, b, n)
    Tensor bias;  ///< added to them, (1 or h, b, n); may be empty
    Tensor biased() && { return bias.defined() ? add(s, bias) : std::move(s); }
};

/// Maps logits to rows of P.
struct ScoreRule {
    /// From logits: p, slope = a'(S)/z and divided of a block whose `first` and `visible` are set.
    /// Entries that are not visible become 0.  A chunk processed alone has only its own columns,
    /// and `visible` counts from the first of them.
    std::function<void(Logits logits, RowBlock& block)> fill;
    /// P v without rows of P; empty, or an empty tensor: rows are needed.
    std::function<Tensor(const Tensor& v)> product = {};
    /// Further terms of the logits of these rows, (h, count, m + n); may be empty.
    std::function<Tensor(Index first, Index count)> terms = {};
    bool constant_terms = false;  ///< `terms` depends on neither q nor k
    Memory memory = Memory::refused;
    bool row_stochastic = false;
    bool heads_alike = true;  ///< `fill` does the same to every head
    bool fill_alone = false;  ///< `fill` reads only its arguments, from any thread, and not `first`
    bool plain_logits = true;  ///< `k` is the input's own, and `fill` adds nothing to the logits
    Index block = 0;           ///< > 0: a token sees only the `block` positions of its own chunk
    std::vector<double>
        alibi;  ///< slopes m_h of a bias -m_h |i - j|, of the heads of a sample; empty: none
};

/// A `fill`: P = exp(S) / row sums of the biased logits.
void softmax_of_biased(Logits logits, RowBlock& block);

/// Throws `ShapeError` where q, k and the positions do not fit together.
std::unique_ptr<AttentionOperator> score_attention(AttentionInput input, ScoreRule rule);

/// Of key i.
double position(const AttentionInput& input, Index i);

/// Columns visible to rows [first, first + count).  `block`: as in ScoreRule.
Visible seen(const AttentionInput& input, Index block, Index first, Index count);

}  // namespace tsdiag::variants
