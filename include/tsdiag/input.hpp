#pragma once
#include <string>
#include <vector>

#include "tsdiag/spec.hpp"
#include "tsdiag/tensor.hpp"

/// What a model runs on: samples, their lengths, and the losses of their last states.
namespace tsdiag {

/// One sample.  Exactly one of ids, embeddings, hidden, image is given.  Where the model has a
/// memory, its tokens come first (of `hidden`: their states at layer 0).
struct Input {
    std::vector<Index> ids;
    Tensor embeddings;       ///< (1, n, e): where token embeddings would enter
    Tensor hidden;           ///< (1, n, d): layer 0's `in`
    Tensor image;            ///< (channels, height, width)
    std::vector<bool> keep;  ///< the mask, true = keep; empty: all
};

/// Tokens that `input` makes, those of the memory among them, at least 1.
Index tokens_of(const ModelSpec& spec, const Input& input);
/// The largest number of tokens, at most `most`, that the model supports and its attentions accept;
/// `most` or the model's longest where no number fits them.
Index fitting_tokens(const ModelSpec& spec, Index most);
/// What the attentions remark on samples of so many tokens (`AttentionEntry::remark`), each
/// sentence once, with the first layer that it is said of.
std::vector<std::string> remarks_on_attention(const ModelSpec& spec, Index tokens);

/// A loss L of a sample's last state Y (n, d), after the final norm where there is one; behind
/// class attention Y is the class token, (1, d).
struct Loss {
    enum class Kind {
        tokens,   ///< mean over k of the cross-entropy of id targets[k] at row rows[k] of Y
        classes,  ///< cross-entropy of `label`, the logits are classifier times the mean row of Y
        pairs,   ///< the same of two samples in turn, which share a label, with [a, b, a b, a - b],
                 ///< a and b their mean rows, a b by elements; only `Model::step` takes it
        square,  ///< |Y|_F^2 / 2
        product  ///< <cotangent, Y>
    };
    Kind kind = Kind::square;
    /// Rows count all tokens of the sample; those of a memory have no part in the loss.
    std::vector<Index> rows = {}, targets = {};
    Tensor classifier = {};  ///< (1, C, d); pairs: (1, C, 4 d)
    Index label = 0;
    Tensor cotangent = {};  ///< (1, n, d); (1, 1, d) where a class token is what a loss sees
};

}  // namespace tsdiag
