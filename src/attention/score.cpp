#include "score.hpp"

#include <algorithm>
#include <string>

#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

std::string text(const Shape& s) {
    return "(" + std::to_string(s.batch) + ", " + std::to_string(s.rows) + ", " +
           std::to_string(s.cols) + ")";
}

void require_fit(const AttentionInput& in) {
    check(in.q.defined() && in.k.defined(), "an attention has queries and keys");
    const Shape q = in.q.shape(), k = in.k.shape();
    if (q.rows != k.rows || q.cols != k.cols || k.batch < 1 || q.batch % k.batch != 0)
        throw ShapeError("attention: queries " + text(q) + " and keys " + text(k) +
                         " do not fit; expected equal rows and columns, and heads of the keys that "
                         "divide those of the queries");
    if (in.q.type() != in.k.type())
        throw ShapeError("attention: queries and keys are of different types; cast one of them");
    if (!in.position.empty() && static_cast<Index>(in.position.size()) != q.rows)
        throw ShapeError("attention: " + std::to_string(in.position.size()) +
                         " positions, expected one for each of the " + std::to_string(q.rows) +
                         " tokens");
    if (!std::is_sorted(in.position.begin(), in.position.end()))
        throw UsageError("attention: positions do not ascend; sort the tokens by position");
    if (in.window < 0)
        throw UsageError("attention: a window of " + std::to_string(in.window) +
                         " positions; expected 0 for none, or more");
}

class ScoreAttention final : public AttentionOperator {
  public:
    ScoreAttention(AttentionInput in, ScoreRule rule) : in_(std::move(in)), rule_(rule) {}

    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        block.visible = visible(first, count);
        rule_.fill(matmul(in_.q.row_range(first, count), in_.k, Transpose::second, in_.scale),
                   block);
        return block;
    }
    Structure structure() const override {
        Structure known;
        known.row_stochastic = rule_.row_stochastic;
        known.causal = in_.causal;
        return known;
    }
    Index heads() const override { return in_.q.batch(); }
    Index tokens() const override { return in_.q.rows(); }
    Type type() const override { return in_.q.type(); }
    const Backend& backend() const override { return in_.q.backend(); }

  private:
    double position(Index i) const {
        return in_.position.empty() ? double(i) : in_.position[static_cast<std::size_t>(i)];
    }

    /// Positions ascend, so what a row sees is one range, and both its ends ascend with the row.
    Visible visible(Index first, Index count) const {
        Visible out;
        if (!in_.causal && in_.window == 0) return out;
        const Index n = tokens();
        const double window = double(in_.window);
        Index from = 0, to = 0;
        for (Index i = first; i < first + count; ++i) {
            if (in_.window > 0)
                while (position(from) <= position(i) - window) ++from;
            if (in_.causal)
                to = i + 1;
            else
                while (to < n && position(to) < position(i) + window) ++to;
            out.first.push_back(from);
            out.last.push_back(to);
        }
        return out;
    }

    AttentionInput in_;
    ScoreRule rule_;
};

}  // namespace

std::unique_ptr<AttentionOperator> score_attention(AttentionInput input, ScoreRule rule) {
    require_fit(input);
    return std::make_unique<ScoreAttention>(std::move(input), rule);
}

}  // namespace tsdiag::variants
