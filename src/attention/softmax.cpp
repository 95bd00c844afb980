#include <array>
#include <cmath>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array softmax_options{AttentionOption{
    .name = "alibi",
    .fallback = "0",
    .words = "0 1",
    .description = "1: logits S_ij - m_h |i - j| with the slopes m_h = 2^(-8h/H) of [ALIBI]"}};

/// 2^(-8/H), 2^(-16/H), ...; where H is no power of two, the slopes of the power below and every
/// other one of the power above.
std::vector<double> slopes(Index heads) {
    Index below = 1;
    while (2 * below <= heads) below *= 2;
    std::vector<double> out;
    for (Index k = 1; k <= below; ++k) out.push_back(std::exp2(-8 * double(k) / double(below)));
    for (Index k = 1; std::ssize(out) < heads; k += 2)
        out.push_back(std::exp2(-4 * double(k) / double(below)));
    return out;
}

}  // namespace

extern const AttentionEntry softmax;
const AttentionEntry softmax = {
    .name = "softmax",
    .description = "P = exp(S) / row sums, S = scale q k^T + bias",
    .source = "[Attention]; bias [ALIBI]",
    .options = softmax_options,
    .facts = {.row_stochastic = Holds::always, .channels = true, .windows = true},
    .make = [](AttentionInput input) {
        const Options options(softmax, input.options);
        ScoreRule rule;
        if (options.is("alibi", "1")) rule.alibi = slopes(input.heads_of_a_sample());
        rule.row_stochastic = true;
        rule.fill = [](Logits logits, RowBlock& block) {
            block.p = softmax_rows(std::move(logits).biased(), block.visible);
            block.slope = block.p;  // a' = a = exp
            block.divided = true;
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
