#include <array>
#include <cmath>

#include "bucket_bias.hpp"
#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array flash_quad_options{
    or_word("d", whole_option("width", "d",
                              "D, the width of the model in the factor of the bias; d: that of "
                              "a head",
                              1))};

AttentionCost cost_of_one_part(const AttentionOptions&, const AttentionSizes& s) {
    return {.flops = s.pairs(s.head_dim), .bytes_of_entry = bytes_of_bucket_bias(s)};
}

}  // namespace

extern const AttentionEntry flash_quad = {
    .name = "flash_quad",
    .description =
        "P = relu(S/n + bias)^2, S = q k^T; the gate is outside P; bias sqrt(D)/n times the "
        "parameter `rel_pos_bias` at the bucket of j - i [T5]",
    .source = "[FLASH]",
    .options = flash_quad_options,
    .learned = learned_bucket_bias,
    .unscaled = true,
    .cost = cost_of_one_part,
    .make = [](AttentionInput input) {
        admit(flash_quad, input);
        const Options options(flash_quad, input.options);
        const double share = 1 / double(input.q.rows());
        const double width = options.number("width").value_or(double(input.q.cols()));
        const BucketBias bias(flash_quad, input, share * std::sqrt(width));
        ScoreRule rule;
        rule.fill = [=](Logits logits, RowBlock& block) {
            const Tensor s = scale(logits.s, share);
            if (bias.there()) {
                const Tensor more = bias.rows(block.first, s.rows());
                logits.bias = logits.bias.defined() ? add(more, logits.bias) : more;
            }
            const Tensor r = map(Unary::relu, logits.bias.defined() ? add(s, logits.bias) : s);
            block.p = hide(map(Unary::square, r), block.visible);
            block.slope = hide(scale(r, 2 * share), block.visible);
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
