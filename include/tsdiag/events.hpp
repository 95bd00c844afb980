#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <typeindex>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/spec.hpp"

/// The events of a running model.  No activation is kept: the events are the trace.
namespace tsdiag {

/// The states of several samples, and what was found for all of them at once.
struct StatesTogether {
    /// Of X / 2^exponent: all eigenvalues of the smaller of X X^T and X^T X, ascending.
    struct Squares {
        std::vector<double> values;
        int exponent = 0;
    };
    /// |X|_2 / 2^exponent.
    struct Norm {
        Estimate found;
        int exponent = 0;
    };

    Tensor x;  ///< (samples, n, d)
    std::optional<std::vector<Squares>> squares = {};
    std::optional<std::vector<Norm>> norms = {};
};

/// A state of one sample.  Stage names: docs/metrics.md "Stages of one layer".
struct Hidden {
    Index layer = 0;
    std::string_view stage;
    std::string_view pred;  ///< the stage that xi, r at this stage are measured from; empty: none
    const Tensor& x;        ///< (1, n, d)
    /// On a device: the states of all samples, and which of them x is.
    StatesTogether* together = nullptr;
    Index sample = 0;
};

/// Rows of P of one layer, as the forward pass makes them.
struct AttentionRows {
    Index layer = 0;
    const RowBlock& block;
    const RowStatistics& stats;
};

/// The projections that P is made of, where there are any.
struct Projections {
    Tensor q, k;            ///< as the logits see them, (h, n, w), (h', m + n, w)
    Tensor q_raw, k_raw;    ///< before q/k norm and rotation; equal to q, k where there is neither
    Tensor q_norm, k_norm;  ///< weights of the q/k norm, (1, 1, w); empty: none
    bool norm_is_layer = false;      ///< the q/k norm is a LayerNorm
    bool norm_of_all_heads = false;  ///< q_raw, k_raw are behind a norm of all heads together
    double norm_eps = 0;
    double scale = 1;
    std::vector<double> position, frequency;  ///< rotation; frequency empty: none
    bool interleaved = false;
    double magnitude = 1;  ///< of the rotated columns, behind the rotation
    /// What each token's query is multiplied by, behind all else; empty: 1.
    std::vector<double> growth = {};
};

/// What several observers derive from one event, by type: made by the first that asks, so it must
/// depend on the event alone.
class Derived {
  public:
    template <class T, class Make>
    const T& of(const Make& make) const {
        std::shared_ptr<const void>& kept = (*made_)[typeid(T)];
        if (!kept) kept = std::make_shared<const T>(make());
        return *static_cast<const T*>(kept.get());
    }

