#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bucket_bias.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {

extern const AttentionEntry flash;

namespace {

constexpr std::array flash_options{
    AttentionOption{.name = "group",
                    .fallback = "auto",
                    .words = "auto",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .description = "g, positions per group; auto: 256, at most n"}};

/// Throws as `check_options`.
Index group_of(const Options& options, Index n) {
    constexpr Index usual = 256;
    return options.is("group", "auto") ? std::min(usual, n) : options.count("group");
}

std::string remark_on_group(const AttentionOptions& given, Index tokens) {
    const Index g = group_of(Options(flash, given), tokens);
    if (g <= tokens) return "";
    return fmt::format(
        "a group of {} positions is longer than a sample of {} tokens: S/{} in the quadratic part "
        "of P is {:.3g} times smaller than in a group that the sample fills",
        g, tokens, g, double(g) / double(tokens));
}

/// The columns of the groups before that of each row.
Visible before(const Visible& group) {
    Visible out;
    out.first.assign(group.first.size(), 0);
    out.last = group.first;
    return out;
}

constexpr std::string_view two_parts = "P is a function of two pairs of queries and keys";

/// S_ij of the linear part.
Tensor linear_logits(const AttentionInput& in, const Tensor& s, Index first) {
    if (!in.q2.defined()) return s;
    return matmul(in.q2.row_range(first, s.rows()), in.k2, Transpose::second, in.scale);
}

}  // namespace

const AttentionEntry flash = {
    .name = "flash",
    .description =
        "P = relu(S/g + bias)^2 inside groups of g tokens, plus S/n everywhere (causal: "
        "plus S/g towards earlier groups), S = q k^T; the gate is outside P; both parts share q "
        "and k unless a model has two pairs; bias sqrt(d) times the parameter `rel_pos_bias` at "
        "the bucket of j - i [T5]",
    .source = "[FLASH]",
    .options = flash_options,
    .facts = {.negative_entries = Holds::sometimes, .window = false},
    .learned = learned_bucket_bias,
    .unscaled = true,
    .remark = remark_on_group,
    .make = [](AttentionInput input) {
        admit(flash, input);
        const Options options(flash, input.options);
        const Index g = group_of(options, input.q.rows());
        const double share = 1 / double(g), far = input.causal ? share : 1 / double(input.q.rows());
        AttentionInput whole = input;
        whole.causal = false;
        if (input.q2.defined() &&
            (input.q2.shape() != input.q.shape() || input.k2.shape() != input.k.shape()))
            throw ShapeError(
                "attention 'flash': the second queries and keys are not of the first ones' shape");
        const BucketBias bias(flash, input, std::sqrt(double(input.q.cols())));
        ScoreRule rule;
        rule.fill = [=](Logits logits, RowBlock& block) {
            const Index first = block.first, count = logits.s.rows();
            const Visible near = seen(input, g, first, count);
            const Tensor s = scale(logits.s, share);
            if (bias.there()) {
                const Tensor more = bias.rows(first, count);
                logits.bias = logits.bias.defined() ? add(more, logits.bias) : more;
            }
            const Tensor r = map(Unary::relu, logits.bias.defined() ? add(s, logits.bias) : s);
            const Tensor t = linear_logits(input, logits.s, first);
            const Visible& linear =
                input.causal ? before(seen(whole, g, first, count)) : block.visible;
            block.p = add(hide(map(Unary::square, r), near), hide(scale(t, far), linear));
            if (input.q2.defined())
                block.why_no_slope = two_parts;
            else
                block.slope =
                    add(hide(scale(r, 2 * share), near), hide(affine(logits.s, 0, far), linear));
        };
        return score_attention(input, std::move(rule));
    }};

}  // namespace tsdiag::variants
