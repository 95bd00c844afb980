#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array flash_options{AttentionOption{.name = "group",
                                                   .fallback = "256",
                                                   .words = "",
                                                   .numbers = true,
                                                   .whole = true,
                                                   .least = 1,
                                                   .description = "g, positions per group"}};

/// The columns of the groups before that of each row.
Visible before(const Visible& group) {
    Visible out;
    out.first.assign(group.first.size(), 0);
    out.last = group.first;
    return out;
}

constexpr std::string_view two_parts = "P is a function of two pairs of queries and keys";

/// The bucket of a distance j - i among `buckets`: half of them one step wide, the others growing
/// as powers up to 128 steps.  In float32, as in training: at powers of two the last bit decides.
/// [T5]
Index bucket(Index distance, Index buckets, bool causal) {
    Index out = 0, steps = -distance;
    if (!causal) {
        buckets /= 2;
        if (steps < 0) out = buckets;
        steps = std::abs(steps);
    }
    steps = std::max<Index>(steps, 0);
    const Index exact = buckets / 2;
    if (steps < exact) return out + steps;
    const float ratio = std::log(float(steps) / float(exact)) /
                        float(std::log(128.0 / double(exact))) * float(buckets - exact);
    return out + std::min(exact + Index(ratio), buckets - 1);
}

/// sqrt(w) times the learned bias of each distance 1 - r .. r - 1 that is inside a group and the
/// sample; no parameter: empty.
std::vector<double> learned_bias(const AttentionInput& in, Index group) {
    const Tensor given = parameter(in, "rel_pos_bias");
    if (!given.defined()) return {};
    const std::vector<double> values = given.to_host<double>();
    const auto buckets = std::ssize(values);
    if (buckets < 4 || buckets % 4 != 0)
        throw ShapeError("attention 'flash': a bias of " + std::to_string(buckets) +
                         " buckets, expected a multiple of 4");
    const double span =
        in.position.empty() ? double(in.q.rows() - 1) : in.position.back() - in.position.front();
    const Index reach = Index(std::min(double(group), span + 1));
    std::vector<double> out;
    for (Index distance = 1 - reach; distance < reach; ++distance)
        out.push_back(std::sqrt(double(in.q.cols())) *
                      values[std::size_t(bucket(distance, buckets, in.causal))]);
    return out;
}

/// Rows of the bias, (1, b, n), in the columns visible in `near`, 0 elsewhere.
Tensor bias_rows(const AttentionInput& in, const std::vector<double>& by_distance,
                 const Tensor& like, Index first, const Visible& near) {
    const auto position = [&](Index i) {
        return in.position.empty() ? i : std::llround(in.position[std::size_t(i)]);
    };
    const Index count = like.rows(), n = like.cols(), middle = std::ssize(by_distance) / 2;
    std::vector<double> values(std::size_t(count * n), 0.0);
    for (Index i = 0; i < count; ++i)
        for (Index j = near.first[std::size_t(i)]; j < near.last[std::size_t(i)]; ++j)
            values[std::size_t(i * n + j)] =
                by_distance[std::size_t(middle + position(j) - position(first + i))];
    return Tensor::from_host(like.backend(), {1, count, n}, std::span<const double>(values),
                             like.type());
}

/// S_ij of the linear part.
Tensor linear_logits(const AttentionInput& in, const Tensor& s, Index first) {
    if (!in.q2.defined()) return s;
    return matmul(in.q2.row_range(first, s.rows()), in.k2, Transpose::second, in.scale);
}

}  // namespace

extern const AttentionEntry flash;
const AttentionEntry flash = {
    .name = "flash",
    .description =
        "P = relu(S/g + bias)^2 inside groups of g tokens, plus S/n everywhere (causal: "
        "plus S/g towards earlier groups); the gate is outside P; both parts share q "
        "and k unless a model has two pairs; bias sqrt(d) times the parameter `rel_pos_bias` at "
        "the bucket of j - i [T5]",
    .source = "[FLASH]",
    .options = flash_options,
    .facts = {.negative_entries = Holds::sometimes, .window = false},
    .make = [](AttentionInput input) {
        refuse_window(flash, input);
        require_fit(input);
        const Options options(flash, input.options);
        const Index g = options.count("group");
        const double share = 1 / double(g), far = input.causal ? share : 1 / double(input.q.rows());
        AttentionInput whole = input;
        whole.causal = false;
        if (input.q2.defined() &&
            (input.q2.shape() != input.q.shape() || input.k2.shape() != input.k.shape()))
            throw ShapeError(
                "attention 'flash': the second queries and keys are not of the first ones' shape");
        const std::vector<double> by_distance = learned_bias(input, g);
        ScoreRule rule;
        rule.fill = [=](Logits logits, RowBlock& block) {
            const Index first = block.first, count = logits.s.rows();
            const Visible near = seen(input, g, first, count);
            const Tensor s = scale(logits.s, share);
            if (!by_distance.empty()) {
                const Tensor more = bias_rows(input, by_distance, s, first, near);
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
