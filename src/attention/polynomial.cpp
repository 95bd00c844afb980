#include <array>

#include "power.hpp"
#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array polynomial_options{power_option, scale_option, start_option};

}  // namespace

extern const AttentionEntry polynomial = {
    .name = "polynomial",
    .description = "P = c S^p entry by entry, not normalised",
    .source = "[POLY]",
    .options = polynomial_options,
    .facts = {.negative_entries = Holds::sometimes, .channels = true, .windows = true},
    .learned = [](const AttentionOptions& given,
                  const LearnedFor& model) { return learned_scale(polynomial, given, model); },
    .make =
        [](AttentionInput input) {
            admit(polynomial, input);
            const Options options(polynomial, input.options);
            const Tensor c = power_scale(polynomial, options, input);
            ScoreRule rule;
            rule.heads_alike = c.batch() == 1;
            rule.fill = [p = options.count("p"), c](Logits logits, RowBlock& block) {
                const Tensor s = std::move(logits).biased();
                const Tensor below = p > 1 ? power(s, p - 1) : affine(s, 0, 1);  // S^(p-1)
                block.p = hide(multiply(multiply(below, s), c), block.visible);
                block.slope = hide(multiply(scale(below, double(p)), c), block.visible);
            };
            return score_attention(std::move(input), std::move(rule));
        }};

}  // namespace tsdiag::variants
