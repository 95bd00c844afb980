#include "gradient.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "layer_feed.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/model.hpp"

/// The reverse sweep: layer by layer from the last, each layer recomputed.
namespace tsdiag {
namespace model {

Tensor TrackedWeights::get(std::string_view name) const {
    for (const Used& u : used_)
        if (u.name == name && u.rows.empty()) return u.value;
    used_.push_back({std::string(name), variable(weights_.get(name)), {}});
    return used_.back().value;
}

Tensor TrackedWeights::rows(std::string_view name, std::span<const Index> rows) const {
    std::vector<Index> once(rows.begin(), rows.end()), at;
    std::ranges::sort(once);
    once.erase(std::ranges::unique(once).begin(), once.end());
    for (const Index r : rows) at.push_back(std::ranges::lower_bound(once, r) - once.begin());
    const Tensor table = variable(weights_.rows(name, once));
    used_.push_back({std::string(name), table, std::move(once)});
    return gather_rows(table, at);
}

bool constant_in_sweep(std::string_view name) {
    return name.ends_with(".lrpe.theta") || name.ends_with(".norm.mean") ||
           name.ends_with(".norm.variance");
}

namespace {

/// Records the stages that a layer emits.
class Stages final : public Observer {
  public:
    void on_hidden(const Hidden& e) override { all.emplace_back(e.stage, e.x); }
    std::vector<std::pair<std::string, Tensor>> all;
};

/// The attention of the tape again, detached.
std::unique_ptr<AttentionOperator> detach(AttentionTape& tape, const BlockSpec& block) {
    Projections& p = tape.projections;
    for (Tensor* t : {&tape.v, &p.q, &p.k, &p.q_raw, &p.k_raw, &p.q_norm, &p.k_norm})
        *t = t->detached();
    const auto made = [&](std::size_t side, const std::string& variant) {
        AttentionInput input = tape.inputs[side];
        for (Tensor* t : {&input.q, &input.k, &input.q2, &input.k2, &input.x, &input.windows.bias})
            *t = t->detached();
        input.parameter = [own = std::move(input.parameter)](std::string_view name) {
            return own ? own(name).detached() : Tensor();
        };
        return attention(variant).make(std::move(input));
    };
    const AttentionSpec& a = block.attention;
    return a.second ? side_by_side(made(0, a.variant), made(1, a.second->variant))
                    : made(0, a.variant);
}

/// State of one sample in the reverse sweep.
struct SweepState {
    Batch sample;                           ///< of one sample, in front of the current layer
    std::vector<Batch> inputs;              ///< of each layer
    Tensor end;                             ///< of the last layer
    Tensor cotangent;                       ///< dL/d of the current layer's output
    std::map<std::string, Tensor> pending;  ///< gradients of parameters with uses to come
};

class Sweep {
  public:
    Sweep(const ModelSpec& spec, const Weights& weights, const Backend& backend, Type type,
          Observer& observer, const RunSettings& settings)
        : spec_(spec),
          weights_(weights),
          backend_(backend),
          type_(type),
          observer_(observer),
          settings_(settings),
          layers_(Index(spec.blocks.size())),
          last_(settings.last_layer < 0 ? layers_ - 1 : settings.last_layer) {}

    void run(std::span<const Input> inputs, std::span<const Loss> losses, Index first) {
        std::vector<SweepState> states(inputs.size());
        for (std::size_t s = 0; s < states.size(); ++s)
            states[s].sample = embedded(weights_, inputs[s]);
        weights_.release();
        LayerFeed feed(weights_, spec_, backend_);
        for (Index l = 0; l < layers_; ++l) forward(l, feed.take(l, l + 1), states);
        for (Index l = layers_ - 1; l >= 0; --l) {
            const BlockSpec& block = spec_.blocks[std::size_t(l)];
            const TrackedWeights tracked(weights_), ends(weights_);
            const LayerSteps steps = load_layer(tracked, spec_, l);
            for (std::size_t s = 0; s < states.size(); ++s) {
                if (observed(l)) observer_.begin_sample(first + Index(s));
                if (l == layers_ - 1) begin(ends, losses[s], states[s]);
                LayerRun run{.layer = l, .block = block, .steps = steps};
                run.memory = settings_.memory;
                run.allow_nonfinite = settings_.allow_nonfinite;
                run.rng = settings_.rng;
                run.update = settings_.update;
                back(run, tracked, states[s]);
                if (l == 0) finish(inputs[s], states[s]);
                if (observed(l)) observer_.end_sample(first + Index(s));
            }
            weights_.release();
            if (selected(l)) observer_.end_layer(l);
            if (settings_.progress) settings_.progress(layers_ - l, layers_);
        }
    }

