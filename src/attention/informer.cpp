#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "features.hpp"
#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array informer_options{
    whole_option("factor", "5", "c: u = c ceil(ln n), at least 1 and at most n", 1, 1e6),
    word_option("divisor", "n", "n u",
                "divisor of the sum of a query's u logits: n, as in the "
                "released code, or u for their mean, as in the text"),
    word_option("lazy", "sum", "sum mean",
                "rows of the other queries if P is causal: 1, a sum of the "
                "values so far, as in the released code, or their mean"),
    whole_option(redraw_option, "1",
                 "updates of a training after which the sampled keys are drawn again, "
                 "0: never; 1 as in the released code"),
    seed_option("seed of the sampled keys, which the heads of a layer share")};

/// The number of keys a query samples, and of queries that see all keys.
Index how_many(const Options& options, Index n) {
    const double u = double(options.count("factor")) * std::ceil(std::log(double(n)));
    return std::max<Index>(1, Index(std::min(u, double(n))));
}

/// S_ij for j = columns[i], of each head: (h, n).
std::vector<double> logits_at(const AttentionInput& in, const std::vector<Index>& columns) {
    const Tensor q = in.q.detached(), k = in.k.detached();
    const Tensor keys =
        repeat_batches(rows_of_each_head(k, columns), q.batch() / k.batch());  // (h, n, w)
    Tensor s = scale(row_sum(multiply(q, keys)), in.scale);
    if (in.bias.defined()) {
        std::vector<Tensor> heads;
        for (Index b = 0; b < in.bias.batch(); ++b)
            heads.push_back(pick(in.bias.detached().batch_range(b, 1), columns));
        s = add(s, concat_batches(heads));
    }
    return s.to_host<double>();
}

/// M of the queries of each head, (h, n).  A query without a finite one is ranked first, so that it
/// is noticed.
std::vector<double> measures(const AttentionInput& in, Index samples, double divisor, Rng rng) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const Index h = in.q.batch(), n = in.q.rows();
    std::vector<double> top(std::size_t(h * n), -infinity), sum(top.size(), 0.0);
    auto columns = std::vector<Index>(std::size_t(n));
    for (Index sample = 0; sample < samples; ++sample) {
        for (Index& j : columns) j = Index(rng.below(std::uint64_t(n)));
        const std::vector<double> s = logits_at(in, columns);
        for (std::size_t i = 0; i < s.size(); ++i) {
            top[i] = std::max(top[i], s[i]);
            sum[i] += s[i];
        }
    }
    for (std::size_t i = 0; i < top.size(); ++i) {
        top[i] -= sum[i] / divisor;
        if (!std::isfinite(top[i])) top[i] = infinity;
    }
    return top;
}

/// 1 for the `count` queries of each head whose M is largest, the first of equal ones; else 0.
std::vector<double> active(const std::vector<double>& measure, Index n, Index count) {
    std::vector<double> out(measure.size(), 0.0);
    auto order = std::vector<Index>(std::size_t(n));
    for (std::size_t head = 0; head < measure.size(); head += order.size()) {
        const auto of = [&](Index i) { return measure[head + std::size_t(i)]; };
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](Index a, Index b) {
            return of(a) > of(b) || (of(a) == of(b) && a < b);
        });
        for (Index i = 0; i < count; ++i) out[head + std::size_t(order[std::size_t(i)])] = 1;
    }
    return out;
}

/// The entries of lazy row i.
double lazy_entry(const AttentionInput& in, bool mean, Index i) {
    if (!in.causal) return 1 / double(in.q.rows());
    return mean ? 1 / double(i + 1) : 1;
}

/// f(head, i) of rows [first, first + count), (h, count, 1).
template <class F>
Tensor column(const Tensor& like, Index first, Index count, F f) {
    std::vector<double> values;
    for (Index head = 0; head < like.batch(); ++head)
        for (Index i = first; i < first + count; ++i) values.push_back(f(head, i));
    return Tensor::from_host(like.backend(), {like.batch(), count, 1},
                             std::span<const double>(values), like.type());
}

}  // namespace

extern const AttentionEntry informer = {
    .name = "informer",
    .description =
        "P = softmax(S) in the rows of the u queries with the largest M, M the largest of u logits "
        "with sampled keys minus their sum over n, 1/n in the others (causal: 1 up to the "
        "diagonal); keys after the row are also sampled, so a causal row may depend on later "
        "tokens through M",
    .source = "[INFORMER] (4), algorithm 1",
    .options = informer_options,
    .facts = {.row_stochastic = Holds::sometimes, .window = false},
    .make = [](AttentionInput in) {
        const Options options(informer, in.options);
        admit(informer, in);
        const Index n = in.q.rows(), u = how_many(options, n);
        const bool mean = options.is("lazy", "mean");
        const double divisor = double(options.is("divisor", "n") ? n : u);
        ScoreRule rule;
        rule.row_stochastic = !in.causal || mean || u == n;
        rule.fill = [in, mean, full = active(measures(in, u, divisor, options.rng(in)), n, u)](
                        Logits logits, RowBlock& block) {
            const Index first = block.first, count = logits.s.rows(), rows = in.q.rows();
            const auto chosen = [&](Index head, Index i) {
                return full[std::size_t(head * rows + i)];
            };
            const Tensor one = column(in.q, first, count, chosen);
            const Tensor other = column(in.q, first, count, [&](Index head, Index i) {
                return (1 - chosen(head, i)) * lazy_entry(in, mean, i);
            });
            block.slope = multiply(softmax_rows(std::move(logits).biased(), block.visible), one);
            block.p = hide(add(block.slope, other), block.visible);
            block.divided = true;
        };
        return score_attention(in, std::move(rule));
    }};

}  // namespace tsdiag::variants
