#include <fmt/format.h>

#include <array>

#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array sink_options{
    real_option("start", "0", "t of a model that is drawn, and where a model has none", -1e8)};

/// t of every head, (h, 1, 1).
Tensor sink_logits(const AttentionEntry& entry, const AttentionInput& in, double start) {
    const Index heads = in.heads_of_a_sample();
    const Tensor given = parameter(in, "sinks");
    if (!given.defined()) {
        const std::vector<double> all(std::size_t(in.q.batch()), start);
        return Tensor::from_host(in.q.backend(), {in.q.batch(), 1, 1}, std::span<const double>(all),
                                 in.q.type());
    }
    const Index count = given.shape().count();
    if (count != 1 && count != heads)
        throw ShapeError(
            fmt::format("attention '{}': parameter `sinks` has {} numbers, expected 1 or {}",
                        entry.name, count, heads));
    const Tensor t = contiguous(given).reshape({count, 1, 1});
    return for_every_sample(count == 1 ? expand(t, {heads, 1, 1}) : t, in);
}

/// ln sum_j exp(S_ij) over the visible columns, (h, b, 1).
Tensor log_row_sums(const Tensor& s, const Visible& visible) {
    if (visible.everything()) return log_sum_exp(s);
    constexpr double hidden = -1e30;  // exp of it less any logit is 0, in float32 too
    std::vector<double> mask(std::size_t(s.rows() * s.cols()), 0.0);
    for (Index i = 0; i < s.rows(); ++i)
        for (Index j = 0; j < s.cols(); ++j)
            if (j < visible.first[std::size_t(i)] || j >= visible.last[std::size_t(i)])
                mask[std::size_t(i * s.cols() + j)] = hidden;
    return log_sum_exp(add(s, Tensor::from_host(s.backend(), {1, s.rows(), s.cols()},
                                                std::span<const double>(mask), s.type())));
}

}  // namespace

extern const AttentionEntry sink = {
    .name = "sink",
    .description =
        "P = exp(S) / (row sums + exp(t)), t a learned logit of each head: softmax with one more "
        "column, which has no value and is left out of P, so that rows sum to less than 1",
    .source = "[GPT-OSS]; [SINKS]",
    .options = sink_options,
    .learned =
        [](const AttentionOptions& given, const LearnedFor&) {
            return std::vector<LearnedParameter>{
                {"sinks", Options(sink, given).number("start").value()}};
        },
    .make =
        [](AttentionInput input) {
            const Tensor t =
                sink_logits(sink, input, Options(sink, input.options).number("start").value());
            ScoreRule rule;
            rule.heads_alike = false;
            rule.fill = [t](Logits logits, RowBlock& block) {
                const Tensor s = std::move(logits).biased();
                // P = softmax(S) sigmoid(ln z - t), z the sum of a row: neither exponential
                // overflows.
                const Tensor kept =
                    map(Unary::sigmoid, subtract(log_row_sums(s, block.visible), t));
                block.divided = true;
                block.p = multiply(softmax_rows(s, block.visible), kept);
                block.slope = block.p;  // dP_ij/dS_ik = P_ij (1_jk - P_ik), as of all n + 1 columns
            };
            return score_attention(std::move(input), std::move(rule));
        }};

}  // namespace tsdiag::variants