  private:
    /// Whether the observer receives events at `layer`.  The loss and gradients of no layer are
    /// always emitted.
    bool observed(Index layer) const {
        return selected(layer) || layer == 0 || layer == layers_ - 1;
    }
    bool selected(Index layer) const { return layer >= settings_.first_layer && layer <= last_; }

    Batch embedded(const Weights& weights, const Input& input) const {
        return embed(spec_, weights, std::span(&input, 1), backend_, type_,
                     settings_.allow_nonfinite);
    }

    void forward(Index l, const LayerSteps& steps, std::vector<SweepState>& states) const {
        LayerRun run{.layer = l, .block = spec_.blocks[std::size_t(l)], .steps = steps};
        run.memory = settings_.memory;
        run.allow_nonfinite = settings_.allow_nonfinite;
        run.rng = settings_.rng;
        run.update = settings_.update;
        for (SweepState& state : states) {
            state.inputs.push_back(state.sample);
            Tensor memory = next_memory(run, state.sample);
            Tensor y = apply_layer(run, state.sample);
            state.sample =
                after_layer(run.block, std::move(state.sample), std::move(y), std::move(memory));
            if (l + 1 == layers_) state.end = state.sample.x;
        }
        weights_.release();
    }

    void emit_state(Index layer, std::string_view stage, const Tensor& g) const {
        if (selected(layer)) observer_.on_gradient({layer, stage, "", g});
    }

    /// Emits the gradients of `used`, adding those in `pending`; parameters with further uses stay
    /// pending.
    void emit_parameters(Index layer, const std::vector<TrackedWeights::Used>& used,
                         std::span<const Tensor> gradients, SweepState& state,
                         const std::function<bool(const std::string&)>& waits) const {
        for (std::size_t i = 0; i < used.size(); ++i) {
            const auto& [name, value, rows] = used[i];
            if (constant_in_sweep(name)) continue;
            Tensor g = gradients[i];
            if (const auto more = state.pending.find(name); more != state.pending.end()) {
                if (!rows.empty()) g = scatter_add_rows(g, rows, more->second.rows());
                g = add(more->second, g);
                state.pending.erase(more);
            }
            if (waits(name))
                state.pending[name] = g;
            else if (layer < 0 || selected(layer))
                observer_.on_gradient(
                    {layer, "", layer < 0 ? name : name.substr(name.find('.', 6) + 1), g});
        }
    }

    /// The loss and everything after the layers.
    void begin(const TrackedWeights& ends, const Loss& loss, SweepState& state) const {
        const Tensor x = variable(state.end), y = last_state(spec_, ends, x);
        const Tensor value = loss_of(spec_, ends, y, std::span(&loss, 1));
        observer_.on_loss(value.item());
        std::vector<Tensor> wrt = {x, y};
        for (const TrackedWeights::Used& u : ends.used()) wrt.push_back(u.value);
        const std::vector<Tensor> found = grad(value, affine(value.detached(), 0, 1), wrt);
        state.cotangent = found[0];
        state.end = {};
        if (spec_.final_norm) emit_state(layers_ - 1, "final_norm", found[1]);
        emit_parameters(-1, ends.used(), std::span(found).subspan(2), state,
                        [&](const std::string& name) {
                            return state.sample.embedded &&
                                   (name == "embed.token" || name.starts_with("embed.cluster."));
                        });
    }

