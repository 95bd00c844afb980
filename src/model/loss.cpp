#include <fmt/format.h>

#include <algorithm>

#include "class_attention.hpp"
#include "gradient.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// Losses on the last state.
namespace tsdiag::model {
namespace {

/// Sum of all elements, (1, 1, 1).
Tensor total(const Tensor& x) {
    const Tensor sums = column_sum(row_sum(x));
    return sums.batch() == 1 ? sums : column_sum(sums.reshape({1, sums.batch(), 1}));
}

void count(const Tensor& logits, std::span<const Index> targets, Hits& hits) {
    const std::vector<double> margins =
        subtract(pick(logits, targets), row_max(logits)).to_host<double>();
    for (const double m : margins) hits.push_back(m == 0);
}

/// Sum over the samples of the mean over their rows of log sum_j exp(a_ij) - a_(i, targets[i]);
/// `counts`: number of rows of each sample.
Tensor cross_entropy(const Tensor& logits, std::span<const Index> targets,
                     std::span<const Index> counts, Hits* hits) {
    if (hits) count(logits.detached(), targets, *hits);
    Tensor each = subtract(log_sum_exp(logits), pick(logits, targets));
    const Index first = counts.front();
    if (std::ranges::all_of(counts, [first](Index c) { return c == first; }))
        return scale(total(each), 1 / double(first));
    std::vector<double> shares;
    for (const Index c : counts) shares.insert(shares.end(), std::size_t(c), 1 / double(c));
    return total(multiply(each, Tensor::from_host(each.backend(), each.shape(),
                                                  std::span<const double>(shares), each.type())));
}

/// Words of the first cluster and the other clusters share a softmax; a word of cluster i has its
/// cluster's logit plus the logarithm of its share in the cluster, so that exp sums to exp of the
/// cluster's.
Tensor adaptive_logits(const ModelSpec& s, const Weights& weights, const Tensor& x) {
    const std::vector<Index>& ends = s.head.cluster_ends;
    std::vector<Tensor> parts;
    Tensor clusters;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const Index first = i == 0 ? 0 : ends[i - 1], size = ends[i] - first;
        const std::string name = fmt::format("embed.cluster.{}", i);
        Tensor table, state = x;
        if (s.embedding.clusters.there()) {
            table = weights.get(name);
            state = matmul(x, weights.get(i == 0 && s.head.first_map ? "head.map" : name + ".map"));
        } else {
            table = weights.get("embed.token").row_range(first, size);
        }
        const Tensor own = linear(state, table, weights.get(fmt::format("head.bias.{}", i)));
        if (i == 0) {
            parts.push_back(own);
            if (ends.size() > 1)
                clusters = linear(state, weights.get("head.cluster.weight"),
                                  weights.get("head.cluster.bias"));
        } else {
            parts.push_back(
                add(subtract(own, log_sum_exp(own)), clusters.col_range(Index(i) - 1, 1)));
        }
    }
    return concat_cols(parts);
}

Tensor plain_logits_of(const ModelSpec& s, const Weights& weights, Tensor x) {
    if (s.embedding.vocabulary == 0)
        throw UsageError(
            fmt::format("{} has no vocabulary, but lm and mlm predict ids; expected --loss "
                        "classify, square or vjp",
                        s.name));
    if (s.head.transform) {
        const BlockSpec& b = s.blocks.front();
        x = load_linear(weights, "head.transform")(x);
        x = normed(NormKind::layer, map(b.ffn.activation, x), load_norm(weights, "head.norm"),
                   b.norm.eps);
    }
    if (!s.head.cluster_ends.empty()) return adaptive_logits(s, weights, x);
    if (s.embedding.clusters.there() && !s.head.matrix)
        throw UsageError(fmt::format(
            "{} has no output head: its token embedding is in clusters; expected --loss classify, "
            "square or vjp",
            s.name));
    const Tensor matrix = weights.get(s.head.matrix ? "head.weight" : "embed.token");
    if (matrix.cols() != x.cols())
        throw UsageError(
            fmt::format("{} has no output head: its token embedding has {} columns, but its states "
                        "have {}; expected --loss classify, square or vjp",
                        s.name, matrix.cols(), x.cols()));
    return linear(x, matrix, get_or_empty(weights, "head.bias"));
}

/// Logits of all ids for each row of x.
Tensor logits_of(const ModelSpec& s, const Weights& weights, Tensor x) {
    Tensor logits = plain_logits_of(s, weights, std::move(x));
    if (s.head.scale != 1) logits = scale(logits, s.head.scale);
    if (s.head.cap == 0) return logits;
    return scale(map(Unary::tanh, scale(logits, 1 / s.head.cap)), s.head.cap);
}

Tensor by_tokens(const ModelSpec& s, const Weights& weights, const Tensor& y,
                 std::span<const Loss> losses, Hits* hits) {
    std::vector<Index> rows, targets, counts;
    for (const Loss& loss : losses) {
        if (loss.rows.empty())
            throw UsageError(
                "--loss: a sample has no token to predict, since lm needs two tokens that its mask "
                "keeps; pass longer samples (--tokens).");
        if (loss.rows.size() != loss.targets.size())
            throw UsageError(
                fmt::format("a token loss has {} rows and {} targets, expected equal numbers.",
                            loss.rows.size(), loss.targets.size()));
        const Index first = std::ssize(counts) * y.rows(), before = s.memory_tokens;
        const auto held = std::ssize(rows);
        for (std::size_t k = 0; k < loss.rows.size(); ++k) {
            const Index row = loss.rows[k] - before;
            if (loss.rows[k] < 0 || row >= y.rows())
                throw UsageError(
                    fmt::format("a token loss on token {} of {}", loss.rows[k], before + y.rows()));
            if (row < 0) continue;  // of the memory
            rows.push_back(first + row);
            targets.push_back(loss.targets[k]);
        }
        counts.push_back(std::ssize(rows) - held);
        if (counts.back() == 0)
            throw UsageError(
                fmt::format("a token loss needs tokens beyond the memory (the first {} of a "
                            "sample); pass more tokens",
                            before));
    }
    const Tensor all = contiguous(y).reshape({1, y.batch() * y.rows(), y.cols()});
    return cross_entropy(logits_of(s, weights, gather_rows(all, rows)), targets, counts, hits);
}

Tensor by_classes(const Tensor& y, std::span<const Loss> losses, Hits* hits) {
    std::vector<Index> labels;
    for (const Loss& loss : losses) labels.push_back(loss.label);
    const std::vector<Index> counts(labels.size(), 1);
    return cross_entropy(linear(mean_rows(y), losses.front().classifier, {}), labels, counts, hits);
}

Tensor by_cotangents(const Tensor& y, std::span<const Loss> losses) {
    std::vector<Tensor> parts;
    for (const Loss& loss : losses) {
        if (loss.cotangent.shape() != Shape{1, y.rows(), y.cols()})
            throw UsageError(
                fmt::format("the cotangent of the last state is ({}, {}), expected ({}, {})",
                            loss.cotangent.rows(), loss.cotangent.cols(), y.rows(), y.cols()));
        parts.push_back(loss.cotangent);
    }
    return total(multiply(y, concat_batches(parts)));
}

}  // namespace

