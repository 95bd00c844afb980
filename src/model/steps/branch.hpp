#pragma once
#include <string>
#include <string_view>

#include "step.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {

/// A state and, where it was computed along, its norm.
struct Summed {
    Tensor sum, normed;
};

/// A step that the layer adds to a state, y + alpha branch(x): attention or feed-forward.  Which of
/// x, the branch and the sum are normalised is the layer's NormPlacement.
class Branch : public Step {
  public:
    /// `number`: 1 or 2, that of its norm, its layer scale and its own norm among the parameters.
    Branch(const BlockSpec& block, int number) : Step(block), number_(number) {}

    StepPlace place() const final { return StepPlace::core; }
    void parameters(Index width, Parameters& to) final;
    const Norm& norm() const { return norm_; }  ///< that of the placement
    Tensor normed(const Tensor& x) const { return normed(x, norm_); }
    const Tensor& layer_scale() const { return scale_; }  ///< empty: none
    /// Whether the branch is added as its last map makes it.
    bool plain(const StepRun& run) const;
    /// map(x) + y; on a device with the norm `next` of the sum; null: none.
    LinearSum mapped_sum(const Linear& map, const Tensor& x, const Tensor& y,
                         const Norm* next) const;
    /// `branch` behind the layer's scale and behind its norm.
    Tensor scaled_and_normed(Tensor branch) const;
    /// y + alpha `branch`.
    Tensor sum(const Tensor& y, const Tensor& branch) const;

  protected:
    virtual bool there() const { return true; }
    /// Declares what is neither norm nor scale of the layer.
    virtual void declare_maps(Index width, Parameters& to) = 0;

  private:
    Tensor normed(const Tensor& x, const Norm& norm) const;
    std::string numbered(std::string_view name) const;
    double alpha() const { return number_ == 1 ? block().alpha : block().ffn_alpha; }

    int number_;
    Norm norm_, own_norm_;
    Tensor scale_;
};

}  // namespace tsdiag::model
