#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "bucket_bias.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag::variants {

extern const AttentionEntry flash;

namespace {

constexpr std::array flash_options{or_word(
    "auto", whole_option("group", "auto", "g, positions per group; auto: 256, at most n", 1))};

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

AttentionCost cost_of_both_parts(const AttentionOptions&, const AttentionSizes& s) {
    return {.flops = double(s.second_pair ? 2 : 1) * s.pairs(s.head_dim),
            .bytes_of_entry = bytes_of_bucket_bias(s)};
}

/// The columns of the groups before that of each row.
Visible before(const Visible& group) {
    Visible out;
    out.first.assign(group.first.size(), 0);
    out.last = group.first;
    return out;
}

constexpr std::string_view two_parts = "P is a function of two pairs of queries and keys";

/// P v in O(n (g + d)) a column, without rows of P: the groups as heads of their own, the linear
/// part by its factors.  Empty where there is one group, a bias of pairs, or a gap between
/// positions.
Tensor by_groups(const AttentionInput& in, const BucketBias& bias, Index g, const Tensor& v) {
    const Index h = in.q.batch(), n = in.q.rows();
    if (g >= n || in.bias.defined()) return {};
    for (Index i = 0; i < n; ++i)
        if (position(in, i) != double(i)) return {};
    const auto of_all_heads = [&](const Tensor& x) { return repeat_batches(x, h / x.batch()); };
    const Tensor k = of_all_heads(in.k), x = of_all_heads(v);
    // P v inside `count` groups of `size` tokens, from token `first` on.
    const auto near = [&](Index first, Index size, Index count) {
        const auto stacked = [&](const Tensor& t) {
            return contiguous(t.row_range(first, count * size))
                .reshape({h * count, size, t.cols()});
        };
        Tensor s = matmul(stacked(in.q), stacked(k), Transpose::second, in.scale / double(g));
        if (bias.there()) s = add(s, bias.rows(0, size).col_range(0, size));
        Tensor p = map(Unary::square, map(Unary::relu, s));
        if (in.causal) p = hide(std::move(p), visibility::lower(0, size));
        return contiguous(matmul(p, stacked(x))).reshape({h, count * size, v.cols()});
    };
    const Index whole = n / g, rest = n % g;
    Tensor out = near(0, g, whole);
    if (rest > 0) out = concat_rows({out, near(whole * g, rest, 1)});
    const Tensor left = in.q2.defined() ? in.q2 : in.q,
                 right = in.q2.defined() ? of_all_heads(in.k2) : k;
    if (!in.causal)
        return add(out, matmul(left, matmul(right, x, Transpose::first), Transpose::none,
                               in.scale / double(n)));
    Tensor sum;  // right^T v of earlier groups, (h, d, c)
    std::vector<Tensor> parts = {out.row_range(0, g)};
    for (Index first = g; first < n; first += g) {
        const Index count = std::min(g, n - first);
        const Tensor last = matmul(right.row_range(first - g, g), x.row_range(first - g, g),
                                   Transpose::first, in.scale / double(g));
        sum = sum.defined() ? add(sum, last) : last;
        parts.push_back(
            add(out.row_range(first, count), matmul(left.row_range(first, count), sum)));
    }
    return concat_rows(parts);
}

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
    .second_pair = true,
    .cost = cost_of_both_parts,
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
        rule.product = [=](const Tensor& v) { return by_groups(input, bias, g, v); };
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
