#include "score.hpp"

namespace tsdiag::variants {

extern const AttentionEntry softmax;
const AttentionEntry softmax = {
    "softmax", "P = exp(S) / row sums, S = scale q k^T", [](AttentionInput input) {
        return score_attention(std::move(input), {.fill =
                                                      [](Tensor s, RowBlock& block) {
                                                          block.p = softmax_rows(std::move(s),
                                                                                 block.visible);
                                                          block.slope = block.p;  // a' = a = exp
                                                          block.divided = true;
                                                      },
                                                  .row_stochastic = true});
    }};

}  // namespace tsdiag::variants
