#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "embedding.hpp"
#include "linear.hpp"
#include "norm.hpp"
#include "tsdiag/events.hpp"
#include "windows.hpp"

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
struct FeedForwardMaps {
    Linear up, gate, down;
};
struct FeedForwardWeights {
    FeedForwardMaps maps;
    Linear router, shared_gate;  ///< of a mixture of experts, as are
    Tensor correction;
    std::vector<std::function<FeedForwardMaps()>> experts;  ///< read when they are used
    std::function<FeedForwardMaps()> shared;
};
class Step;
/// The parameters of one layer, resident while it is applied; empty those of steps that it lacks.
struct LayerWeights {
    Norm norm1, norm2, branch1, branch2;
    AttentionWeights attention;
    FeedForwardWeights ffn;
    Tensor scale1, scale2;
    std::vector<std::shared_ptr<const Step>> steps;  ///< each with its own parameters
    double bytes = 0;  ///< of all but those that are read when they are used
};

class Parameters;
/// Declares the parameters of a layer of `width` columns, in the order in which they are listed.
void declare_layer(const BlockSpec& block, Index width, LayerWeights& layer, Parameters& to);
/// Declares those of the attention's variant.
void declare_own(const AttentionSpec& spec, AttentionWeights& weights, Parameters& to);
/// Throws `FormatError` for a parameter that `weights` lacks.
LayerWeights load_layer(const Weights& weights, const ModelSpec& spec, Index layer);

/// alpha^2 sum_k |W_V^k W_O^k|_F^2 / d, k over the query heads, layer scale included in W_O.
///
/// |W_V^k W_O^k|^2 = <W_O^kT W_O^k, W_V^k W_V^kT>: two Gram matrices of a head's width.  Cost: 4
/// d^2 head_dim flops.  NaN for a gated unit and a normalised branch, which are not linear in P V,
/// for latent values, which are normalised, and over channels, where no P acts on tokens.
double branch_gain(const BlockSpec& block, const LayerWeights& weights);

/// Tensors of an attention that a reverse sweep reads, O = P V.
struct AttentionTape {
    std::vector<AttentionInput> inputs;  ///< of the attention, or of the two side by side
    Tensor v, output, normed;  ///< V, O (h, n, w), norm(O) (1, n, h w); empty: there is no norm, or
                               ///< there are two attentions
    Projections projections;
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
    const LayerWeights& weights;
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
