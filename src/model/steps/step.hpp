#pragma once
#include <string_view>
#include <vector>

#include "layer.hpp"
#include "parameters.hpp"

/// The steps of a layer.  Each is a file of this folder and a line of the list in steps.cpp.
namespace tsdiag::model {

/// Stages in the order of computation.
class StageList {
  public:
    /// A state of the layer, which the one before it becomes.
    void state(std::string_view name) {
        list_.push_back({name, state_});
        state_ = name;
    }
    /// What a step computes on its way: a norm before it, a branch.
    void aside(std::string_view name) { list_.push_back({name}); }
    /// The sum of the layer's input and steps that all read it.
    void sum_with_input(std::string_view name) {
        state_ = "in";
        state(name);
    }
    const std::vector<Stage>& list() const { return list_; }

  private:
    std::vector<Stage> list_{{"in"}};
    std::string_view state_ = "in";
};

/// What a step has and costs in a layer; nothing where `block` has no such step.
struct LayerStep {
    std::string_view name;
    /// Declares its parameters, those of its norms and scales among them, and where `layer` holds
    /// them.  `width`: columns of the layer's input.
    void (*parameters)(const BlockSpec& block, Index width, LayerWeights& layer, Parameters& to);
    /// Adds the stages that it emits.
    void (*stages)(const BlockSpec& block, StageList& list);
    /// Adds its settings to the JSON of the layer.
    void (*describe)(const BlockSpec& block, Json& layer);
    /// FLOPs of its matrix products on a sample of `tokens` tokens.
    double (*flops)(const BlockSpec& block, double width, double tokens);
    /// Numbers a token that it holds besides its states; null: none.
    double (*held)(const BlockSpec& block, double width) = nullptr;
    bool behind = false;  ///< applied to the layer's output, after `out`
};

/// In the order of computation.
std::vector<const LayerStep*> steps_of(const BlockSpec& block);

extern const LayerStep attention_step, local_step, deescalation_step, merge_step, feed_forward_step;

}  // namespace tsdiag::model
