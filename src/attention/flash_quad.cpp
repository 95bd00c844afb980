#include "score.hpp"

namespace tsdiag::variants {

extern const AttentionEntry flash_quad;
const AttentionEntry flash_quad = {
    .name = "flash_quad",
    .description = "P = relu(S/n + bias)^2; the gate is outside P",
    .source = "[FLASH]",
    .make = [](AttentionInput input) {
        require_fit(input);
        const Options options(flash_quad, input.options);
        ScoreRule rule;
        rule.fill = [share = 1 / double(input.q.rows())](Logits logits, RowBlock& block) {
            const Tensor s = scale(logits.s, share);
            const Tensor r = map(Unary::relu, logits.bias.defined() ? add(s, logits.bias) : s);
            block.p = hide(map(Unary::square, r), block.visible);
            block.slope = hide(scale(r, 2 * share), block.visible);
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
