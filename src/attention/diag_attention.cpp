#include <array>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array option_list{
    AttentionOption{.name = "block",
                    .fallback = "64",
                    .words = "",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .description = "positions a chunk; the last one may be shorter"},
    AttentionOption{.name = "activation",
                    .fallback = "softmax",
                    .words = "softmax rela",
                    .description = "rela: relu(S), not normalised; a row of zeros is one"}};

}  // namespace

extern const AttentionEntry diag_attention;
const AttentionEntry diag_attention = {
    .name = "diag_attention",
    .description = "P = softmax(S) or relu(S) inside chunks of neighbouring tokens, 0 between them",
    .source = "[DEVIL] 4.3",
    .options = option_list,
    .facts = {.row_stochastic = Holds::sometimes, .blocks = Holds::always},
    .make = [](AttentionInput input) {
        const Options options(diag_attention, input.options);
        ScoreRule rule;
        rule.block = options.count("block");
        rule.row_stochastic = options.is("activation", "softmax");
        if (rule.row_stochastic)
            rule.fill = [](Logits logits, RowBlock& block) {
                block.p = softmax_rows(std::move(logits).biased(), block.visible);
                block.slope = block.p;
                block.divided = true;
            };
        else
            rule.fill = [](Logits logits, RowBlock& block) {
                block.p = hide(map(Unary::relu, std::move(logits).biased()), block.visible);
                block.slope = step(block.p);
            };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
