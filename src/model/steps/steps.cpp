#include <fmt/format.h>

#include <utility>

#include "step.hpp"

namespace tsdiag::model {

std::vector<const LayerStep*> steps_of(const BlockSpec& block) {
    const LayerStep *first = &feed_forward_step, *second = &deescalation_step;
    if (block.deesc.before_ffn) std::swap(first, second);
    return {&attention_step, &local_step, first, second, &merge_step};
}

void declare_layer(const BlockSpec& block, Index width, LayerWeights& layer, Parameters& to) {
    for (const LayerStep* step : steps_of(block)) step->parameters(block, width, layer, to);
}

LayerWeights load_layer(const Weights& weights, const ModelSpec& spec, Index layer) {
    const Index shares = spec.blocks[std::size_t(layer)].shares;
    if (shares >= 0) layer = shares;
    const BlockSpec& block = spec.blocks[std::size_t(layer)];
    LayerWeights out;
    LoadedParameters own(weights, fmt::format("layer.{}.", layer));
    declare_layer(block, spec.width_of(layer), out, own);
    out.bytes = own.bytes();
    if (const Index owner = block.attention.own_of; owner >= 0) {
        LoadedParameters table(weights, fmt::format("layer.{}.", owner));
        declare_own(spec.blocks[std::size_t(owner)].attention, out.attention, table);
    }
    return out;
}

}  // namespace tsdiag::model

namespace tsdiag {

std::vector<Stage> stages_of(const BlockSpec& block) {
    model::StageList list;
    for (const bool behind : {false, true}) {
        for (const model::LayerStep* step : model::steps_of(block))
            if (step->behind == behind) step->stages(block, list);
        if (!behind) list.aside("out");
    }
    return list.list();
}

std::vector<std::string_view> all_stages() {
    BlockSpec every;  // each step, and the norms that precede them
    every.placement = NormPlacement::pre;
    every.local.kernel = every.ffn.width = every.merge.width = 1;
    every.deesc.tau = 1;
    std::vector<std::string_view> out = {"embed"};
    for (const Stage& stage : stages_of(every)) out.push_back(stage.name);
    out.insert(out.end(), {"class", "final_norm"});
    return out;
}

}  // namespace tsdiag
