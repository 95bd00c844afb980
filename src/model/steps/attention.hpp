#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "branch.hpp"

/// The attention of a layer: norm1, projections, the variant's own parameters, the output
/// projection.
namespace tsdiag::model {

struct AttentionWeights {
    Linear q, k, v, o;
    Norm q_norm, k_norm;
    Tensor temperature;    ///< over channels
    Tensor relative;       ///< of windows
    Tensor theta, mirror;  ///< of LRPE: frequencies, the vector of the reflection
    Linear z, gate;        ///< of a gated unit, as are
    Tensor gamma, beta;
    Linear q_low, kv_low;  ///< of a LatentSpec, as are
    Norm q_low_norm, kv_low_norm;
    /// Those of the variant by name, read when they are used.
    std::map<std::string, std::function<Tensor()>, std::less<>> own;
};

/// The attentions of a layer: the only one, or those of half of its heads.
std::vector<AttentionSpec> attentions_of(const AttentionSpec& spec);

/// The attention of a layer on one batch.
class AttentionPass {
  public:
    virtual ~AttentionPass() = default;
    /// x plus the branch of `in`; emits `sa`.  On a device with the norm `next` of the sum; null:
    /// none.
    virtual Summed plus(const Tensor& x, const Tensor& in, const Norm* next) = 0;
    /// Emits the attention of each sample, once the layer is done.
    virtual void emit() = 0;
};

class AttentionStep final : public Branch {
  public:
    explicit AttentionStep(const BlockSpec& block) : Branch(block, 1) {}

    void stages(StageList& list) const override;
    void describe(Json& layer) const override;
    double flops(double width, double tokens) const override;
    /// Declares `own`, parameters of the variant, which may be those of another layer.
    void declare_own(std::span<const Parameter> own, Parameters& to);

    const AttentionSpec& spec() const { return block().attention; }
    const AttentionWeights& weights() const { return w_; }
    /// All arguments outlive the result.
    std::unique_ptr<AttentionPass> on(const Batch& batch, const LayerRun& run,
                                      StepRun& layer) const;
    /// alpha^2 sum_k |W_V^k W_O^k|_F^2 / d, k over the query heads, layer scale included in W_O.
    ///
    /// |W_V^k W_O^k|^2 = <W_O^kT W_O^k, W_V^k W_V^kT>: two Gram matrices of a head's width.  Cost:
    /// 4 d^2 head_dim flops.  NaN for a gated unit and a normalised branch, which are not linear in
    /// P V, for latent values, which are normalised, and over channels, where no P acts on tokens.
    double gain() const;

  private:
    void declare_maps(Index width, Parameters& to) override;

    AttentionWeights w_;
};

}  // namespace tsdiag::model
