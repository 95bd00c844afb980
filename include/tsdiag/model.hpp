#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/events.hpp"
#include "tsdiag/input.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/spec.hpp"
#include "tsdiag/weights.hpp"

/// A spec and its weights; runs forward, in reverse, and a step of training, and emits events.
namespace tsdiag {

struct RunSettings {
    Index memory = 0;  ///< bytes for row blocks, and P where it is kept, of one sample; 0: no limit
    Index batch = 1;   ///< samples that may go through a layer together
    Index first_layer = 0, last_layer = -1;  ///< events only for these (inclusive; -1: to the end)
    bool allow_nonfinite = false;
    const Team* team = nullptr;  ///< shares the rows and heads of P; each member has the result
    Rng rng{0};                  ///< source of what attentions draw, the same for all samples
    Index update = 0;            ///< of the training, by which some of them draw again
    std::function<void(Index done, Index total)> progress = {};  ///< layers
};

/// The loss of some samples, and its derivatives for training.
struct StepSettings {
    bool gradients = true;
    bool hits = false;   ///< count predictions whose target has the greatest logit
    double dropout = 0;  ///< probability p, in [0, 1): entries of the embedding and of each branch
                         ///< are zeroed, the others divided by 1 - p
    std::vector<Rng> rngs = {};  ///< of the dropout, one a sample
    Rng attention_rng{0};        ///< source of what attentions draw, the same for all samples
    Index update = 0;  ///< updates of the training so far: some attentions draw again as it grows
};
struct StepResult {
    double loss = 0;  ///< summed over the samples, or pairs of them
    Index predictions = 0, correct = 0;
    std::vector<bool> hit = {};  ///< of each prediction that was counted: whether it is correct
    /// By parameter name, each of its shape; "classifier": that of the loss.  Parameters that the
    /// loss does not depend on are omitted, and those that are read on the host (the angles of
    /// LRPE).
    std::vector<std::pair<std::string, Tensor>> gradients = {};
};

/// The one forward pass, and the reverse sweep through it.
class Model {
  public:
    Model(ModelSpec spec, std::shared_ptr<const Weights> weights, const Backend& backend,
          Type type);
    const ModelSpec& spec() const { return spec_; }

    /// Runs all samples, layer by layer: one layer's weights are resident at a time.  Adjacent
    /// samples of equal length and mask are batched; on the CPU results do not depend on the
    /// batch, bit for bit.  A masked sample is run on its kept tokens alone, at their own
    /// positions: the same numbers as with masked keys.  Throws `UsageError` for inputs that do not
    /// fit, `NonFiniteError` naming layer and stage where a NaN arose.
    void run(std::span<const Input> inputs, Observer& observer,
             const RunSettings& settings = {}) const;

    /// Emits the derivatives of each sample's loss with respect to every state and parameter, last
    /// layer first.  Of the forward pass only layer inputs are kept, layers n d numbers a sample,
    /// as many samples at once as half of `settings.memory` holds; the rest of a layer is
    /// recomputed, with P whole.  A shared parameter is emitted at its owner, summed over its uses.
    /// Cost: about four forward passes.  Throws `UsageError` for a loss that the model does not
    /// support.
    void differentiate(std::span<const Input> inputs, std::span<const Loss> losses,
                       Observer& observer, const RunSettings& settings = {}) const;

    /// The derivatives of the sum of the losses with respect to the parameters, with all
    /// activations kept: about three forward passes.  Adjacent samples of equal length and mask are
    /// batched from the embedding to the loss.  Throws `NonFiniteError` naming layer and stage
    /// where a NaN arose.
    StepResult step(std::span<const Input> inputs, std::span<const Loss> losses,
                    const StepSettings& settings = {}) const;
    StepResult step(const Input& input, const Loss& loss, const StepSettings& settings = {}) const {
        return step(std::span(&input, 1), std::span(&loss, 1), settings);
    }

    /// alpha^2 sum_k |W_V^k W_O^k|_F^2 / d of one layer.
    double branch_gain(Index layer) const;

  private:
    /// Emits the states of class attention and of the final norm.
    void after_layers(const Tensor& x, Observer& observer, Index first, bool allow_nonfinite) const;

    ModelSpec spec_;
    std::shared_ptr<const Weights> weights_;
    const Backend* backend_;
    Type type_;
};

}  // namespace tsdiag