    void back(const LayerRun& layer, const TrackedWeights& tracked, SweepState& state) const {
        Stages stages;
        AttentionTape tape;
        LayerRun run = layer;
        run.observer = &stages;
        run.tape = &tape;
        Batch sample = std::move(state.inputs.back());
        sample.x = variable(sample.x);
        state.inputs.pop_back();
        const Tensor y = apply_layer(run, sample);
        std::vector<Tensor> wrt = {sample.x, tape.output};
        if (tape.normed.defined()) wrt.push_back(tape.normed);
        const std::size_t states = wrt.size();
        for (const auto& [stage, x] : stages.all) wrt.push_back(x);
        const std::size_t parameters = wrt.size();
        for (const TrackedWeights::Used& u : tracked.used()) wrt.push_back(u.value);
        const std::vector<Tensor> found = grad(y, state.cotangent, wrt);

        state.cotangent = found[0];
        for (std::size_t i = 0; i < stages.all.size(); ++i)
            emit_state(run.layer, stages.all[i].first, found[states + i]);
        const std::string own = fmt::format("layer.{}.", run.layer);
        emit_parameters(run.layer, tracked.used(), std::span(found).subspan(parameters), state,
                        [&own](const std::string& name) { return !name.starts_with(own); });
        if (selected(run.layer) && observer_.wants_attention_gradient(run.layer))
            emit_attention(run, tape, found[1], tape.normed.defined() ? found[2] : Tensor());
    }

    void emit_attention(const LayerRun& run, AttentionTape& tape, const Tensor& output,
                        const Tensor& normed) const {
        const std::unique_ptr<AttentionOperator> op = detach(tape, run.block);
        observer_.on_attention_gradient(
            {.layer = run.layer,
             .op = *op,
             .v = tape.v,
             .output = output,
             .normed = normed,
             .projections = run.block.attention.gated_unit ? nullptr : &tape.projections,
             .norm = tape.normed.defined() ? run.block.attention.output_norm : OutputNorm::none,
             .norm_eps = run.block.norm.eps,
             .over = tape.over});
    }

    /// Everything before the layers.
    void finish(const Input& input, SweepState& state) const {
        if (!state.sample.embedded) return;
        emit_state(0, "embed", state.cotangent);
        const TrackedWeights tracked(weights_);
        const Tensor x = embedded(tracked, input).x;
        std::vector<Tensor> wrt;
        for (const TrackedWeights::Used& u : tracked.used()) wrt.push_back(u.value);
        emit_parameters(-1, tracked.used(), grad(x, state.cotangent, wrt), state,
                        [](const std::string&) { return false; });
        for (const auto& [name, g] : state.pending) observer_.on_gradient({-1, "", name, g});
    }

    const ModelSpec& spec_;
    const Weights& weights_;
    const Backend& backend_;
    Type type_;
    Observer& observer_;
    const RunSettings& settings_;
    Index layers_, last_;
};

}  // namespace
}  // namespace model

void Model::differentiate(std::span<const Input> inputs, std::span<const Loss> losses,
                          Observer& observer, const RunSettings& settings) const {
    if (inputs.size() != losses.size())
        throw UsageError(fmt::format("{} samples and {} losses, expected one loss per sample",
                                     inputs.size(), losses.size()));
    const auto layers = Index(spec_.blocks.size());
    model::Sweep sweep(spec_, *weights_, *backend_, type_, observer, settings);
    const auto count = Index(inputs.size());
    Index group = 1;
    for (Index first = 0; first < count; first += group) {
        const auto at = std::size_t(first);
        const Index tokens = tokens_of(spec_, inputs[at]);
        const Index bytes = layers * tokens * spec_.width * Index(bytes_of(type_));
        group = settings.memory > 0 ? std::max<Index>(1, settings.memory / 2 / bytes) : count;
        const auto size = std::size_t(std::min(group, count - first));
        sweep.run(inputs.subspan(at, size), losses.subspan(at, size), first);
    }
}

}  // namespace tsdiag
