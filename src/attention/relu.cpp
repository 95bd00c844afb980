#include <array>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array relu_options{
    word_option("scale", "1/n", "none 1/n", "c: none is 1, 1/n divides by the number of tokens")};

}  // namespace

extern const AttentionEntry relu = {
    .name = "relu",
    .description = "P = c relu(S), not normalised",
    .source = "[RELU]",
    .options = relu_options,
    .make = [](AttentionInput input) {
        admit(relu, input);
        const Options options(relu, input.options);
        const double c = options.is("scale", "none") ? 1 : 1 / double(input.q.rows());
        ScoreRule rule;
        rule.fill = [c](Logits logits, RowBlock& block) {
            const Tensor positive = map(Unary::relu, std::move(logits).biased());
            block.p = hide(scale(positive, c), block.visible);
            block.slope = hide(scale(map(Unary::step, positive), c), block.visible);
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
