#include <fmt/format.h>

#include <algorithm>

#include "gradient.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// Losses on the last state.
namespace tsdiag::model {
namespace {

Tensor optional(const Weights& weights, std::string_view name) {
    return weights.has(name) ? weights.get(name) : Tensor();
}

/// Sum of all elements, (1, 1, 1).
Tensor total(const Tensor& x) { return column_sum(row_sum(x)); }

void count(const Tensor& logits, std::span<const Index> targets, Hits& hits) {
    const std::vector<double> behind =
        subtract(pick(logits, targets), row_max(logits)).to_host<double>();
    hits.predictions += std::ssize(behind);
    hits.correct += std::ranges::count(behind, 0.0);
}

/// Mean over the rows of log sum_j exp(a_ij) - a_(i, targets[i]).
Tensor cross_entropy(const Tensor& logits, std::span<const Index> targets, Hits* hits) {
    if (hits) count(logits.detached(), targets, *hits);
    return scale(total(subtract(log_sum_exp(logits), pick(logits, targets))),
                 1 / static_cast<double>(targets.size()));
}

/// Logits of all ids for each row of x.
Tensor logits_of(const ModelSpec& s, const Weights& weights, Tensor x) {
    if (s.vocabulary == 0)
        throw UsageError(fmt::format(
            "{} has no vocabulary, and lm and mlm predict ids; expected --loss classify, square or "
            "vjp",
            s.name));
    if (s.head.transform) {
        const BlockSpec& b = s.blocks.front();
        x = linear(x, weights.get("head.transform.weight"),
                   optional(weights, "head.transform.bias"));
        x = layer_norm(map(b.activation, x), weights.get("head.norm.weight"),
                       optional(weights, "head.norm.bias"), b.eps);
    }
    const Tensor matrix = weights.get(s.head.matrix ? "head.weight" : "embed.token");
    if (matrix.cols() != x.cols())
        throw UsageError(fmt::format(
            "{} has no output head: its token embedding has {} columns and its states {}; expected "
            "--loss classify, square or vjp",
            s.name, matrix.cols(), x.cols()));
    return linear(x, matrix, optional(weights, "head.bias"));
}

Tensor by_tokens(const ModelSpec& s, const Weights& weights, const Tensor& y, const Loss& loss,
                 Hits* hits) {
    if (loss.rows.empty() || loss.rows.size() != loss.targets.size())
        throw UsageError(
            fmt::format("a loss on tokens has {} rows and {} targets, expected as many of both and "
                        "at least one; lm needs two tokens",
                        loss.rows.size(), loss.targets.size()));
    return cross_entropy(logits_of(s, weights, gather_rows(y, loss.rows)), loss.targets, hits);
}

}  // namespace

Tensor last_state(const ModelSpec& spec, const Weights& weights, const Tensor& x) {
    if (!spec.final_norm) return x;
    return normed(spec.last_norm(), x, load_norm(weights, "final_norm"), spec.blocks.back().eps);
}

Tensor loss_of(const ModelSpec& spec, const Weights& weights, const Tensor& y, const Loss& loss,
               Hits* hits) {
    switch (loss.kind) {
        case Loss::Kind::tokens:
            return by_tokens(spec, weights, y, loss, hits);
        case Loss::Kind::classes:
            return cross_entropy(linear(column_mean(y), loss.classifier, {}),
                                 std::span(&loss.label, 1), hits);
        case Loss::Kind::square:
            return scale(total(map(Unary::square, y)), 0.5);
        case Loss::Kind::product:
            break;
    }
    if (loss.cotangent.shape() != y.shape())
        throw UsageError(
            fmt::format("the cotangent of the last state is ({}, {}), expected ({}, {})",
                        loss.cotangent.rows(), loss.cotangent.cols(), y.rows(), y.cols()));
    return total(multiply(y, loss.cotangent));
}

}  // namespace tsdiag::model