Tensor mean_rows(const Tensor& y) { return column_mean(y).reshape({1, y.batch(), y.cols()}); }

Tensor loss_of_pairs(const Tensor& means, std::span<const Loss> losses, Hits* hits) {
    if (losses.size() % 2 != 0)
        throw UsageError(fmt::format("{} samples, expected pairs of them", losses.size()));
    std::vector<Index> first, second, labels;
    for (Index i = 0; i < std::ssize(losses); i += 2) {
        first.push_back(i);
        second.push_back(i + 1);
        labels.push_back(losses[std::size_t(i)].label);
    }
    const Tensor a = gather_rows(means, first), b = gather_rows(means, second);
    const Tensor parts[] = {a, b, multiply(a, b), subtract(a, b)};
    const std::vector<Index> counts(labels.size(), 1);
    return cross_entropy(linear(concat_cols(parts), losses.front().classifier, {}), labels, counts,
                         hits);
}

Tensor last_state(const ModelSpec& spec, const Weights& weights, const Tensor& x) {
    Tensor y = spec.class_attention.layers > 0 ? class_attention(spec, weights, x) : x;
    if (!spec.final_norm) return y;
    return normed(spec.last_norm(), y, load_norm(weights, "final_norm"),
                  spec.blocks.back().norm.eps);
}

Tensor loss_of(const ModelSpec& spec, const Weights& weights, const Tensor& last,
               std::span<const Loss> losses, Hits* hits) {
    const Tensor y = spec.class_attention.layers > 0 ? last.row_range(0, 1) : last;
    switch (losses.front().kind) {
        case Loss::Kind::tokens:
            return by_tokens(spec, weights, y, losses, hits);
        case Loss::Kind::classes:
            return by_classes(y, losses, hits);
        case Loss::Kind::pairs:
            throw UsageError("a loss on pairs uses both samples, expected a loss per sample");
        case Loss::Kind::square:
            return scale(total(map(Unary::square, y)), 0.5);
        case Loss::Kind::product:
            break;
    }
    return by_cotangents(y, losses);
}

}  // namespace tsdiag::model
