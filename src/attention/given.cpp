#include <algorithm>
#include <cmath>
#include <string>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag {
namespace {

class GivenAttention final : public AttentionOperator {
  public:
    GivenAttention(Tensor p, bool causal, bool softmax) : p_(std::move(p)), softmax_(softmax) {
        known_.causal = causal;
        known_.row_stochastic = rows_sum_to_one();
    }

    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        block.p = p_.row_range(first, count);
        if (softmax_) block.slope = block.p;
        block.divided = softmax_;
        if (known_.causal) block.visible = visibility::lower(first, count);
        return block;
    }
    Structure structure() const override { return known_; }
    Index heads() const override { return p_.batch(); }
    Index tokens() const override { return p_.rows(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return p_.backend(); }

  private:
    /// Whether P is stochastic is measured: within 1e-6 in float32, 1e-12 in float64.
    bool rows_sum_to_one() const {
        const RowStatistics all = row_statistics(p_, {}, false, 0, {});
        const RowStatistics seen = row_statistics(
            p_, {}, false, 0, known_.causal ? visibility::lower(0, tokens()) : Visible());
        const double tolerance = type() == Type::f32 ? 1e-6 : 1e-12;
        bool stochastic = true;
        for (std::size_t i = 0; i < all.sum.size(); ++i) {
            if (std::abs(all.modulus[i] - seen.modulus[i]) > tolerance * all.modulus[i])
                throw UsageError("attention map: head " + std::to_string(Index(i) / tokens()) +
                                 " has weight above the diagonal in row " +
                                 std::to_string(Index(i) % tokens()) +
                                 ", so it is not causal; omit --causal");
            stochastic =
                stochastic && all.negative[i] == 0 && std::abs(all.sum[i] - 1) <= tolerance;
        }
        return stochastic;
    }

    Tensor p_;
    bool softmax_;
    Structure known_;
};

}  // namespace

std::unique_ptr<AttentionOperator> given_attention(Tensor p, bool causal,
                                                   std::string_view activation) {
    check(p.defined(), "an attention map has elements");
    if (p.rows() != p.cols())
        throw ShapeError("attention map: (" + std::to_string(p.batch()) + ", " +
                         std::to_string(p.rows()) + ", " + std::to_string(p.cols()) +
                         "), expected (heads, n, n)");
    if (!activation.empty() && activation != "softmax")
        throw UsageError("attention map: the logits of '" + std::string(activation) +
                         "' cannot be derived from P; pass softmax, or none");
    return std::make_unique<GivenAttention>(std::move(p), causal, activation == "softmax");
}

}  // namespace tsdiag
