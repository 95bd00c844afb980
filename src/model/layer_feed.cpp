#include "layer_feed.hpp"

#include "tsdiag/error.hpp"

namespace tsdiag::model {

LayerSteps LayerFeed::arrived(Index layer) {
    if (coming_layer_ != layer) return load_layer(weights_, spec_, layer);
    coming_layer_ = -1;
    try {
        return coming_.get();
    } catch (const OutOfMemory&) {  // the previous layer has since freed memory
        return load_layer(weights_, spec_, layer);
    }
}

LayerSteps LayerFeed::take(Index layer, Index next) {
    constexpr double room = 4;  // times the size of a layer: two layers, and the work on one
    LayerSteps steps = arrived(layer);
    const bool exists = next >= 0 && next < std::ssize(spec_.blocks);
    if (backend_.host_memory() || !exists || double(backend_.available()) < room * steps.bytes)
        return steps;
    coming_layer_ = next;
    coming_ = std::async(std::launch::async, [this, next] {
        LayerSteps found = load_layer(weights_, spec_, next);
        backend_.synchronise();  // for use by another thread
        return found;
    });
    return steps;
}

}  // namespace tsdiag::model
