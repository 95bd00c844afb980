#include <array>
#include <cmath>

#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array polynomial_options{
    AttentionOption{.name = "p",
                    .fallback = "3",
                    .words = "",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .most = 6,
                    .description = "the power"},
    AttentionOption{.name = "scale",
                    .fallback = "1/sqrt(N)",
                    .words = "none 1/sqrt(N) learned",
                    .numbers = true,
                    .least = -1e6,
                    .most = 1e6,
                    .description =
                        "c: none is 1, N the number of tokens, a number such as 1/14, or "
                        "learned: the checkpoint's parameter `scale`"}};

Tensor power(const Tensor& s, Index p) {
    Tensor out = s;
    for (Index k = 1; k < p; ++k) out = multiply(out, s);
    return out;
}

/// c, (1 or h, 1, 1).
Tensor factor(const Options& options, const AttentionInput& in) {
    if (options.is("scale", "learned")) {
        const Tensor learned = parameter(in, "scale");
        const Index heads = in.heads_of_a_sample();
        if (!learned.defined())
            throw UsageError(
                "attention 'polynomial': scale=learned, but the model has no parameter `scale`");
        if (learned.shape().count() != 1 && learned.shape().count() != heads)
            throw ShapeError("attention 'polynomial': parameter `scale` has " +
                             std::to_string(learned.shape().count()) + " numbers, expected 1 or " +
                             std::to_string(heads));
        const Tensor c = contiguous(learned).reshape({learned.shape().count(), 1, 1});
        return c.batch() == 1 ? c : for_every_sample(c, in);
    }
    double c = 1;
    if (options.is("scale", "1/sqrt(N)"))
        c = 1 / std::sqrt(double(in.q.rows()));
    else
        c = options.number("scale").value_or(1);
    return Tensor::from_host(in.q.backend(), {1, 1, 1}, std::span<const double>(&c, 1),
                             in.q.type());
}

}  // namespace

extern const AttentionEntry polynomial;
const AttentionEntry polynomial = {
    .name = "polynomial",
    .description = "P = c S^p entry by entry, not normalised",
    .source = "[POLY]",
    .options = polynomial_options,
    .facts = {.negative_entries = Holds::sometimes, .channels = true},
    .make = [](AttentionInput input) {
        require_fit(input);
        const Options options(polynomial, input.options);
        ScoreRule rule;
        rule.fill = [p = options.count("p"), c = factor(options, input)](Logits logits,
                                                                         RowBlock& block) {
            const Tensor s = std::move(logits).biased();
            const Tensor below = p > 1 ? power(s, p - 1) : affine(s, 0, 1);  // S^(p-1)
            block.p = hide(multiply(multiply(below, s), c), block.visible);
            block.slope = hide(multiply(scale(below, double(p)), c), block.visible);
        };
        return score_attention(std::move(input), std::move(rule));
    }};

}  // namespace tsdiag::variants
