#include <algorithm>
#include <array>
#include <cmath>

#include "score.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/gradient.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array diag_attention_options{
    whole_option("block", "64", "positions per chunk; the last chunk may be shorter", 1),
    word_option("activation", "softmax", "softmax rela",
                "rela: relu(S), not normalised; a row of zeros stays 0"),
    switch_option("padded", "0",
                  "1: zero keys and values fill the last chunk, as in the code of [DEVIL]; "
                  "its softmax rows sum to less than 1 if they attend to them (not causal)")};

/// Number of positions missing from the last chunk.
Index missing(const AttentionInput& in, Index block) {
    const double last = in.position.empty() ? double(in.q.rows() - 1) : in.position.back();
    return block - 1 - Index(last - double(block) * std::floor(last / double(block)));
}

/// Z / (Z + zeros) of each row i from `first_row` on, Z the sum of exp of its logits; else 1.
///
/// Z = exp(s_ij) / p_ij for any j that row i sees; the largest p_ij is accurate.
Tensor share_of_tokens(const Tensor& s, const Tensor& p, const Visible& visible, Index first,
                       Index first_row, Index zeros) {
    const Index h = p.batch(), count = p.rows(), n = p.cols();
    std::vector<double> share(std::size_t(h * count), 1.0);
    const Index skipped = std::max<Index>(0, first_row - first);
    for (Index k = 0; k < h && skipped < count; ++k) {
        const auto part = [&](const Tensor& x) {
            return x.batch_range(k, 1).row_range(skipped, count - skipped).to_host<double>();
        };
        const std::vector<double> rows = part(p), logits = part(s);
        for (Index i = skipped; i < count; ++i) {
            const auto row = rows.begin() + (i - skipped) * n;
            const auto top = std::max_element(row, row + n);
            const double z = std::exp(logits[std::size_t(top - rows.begin())]) / *top;
            share[std::size_t(k * count + i)] = z / (z + double(zeros));
        }
    }
    Tensor out =
        Tensor::from_host(p.backend(), {h, count, 1}, std::span<const double>(share), p.type());
    if (!s.tracked()) return out;
    std::vector<double> padded(std::size_t(count), 0.0);
    for (Index i = skipped; i < count; ++i) padded[std::size_t(i)] = double(zeros);
    const Tensor top = row_max(s.detached());
    const Tensor sum = row_sum(hide(map(Unary::exp, subtract(s, top)), visible));
    const Tensor added = multiply(
        map(Unary::exp, scale(top, -1)),
        Tensor::from_host(p.backend(), {1, count, 1}, std::span<const double>(padded), p.type()));
    return with_derivative(out, divide(sum, add(sum, added)));
}

/// Row of the first token in the last chunk.
Index last_chunk(const AttentionInput& in, Index block) {
    return seen(in, block, in.q.rows() - 1, 1).first.front();
}

}  // namespace

extern const AttentionEntry diag_attention = {
    .name = "diag_attention",
    .description = "P = softmax(S) or relu(S) inside chunks of neighbouring tokens, 0 between them",
    .source = "[DEVIL] 4.3",
    .options = diag_attention_options,
    .facts = {.row_stochastic = Holds::sometimes, .blocks = Holds::always},
    .make = [](AttentionInput input) {
        const Options options(diag_attention, input.options);
        ScoreRule rule;
        rule.block = options.count("block");
        const bool softmax = options.is("activation", "softmax");
        Index zeros = 0, from = 0;
        if (softmax && !input.causal && options.is("padded", "1")) {
            admit(diag_attention, input);
            if (input.window > 0)
                throw UsageError(
                    "attention 'diag_attention': padded=1 has no meaning with a sliding window; "
                    "omit one of them");
            zeros = missing(input, rule.block);
            from = last_chunk(input, rule.block);
        }
        rule.row_stochastic = softmax && zeros == 0;
        if (softmax)
            rule.fill = [=](Logits logits, RowBlock& block) {
                Tensor s = std::move(logits).biased();
                const Tensor kept = zeros > 0 ? scale(s, 1) : Tensor();
                block.p = softmax_rows(std::move(s), block.visible);
                if (zeros > 0)
                    block.p = multiply(block.p, share_of_tokens(kept, block.p, block.visible,
                                                                block.first, from, zeros));
                block.slope = block.p;
                block.divided = true;
            };
        else
            rule.fill = [](Logits logits, RowBlock& block) {
                block.p = hide(map(Unary::relu, std::move(logits).biased()), block.visible);
                block.slope = map(Unary::step, block.p);
            };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
