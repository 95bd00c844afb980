#include "gaussian.hpp"
#include "score.hpp"

namespace tsdiag::variants {
namespace {

AttentionCost cost_of_squares(const AttentionOptions&, const AttentionSizes& s) {
    return {.flops = s.pairs(columns_of_gaussian(s.head_dim))};
}

}  // namespace

extern const AttentionEntry kernelized = {
    .name = "kernelized",
    .description = "P = exp(-scale |q - k|^2 / 2 + bias), a Gaussian kernel, not normalised",
    .source = "[SKYFORMER] (3)",
    .facts = {.slope = Holds::never},
    .cost = cost_of_squares,
    .make = [](AttentionInput in) {
        check_options(kernelized, in.options);
        admit(kernelized, in);
        move_to_first_key(kernelized, in);
        in.q = as_queries(in.q);
        in.k = as_keys(in.k);
        ScoreRule rule;
        rule.fill = [](Logits logits, RowBlock& block) {
            logits.s = exponent(logits.s);
            block.p = hide(map(Unary::exp, std::move(logits).biased()), block.visible);
            block.why_no_slope = "P is a function of |q - k|, not of the logits alone";
        };
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
