#include "tsdiag/model.hpp"

#include <fmt/format.h>

#include "class_attention.hpp"
#include "layer_feed.hpp"
#include "steps/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// The one forward pass: all samples through a layer, batch by batch, then the next layer.
namespace tsdiag {
namespace {

/// Throws `UsageError` where a layer cannot attend to a memory.
void require_memory(const ModelSpec& spec) {
    if (spec.memory_tokens == 0) return;
    for (const BlockSpec& b : spec.blocks) {
        const AttentionSpec& a = b.attention;
        const std::string_view kind = a.second               ? "double "
                                      : a.gated_unit         ? "gated "
                                      : a.rotary.columns > 0 ? "rotary "
                                      : !a.causal            ? "bidirectional "
                                                             : "";
        if (!attention(a.variant).facts.memory || !kind.empty())
            throw UsageError(
                fmt::format("a memory of {} tokens: {}{} attention does not support it, only "
                            "causal transformer_xl attention without rotary positions",
                            spec.memory_tokens, kind, a.variant));
    }
}

}  // namespace

Model::Model(ModelSpec spec, std::shared_ptr<const Weights> weights, const Backend& backend,
             Type type)
    : spec_(std::move(spec)), weights_(std::move(weights)), backend_(&backend), type_(type) {
    if (spec_.blocks.empty()) throw UsageError("the model has no layer");
    require_memory(spec_);
}

namespace {

/// The layers [first, last] that emit events; later layers need not run.
std::pair<Index, Index> measured(const RunSettings& settings, Index layers) {
    const Index last = settings.last_layer < 0 ? layers - 1 : settings.last_layer;
    if (settings.first_layer < 0 || settings.first_layer > last || last >= layers)
        throw UsageError(
            fmt::format("layers {} to {} were requested, but the model has layers 0 to {}",
                        settings.first_layer, last, layers - 1));
    return {settings.first_layer, last};
}

struct Part {
    model::Batch batch;
    Index first;  ///< index of its first sample
};

}  // namespace

void Model::run(std::span<const Input> inputs, Observer& observer,
                const RunSettings& settings) const {
    if (inputs.empty()) throw UsageError("there is no sample to run the model on");
    const auto layers = Index(spec_.blocks.size());
    const auto [first, last] = measured(settings, layers);
    std::vector<Part> parts;
    for (Index at = 0, count = 0; at < std::ssize(inputs); at += count) {
        const auto rest = inputs.subspan(std::size_t(at));
        count = model::batchable(rest, settings.batch);
        parts.push_back({model::embed(spec_, *weights_, rest.first(std::size_t(count)), *backend_,
                                      type_, settings.allow_nonfinite),
                         at});
        model::require_finite(parts.back().batch.x, 0, "embed", settings.allow_nonfinite);
    }
    weights_->release();
    model::LayerFeed feed(*weights_, spec_, *backend_);
    for (Index l = 0; l <= last; ++l) {
        const bool selected = l >= first;
        const BlockSpec& block = spec_.blocks[std::size_t(l)];
        {
            const model::LayerSteps steps = feed.take(l, l < last ? l + 1 : -1);
            model::LayerRun run{.layer = l, .block = block, .steps = steps};
            run.observer = selected ? &observer : nullptr;
            if (selected && observer.wants_attention(l)) run.a2 = steps.attention().gain();
            run.memory = settings.memory;
            run.team = settings.team;
            run.rng = settings.rng;
            run.update = settings.update;
            run.allow_nonfinite = settings.allow_nonfinite;
            for (auto& [batch, first_sample] : parts) {
                const Index count = batch.x.batch();
                run.first = first_sample;
                if (selected) observer.begin_sample(first_sample);
                if (selected && l == 0 && batch.embedded)
                    observer.on_states(first_sample, {0, "embed", "", batch.x});
                Tensor memory = l < last ? model::next_memory(run, batch) : Tensor();
                Tensor y = model::apply_layer(run, batch);
                batch =
                    model::after_layer(block, std::move(batch), std::move(y), std::move(memory));
                if (!selected) continue;
                if (l + 1 == layers)
                    after_layers(batch.x, observer, first_sample, settings.allow_nonfinite);
                for (Index s = 0; s < count; ++s) observer.end_sample(first_sample + s);
            }
        }
        weights_->release();
        if (selected) observer.end_layer(l);
        if (settings.progress) settings.progress(l + 1, last + 1);
    }
}

void Model::after_layers(const Tensor& x, Observer& observer, Index first,
                         bool allow_nonfinite) const {
    const auto layer = Index(spec_.blocks.size()) - 1;
    const auto emit = [&](std::string_view stage, const Tensor& y) {
        model::require_finite(y, layer, stage, allow_nonfinite);
        observer.on_states(first, {layer, stage, "", y});
    };
    Tensor y = x;
    if (spec_.class_attention.layers > 0) {
        y = model::class_attention(spec_, *weights_, x);
        emit("class", y);
    }
    if (!spec_.final_norm) return;
    const double eps = spec_.blocks.back().norm.eps;
    emit("final_norm",
         model::normed(spec_.last_norm(), y, model::load_norm(*weights_, "final_norm"), eps));
}

double Model::branch_gain(Index layer) const {
    if (layer < 0 || layer >= Index(spec_.blocks.size()))
        throw UsageError(fmt::format("there is no layer {}", layer));
    const double gain = model::load_layer(*weights_, spec_, layer).attention().gain();
    weights_->release();
    return gain;
}

}  // namespace tsdiag
