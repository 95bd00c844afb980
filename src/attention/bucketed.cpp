#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "distances.hpp"
#include "features.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array bucketed_options{
    whole_option("buckets", "32",
                 "classes of distances; without a causal mask a half of them is "
                 "for keys behind the query",
                 4),
    whole_option("longest", "128", "distance from which on all are in one class", 2),
    seed_option("seed of b, U(-1, 1), if a model has none")};

/// Of distance t = i - j: t itself up to a half of the classes of a direction, then by logarithms.
Index class_of(Index t, Index buckets, Index longest, bool one_way) {
    Index start = 0;
    if (!one_way) {
        buckets /= 2;
        if (t < 0) start = buckets;
    }
    const Index far = one_way ? std::max<Index>(t, 0) : std::abs(t), exact = buckets / 2;
    if (far < exact) return start + far;
    const double steps = std::log(double(far) / double(exact)) /
                         std::log(double(longest) / double(exact)) * double(buckets - exact);
    return start + std::min(exact + Index(steps), buckets - 1);
}

}  // namespace

extern const AttentionEntry bucketed = {
    .name = "bucketed",
    .description =
        "P = exp(S) / row sums, S_ij = scale q_i k_j^T + b_c + bias, c the class of the distance "
        "i - j, b a learned number of each class and head: exact distances first, then ranges that "
        "grow by a factor",
    .source = "[T5] 2.1; [MPNET]",
    .options = bucketed_options,
    .facts = {.row_stochastic = Holds::always},
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(bucketed, in.options);
        admit(bucketed, in);
        const Index buckets = options.count("buckets"), longest = options.count("longest");
        if (longest <= buckets / (in.causal ? 2 : 4))
            throw UsageError(fmt::format(
                "attention 'bucketed': longest={} is not longer than the distances that have a "
                "class of their own, of {} classes",
                longest, buckets));
        const Index h = in.heads_of_a_sample();
        Tensor table = parameter(in, "relative");
        if (!table.defined())
            table = drawn_uniform(options.rng(in).fork("relative"), buckets, h, 1, in.q.backend(),
                                  in.q.type());
        if (table.shape() != Shape{1, buckets, h})
            throw ShapeError(
                fmt::format("attention 'bucketed': relative is ({}, {}, {}), expected (1, {}, {})",
                            table.batch(), table.rows(), table.cols(), buckets, h));
        const bool one_way = in.causal;
        const Distances distances(in,
                                  [=](Index t) { return class_of(t, buckets, longest, one_way); });
        const Tensor rows = gather_rows(table, distances.rows());
        ScoreRule rule;
        rule.terms = [rows, distances, samples = in.samples](Index first, Index count) {
            const Tensor one = distances.of_table(rows, first, count);
            return samples == 1 ? one
                                : concat_batches(std::vector<Tensor>(std::size_t(samples), one));
        };
        rule.constant_terms = true;
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.fill = softmax_of_biased;
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
