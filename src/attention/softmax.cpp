#include <array>
#include <cmath>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array softmax_options{
    switch_option("alibi", "0",
                  "1: logits S_ij - m_h |i - j| with the slopes m_h = 2^(-8h/H) of [ALIBI]"),
    whole_option("chunk", "0",
                 "c > 0: a token sees only the c positions of its own chunk, "
                 "from a multiple of c on [LLAMA4]"),
    real_option("cap", "0", "c > 0: logits c tanh(S_ij / c) [GEMMA2]")};

/// Softmax of the logits c tanh(S / c); its slope is P (1 - tanh^2).
void fill_capped(Tensor s, double cap, RowBlock& block) {
    const Tensor t = map(Unary::tanh, scale(s, 1 / cap));
    block.p = softmax_rows(scale(t, cap), block.visible);
    block.slope = multiply(block.p, affine(multiply(t, t), -1, 1));
}

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

/// 0 where all tokens are in one chunk.
Index chunk_of(const AttentionInput& input, Index chunk) {
    if (chunk == 0 || input.k.rows() == 0) return 0;
    const auto part = [&](Index i) { return std::floor(position(input, i) / double(chunk)); };
    return part(0) == part(input.k.rows() - 1) ? 0 : chunk;
}

}  // namespace

extern const AttentionEntry softmax = {
    .name = "softmax",
    .description = "P = exp(S) / row sums, S = scale q k^T + bias",
    .source = "[Attention]; bias [ALIBI]",
    .options = softmax_options,
    .facts = {.row_stochastic = Holds::always,
              .blocks = Holds::sometimes,
              .channels = true,
              .windows = true},
    .make = [](AttentionInput input) {
        const Options options(softmax, input.options);
        ScoreRule rule;
        if (options.is("alibi", "1")) rule.alibi = slopes(input.heads_of_a_sample());
        const double cap = options.number("cap").value();
        rule.block = chunk_of(input, options.count("chunk"));
        rule.row_stochastic = true;
        rule.plain_logits = cap == 0;
        rule.fill_alone = true;
        rule.fill = [cap](Logits logits, RowBlock& block) {
            Tensor s = std::move(logits).biased();
            block.divided = true;
            if (cap > 0) return fill_capped(std::move(s), cap, block);
            block.p = softmax_rows(std::move(s), block.visible);
            block.slope = block.p;  // a' = a = exp
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
