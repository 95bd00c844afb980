#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "embedding.hpp"
#include "norm.hpp"
#include "tsdiag/events.hpp"

namespace tsdiag::model {

class AttentionStep;
class FeedForwardStep;
class Parameters;
class Step;

/// The steps of one layer; once loaded, with their parameters, resident while it is applied.
class LayerSteps {
  public:
    /// `block` outlives them.
    explicit LayerSteps(const BlockSpec& block);
    /// Declares the parameters of a layer of `width` columns, in the order in which they are
    /// listed.
    void declare(Index width, Parameters& to);
    /// In the order of computation.
    std::span<const std::shared_ptr<Step>> all() const { return all_; }
    AttentionStep& attention() { return *attention_; }
    const AttentionStep& attention() const { return *attention_; }
    const FeedForwardStep& feed_forward() const { return *feed_forward_; }

    double bytes = 0;  ///< of all parameters but those that are read when they are used

  private:
    std::shared_ptr<AttentionStep> attention_;
    std::shared_ptr<FeedForwardStep> feed_forward_;
    std::vector<std::shared_ptr<Step>> all_;
};
/// Throws `FormatError` for a parameter that `weights` lacks.
LayerSteps load_layer(const Weights& weights, const ModelSpec& spec, Index layer);

/// Tensors of an attention that a reverse sweep reads, O = P V.
struct AttentionTape {
    std::vector<AttentionInput> inputs;  ///< of the attention, or of the two side by side
    Tensor v, output, normed;  ///< V, O (h, n, w), norm(O) (1, n, h w); empty: there is no norm, or
                               ///< there are two attentions
    Projections projections;
    AttentionOver over;
};

/// Throws `NonFiniteError` naming layer and stage.
void require_finite(const Tensor& x, Index layer, std::string_view stage, bool allow);

/// States that must be finite: on a CPU each is examined at once, on a device all together when
/// `require` is called.
class FiniteStates {
  public:
    void add(const Tensor& x, Index layer, std::string_view stage);
    /// Throws `NonFiniteError` naming the first that is not.
    void require();

  private:
    std::vector<Tensor> states_;
    std::vector<std::pair<Index, std::string>> places_;
};

/// How a layer is applied to a batch.
struct LayerRun {
    Index layer = 0;
    const BlockSpec& block;
    const LayerSteps& steps;
    Observer* observer = nullptr;    ///< null: no events
    Index first = 0;                 ///< index of the first sample, for the observer
    AttentionTape* tape = nullptr;   ///< of one sample; null: nothing is recorded
    FiniteStates* finite = nullptr;  ///< receives the states; null: the layer requires its own
    /// Applied to a branch before it is added; empty: identity.
    std::function<Tensor(const Tensor& branch, std::string_view stage)> dropout = {};
    double a2 = 1;
    Index memory = 0;
    bool allow_nonfinite = false;
    const Team* team = nullptr;  ///< shares the rows of P
    Rng rng{0};                  ///< source of what attentions draw
    Index update = 0;            ///< AttentionInput::update
};
/// The layer's output, behind its merging of patches where it has one.  Emits each sample's stages
/// in order, then its attention.
Tensor apply_layer(const LayerRun& run, const Batch& batch);
/// The memory of the next layer: a segment of its own, without a memory and without gradient.
/// Empty where `batch` has none.  Emits nothing.
Tensor next_memory(const LayerRun& run, const Batch& batch);
/// `batch` with the output `y` and the memory of the layer that it went through.
Batch after_layer(const BlockSpec& block, Batch batch, Tensor y, Tensor memory);

}  // namespace tsdiag::model
