#pragma once
#include <functional>
#include <vector>

#include "branch.hpp"

namespace tsdiag::model {

struct FeedForwardMaps {
    Linear up, gate, down;
};

/// One FFN, or a mixture of experts.
class FeedForwardStep final : public Branch {
  public:
    explicit FeedForwardStep(const BlockSpec& block) : Branch(block, 2) {}

    void stages(StageList& list) const override;
    void describe(Json& layer) const override;
    double flops(double width, double tokens) const override;
    HeldNumbers held(double width) const override;
    /// y plus the branch of x; on a device with the norm `next` of the sum; null: none.
    Summed plus(StepRun& run, const Tensor& y, const Tensor& x, const Norm* next) const;

  private:
    const FeedForwardSpec& spec() const { return block().ffn; }
    bool there() const override { return spec().width > 0; }
    void declare_maps(Index width, Parameters& to) override;
    void declare_experts(Index width, Parameters& to);
    Tensor mixture(StepRun& run, const Tensor& x) const;
    Tensor routed(const Tensor& x, Tensor p, const std::vector<Index>& chosen) const;

    FeedForwardMaps maps_;
    Linear router_, shared_gate_;  ///< of a mixture of experts, as are
    Tensor correction_;
    std::vector<std::function<FeedForwardMaps()>> experts_;  ///< read when they are used
    std::function<FeedForwardMaps()> shared_;
};

}  // namespace tsdiag::model
