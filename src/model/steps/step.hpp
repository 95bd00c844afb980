#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layer.hpp"
#include "parameters.hpp"

/// The steps of a layer.  Each is a file of this folder and a line of a list in steps.cpp; one that
/// any family may have derives from `FurtherStep` and needs nothing else.
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

/// The layer as a step sees it while it is applied.
class StepRun {
  public:
    virtual ~StepRun() = default;
    virtual Index layer() const = 0;
    virtual const Grid& grid() const = 0;  ///< of the tokens
    /// Emits a state or what is computed on the way to one; `from`: the stage that it is compared
    /// with, empty: none.
    virtual void emit(std::string_view stage, std::string_view from, const Tensor& x) = 0;
    virtual std::string_view last_stage() const = 0;  ///< the last one that was emitted
    virtual bool drops() const = 0;                   ///< whether `dropped` changes a branch
    /// A branch as it is added.
    virtual Tensor dropped(const Tensor& branch, std::string_view stage) const = 0;
    /// Throws `NonFiniteError` for a state that was emitted, before the host decides by one.
    virtual void require_finite() = 0;
    /// Where a router sends the tokens of a sample of the batch: p (1, n, E), and the chosen
    /// experts, `each` a token.
    virtual void emit_routing(Index sample, const Tensor& p, std::span<const Index> chosen,
                              Index each) = 0;
};

/// Where the layer applies a step.
enum class StepPlace {
    core,     ///< attention and feed-forward: a `Branch`, which the layer places with its norms
    between,  ///< on the sum of the attention, before the feed-forward step
    end,      ///< on the layer's output
    behind    ///< on the output, after `out`
};

/// A step of a layer: what it has and costs there, and, once its parameters are loaded, what it
/// does.
class Step {
  public:
    /// `block` outlives the step.
    explicit Step(const BlockSpec& block) : block_(block) {}
    virtual ~Step() = default;

    virtual StepPlace place() const = 0;
    /// Declares its parameters, those of its norms and scales among them.  `width`: columns of the
    /// layer's input.
    virtual void parameters(Index width, Parameters& to) = 0;
    /// Adds the stages that it emits.
    virtual void stages(StageList& list) const = 0;
    /// Adds its settings to the JSON of the layer.
    virtual void describe(Json& layer) const = 0;
    /// FLOPs of its matrix products on a sample of `tokens` tokens.
    virtual double flops(double width, double tokens) const = 0;
    /// Numbers that it holds besides its states.
    virtual HeldNumbers held(double /*width*/) const { return {}; }
    /// The state that x, (s, n, d), becomes; emits its stages.  Not for `core`.
    virtual Tensor apply(StepRun& run, const Tensor& x) const;

  protected:
    const BlockSpec& block() const { return block_; }

  private:
    const BlockSpec& block_;
};

}  // namespace tsdiag::model

namespace tsdiag {

/// A step of `further_steps()`: emits the state that it makes under its name.
class FurtherStep : public model::Step {
  public:
    FurtherStep(const StepEntry& entry, const BlockSpec& block, const StepSpec& spec)
        : Step(block),
          entry_(entry),
          before_ffn_(spec.before_ffn),
          options_(entry.options, spec.options) {}

    model::StepPlace place() const final {
        return before_ffn_ ? model::StepPlace::between : model::StepPlace::end;
    }
    void stages(model::StageList& list) const final { list.state(entry_.name); }
    void describe(Json&) const final {}  // with the others of the list
    Tensor apply(model::StepRun& run, const Tensor& x) const final {
        const Tensor y = changed(x);
        run.emit(entry_.name, run.last_stage(), y);
        return y;
    }

  protected:
    /// Of each sample of x (s, n, d).
    virtual Tensor changed(const Tensor& x) const = 0;
    const OptionValues& options() const { return options_; }
    /// NAME.what
    std::string own(std::string_view what) const {
        return std::string(entry_.name).append(".").append(what);
    }

  private:
    const StepEntry& entry_;
    bool before_ffn_;
    OptionValues options_;
};

}  // namespace tsdiag

namespace tsdiag::model {

std::unique_ptr<Step> local_step(const BlockSpec& block);
std::unique_ptr<Step> deescalation_step(const BlockSpec& block);
std::unique_ptr<Step> merge_step(const BlockSpec& block);

}  // namespace tsdiag::model
