#include <algorithm>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

/// Two attentions of one layer as the heads of one operator.
namespace tsdiag {
namespace {

/// What a row of either sees.
Visible either(const Visible& a, const Visible& b) {
    if (a.everything() || b.everything()) return {};
    Visible out = a;
    for (std::size_t i = 0; i < out.first.size(); ++i) {
        out.first[i] = std::min(out.first[i], b.first[i]);
        out.last[i] = std::max(out.last[i], b.last[i]);
    }
    return out;
}

Tensor stacked(const Tensor& a, const Tensor& b) { return concat_batches(std::vector{a, b}); }

class SideBySide final : public AttentionOperator {
  public:
    SideBySide(std::unique_ptr<AttentionOperator> first, std::unique_ptr<AttentionOperator> second)
        : first_(std::move(first)), second_(std::move(second)) {
        check(first_->heads() == second_->heads() && first_->tokens() == second_->tokens() &&
                  first_->type() == second_->type() && first_->memory() == 0 &&
                  second_->memory() == 0,
              "two attentions of equal size");
    }
    RowBlock rows(Index first, Index count) const override {
        RowBlock a = first_->rows(first, count);
        const RowBlock b = second_->rows(first, count);
        if (!a.slope.defined() || !b.slope.defined()) {
            a.why_no_slope = a.slope.defined() ? b.why_no_slope : a.why_no_slope;
            a.slope = {};
        } else if (a.divided != b.divided) {
            a.why_no_slope = "of two attentions side by side only one divides its rows";
            a.slope = {};
        } else {
            a.slope = stacked(a.slope, b.slope);
        }
        a.p = stacked(a.p, b.p);
        a.visible = either(a.visible, b.visible);
        return a;
    }
    Structure structure() const override {
        const Structure a = first_->structure(), b = second_->structure();
        Structure out;
        out.row_stochastic = a.row_stochastic && b.row_stochastic;
        out.causal = a.causal && b.causal;
        out.plain_logits = a.plain_logits && b.plain_logits;
        out.constant_terms = a.constant_terms && b.constant_terms;
        if (a.blocks == b.blocks) out.blocks = a.blocks;
        return out;
    }
    Index heads() const override { return 2 * first_->heads(); }
    Index tokens() const override { return first_->tokens(); }
    Type type() const override { return first_->type(); }
    const Backend& backend() const override { return first_->backend(); }

  protected:
    Tensor product(const Tensor& v) const override {
        if (v.batch() % 2 != 0) return {};
        const Index half = v.batch() / 2;
        return stacked(first_->apply(v.batch_range(0, half), tokens()),
                       second_->apply(v.batch_range(half, half), tokens()));
    }

  private:
    std::unique_ptr<AttentionOperator> first_, second_;
};

}  // namespace

std::unique_ptr<AttentionOperator> side_by_side(std::unique_ptr<AttentionOperator> first,
                                                std::unique_ptr<AttentionOperator> second) {
    return std::make_unique<SideBySide>(std::move(first), std::move(second));
}

}  // namespace tsdiag