  private:
    using Map = std::map<std::type_index, std::shared_ptr<const void>>;
    std::shared_ptr<Map> made_ = std::make_shared<Map>();
};

/// The attention of one layer and sample, after the layer was applied.
struct Attention {
    Index layer = 0;
    const AttentionOperator& op;
    const Tensor& input;     ///< X: what the projections act on, (1, n, d); empty: a trace lacks it
    const Tensor& residual;  ///< R: the state that the branch is added to; empty: a trace lacks it
    const Projections* projections = nullptr;
    double a2 = 1;          ///< alpha^2 sum_k |W_V^k W_O^k|_F^2 / d; NaN: there is none, or unknown
    double memory = 2e9;    ///< bytes of P that may be held whole
    bool pre_norm = false;  ///< a norm stands before the branch: est1 and est2 do not apply
    /// Why no estimate applies ("P V is normalised"); null: they do.
    const char* why_no_estimate = nullptr;
    Derived derived = {};
    AttentionOver over = {};  ///< of X and R, too; of channels there are `op.tokens()`
    /// On a device: the attention of all samples as one, X and R (samples, n, d) and the heads of
    /// each sample in turn, and which of them this is; null: it is alone.
    const Attention* together = nullptr;
    Index sample = 0;
};

/// The routing of one layer and sample with a mixture of experts (ExpertsSpec), as it is applied.
struct Routing {
    Index layer = 0;
    const Tensor& p;                ///< softmax, or sigmoids over their sum, (1, n, E)
    std::span<const Index> chosen;  ///< token i: `each` experts from i each on, most probable first
    Index each = 1;
};

/// The derivative of a loss with respect to a state or a parameter, of one sample.
struct Gradient {
    Index layer = -1;         ///< -1: of no layer (embedding, final norm, output head)
    std::string_view stage;   ///< of a state; empty: a parameter
    std::string_view tensor;  ///< of a parameter: its name, in a layer the part after `layer.L.`
    /// Has the shape of the state or parameter; unused rows of an embedding table may be omitted.
    const Tensor& g;
};

/// The attention of one layer and sample in a reverse sweep, O = P V; over channels O^T = P V^T,
/// and V, O, Q and K here are those transposes.
struct AttentionGradient {
    Index layer = 0;
    const AttentionOperator& op;
    const Tensor& v;       ///< V, (h', m + n, w)
    const Tensor& output;  ///< dL/dO, (h, n, w)
    const Tensor& normed;  ///< dL/d norm(O), heads concatenated, (1, n, h w); empty: no norm
    const Projections* projections = nullptr;
    OutputNorm norm = OutputNorm::none;
    double norm_eps = 0;
    AttentionOver over = {};
};

/// Receives what a model emits.  Layers come in order.  Within a layer, samples of a batch
/// alternate: events after `begin_sample` are of that sample and keep their order.
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void begin_sample(Index sample) { (void)sample; }
    /// The sample's events of this layer are complete.
    virtual void end_sample(Index sample) { (void)sample; }
    virtual void on_hidden(const Hidden&) {}
    /// States of samples first, first + 1, ..., (s, n, d); unless overridden, each in turn.
    virtual void on_states(Index first, const Hidden& states) {
        const Index samples = states.x.batch();
        if (samples == 1) return on_hidden(states);
        for (Index s = 0; s < samples; ++s) {
            begin_sample(first + s);
            const Tensor x = states.x.batch_range(s, 1);
            on_hidden({states.layer, states.stage, states.pred, x});
        }
    }
    /// Whether rows of P are wanted; else they are not computed.
    virtual bool wants_rows(Index layer) const {
        (void)layer;
        return false;
    }
    /// Whether all rows are wanted with their entries; else a team of processes shows each the rows
    /// of its own, by `RowBlock::team`.
    virtual bool wants_entries(Index layer) const {
        (void)layer;
        return true;
    }
    virtual void on_attention_rows(Index layer, const RowBlock& block) {
        (void)layer;
        (void)block;
    }
    /// Rows of the heads of samples first, first + 1, ...; unless overridden, of each in turn.
    virtual void on_rows_of_samples(Index first, Index samples, Index layer,
                                    const RowBlock& block) {
        const Index heads = block.p.batch() / samples;
        for (Index s = 0; s < samples; ++s) {
            begin_sample(first + s);
            on_attention_rows(layer, block.of_heads(s * heads, heads));
        }
    }
    /// All states and rows of a layer and batch were emitted.  A device is to be asked for their
    /// numbers now: then one copy serves them and the model's own.
    virtual void before_numbers_are_read() {}
    /// Whether operator-level events are wanted; then rows are cached where they fit.
    virtual bool wants_attention(Index layer) const {
        (void)layer;
        return false;
    }
    virtual void on_attention(const Attention&) {}
    virtual void on_routing(const Routing&) {}
    // A reverse sweep: last layer first, inside a layer sample by sample.
    virtual void on_loss(double value) { (void)value; }
    virtual void on_gradient(const Gradient&) {}
    virtual bool wants_attention_gradient(Index layer) const {
        (void)layer;
        return false;
    }
    virtual void on_attention_gradient(const AttentionGradient&) {}
    virtual void end_layer(Index layer) { (void)layer; }  ///< all samples of the layer are done
};

}  // namespace tsdiag
