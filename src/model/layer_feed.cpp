#include "layer_feed.hpp"

#include <cmath>
#include <string>

#include "tsdiag/error.hpp"

namespace tsdiag::model {

LayerWeights LayerFeed::arrived(Index layer) {
    if (coming_layer_ != layer) return load_layer(weights_, spec_, layer);
    coming_layer_ = -1;
    try {
        return coming_.get();
    } catch (const OutOfMemory&) {  // the previous layer has since freed memory
        return load_layer(weights_, spec_, layer);
    }
}

LayerWeights LayerFeed::take(Index layer, Index next) {
    constexpr double room = 4;  // times the size of a layer: two layers, and the work on one
    LayerWeights weights = arrived(layer);
    const bool exists = next >= 0 && next < std::ssize(spec_.blocks);
    if (backend_.host_memory() || !exists || double(backend_.available()) < room * weights.bytes)
        return weights;
    coming_layer_ = next;
    coming_ = std::async(std::launch::async, [this, next] {
        LayerWeights found = load_layer(weights_, spec_, next);
        backend_.synchronise();  // for use by another thread
        return found;
    });
    return weights;
}

}  // namespace tsdiag::model
