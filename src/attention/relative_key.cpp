#include <fmt/format.h>

#include <array>
#include <cmath>

#include "distances.hpp"
#include "features.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array relative_key_options{
    switch_option("keys", "0", "1: also of keys, k_j a_(i-j)^T"),
    seed_option("seed of a, U(-1, 1) / sqrt(w) of w columns, if a model has "
                "none")};

}  // namespace

extern const AttentionEntry relative_key;

namespace {

/// Logits with keys and with every distance; of keys with distances, too.
AttentionCost cost_of_relative_keys(const AttentionOptions& given, const AttentionSizes& s) {
    const bool keys = Options(relative_key, given).is("keys", "1");
    const double of_head = product_flops(s.tokens, s.head_dim, 2 * s.tokens - 1);
    return {.flops = s.pairs(s.head_dim) + double(s.heads + (keys ? s.kv_heads : 0)) * of_head};
}

}  // namespace

const AttentionEntry relative_key = {
    .name = "relative_key",
    .description =
        "P = exp(S) / row sums, S_ij = scale [q_i k_j^T + q_i a_(i-j)^T] + bias, with keys=1 also "
        "k_j a_(i-j)^T; a a table of distances that the heads of a layer share",
    .source = "[SHAW]; [RELATIVE-BERT]",
    .options = relative_key_options,
    .facts = {.row_stochastic = Holds::always},
    .cost = cost_of_relative_keys,
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(relative_key, in.options);
        admit(relative_key, in);
        const Index w = in.q.cols(), n = in.k.rows();
        const Index farthest = std::llround(position(in, n - 1) - position(in, 0));
        Tensor table = parameter(in, "distance");
        if (!table.defined())
            table = drawn_uniform(options.rng(in).fork("distance"), 2 * farthest + 1, w,
                                  1 / std::sqrt(double(w)), in.q.backend(), in.q.type());
        if (table.batch() != 1 || table.cols() != w || table.rows() % 2 == 0)
            throw ShapeError(fmt::format(
                "attention 'relative_key': distance is ({}, {}, {}), expected (1, 2 L - 1, {})",
                table.batch(), table.rows(), table.cols(), w));
        const Index longest = table.rows() / 2;
        if (farthest > longest)
            throw UsageError(fmt::format(
                "the sample has tokens at a distance of {}, but the model's table of distances "
                "ends at {}; pass --tokens {} or less",
                farthest, longest, longest + 1));
        const Distances distances(in, [=](Index t) { return t + longest; });
        const Tensor rows = gather_rows(table, distances.rows()), q = in.q;
        const double scale = in.scale;
        Tensor of_keys;
        if (options.is("keys", "1"))
            of_keys = Distances::by_columns(repeat_batches(
                matmul(in.k, rows, Transpose::second, scale), in.q.batch() / in.k.batch()));
        ScoreRule rule;
        rule.terms = [=](Index first, Index count) {
            const Tensor x = matmul(q.row_range(first, count), rows, Transpose::second, scale);
            const Tensor own = distances.of_queries(x, first, count);
            return of_keys.defined() ? add(own, distances.of_keys(of_keys, first, count)) : own;
        };
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.fill = softmax_of_biased;
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
